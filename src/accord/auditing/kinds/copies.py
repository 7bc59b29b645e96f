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
NEAR = 0.1  # × the median distance of two clients: honest clients are never so near


@kinds.register("copies")
class Copies(Kind):
    """‖a − b‖ of two clients' changes of weights, or class sums, against that of other pairs.

    A random sample of up to 4,096 numbers of each upload is compared, the same at all clients.
    """

    name = "copies"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.rows: dict[str, Tensor] = {}

    def see(self, upload: Upload) -> None:
        self.rows[upload.header.client] = self._sampled(self._numbers(upload))

    def _numbers(self, upload: Upload) -> Tensor:
        if self.case.briefing.header.uploads == "sums":
            return upload.tensors["feature_sums"].flatten()
        start = self.case.briefing.tensors
        names = sorted(n for n in upload.tensors if n.startswith(NET) and not n.endswith(COUNTED))
        return torch.cat([(upload.tensors[n] - start[n]).flatten() for n in names])

    def _sampled(self, numbers: Tensor) -> Tensor:
        count = min(SAMPLE, len(numbers))
        draws = torch_generator(0, "audit-copies", len(numbers))
        return numbers[torch.randperm(len(numbers), generator=draws)[:count]].double()

    def judge(self) -> Iterable[Sign]:
        names = list(self.rows)
        if len(names) < 3:
            return  # one pair cannot be compared with another one
        rows = torch.stack(list(self.rows.values()))
        apart = torch.cdist(rows, rows)
        others = apart[~torch.eye(len(names), dtype=torch.bool)]
        usual = others.median().item()
        apart.fill_diagonal_(torch.inf)
        for place, name in enumerate(names):
            near, other = apart[place].min(dim=0)
            ratio = near.item() / max(usual, 1e-30)
            yield Sign(
                name,
                self.name,
                min(NEAR / max(ratio, 1e-6), 10.0),
                f"the uploads of clients {shown(name)} and {shown(names[int(other)])} differ by "
                f"{ratio:.2g} of the usual distance of two clients",
            )
