"""The record: the run directory, with everything that a report or a resumed run needs.

RUN/study.yaml                   everything that was asked, with all defaults
RUN/data.json                    hashes of the content of the images, and where they were found
RUN/results.csv                  one row per trial × round × checkpoint × fusion
RUN/sites.csv                    one row per trial × round × checkpoint × fusion × site, if known
RUN/allocations/<key>.json, …    each client's images: split and partition, shared by recipes
RUN/teachers/<id>/               the server's own nets: a briefing, an upload, all public features
RUN/trials/<id>/                 one trial: see folders.py
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accord.core.config import keys
from accord.core.errors import AccordError
from accord.core.files import locked, read_json, write_atomic, write_json
from accord.core.partials import is_partial
from accord.core.reading import read_text
from accord.core.targets import found_at
from accord.core.text import cell
from accord.core.yamls import to_yaml, yaml_of
from accord.record.folders import TrialFolder, damaged, mapping
from accord.record.rows import COLUMNS, Row, rows_of
from accord.record.site_rows import SITE_COLUMNS, beside_references, site_rows_of
from accord.study.compatibility import HAVE_COLUMNS, joined
from accord.study.settings import Setup, grid_axes, result_axes

if TYPE_CHECKING:
    from accord.data.settings import DataConfig
    from accord.study.study import Study


MOST_STUDY = 16 * 2**20  # bytes of study.yaml, which has all values of every recipe
ROOTS = "roots"  # the key of data.json with the data root of each dataset


class Record:
    """A run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[tuple[str, str], tuple[object, list[Row]]] = {}

    def trial(self, name: str) -> TrialFolder:
        return TrialFolder(self.path / "trials" / name)

    def teacher(self, name: str) -> TrialFolder:
        return TrialFolder(self.path / "teachers" / name)

    def trials(self) -> list[TrialFolder]:
        folder = self.path / "trials"
        return [TrialFolder(path) for path in sorted(folder.iterdir())] if folder.is_dir() else []

    def trials_by_key(self) -> dict[str, TrialFolder]:
        """The key at the end of each trial's name → its folder.

        The readable part of a name can be older than a grid axis that was added to the study.
        """
        return {trial.id.rpartition("-")[2]: trial for trial in self.trials()}

    def axes_with(self, study: Study) -> tuple[str, ...]:
        """The grid axes of everything that this record was asked for, and of `study`."""
        return tuple(result_axes(self._asked_with(study)))

    def folder(self, name: str) -> TrialFolder:
        """The folder of a trial or a teacher, by its path in the record, such as `trials/NAME`."""
        return TrialFolder(self.path / name)

    def place(self, folder: TrialFolder) -> str:
        """The path of a folder in the record."""
        return folder.path.relative_to(self.path).as_posix()

    def allocation(self, key: str) -> Path:
        return self.path / "allocations" / f"{key}.json"

    def lock(self) -> AbstractContextManager[None]:
        """Allows one writing process at a time. The lock ends when its process ends."""
        return locked(
            self.path,
            f"{self.path} is being written by another process. Wait until it has ended, or use "
            "another folder for the record.",
        )

    def refuse_another(self, study: Study) -> None:
        """Refuses a folder that holds another study's record, or files that are no record."""
        if not self.path.exists():
            return
        if self._is_record():
            joined(self.asked(), study.resolved, self.path)
        elif not all(_is_beginning(path) for path in self.path.iterdir()):
            raise AccordError(
                f"{self.path} holds files but is not a run directory: it has no study.yaml with "
                "trials/. Choose another folder for the record."
            )

    def _is_record(self) -> bool:
        """Whether this is a run directory; a study.yaml without trials may be the user's file."""
        return (self.path / "study.yaml").exists() and (self.path / "trials").is_dir()

    def adopt(self, study: Study) -> None:
        """Adds `study` to what this record was asked for before."""
        asked = self._asked_with(study)
        (self.path / "trials").mkdir(exist_ok=True)
        write_atomic(self.path / "study.yaml", to_yaml(asked).encode())

    def _asked_with(self, study: Study) -> dict[str, Any]:
        if not self._is_record():
            return study.resolved
        return joined(self.asked(), study.resolved, self.path)

    def refuse_changed(self, study: Study, data: DataConfig, content: str) -> None:
        """Refuses images that have changed since the record was begun."""
        self._refuse_changed(*_images(data, self._asked_with(study)), content)

    def keep_data(self, data: DataConfig, content: str) -> None:
        """Stores the hash of the images, and refuses images that have changed."""
        self._keep(*_images(data, self.asked()), content)

    def keep_source(self, recipe: str, source: TrialFolder, content: str) -> None:
        """Stores the hash of the source of a recipe's bank, and refuses one that has changed."""
        self._keep(f"bank.source of {recipe}", f"the uploads in {source.path}", content)

    def keep_teacher(self, model: Path, content: str) -> None:
        """Stores the hash of a saved model that teaches, and refuses one that has changed."""
        self._keep(f"teacher.model {model}", f"the model in {model}", content)

    def roots(self) -> dict[str, Path]:
        """Dataset → the data root in which it was found, in the last run that needed it."""
        known = self._data().get(ROOTS, {}) if self._is_record() else {}
        found = mapping(known, self.path / "data.json")
        return {name: Path(str(root)) for name, root in found.items()}

    def keep_roots(self, roots: Mapping[str, Path]) -> None:
        """Stores where datasets were found, so that later commands find them again."""
        known = self._data()
        told = {**known.get(ROOTS, {}), **{name: str(root) for name, root in roots.items()}}
        if told and told != known.get(ROOTS):
            write_json(self.path / "data.json", {**known, ROOTS: told})

    def _data(self) -> dict[str, Any]:
        path = self.path / "data.json"
        return mapping(read_json(path), path) if path.exists() else {}

    def _keep(self, name: str, what: str, content: str) -> None:
        known = self._refuse_changed(name, what, content)
        write_json(self.path / "data.json", {**known, name: content})

    def _refuse_changed(self, name: str, what: str, content: str) -> dict[str, Any]:
        """The stored hashes. Raises AccordError if the one of `name` differs from `content`."""
        known = self._data()
        if known.get(name, content) != content:
            raise AccordError(
                f"{what} are not those this record was begun with. Restore the old ones, or "
                "run the study with another folder for its record."
            )
        return known

    def asked(self) -> dict[str, Any]:
        """Everything that this record was asked for so far, as one study."""
        path = self.path / "study.yaml"
        if not self._is_record():
            raise AccordError(
                f"{self.path} is not a run directory: it has no study.yaml with trials/. Name the "
                "folder of a run."
            )
        try:
            found = yaml_of(read_text(path, MOST_STUDY))
        except ValueError as error:
            raise damaged(path, str(error).rstrip(".")) from None
        if not isinstance(found, dict) or not isinstance(found.get("recipes"), list):
            raise damaged(path, "it is not a resolved study")
        if "rounds" not in found:
            raise AccordError(
                f"{self.path} was made by an earlier version of Accord, and this version cannot "
                "use it. Run the study again, with another folder for its record."
            )
        if not all(isinstance(found.get(section), dict) for section in keys(Setup)):
            raise damaged(path, "it is not a resolved study")
        return found

    def axes(self) -> list[str]:
        """The grid axes that have a column of their own in results.csv."""
        return [axis for axis in result_axes(self.asked()) if axis not in HAVE_COLUMNS]

    def rows(self, axes: Sequence[str] | None = None) -> list[Row]:
        """The rows of all trials, with a column for each of `axes`, by default this record's."""
        return self._read(rows_of, self.axes() if axes is None else axes)

    def site_rows(self) -> list[Row]:
        """The rows of all sites of all trials; empty if no site has held-out images."""
        return beside_references(self._read(site_rows_of, self.axes()))

    def _read(
        self, read: Callable[[TrialFolder, Sequence[str]], Iterator[Row]], axes: Sequence[str]
    ) -> list[Row]:
        """What `read` finds in all trials; it reads a trial again only if its files changed."""
        rows = []
        for trial in self.trials():
            key, state = (read.__name__, trial.id), (trial.state_of_files(), tuple(axes))
            if key not in self._known or self._known[key][0] != state:
                try:
                    self._known[key] = (state, list(read(trial, axes)))
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise damaged(trial.path / "measures.json or trial.json", error) from None
            rows += self._known[key][1]
        return rows

    def write_results(self) -> list[Row]:
        """Writes results.csv and sites.csv again, from the measures of all trials."""
        rows, sites = self.rows(), self.site_rows()
        write_atomic(self.path / "results.csv", _csv(rows, COLUMNS))
        if sites:
            write_atomic(self.path / "sites.csv", _csv(sites, SITE_COLUMNS))
        else:
            (self.path / "sites.csv").unlink(missing_ok=True)
        return rows


def _is_beginning(path: Path) -> bool:
    """Whether a run directory may hold this before its study is written there."""
    if path.name in (".lock", ".flower.lock"):
        return found_at(path) == "a file" and path.stat().st_size == 0
    if path.name == "trials":
        return found_at(path) == "a folder" and not any(path.iterdir())
    return path.name == "flower" or is_partial(path.name)  # Flower's folder is checked elsewhere


def _csv(rows: Sequence[Row], columns: Sequence[str]) -> bytes:
    """A table with a line of `columns`, followed by further columns that the rows have."""
    extra = [key for row in rows for key in row if key not in columns]
    text = io.StringIO()
    writer = csv.DictWriter(text, [*columns, *dict.fromkeys(extra)], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue().encode()


def _images(data: DataConfig, asked: dict[str, Any]) -> tuple[str, str]:
    """The key of the images in data.json, and their name in messages.

    A file may move, unless `data.path` is a grid axis: then each path has its own key.
    """
    source = data.path if "data.path" in grid_axes(asked) else data.name
    return f"{source} ({data.image})", f"the images of {data.path or data.name}"
