"""Several rounds of local training and merging: FedAvg and its variants.

FedAvg (McMahan et al., 2017, arXiv:1602.05629): in every round the clients start from the server's
weights and train locally; then the server computes the mean of their weights.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, field_validator
from torch import Tensor

from accord.core.budget import MOST_ROUNDS
from accord.core.errors import AccordError
from accord.core.parts import make_part, part_spec
from accord.fusion.average import Average
from accord.fusion.base import Fusion, Merge, Scene, Weights, fusions
from accord.fusion.coordinates import CoordinateWise
from accord.messages import NET, ServerState
from accord.methods.base import Method, methods


@methods.register("averaging")
class Averaging(Method):
    """W_{r+1} = merge(W_{r,1}, …, W_{r,K}): each round starts from the net that a fusion makes.

    With the fusion `average` this is FedAvg: w_k = n_k/Σn over the clients of the round. The
    running mean and variance of batch norms are averaged in the same way, and integer buffers are
    rounded.
    """

    count: int = Field(
        5,
        ge=1,
        le=MOST_ROUNDS,
        description="number of rounds; the study's rounds.count replaces it",
    )
    merge: dict[str, Any] | None = Field(
        None,
        description="the fusion that makes the next round's net; null: the recipe's first fusion",
    )

    @field_validator("merge", mode="before")
    @classmethod
    def _in_full(cls, value: Any) -> Any:
        return {"use": value} if isinstance(value, str) else value

    @property
    def rounds(self) -> int:
        return self.count

    def filled(self, fusion: dict[str, Any], where: str) -> Self:
        spec = self.merge or fusion
        if not _makes_one_net(make_part(fusions, spec, f"{where}.method.merge")):
            able = [name for name in fusions if _makes_one_net(make_part(fusions, name, where))]
            raise AccordError(
                f"{where}: the fusion {spec['use']!r} makes no single net of the clients' nets, so "
                f"no next round can start from it. Use one of {', '.join(able)}, or the method "
                "one-shot."
            )
        return self.model_copy(update={"merge": spec})

    def with_rounds(self, count: int | None) -> Self:
        return self if count is None else self.model_copy(update={"count": count})

    def advance(self, state: ServerState, scene: Scene) -> ServerState:
        return state.next(self.merged(scene), scene.answered)

    def work(self, public: int) -> float:
        rule = make_part(fusions, self.merge, "merge")
        return rule.work(public) if isinstance(rule, Merge) else 0.0

    def shortened(self) -> Self:
        rule = make_part(fusions, self.merge, "merge")
        if not isinstance(rule, Merge) or self.merge is None:
            return self
        return self.model_copy(update={"merge": part_spec(self.merge["use"], rule.shortened())})

    def require(self, norm: str, public: int) -> None:
        make_part(fusions, self.merge, "merge").require(norm, public)

    @property
    def weighing(self) -> Weights:
        """How the merge weighs the clients."""
        rule = make_part(fusions, self.merge, "merge")
        if isinstance(rule, CoordinateWise):
            return "equal"
        return rule.weights if isinstance(rule, Average) else "count"

    def merged(self, scene: Scene) -> dict[str, Tensor]:
        """The tensors of the net that the next round starts from."""
        rule = make_part(fusions, self.merge, "merge")
        if not isinstance(rule, Merge):
            raise TypeError(f"{self.merge} does not merge nets")
        (net,) = rule.merge(scene)
        return {name: tensor for name, tensor in net.tensors.items() if name.startswith(NET)}


def _makes_one_net(rule: Fusion) -> bool:
    """Whether a fusion makes one net of the clients' nets, from which a round can start."""
    if not isinstance(rule, Merge) or rule.after_advance:
        return False
    return not rule.personal and rule.of == "nets"
