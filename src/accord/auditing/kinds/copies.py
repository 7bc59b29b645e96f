"""Two uploads that are nearly the same."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from accord.auditing.kinds.base import Case, Kind, kinds
from accord.auditing.sign import Sign
from accord.core.names import shown
from accord.core.randomness import torch_generator
from accord.messages import NET, Upload
from accord.messages.upload import COUNTED

SAMPLE = 4_096  # numbers of an upload that are compared
NEAR = 0.05  # × the median distance of two clients, and × their own size


@kinds.register("copies")
class Copies(Kind):
    """‖a − b‖ of what two clients added of their own, against other pairs and against ‖a‖, ‖b‖.

    For nets it is the change of the weights. For sums it is the difference of the class sums from
    what the client's counts and the class means of all clients give; clients that hold the same
    classes have similar sums, but such differences are their own. A random sample of up to 4,096
    numbers is compared, the same at all clients.
    """

    name = "copies"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.sums = case.briefing.header.uploads == "sums"
        self.rows: dict[str, Tensor] = {}
        self.counts: list[Tensor] = []

    def see(self, upload: Upload) -> None:
        t, client = upload.tensors, upload.header.client
        if self.sums:
            sums, self.counts = t["feature_sums"], [*self.counts, t["label_counts"].double()]
            self.rows[client] = sums[:, _sample(sums.shape[1], SAMPLE // len(sums))].double()
            return
        start = self.case.briefing.tensors
        names = sorted(n for n in t if n.startswith(NET) and not n.endswith(COUNTED))
        change = torch.cat([(t[name] - start[name]).flatten() for name in names])
        self.rows[client] = change[_sample(len(change), SAMPLE)].double()

    def judge(self) -> Iterable[Sign]:
        names = list(self.rows)
        if len(names) < 3:
            return  # one pair cannot be compared with another one
        rows = self._own()
        apart, sizes = torch.cdist(rows, rows), rows.norm(dim=1)
        usual = apart[~torch.eye(len(names), dtype=torch.bool)].median()
        apart.fill_diagonal_(torch.inf)
        smaller = torch.minimum(sizes, sizes[:, None])
        ratios = torch.maximum(apart / usual.clamp(min=1e-30), apart / smaller.clamp(min=1e-30))
        for place, name in enumerate(names):
            ratio, other = ratios[place].min(dim=0)
            yield Sign(
                name,
                self.name,
                min(NEAR / max(ratio.item(), 1e-6), 10.0),
                f"the uploads of clients {shown(name)} and {shown(names[int(other)])} differ by "
                f"{ratio.item():.2g} of what two clients usually differ by",
            )

    def _own(self) -> Tensor:
        """(K, M): what each client added of its own."""
        rows = torch.stack(list(self.rows.values()))
        if not self.sums:
            return rows
        counts = torch.stack(self.counts)
        means = rows.sum(dim=0) / counts.sum(dim=0).clamp(min=1)[:, None]
        return (rows - counts[:, :, None] * means).flatten(1)


def _sample(length: int, most: int) -> Tensor:
    """Positions of up to `most` of `length` numbers, always the same."""
    draws = torch_generator(0, "audit-copies", length)
    return torch.randperm(length, generator=draws)[: max(most, 1)]
