"""What a node does: it says its name, and it answers briefings with its own images.

The node's owner decides on its images, in the node's configuration:

name="north"            the client's name, as the server's study names it
data="/data/images"     its own images: a folder of class folders, an .npz or a parquet file
partition=true          instead of `data`: its part of the study's own dataset, for experiments
data-root="/data"       where that dataset is; path="/data/x" if the study gives a path
keep="/var/lib/accord"  its own files (default: ~/.local/state/accord)
device="cuda"           where it computes (default: CUDA if there is a GPU)
"""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from pydantic import Field

from accord.core.config import Config, keys, parse
from accord.core.errors import AccordError, ClientError
from accord.flower.letters import Letter

TELL_EVERY = 0.5  # seconds between two writes of the progress


class NodeConfig(Config):
    """The configuration of a node, as its owner gives it to `flower-supernode --node-config`."""

    name: str = Field(min_length=1)
    data: str | None = None
    partition: bool = False
    data_root: str | None = Field(None, alias="data-root")
    path: str | None = None
    keep: str | None = None
    device: str = "auto"


def say_name(message: Message, context: Context) -> Message:
    """The answer to the question for the client's name."""
    text = {"name": str(context.node_config.get("name", ""))}
    return Message(Letter(text).to_flower(), reply_to=message)


def answer(message: Message, context: Context) -> Message:
    """The answer to a briefing: uploads, or the reason why there are none."""
    from accord.core.versions import versions
    from accord.federation.remote import Answer
    from accord.federation.tasks.base import peak_memory

    try:
        letter = Letter.from_flower(message.content)
        uploads, seconds = _answered(letter, dict(context.node_config))
        told = Answer(versions=versions(), peak_memory=peak_memory(), seconds=seconds)
    except (AccordError, ClientError) as error:
        uploads, told = {}, Answer(versions=versions(), error=str(error))
    except Exception as error:  # the boundary of the node: its owner gets the whole story
        traceback.print_exc()
        said = f"{type(error).__name__}: {error} (its node's log has the traceback)"
        uploads, told = {}, Answer(versions=versions(), error=said)
    return Message(Letter(told.model_dump(mode="json"), uploads).to_flower(), reply_to=message)


def _answered(letter: Letter, given: dict[str, Any]) -> tuple[dict[str, bytes], dict[str, float]]:
    """Epoch → the upload of each checkpoint; epoch → its core time."""
    from accord.core.versions import versions
    from accord.federation.answering import precision_on
    from accord.federation.devices import check_device
    from accord.federation.remote import BRIEFING, Request, progress_file
    from accord.federation.site import Site, keep_root
    from accord.messages import Briefing, Upload

    node = parse(NodeConfig, {k: v for k, v in given.items() if k in keys(NodeConfig)}, "node")
    request = parse(Request, letter.text, "the server's request")
    own, asking = versions()["accord"], request.versions.get("accord")
    if own != asking:
        raise AccordError(f"its node has accord {own}, the server {asking}. Install the same one.")
    if request.client != node.name:
        raise AccordError(
            f"its node calls itself {node.name!r}; the server asks for {request.client!r}. Correct "
            "the name in --node-config, or that of the registered key."
        )
    check_device(node.device)
    briefing = Briefing.from_bytes(letter.parts.get(BRIEFING, b""), "the briefing")
    data = _images(node, request, briefing)
    keep = Path(node.keep) if node.keep else keep_root()
    progress = _Progress(progress_file(keep))
    site = Site(node.name, keep)
    paths = site.answer(
        briefing,
        data,
        progress.tell,
        precision=precision_on(node.device),
        remembers=request.remembers,
    )
    progress.end()
    uploads = {str(Upload.load(path).header.epoch): path.read_bytes() for path in paths}
    seconds = {str(epoch): spent for epoch, spent in site.seconds(briefing).items()}
    return uploads, seconds


def _images(node: NodeConfig, request: Any, briefing: Any) -> Any:
    """The node's own images, or its part of the dataset that the study names."""
    from accord.federation.answering import labelled_images

    if node.data is not None:
        return labelled_images(Path(node.data), briefing.header, print)
    if not node.partition:
        raise AccordError(
            'its node has no images: set data="/path/to/images" in --node-config, or, for an '
            "experiment on the study's own dataset, partition=true."
        )
    if request.share is None:
        raise AccordError(
            "its node shall use its part of the study's dataset (partition=true), but in this "
            'study the clients have images of their own. Set data="/path/to/images" instead.'
        )
    return _share(node, request.share)


def _share(node: NodeConfig, share: Any) -> Any:
    from accord.data.allocation import allocate
    from accord.data.datasets import load

    asked = share.data
    path = node.path or asked.path
    dataset = load(
        asked.name,
        path=Path(path) if path else None,
        root=Path(node.data_root) if node.data_root else None,
        size=asked.image.size,
        channels=asked.image.channels,
        sites=share.scheme.reads_sites,
        tell=print,
    )
    if dataset.folder.name != share.images:
        raise AccordError(
            f"its node has other images of {asked.name} than the server. Give both the same files."
        )
    allocation = allocate(dataset, asked, share.scheme, share.seed, share.shift, share.attack)
    if allocation.partition.hash != share.partition:
        raise AccordError(
            "its node partitions the images in another way than the server. Install the same "
            "versions of Accord and NumPy on both."
        )
    return allocation.client(allocation.partition.names.index(node.name))


class _Progress:
    """Writes the share that is done into a file, a few times per second."""

    def __init__(self, path: Path) -> None:
        self.path, self.last = path, 0.0

    def tell(self, news: dict[str, Any]) -> None:
        from accord.core.files import write_json

        if "share" in news and time.monotonic() - self.last > TELL_EVERY:
            self.last = time.monotonic()
            write_json(self.path, {"share": float(news["share"])})

    def end(self) -> None:
        self.path.unlink(missing_ok=True)
