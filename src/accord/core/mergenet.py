"""The section `mergenet` of a study: how a teacher's layers enrich those of the clients' net."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from accord.core.config import Config

Pair = tuple[str, str]


class MergeNetConfig(Config):
    """Settings of Federated MergeNet. The defaults are those of the research note."""

    pairs: tuple[Pair, ...] = Field(
        (),
        description="layers [student, teacher]; the student's layer learns from the teacher's. An "
        "empty list: the last convolution of the student's encoder and the teacher's head",
    )
    adapter: str = Field(
        "bottleneck",
        description="bottleneck, paper, or direct (no teacher: the layer itself is trained)",
    )
    train: Literal["public", "pseudo", "client"] = Field(
        "public",
        description="where the adapter is trained: on the server's public images, by the server "
        "from the change of the clients' weights, or at the clients",
    )
    start_round: int = Field(2, ge=1, description="the first round with a fusion of knowledge")
    fusion_frequency: int = Field(1, ge=1, description="rounds from one fusion to the next")
    f: int = Field(1, ge=1, description="for train: client, batches from one fusion to the next")
    d_attention: int = Field(
        64,
        ge=1,
        le=8192,
        description="width of the bottleneck; the widths of paper follow from the layers",
    )
    heads: int = Field(8, ge=1, le=1024, description="number of attention heads")
    layers: int = Field(2, ge=1, le=64, description="number of attention layers")
    lr: float = Field(0.001, gt=0, le=100, description="the adapter's learning rate")
    steps: int = Field(
        30, ge=1, le=1_000_000, description="for train: public, steps of the server per round"
    )
    batch: int = Field(
        64, ge=2, le=1_000_000, description="for train: public, public images per step"
    )
    loss: Literal["labels", "teacher"] = Field(
        "labels",
        description="for train: public, what the adapter learns: the labels of the public images, "
        "or the teacher's probabilities",
    )
    bn_recalibrate: bool | None = Field(
        None,
        description="measure the statistics of batch norms on the public images after a fusion; "
        "null: if there are public images",
    )

    @field_validator("pairs", mode="before")
    @classmethod
    def _from_mapping(cls, value: Any) -> Any:
        """A mapping {student: teacher} is another way to write the pairs."""
        if isinstance(value, Mapping):
            return list(value.items())
        pairs = () if value is None else value
        if not isinstance(pairs, list | tuple) or not all(_is_pair(pair) for pair in pairs):
            raise ValueError("expected a list of pairs [[student layer, teacher layer], …]")
        return pairs

    @model_validator(mode="after")
    def _consistent(self) -> MergeNetConfig:
        if self.d_attention % self.heads:
            raise ValueError(
                f"expected d_attention to be a multiple of heads; found d_attention = "
                f"{self.d_attention} and heads = {self.heads}"
            )
        students = [student for student, _ in self.pairs]
        if len(set(students)) < len(students):
            raise ValueError(f"every layer of the student may occur once; found {students}")
        if self.adapter == "direct" and self.train != "public":
            raise ValueError(
                "the adapter direct trains the layer itself on public images: expected train: "
                f"public; found {self.train}"
            )
        return self

    def due(self, number: int) -> bool:
        """Whether round r has a fusion: r ≥ start and (r − start) mod frequency = 0."""
        since = number - self.start_round
        return since >= 0 and since % self.fusion_frequency == 0


def _is_pair(value: Any) -> bool:
    pair = isinstance(value, list | tuple) and len(value) == 2
    return pair and all(isinstance(name, str) for name in value)
