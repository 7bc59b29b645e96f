"""A trial's uploads on disk, which are loaded one at a time and checked before use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from accord.checks import Check, check_file, check_upload
from accord.core.errors import AccordError
from accord.core.names import file_name, shown
from accord.fusion.base import Summary
from accord.messages import NET, Briefing, Upload

LARGE = (NET + "encoder.", "scatter")


class UploadFiles:
    """The uploads at `paths`, in the order of the clients.

    `check` is called with every upload of a client. Files with `own` set are nets that this server
    merged itself, and they are not checked.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        briefing: Briefing,
        *,
        own: bool = False,
        check: Check = check_upload,
    ) -> None:
        self.paths = [Path(path) for path in paths]
        self.briefing = briefing
        self.own, self.check = own, check

    def __len__(self) -> int:
        return len(self.paths)

    def load(self, index: int) -> Upload:
        path = self.paths[index]
        upload = Upload.load(path)
        if not self.own:
            check_file(upload, self.briefing, path, self.check)
            self._check_client(upload, path)
        return upload

    def _check_client(self, upload: Upload, path: Path) -> None:
        """Refuses a file of a record that holds another client's upload: it would count twice."""
        if path.parent.name != "uploads" or not path.stem.startswith("client-"):
            return  # a file that a client has sent may have any name
        named = path.stem.removeprefix("client-").partition("@")[0]
        if file_name(upload.header.client) != named:
            raise AccordError(
                f"{path}: expected the upload of client {named}, found that of client "
                f"{shown(upload.header.client)}."
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
        """All uploads without the encoders' weights, which are too large for many clients."""
        return self._summaries
