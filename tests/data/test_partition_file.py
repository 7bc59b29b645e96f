"""A partition's hash, and the file that keeps it: whole, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from accord.core.errors import AccordError
from accord.data.images import Labels
from accord.data.partition import Partition, load, make_partition, save
from accord.data.schemes import make_scheme

Columns = dict[str, NDArray[np.str_]]


def balanced(classes: int, each: int) -> Labels:
    return np.repeat(np.arange(classes), each)


def make(
    given: Labels, /, seed: int = 0, columns: Columns | None = None, **values: Any
) -> Partition:
    return make_partition(given, int(given.max()) + 1, make_scheme(values), seed, columns or {})


class TestHash:
    def test_it_knows_the_partition_and_nothing_else(self) -> None:
        labels = balanced(4, 25)
        base = make(labels, alpha=0.5)
        assert make(labels, alpha=0.5, min_samples=2).hash == base.hash  # same draw
        assert make(labels, seed=1, alpha=0.5).hash != base.hash
        assert make(labels, alpha=0.6).hash != base.hash
        parts = base.indices
        renamed = Partition(parts, ("a",) * 5, base.label_counts + 1, False)
        assert renamed.hash == base.hash

    def test_it_knows_who_holds_what(self) -> None:
        counts = np.zeros((2, 1), dtype=np.int64)

        def digest(*parts: list[int]) -> str:
            arrays = tuple(np.array(part, dtype=np.int64) for part in parts)
            return Partition(arrays, ("0", "1"), counts, True).hash

        found = {digest([0, 1], [2]), digest([0], [1, 2]), digest([2], [0, 1]), digest([0, 1, 2])}
        assert len(found) == 4


class TestFile:
    def partition(self) -> Partition:
        columns = {"site": np.array(["bath", "ely", "bath", "york"])}
        return make(np.array([0, 1, 1, 0]), columns=columns, scheme="by-column", column="site")

    def test_saved_and_loaded_is_the_same(self, tmp_path: Path) -> None:
        for first in (self.partition(), make(balanced(3, 20), scheme="dirichlet-overlap")):
            path = tmp_path / "partition.safetensors"
            save(first, path)
            again = load(path)
            assert again.hash == first.hash
            assert again.names == first.names
            assert again.disjoint is first.disjoint
            np.testing.assert_array_equal(again.label_counts, first.label_counts)
            assert [path.name for path in tmp_path.iterdir()] == ["partition.safetensors"]

    def test_any_damaged_byte_is_noticed_or_harmless(self, tmp_path: Path) -> None:
        path, first = tmp_path / "partition.safetensors", self.partition()
        save(first, path)
        whole, noticed = path.read_bytes(), 0
        for place in range(len(whole)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            try:
                again = load(path)
            except AccordError:
                noticed += 1
            else:  # for example a space that pads the header
                assert (again.hash, again.names) == (first.hash, first.names)
                np.testing.assert_array_equal(again.label_counts, first.label_counts)
        assert noticed > 0.9 * len(whole)

    def test_half_a_file_an_empty_one_and_none(self, tmp_path: Path) -> None:
        path = tmp_path / "partition.safetensors"
        with pytest.raises(AccordError, match="found no file"):
            load(path)
        save(self.partition(), path)
        for content in (path.read_bytes()[:-9], b"", b"not safetensors at all"):
            path.write_bytes(content)
            with pytest.raises(AccordError, match=f"{path.name}, found a damaged file"):
                load(path)
