"""Export of a saved model to one ONNX file, for programs without Accord and PyTorch."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from accord.core.errors import AccordError
from accord.core.files import write_atomic
from accord.core.targets import refuse_file
from accord.fusion.base import Outputs
from accord.model.predictor import Predictor

NEEDED = ("onnx", "onnxscript", "onnxruntime")
INPUT = "RGB or grey, 0 to 1"  # in the file; by this entry it is known as one of ours
CLOSE = 1e-4  # the largest allowed difference between confidences of the file and of the model


class Whole(nn.Module):
    """Normalisation, nets and rule: images (N, C, H, W) in 0…1 → confidences (N, classes)."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: Predictor) -> None:
        super().__init__()
        header = model.header
        self.nets = nn.ModuleList(model.nets())
        self.combiner = model.combiner
        self.register_buffer("mean", torch.tensor(header.mean)[:, None, None])
        self.register_buffer("std", torch.tensor(header.std)[:, None, None])

    def forward(self, images: Tensor) -> Tensor:
        seen = (images - self.mean) / self.std
        votes = [self.combiner.vote(k, Outputs(*net(seen))) for k, net in enumerate(self.nets)]
        return self.combiner.decide(torch.stack(votes).sum(dim=0)).softmax(dim=1)


def export_onnx(model: Predictor, path: Path) -> float:
    """Writes `path` and returns the largest difference of its confidences to the model's."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise AccordError(
            f"export needs {', '.join(missing)}, which is not installed: "
            "pip install 'accord[onnx]'."
        )
    refuse_file(path, "--onnx", "was not written by accord export", is_export)
    header, whole = model.header, Whole(model).eval()
    shape = (2, header.channels, header.height, header.width)
    example = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    with _quiet_exporter(), torch.inference_mode():
        program = torch.onnx.export(
            whole,
            (example,),
            input_names=["images"],
            output_names=["confidences"],
            dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
            dynamo=True,
            verbose=False,
        )
    if program is None:
        raise RuntimeError("torch.onnx.export gave no program")
    proto = program.model_proto
    for key, value in (("classes", "\n".join(header.classes)), ("input", INPUT)):
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    content = io.BytesIO(proto.SerializeToString()).getvalue()
    difference = _difference(content, whole, shape)
    if difference > CLOSE:
        raise RuntimeError(
            f"the confidences of the exported file differ from the model's by up to "
            f"{difference:.2g}"
        )
    write_atomic(path, content)
    return difference


def is_export(path: Path) -> bool:
    """Whether a file was written by this module."""
    import onnx

    try:
        proto = onnx.load(path, load_external_data=False)
    except Exception:  # the errors of protobuf are of no type that is the same everywhere
        return False
    return {"input": INPUT}.items() <= {one.key: one.value for one in proto.metadata_props}.items()


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Hides the exporter's warnings of later versions and of packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _difference(content: bytes, whole: Whole, shape: tuple[int, ...]) -> float:
    """The largest difference of a confidence, over batches of one and of several images."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    worst = 0.0
    for count in (1, 5):
        images = torch.rand((count, *shape[1:]), generator=torch.Generator().manual_seed(count))
        (found,) = session.run(None, {"images": images.numpy()})
        with torch.inference_mode():
            expected = whole(images)
        worst = max(worst, float((torch.from_numpy(found) - expected).abs().max()))
    return worst
