"""Command lines that name what does not exist, what cannot be, or what has no effect."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from badinputs.case import Case
from badinputs.kinds.options import NEEDS

LINES = """
run
run a b
nothing
--nothing
run study.yaml --workers 0
run study.yaml --workers -1
run study.yaml --workers many
run study.yaml --workers 100000
run study.yaml --data-root /nowhere data.name=cifar10
run study.yaml --cluster nowhere
run study.yaml --cluster tcp://127.0.0.1:1
results nowhere
results study.yaml
results images
results /
results /dev/zero
results ''
dials run nothing
dials run --trial nothing
dials run ''
compare run --baseline nothing
compare run --baseline :
compare run --baseline ''
compare run --baseline fafi@nowhere
compare run --baseline fafi --threshold nan
compare run --baseline fafi --threshold inf
compare run --baseline fafi --threshold 101
compare run --baseline fafi --threshold -1
report nowhere
report run --markdown --latex
report run --trial x
report run --baseline nothing
diagnose nowhere
diagnose run --trial x
watch nowhere --once
watch run --every 0
watch run --every nan
watch run --every -1
fuse nowhere --fusion average
fuse run
fuse run --fusion nothing
fuse run --fusion ''
fuse run --fusion '{use: average, weights: heavy}'
fuse run --fusion '[1]'
fuse run --fusion '{'
fuse run --fusion '&a [*a]'
fuse run --fusion ridge
fuse run --fusion average --without nobody
fuse run --fusion average --without 0 --without 1 --without 2
fuse run --fusion average --trial nothing
fuse run --fusion average --add nowhere
fuse run --fusion average --add study.yaml
fuse run --fusion average --remove nobody
fuse run --fusion average --clients 0
fuse run --fusion average --test images
fuse run --fusion average --next n.safetensors
predict nowhere one.png
predict model nowhere.png
predict model study.yaml
predict model /dev/zero
predict run one.png
predict one.png model
predict model ''
predict '' one.png
export nowhere --onnx x.onnx
export model
export run --onnx x.onnx
show nowhere
show study.yaml
show run
show /dev/zero
brief nowhere --out b
brief study.yaml
brief study.yaml --out b --from run
brief study.yaml --out b --from x
brief study.yaml 'seeds=[0,1]' --out b
answer nowhere images --name a --out u
answer briefing.safetensors nowhere --name a --out u
answer briefing.safetensors one.png --name a --out u
answer briefing.safetensors images --name a --out u --device tpu
answer briefing.safetensors images --name a --out u --device cuda:99
advise
advise nowhere
advise --data nowhere
advise --data /dev/zero
advise study.yaml --exchanges 0
advise study.yaml --megabytes -1
advise study.yaml --megabytes nan
advise study.yaml --public 2
advise study.yaml --public nan
advise --data images --clients 0
advise --data images --clients 1000000000
advise --data images --image -1
advise --data images --column nothing
advise --data images --image 1000000
teacher nowhere --save t
teacher study.yaml
teacher study.yaml --save t --epochs 0
teacher study.yaml --save t --backbone nothing
teacher study.yaml --save t --seed -1
teacher study.yaml --save t --on everything
recipes nothing
recipes ../x
data --download nothing
flower nothing
flower local nowhere
flower app nowhere
flower keys
"""
UNPRINTABLE = (
    ("run", "study.yaml", "--workers", "9" * 5000),
    ("results", "\x1b[31mred"),
    ("results", "caf\udce9"),
    ("recipes", "\x1b[31m"),
)


def cases() -> Iterator[Case]:
    lines = [tuple(shlex.split(line)) for line in LINES.splitlines() if line]
    for words in (*lines, *UNPRINTABLE):
        yield Case("odd options", "", words, needs=NEEDS)
