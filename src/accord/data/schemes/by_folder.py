"""A natural federation: the files of each client are in a folder, or in a file, of its own."""

from __future__ import annotations

from accord.data.images import SITE
from accord.data.schemes.base import register
from accord.data.schemes.by_column import Natural


@register("by-folder")
class ByFolder(Natural):
    """One client per folder of the data (or per .npz or parquet file), in natural order."""

    @property
    def named_by(self) -> str:
        return SITE

    @property
    def reads_sites(self) -> bool:
        return True
