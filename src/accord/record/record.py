"""The record: the run directory, with everything a report, a resume or a stranger needs.

RUN/study.yaml                   all that was asked, resolved
RUN/data.json                    which images: a hash of their content
RUN/results.csv                  one row per trial × round × checkpoint × fusion
RUN/allocations/<key>.json, …    who holds which images: split and partition, shared by recipes
RUN/teachers/<id>/               the server's own nets: a briefing, an upload, all public features
RUN/trials/<id>/                 one trial: see folders.py
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from filelock import FileLock, Timeout

from accord.core.config import keys
from accord.core.errors import AccordError
from accord.core.files import read_json, write_atomic, write_json
from accord.core.yamls import to_yaml
from accord.record.folders import TrialFolder, damaged, mapping
from accord.record.rows import COLUMNS, Row, rows_of
from accord.study.compatibility import HAVE_COLUMNS, joined
from accord.study.settings import Setup, grid_axes

if TYPE_CHECKING:
    from accord.data.settings import DataConfig
    from accord.study.study import Study


class Record:
    """A run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, tuple[object, list[Row]]] = {}

    def trial(self, name: str) -> TrialFolder:
        return TrialFolder(self.path / "trials" / name)

    def teacher(self, name: str) -> TrialFolder:
        return TrialFolder(self.path / "teachers" / name)

    def trials(self) -> list[TrialFolder]:
        folder = self.path / "trials"
        return [TrialFolder(path) for path in sorted(folder.iterdir())] if folder.is_dir() else []

    def folder(self, name: str) -> TrialFolder:
        """A trial's or a teacher's folder by its place in the record, such as `trials/NAME`."""
        return TrialFolder(self.path / name)

    def place(self, folder: TrialFolder) -> str:
        """Where a folder stands in the record."""
        return folder.path.relative_to(self.path).as_posix()

    def allocation(self, key: str) -> Path:
        return self.path / "allocations" / f"{key}.json"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One writer at a time; the lock goes with its process, however that ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise AccordError(
                f"{self.path} is being written by another process. Wait for it, or choose "
                "another folder with --out."
            ) from None
        try:
            yield
        finally:
            lock.release()

    def refuse_another(self, study: Study) -> None:
        """A folder that holds another study's record, or no record at all, is left alone."""
        if not self.path.exists():
            return
        if self._is_record():
            joined(self.asked(), study.resolved, self.path)
        elif any(path.name not in (".lock", "trials") for path in self.path.iterdir()):
            raise AccordError(
                f"{self.path} holds files but is not a run directory: a study.yaml and trials/ "
                "belong there. Choose another folder with --out."
            )

    def _is_record(self) -> bool:
        """A study.yaml alone may be a file of the user's own."""
        return (self.path / "study.yaml").exists() and (self.path / "trials").is_dir()

    def adopt(self, study: Study) -> None:
        """Makes this the record of `study`, besides all that was asked of it before."""
        asked = self._asked_with(study)
        (self.path / "trials").mkdir(exist_ok=True)
        write_atomic(self.path / "study.yaml", to_yaml(asked).encode())

    def _asked_with(self, study: Study) -> dict[str, Any]:
        if not self._is_record():
            return study.resolved
        return joined(self.asked(), study.resolved, self.path)

    def refuse_changed(self, study: Study, data: DataConfig, content: str) -> None:
        """Refuses images that changed since the record was begun: results would mix them."""
        self._refuse_changed(*_images(data, self._asked_with(study)), content)

    def keep_data(self, data: DataConfig, content: str) -> None:
        """Remembers which images these are."""
        self._keep(*_images(data, self.asked()), content)

    def keep_source(self, recipe: str, source: TrialFolder, content: str) -> None:
        """Refuses an earlier trial, behind a recipe's bank, that is no longer what it was."""
        self._keep(f"bank.source of {recipe}", f"the uploads in {source.path}", content)

    def _keep(self, name: str, what: str, content: str) -> None:
        known = self._refuse_changed(name, what, content)
        write_json(self.path / "data.json", {**known, name: content})

    def _refuse_changed(self, name: str, what: str, content: str) -> dict[str, Any]:
        """All that is known of images and sources, if this is not among them as another one."""
        path = self.path / "data.json"
        known = mapping(read_json(path), path) if path.exists() else {}
        if known.get(name, content) != content:
            raise AccordError(
                f"{what} are not those this record was begun with. Put those back, or run into "
                "another folder with --out."
            )
        return known

    def asked(self) -> dict[str, Any]:
        """All that was ever asked of this record, as one study."""
        path = self.path / "study.yaml"
        if not self._is_record():
            raise AccordError(f"{self.path} is not a run directory: no study.yaml with trials.")
        try:
            found = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise damaged(path, " ".join(str(error).split())) from None
        if not isinstance(found, dict) or not isinstance(found.get("recipes"), list):
            raise damaged(path, "it is not a resolved study")
        if "rounds" not in found:
            raise AccordError(
                f"{self.path} was made by an earlier version of Accord, whose records this one "
                "cannot continue. Run into another folder with --out."
            )
        if not all(isinstance(found.get(section), dict) for section in keys(Setup)):
            raise damaged(path, "it is not a resolved study")
        return found

    def rows(self) -> list[Row]:
        """All trials' rows; a trial whose files have not changed is not read again."""
        axes = [axis for axis in grid_axes(self.asked()) if axis not in HAVE_COLUMNS]
        rows = []
        for trial in self.trials():
            state = (trial.state_of_files(), tuple(axes))
            if trial.id not in self._known or self._known[trial.id][0] != state:
                try:
                    self._known[trial.id] = (state, list(rows_of(trial, axes)))
                except (KeyError, TypeError, AttributeError) as error:
                    raise damaged(trial.path / "measures.json or trial.json", error) from None
            rows += self._known[trial.id][1]
        return rows

    def write_results(self) -> list[Row]:
        """results.csv, made anew from every trial's measures."""
        rows = self.rows()
        extra = [key for row in rows for key in row if key not in COLUMNS]
        text = io.StringIO()
        writer = csv.DictWriter(text, [*COLUMNS, *dict.fromkeys(extra)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomic(self.path / "results.csv", text.getvalue().encode())
        return rows


def _images(data: DataConfig, asked: dict[str, Any]) -> tuple[str, str]:
    """A name in data.json, and what people call it.

    A file may move, unless paths are an axis of the grid: then each path is a source.
    """
    source = data.path if "data.path" in grid_axes(asked) else data.name
    return f"{source} ({data.image})", f"the images of {data.path or data.name}"
