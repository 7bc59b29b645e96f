"""A reader of parquet files of images in the format of the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from accord.core.errors import AccordError
from accord.core.reading import json_of, refuse_special
from accord.data.columns import as_text
from accord.data.decode import decode_all
from accord.data.formats import damaged
from accord.data.images import Labels
from accord.data.raw import Columns, Part, Raw, Request, as_labels, check_labels
from accord.data.room import refuse_without_room

_IMAGE_COLUMNS = ("image", "img")
_LABEL_COLUMNS = ("label", "fine_label", "labels")
MOST_ROWS = 50_000_000
AT_ONCE = 64  # rows in memory at a time; a file can repeat one large image in every row
_BROKEN = (
    *(pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError),
    *(OverflowError, MemoryError, RecursionError),
)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Errors of pyarrow about a file, as one sentence."""
    try:
        yield
    except _BROKEN as error:
        raise damaged(path, error) from None


def read(train: list[Path], test: list[Path], unused: list[Path], request: Request) -> Raw:
    if unused:
        request.tell(f"these files are not used: {', '.join(path.name for path in unused)}")
    names = {path: _class_names(path) for path in (*train, *test)}
    known = {found for found in names.values() if found is not None}
    if len(known) > 1:
        other = next(path for path in names if names[path] != names[train[0]])
        raise AccordError(
            f"{train[0]} and {other.name} hold different class names; they are not parts of one "
            "dataset. Put each dataset into a separate folder."
        )
    classes = known.pop() if known else None
    parts = [
        _part(files, what, classes, request)
        for files, what in ((train, "train"), (test, "test"))
        if files
    ]
    return Raw(parts[0], parts[1] if test else None, classes)


def _part(paths: list[Path], what: str, classes: tuple[str, ...] | None, request: Request) -> Part:
    tables = [_small_columns(path, classes or request.classes) for path in paths]
    labels = np.concatenate([labels for labels, _ in tables])
    encoded = (item for path in paths for item in _encoded(path))
    images, found = decode_all(encoded, len(labels), what, request)
    names = sorted({name for _, columns in tables for name in columns})
    for (_, columns), path in zip(tables, paths, strict=True):
        missing = [name for name in names if name not in columns]
        if missing:
            raise AccordError(
                f"{path}: column {missing[0]!r} is missing, but other files of {what} have it. Add "
                "the column to all files or to none."
            )
    joined = {name: np.concatenate([columns[name] for _, columns in tables]) for name in names}
    return Part(images, labels, found, joined)


def _open(path: Path) -> Any:
    with _reading(path):
        refuse_special(path)
        file = pq.ParquetFile(path)
        rows, names = file.metadata.num_rows, file.schema_arrow.names
    if not 0 <= rows <= MOST_ROWS or len(set(names)) < len(names):
        raise damaged(path, f"it has {rows:,} rows, or two columns with the same name")
    return file


def _column(path: Path, names: list[str], wanted: tuple[str, ...]) -> str:
    found = next((name for name in wanted if name in names), None)
    if found is None:
        raise AccordError(
            f"{path}: expected a column {' or '.join(map(repr, wanted))}; found "
            f"{', '.join(names) or 'none'}. Rename the column."
        )
    return found


def _small_columns(path: Path, classes: tuple[str, ...] | None) -> tuple[Labels, Columns]:
    """The labels, and every further column of text, numbers or dates as text."""
    file = _open(path)
    schema = file.schema_arrow
    label = _column(path, schema.names, _LABEL_COLUMNS)
    further = [f.name for f in schema if f.name != label and _is_small(f.type)]
    with _reading(path):
        _refuse_large(file, [label, *further], path)
        table = file.read(columns=[label, *further])
        table.validate(full=True)
    if table.num_rows == 0:
        raise AccordError(f"{path}: the file holds no images; expected at least one row.")
    if table[label].null_count:
        row = table[label].to_pylist().index(None)
        raise AccordError(f"{path}: row {row} has no label. Add the label or remove the row.")
    with _reading(path):
        values = table[label].to_numpy()
        columns = {name: _text(table[name]) for name in further}
    labels = as_labels(values, table.num_rows, path)
    check_labels(labels, classes, path)
    return labels, columns


def _refuse_large(file: Any, names: list[str], path: Path) -> None:
    """Refuses columns that need too much memory, according to the header of the file."""
    about = file.metadata
    groups = [about.row_group(group) for group in range(about.num_row_groups)]
    parts = [group.column(i) for group in groups for i in range(group.num_columns)]
    used = [part for part in parts if part.path_in_schema.split(".")[0] in names]
    refuse_without_room((sum(part.total_uncompressed_size for part in used),), 1, path)


def _text(column: Any) -> NDArray[np.str_]:
    if pa.types.is_floating(column.type):
        return as_text(column.to_numpy())
    return as_text(np.array([None, *column.to_pylist()], object)[1:])


def _is_small(kind: Any) -> bool:
    """Whether a column can name sites; other columns, such as bytes and lists, are not read."""
    types = pa.types
    if types.is_dictionary(kind):
        return _is_small(kind.value_type)
    texts = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(texts or numbers or types.is_boolean(kind) or types.is_temporal(kind))


def _encoded(path: Path) -> Iterator[tuple[str, bytes]]:
    """The name of each image for error messages, and its bytes, with a few rows in memory."""
    file = _open(path)
    name = _column(path, file.schema_arrow.names, _IMAGE_COLUMNS)
    row = 0
    with _reading(path):
        for batch in file.iter_batches(batch_size=AT_ONCE, columns=[name]):
            for value in batch.column(0).to_pylist():
                data = value.get("bytes") if isinstance(value, dict) else value
                if not isinstance(data, bytes):
                    raise AccordError(
                        f"{path}: row {row} holds no image bytes in column {name!r}; expected a "
                        "struct with `bytes`, as the Hugging Face hub writes it."
                    )
                yield f"{path}: row {row}", data
                row += 1


def _class_names(path: Path) -> tuple[str, ...] | None:
    """The class names in the metadata `huggingface` or `classes`; None if there are none."""
    schema = _open(path).schema_arrow
    metadata = schema.metadata or {}
    try:
        if b"classes" in metadata:
            return tuple(name.strip() for name in metadata[b"classes"].decode("utf-8").split(","))
        if b"huggingface" not in metadata:
            return None
        features = json_of(metadata[b"huggingface"])["info"]["features"]
        names = features[_column(path, schema.names, _LABEL_COLUMNS)].get("names")
        if not isinstance(names, list | None):
            raise TypeError(f"names: expected a list, found {names!r:.80}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, f"its class names cannot be read: {error!r}") from None
    return None if names is None else tuple(map(str, names))
