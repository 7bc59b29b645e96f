"""A trial's uploads on disk, loaded one at a time and checked before use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from accord.core.errors import AccordError
from accord.fusion.base import Summary
from accord.messages import NET, Briefing, Upload

LARGE = (NET + "encoder.", "scatter")


class UploadFiles:
    """The uploads at `paths`, in the order of the clients.

    What a client sent is checked; `own` files are nets that this server merged itself.
    """

    def __init__(
        self, paths: Sequence[str | Path], briefing: Briefing, *, own: bool = False
    ) -> None:
        self.paths = [Path(path) for path in paths]
        self.briefing = briefing
        self.own = own

    def __len__(self) -> int:
        return len(self.paths)

    def load(self, index: int) -> Upload:
        path = self.paths[index]
        upload = Upload.load(path)
        if not self.own:
            upload.check(self.briefing, str(path))
            self._check_client(upload, path)
        return upload

    def _check_client(self, upload: Upload, path: Path) -> None:
        """A file says whose it is; another client's in its place would count twice."""
        named = path.stem.removeprefix("client-").partition("@")[0]
        if path.stem.startswith("client-") and upload.header.client != named:
            raise AccordError(
                f"{path}: expected the upload of client {named}, found that of client "
                f"{upload.header.client}."
            )

    @cached_property
    def _summaries(self) -> list[Summary]:
        found = []
        for index in range(len(self)):
            upload = self.load(index)
            small = {k: v for k, v in upload.tensors.items() if not k.startswith(LARGE)}
            found.append(Summary(upload.header, small))
        return found

    def summaries(self) -> list[Summary]:
        """All but the encoders' weights, which would not fit in memory for many clients."""
        return self._summaries
