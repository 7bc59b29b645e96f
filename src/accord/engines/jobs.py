"""What workers do: train a client, encode public images, merge uploads, measure test images.

A job is plain JSON that names files; what it makes is files and a small JSON answer. So a job
gives the same result in this process, in a worker, and when it is done again after a crash.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil
import torch

from accord.client import Precision, Training
from accord.data.deal import Deal, open_deal
from accord.data.imageset import ImageSet
from accord.errors import AccordError, ClientError
from accord.evaluate import measure_block, merged_files
from accord.fusion.base import Merge, Scene, fusions
from accord.maps import MapConfig, Origins, draw_map
from accord.messages import (
    MAP,
    Briefing,
    Features,
    FeaturesHeader,
    MapHeader,
    MapValues,
    State,
    Upload,
    unprefixed,
)
from accord.parts import make_part
from accord.registry import Registry
from accord.summing import Summing
from accord.sums import Sums
from accord.teacher import encode
from accord.totals import changed, total_of
from accord.uploads import UploadFiles

Args = dict[str, Any]
Tell = Callable[[Args], None]
SAVE_EVERY = 10.0  # seconds between two saved states, when no checkpoint asks for one
TELL_EVERY = 0.2  # seconds between two signs of life within an epoch


@dataclass(frozen=True)
class Job:
    """`kind` names a function below, `args` is its input, `size` its work in images."""

    kind: str
    args: Args
    size: float


kinds: Registry[Callable[[Args, Tell], Args]] = Registry("job")


@contextmanager
def one_thread() -> Iterator[None]:
    """A result must not depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def perform(kind: str, args: Args, tell: Tell) -> Args:
    """Does a job in this process."""
    try:
        with one_thread():
            answer = kinds.get(kind)(args, tell)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise _too_large(args, error) from None
    except RuntimeError as error:
        if "not enough memory" in str(error) or "can't allocate memory" in str(error):
            raise _too_large(args, error) from None
        raise
    return {**answer, "peak_memory": peak_memory()}


def peak_memory() -> int:
    """The most memory this process has held, in bytes."""
    memory = psutil.Process().memory_info()
    return int(getattr(memory, "peak_wset", 0) or _peak_of_unix())


def _peak_of_unix() -> int:
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@lru_cache(maxsize=2)
def _briefing(path: str) -> Briefing:
    return Briefing.load(Path(path))


@lru_cache(maxsize=4)
def _deal(path: str) -> Deal:
    return open_deal(Path(path))


@kinds.register("train")
def train_client(args: Args, tell: Tell) -> Args:
    """Trains one client, or the teacher, to the end, from where a former run left it."""
    briefing, state_path = _briefing(args["briefing"]), Path(args["state"])
    deal, index = _deal(args["deal"]), args["index"]
    data = deal.part("public") if index is None else deal.client(index)
    if briefing.header.net.map is not None:
        return _sum_up(data, briefing, args, tell)
    precision = Precision(torch.device(args["device"]), args["autocast"], args["compile"])
    training = Training(data, briefing, args["client"], precision)
    state = _usable_state(state_path, briefing, args["uploads"])
    if state:
        training.restore(state)
        for event in training.telemetry:
            tell({"event": event, "restored": True})
    saved = time.monotonic()
    while not training.done:
        event = training.run_epoch(_throttled(training, tell))
        tell({"event": event})
        if training.at_checkpoint:
            training.upload().save(Path(args["uploads"][str(training.epoch)]))
        late = time.monotonic() - saved > SAVE_EVERY
        if not training.done and (training.at_checkpoint or late):
            training.state().save(state_path)
            saved = time.monotonic()
    state_path.unlink(missing_ok=True)
    return {}


def _sum_up(data: ImageSet, briefing: Briefing, args: Args, tell: Tell) -> Args:
    """A client with fixed features looks at its images once."""
    client = Summing(data, briefing, args["client"], torch.device(args["device"]))
    event = client.run(lambda share: tell({"share": share}))
    tell({"event": event})
    client.upload(event).save(Path(args["uploads"]["1"]))
    return {}


def _usable_state(path: Path, briefing: Briefing, uploads: dict[str, str]) -> State | None:
    """A state saves time and nothing else: one that is damaged or does not fit is passed over."""
    try:
        state = State.load(path)
    except AccordError:
        return None
    passed = [Path(to) for epoch, to in uploads.items() if int(epoch) <= state.header.epoch]
    fits = state.header.briefing == briefing.digest and all(to.exists() for to in passed)
    return state if fits else None


def _throttled(training: Training, tell: Tell) -> Callable[[float], None]:
    """Passes on the share of training that is done, a few times a second at most."""
    last = time.monotonic()

    def tell_share(share: float) -> None:
        nonlocal last
        if time.monotonic() - last > TELL_EVERY:
            last = time.monotonic()
            tell({"share": (training.epoch + share) / training.budget.epochs})

    return tell_share


@kinds.register("encode")
def encode_public(args: Args, tell: Tell) -> Args:  # noqa: ARG001 - quick
    """Every public image as a unit feature, through a teacher's or an earlier trial's nets."""
    files = UploadFiles(args["files"], _briefing(args["briefing"]))
    rows = encode(files, _deal(args["deal"]).part("public"), args["device"])
    if not bool(torch.isfinite(rows.features).all()):
        raise ClientError(
            "its features of the public images are NaN or infinite. Lower budget.lr, or choose "
            "another bank.source."
        )
    header = FeaturesHeader(briefing=files.briefing.digest)
    Features(header, {"features": rows.features, "labels": rows.labels}).save(Path(args["to"]))
    return {}


@kinds.register("draw")
def draw_values(args: Args, tell: Tell) -> Args:  # noqa: ARG001 - a minute at most
    """The values of a map, from the seed, the public images and the teachers."""
    deal, config = _deal(args["deal"]), MapConfig.model_validate(args["map"])
    teachers = tuple(unprefixed(MAP, Upload.load(Path(one)).tensors) for one in args["teachers"])
    dataset = deal.dataset
    origins = Origins(args["seed"], deal.part("public"), dataset.mean, dataset.std, teachers)
    values = draw_map(config, dataset.train.images.shape[3], origins)
    MapValues(MapHeader(map=args["map"]), values).save(Path(args["to"]))
    return {}


@kinds.register("merge")
def merge_uploads(args: Args, tell: Tell) -> Args:
    """Makes other nets of all uploads and stores them as if they were clients'."""
    rule = make_part(fusions, args["fusion"], "fusion")
    if not isinstance(rule, Merge):
        raise TypeError(f"{args['fusion']} merges nothing")
    briefing = _briefing(args["briefing"])
    scene = Scene(
        uploads=UploadFiles(args["files"], briefing),
        briefing=briefing,
        public=_deal(args["deal"]).part("public"),
        device=torch.device(args["device"]),
        tell=lambda share: tell({"share": share}),
        total=_total(args, briefing) if rule.of == "sums" else None,
    )
    events: list[Args] = []
    for upload, path in zip(rule.merge(scene), args["to"], strict=True):
        upload.save(Path(path))
        events += upload.header.telemetry
    return {"events": events}


def _total(args: Args, briefing: Briefing) -> Sums:
    """The clients' sums, with those who came and without those who went."""
    keep = Path(args["total"]) if args["total"] else None
    kept = total_of(UploadFiles(args["files"], briefing), keep)
    come, gone = (map(Path, args[key]) for key in ("come", "gone"))
    return changed(kept, briefing, come, gone)


@kinds.register("measure")
def measure_images(args: Args, tell: Tell) -> Args:
    """Every fusion and every client on one block of images; answers in tallies."""
    briefing = _briefing(args["briefing"])
    images = _deal(args["deal"]).part(args["part"]).slice(args["start"], args["stop"])
    clients = UploadFiles(args["files"], briefing)
    merged = {
        name: (spec, merged_files(spec, paths, briefing))
        for name, (spec, paths) in args["merged"].items()
    }

    def told(share: float) -> None:
        tell({"share": share})

    return measure_block(images, clients, args["votes"], merged, args["device"], told)


def _too_large(args: Args, error: BaseException) -> ClientError:
    said = (str(error).splitlines() or [type(error).__name__])[0]
    briefing = _briefing(args["briefing"]).header if "briefing" in args else None
    if briefing is None or briefing.net.map is not None:
        return ClientError(
            f"out of memory ({said}). Make map.landmarks, or the blocks' count or grid, smaller."
        )
    return ClientError(
        f"out of memory ({said}). Make budget.batch (now "
        f"{briefing.budget['batch']}) smaller, or choose a smaller net.backbone than "
        f"{briefing.net.backbone}."
    )
