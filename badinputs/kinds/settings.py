"""Values in a study that are not what was meant, or that ask for more than any machine has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from badinputs.case import EITHER, REFUSED, Case

DRY = ("run", "study.yaml", "--dry-run", "--workers", "1", "--out", "out")
COUNTS = (
    "partition.clients",
    "budget.epochs",
    "budget.batch",
    "data.train_limit",
    "partition.min_samples",
    "budget.look_every",
    "rounds.count",
)
AMOUNTS = ("partition.alpha", "budget.lr", "budget.momentum", "data.validation", "data.public")
NEVER_A_COUNT = (
    "true", "yes", "1:30", "-1", "2.5", "1e999", ".nan", ".inf", "'3'", "three", "{}", "2026-01-01",
    "9" * 30, "9" * 5000, "1_000", "010", "[[1]]", "''", "1000000000000",
)  # fmt: skip
NEVER_AN_AMOUNT = (
    "true", "off", "1:30.5", "-0.5", "-.inf", ".nan", "'0.1'", "much", "{a: 1}", "1e999",
    "[[0.1]]", "''", "2026-01-01",
)  # fmt: skip
STRANGE = (
    "seeds=[]", "seeds=[0,0]", "seeds=[true]", "seeds=[-1]", "seeds=['a']", "seeds=[1.5]",
    "seeds=5", "seeds=[99999999999999999999]", "recipes=[]", "recipes=[fafi,fafi]",
    "recipes=[nothing]", "recipes=[3]", "recipes=[null]", "recipes=[{use: fafi, as: ''}]",
    "recipes=[{as: x}]", "recipes=[../../etc/passwd]", "recipes=[/dev/zero]", "recipes=[true]",
    "fusions=[ridge]", "fusions=[nothing]", "fusions=[{use: average, weights: heavy}]",
    "fusions=[3]", "fusions=[[average]]", "device={nobody: cpu}", "device={9: cpu}", "device=tpu",
    "device=''", "device=3", "data.name=nothing", "data.name=''", "data.name=3", "data.path=x",
    "data.classes=[0]", "data.classes=[0,0,1]", "data.classes=[99]", "data.classes=[none]",
    "data.image=0", "data.image=-3", "data.image=1000000", "data.image={size: 8, channels: 7}",
    "data.image=true", "net.backbone=vgg99", "net.backbone=[[]]", "net.norm=3",
    "budget.schedule=wild", "budget.milestones=[3]", "budget.checkpoints=[0]",
    "budget.checkpoints=[99]", "budget.checkpoints=[true]", "partition.scheme=none",
    "partition.scheme=by-column", "partition.scheme=by-folder", "partition.labels=99",
    "partition.names=[a,a]", "partition.leave_out=9", "partition.leave_out=true", "name=''",
    "name=../up", "name=/abs", "name=3", "name=[a]", "references=maybe", "references=1",
    "track=paper", "unknown=3", "budget.epocs=3", "=3", "a.b.c.d=1", "budget=3", "data=[]",
    "data.public=1", "data.validation=1", "partition.alpha=0", "budget.lr=0", "budget.clip=-1",
    "shift.rotation=1e9", "shift.labels=2", "rounds.fraction=0", "rounds.fraction=2",
    "teacher.model=nowhere", "mergenet.heads=7", "autocast=maybe", "keep_checkpoints=7",
    "budget.epochs=[1,true]", "partition.alpha=[0.5,0.5]", "name=\x1b[31mred",
    "recipes=['\x1b[2Jfafi']", "data.name=\u202edigits", "recipes=['[red]fafi[/red]']",
)  # fmt: skip
MAP = (
    "recipes: [{use: closed-form, map: {blocks: [{use: patches, size: 3, count: %d, grid: %d}]}}]\n"
)
MANY = [number / 10 for number in range(1, 1001)]
TOO_MUCH = (
    ("a million cells", f"seeds: {list(range(1000))}\npartition: {{alpha: {MANY}}}\n"),
    ("100,000 seeds", f"seeds: {list(range(100_000))}\n"),
    ("a billion clients", "partition: {clients: 1000000000}\n"),
    ("images of a million pixels", "data: {name: digits, image: 1000000}\n"),
    ("a map of 10⁹ features", MAP % (10**9, 2)),
    ("a map of a huge grid", MAP % (20, 100_000)),
    ("10¹² epochs", "budget: {epochs: 1000000000000}\n"),
    ("10⁹ rounds", "recipes: [fedavg]\nrounds: {count: 1000000000}\n"),
)
BASE = (
    "name: tiny\ndata: {name: digits, train_limit: 150, test_limit: 60}\n"
    "partition: {alpha: 0.5, clients: 3}\nnet: {backbone: conv4}\n"
    "budget: {epochs: 2, batch: 32}\nrecipes: [fafi]\nreferences: false\n"
)
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)
TEXTS = {
    "an alias bomb": BOMB,
    "an alias bomb of mappings": "a0: &a0 {x: 1}\n"
    + "".join(f"a{i}: &a{i} {{l: *a{i - 1}, r: *a{i - 1}}}\n" for i in range(1, 40)),
    "an alias to itself": "a: &a [*a]\n",
    "a merge of itself": "a: &a {<<: *a}\n",
    "2,000-deep lists": "a: " + "[" * 2000 + "]" * 2000 + "\n",
    "2,000-deep indentation": "".join(" " * i + "a:\n" for i in range(2000)),
    "two documents": BASE + "---\n" + BASE,
    "a Python object": "a: !!python/object/apply:os.system ['touch PWNED']\n",
    "an unknown tag": "a: !thing 3\n",
    "a repeated key": BASE + "name: again\n",
    "a list as a key": "? [1, 2]\n: 3\n",
    "tabs": "name:\ttiny\ndata:\n\tname: digits\n",
    "empty": "",
    "only a comment": "# nothing\n",
    "binary": "\0\1\2",
    "20 MB of text": "a: '" + "x" * 20_000_000 + "'\n",
    "a million keys": "".join(f"k{i}: 1\n" for i in range(300_000)),
    "a key of numbers": BASE + "3: 4\n",
    "a null key": BASE + "null: 4\n",
    "an integer of 5,000 digits": BASE + "seeds: [" + "9" * 5000 + "]\n",
    "a sexagesimal number": BASE.replace("epochs: 2", "epochs: 1:30"),
    "yes for a number": BASE.replace("clients: 3", "clients: yes"),
    "an octal number": BASE.replace("batch: 32", "batch: 040"),
    "a date as a name": BASE.replace("name: tiny", "name: 2026-01-01"),
    "a Latin-1 name": BASE.replace("tiny", "caf\udce9"),
    "a surrogate": BASE.replace("tiny", '"\\ud800"'),
}


def cases() -> Iterator[Case]:
    for keys, values in ((COUNTS, NEVER_A_COUNT), (AMOUNTS, NEVER_AN_AMOUNT)):
        for at, value in enumerate(values):
            for number, key in enumerate(keys):
                if (at + number) % 2 and value not in ("true", "1:30"):
                    continue  # half of the table, so that each value meets each second key
                yield _asked(f"{key}={value}")
    for word in STRANGE:
        yield _asked(word, EITHER if word in ALLOWED else REFUSED)
    for name, more in TOO_MUCH:
        yield Case("too much work", name, DRY, _study(_merged(more)))
    many = _merged("data: {name: digits, train_limit: 1000000000000}\n")
    yield Case("odd limit", "10¹² images", DRY, _study(many), codes=EITHER, says="train_limit")
    for name, content in TEXTS.items():
        codes = EITHER if name in MEANT else REFUSED
        yield Case("odd YAML", name, DRY, _study(content), codes=codes, keeps=("PWNED",))
    for name in ("odd.yaml", "none.yaml", "", ".", "/dev/zero", "/dev/stdin", "x" * 5000, "a\nb"):
        yield Case("no study", repr(name[:20]), ("run", name, "--dry-run"))


MEANT = ("a date as a name",)  # YAML 1.2 has no dates: this is a text

# Values that mean something else than an error, for a reason that the documentation gives.
ALLOWED = (
    "teacher.model=nowhere",  # a line says that the section has no effect
    "name=3",
    "partition.alpha=[0.5,0.5]",
    "data.path=x",
    "partition.labels=99",
    "name=\x1b[31mred",
)


def _asked(word: str, codes: frozenset[int] = REFUSED) -> Case:
    return Case(
        "odd setting", f"{word[:40]!r}", (*DRY[:2], word, *DRY[2:]), _study(BASE), codes=codes
    )


def _study(content: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / "study.yaml").write_bytes(content.encode("utf-8", "surrogateescape"))

    return prepare


def _merged(more: str) -> str:
    """The small study with some of its sections replaced."""
    replaced = {line.split(":")[0] for line in more.splitlines()}
    kept = [line for line in BASE.splitlines() if line.split(":")[0] not in replaced]
    return "\n".join(kept) + "\n" + more
