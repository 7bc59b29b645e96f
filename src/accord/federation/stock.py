"""The images of a study: its datasets and the allocations of its trials, each made once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from accord.core.errors import AccordError
from accord.data.allocation import Allocation, allocate, allocation_key
from accord.data.datasets import load
from accord.data.elsewhere import no_images
from accord.data.images import Dataset
from accord.data.locate import found_root
from accord.data.schemes import Scheme
from accord.data.settings import ELSEWHERE, DataConfig
from accord.federation.remarks import empty_classes
from accord.study.study import Trial


class Stock:
    """Datasets and allocations.

    `remembered` is the data root of each dataset in the record's earlier runs. `elsewhere`: clients
    on other machines can be asked. `roots` is the data root in which each dataset was found now.
    """

    def __init__(
        self,
        data_root: Path | None,
        remembered: Mapping[str, Path],
        tell: Callable[[str], None],
        *,
        elsewhere: bool,
    ) -> None:
        self.data_root, self.remembered, self.tell = data_root, remembered, tell
        self.elsewhere = elsewhere
        self.roots: dict[str, Path] = {}
        self._datasets: dict[str, Dataset] = {}
        self._deals: dict[str, Allocation] = {}

    def dataset(self, data: DataConfig, scheme: Scheme) -> Dataset:
        if data.name == ELSEWHERE:
            return no_images(data)
        key = f"{data.name} {data.path} {data.image} {scheme.reads_sites}"
        if key not in self._datasets:
            root = self._root(data)
            found = load(
                data.name,
                path=Path(data.path) if data.path else None,
                root=root,
                size=data.image.size,
                channels=data.image.channels,
                sites=scheme.reads_sites,
                tell=self.tell,
            )
            for remark in (*found.remarks, *empty_classes(found)):
                self.tell(f"{data.name}: {remark}")
            self._datasets[key] = found
            place = found_root(data.name, root) if data.path is None else None
            if place is not None:
                self.roots[data.name] = place
        return self._datasets[key]

    def _root(self, data: DataConfig) -> Path | None:
        """The given data root, else the remembered one if it still holds the dataset."""
        before = self.remembered.get(data.name)
        if self.data_root is not None or before is None or not before.is_dir():
            return self.data_root
        return before if found_root(data.name, before) else None

    def allocation(self, trial: Trial) -> tuple[str, Allocation]:
        """The trial's allocation and its key; all recipes of a seed share an allocation."""
        data, partition = trial.setup.data, trial.setup.partition
        if partition.elsewhere and not self.elsewhere:
            raise AccordError(
                "the clients of this study hold their own images on their own machines "
                "(partition.scheme: sites). Use `accord flower`, or exchange files with `accord "
                "brief`."
            )
        dataset = self.dataset(data, partition)
        key = allocation_key(dataset, data, partition, trial.seed)
        if key not in self._deals:
            self._deals[key] = allocate(dataset, data, partition, trial.seed)
        return key, self._deals[key]
