"""The upload, client → server, and the checks that the server makes before it uses one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import Field, field_validator
from torch import Tensor

from accord.closed_form.sums import check_sums, expected_sums
from accord.core.config import Config
from accord.core.errors import AccordError
from accord.messages.base import ADAPTER, CONTROL, NET, Message
from accord.messages.briefing import Briefing, SummingSpec

NEVER_NEGATIVE = ("running_var", "feature_var", "score_std", "scatter_spread")
COSINES = ("score_mean", "score_std", "score_own", "score_rotated")  # or their deviation
ROUNDED = 1e-4
COUNTED = ("running_mean", "running_var", "num_batches_tracked")


class UploadHeader(Config):
    """What the server receives from a client besides the tensors."""

    client: str
    epoch: int = Field(ge=0)
    samples: int = Field(ge=1, le=10**12)
    train_accuracy: float | None = Field(None, ge=0, le=1)  # None if it was not measured
    briefing: str  # digest of the briefing that the upload answers
    telemetry: tuple[dict[str, Any], ...] = ()

    @field_validator("telemetry")
    @classmethod
    def _numbers(cls, value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for event in value:
            odd = [key for key, v in event.items() if not isinstance(v, int | float | None)]
            if odd or "epoch" not in event:
                raise ValueError(
                    f"telemetry should hold numbers only, among them epoch; found {event}"
                )
        return value


@dataclass(frozen=True)
class Upload(Message):
    """Client → server: weights and statistics, or sums of fixed features; counts, telemetry."""

    header: UploadHeader
    kind: ClassVar[str] = "upload"
    header_type: ClassVar[type[Config]] = UploadHeader

    def check(self, briefing: Briefing, where: str) -> None:
        """Raises AccordError if the upload does not answer `briefing` or its tensors are wrong.

        These checks need no net; `accord.checks` has the others.
        """
        self.check_form(briefing, where)
        self._check_numbers(where)
        if briefing.header.uploads == "sums":
            check_sums(self.tensors, where)
        elif not any(bool(tensor.any()) for name, tensor in self.tensors.items() if _learnt(name)):
            raise AccordError(
                f"{where}: every weight of its net is 0, so the net cannot be used. Train this "
                "client again, or leave it out (accord fuse RUN --without NAME)."
            )

    def check_form(self, briefing: Briefing, where: str) -> None:
        """Raises AccordError if it answers another briefing, or has other tensors or counts."""
        if self.header.briefing != briefing.digest:
            raise AccordError(
                f"{where} answers another briefing ({self.header.briefing[:12]}…, expected "
                f"{briefing.digest[:12]}…). Ask this client for a new upload with this briefing."
            )
        expected = expected_upload(briefing)
        for name in sorted(expected.keys() | self.tensors.keys()):
            wanted, found = _shape(expected.get(name)), _shape(self.tensors.get(name))
            if wanted != found:
                raise AccordError(
                    f"{where}: tensor {name!r} should be {wanted}, found {found}. The upload is "
                    "not an answer to this briefing."
                )
        counts = self.tensors["label_counts"]
        samples = self.header.samples
        whole = bool(((counts >= 0) & (counts <= samples)).all()) and int(counts.sum()) == samples
        if not whole:
            raise AccordError(
                f"{where}: label_counts should be 0 or more and add up to the client's "
                f"{samples} samples; found {counts.tolist()}."
            )

    def _check_numbers(self, where: str) -> None:
        for name, tensor in self.tensors.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise AccordError(f"{where}: tensor {name!r} holds NaN or infinity.")
            if name.endswith(NEVER_NEGATIVE) and bool((tensor < 0).any()):
                raise AccordError(f"{where}: tensor {name!r} holds values below 0.")
            if name in COSINES and bool((tensor.abs() > 1 + ROUNDED).any()):
                worst = float(tensor[tensor.abs().argmax()])
                raise AccordError(
                    f"{where}: tensor {name!r} should hold cosines between −1 and 1; found "
                    f"{worst:.4g}. Ask this client for a new upload, or leave it out "
                    "(--without NAME)."
                )


def _learnt(name: str) -> bool:
    """Whether a tensor is a weight of the net, and not a running statistic of a batch norm."""
    return name.startswith(NET) and not name.endswith(COUNTED)


def expected_upload(briefing: Briefing) -> dict[str, Tensor]:
    """Name → a tensor of the right shape and type, for every tensor of an upload."""
    head = briefing.tensors.get(NET + "head.prototypes")
    if head is None or head.ndim != 2:
        raise AccordError("the briefing is damaged: it holds no net with a head. Fetch it again.")
    classes, width = head.shape
    asked = briefing.header.training
    if isinstance(asked, SummingSpec):
        return expected_sums(classes, width, asked.packing)
    sent_back = (NET, CONTROL, ADAPTER)
    alike = {name: t for name, t in briefing.tensors.items() if name.startswith(sent_back)}
    return {
        **alike,
        "label_counts": torch.empty(classes, dtype=torch.int64, device="meta"),
        "feature_mean": torch.empty(width, device="meta"),
        "feature_var": torch.empty(width, device="meta"),
        "class_means": torch.empty(classes, width, device="meta"),
        "score_mean": torch.empty(classes, device="meta"),
        "score_std": torch.empty(classes, device="meta"),
        "score_own": torch.empty(classes, device="meta"),
        "score_rotated": torch.empty(classes, device="meta"),
        "noise_feature": torch.empty(width, device="meta"),
    }


def _shape(tensor: Tensor | None) -> str:
    if tensor is None:
        return "absent"
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
