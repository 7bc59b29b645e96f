"""Several alignment terms, each with its own balance: the backward pass and the dials."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from accord.balance import Mixture
from accord.balance.mixture import DIALS, GRADIENTS
from balance.support import started

NONE_OF_THEM = dict.fromkeys((*DIALS, *GRADIENTS))


class Losses:
    """Linear losses of θ ∈ R³, so that gradients can be read off: encoder, head, head."""

    def __init__(self) -> None:
        self.theta = nn.Parameter(torch.tensor([1.0, 1.0, 1.0]))
        self.local = {"task": self.of(1, 0, 2), "supcon": self.of(1, 3, 0)}  # L_loc = (2, 3, 2)·θ
        self.align = {"anchors": self.of(0, 1, 4), "feature-alignment": self.of(0, -2, 1)}

    def of(self, *gradient: float) -> Tensor:
        return (self.theta * torch.tensor(gradient)).sum()

    def backward(self, mixture: Mixture, progress: float = 0.0, look: bool = False) -> Tensor:
        align = {name: self.align[name] for name in mixture.weighers}
        return mixture.backward(self.local, align, progress, [self.theta], look)

    def gradient(self, mixture: Mixture, progress: float = 0.0) -> list[float]:
        self.backward(mixture, progress)
        assert self.theta.grad is not None
        found: list[float] = self.theta.grad.tolist()
        return found


def test_each_term_has_its_own_weight() -> None:
    mixture = Mixture(
        {
            "anchors": started("fixed", {"lambda": 5}),
            "feature-alignment": started("curriculum", {"start_weight": 1, "end_weight": 3}),
        }
    )
    # (2, 3, 2) + 5·(0, 1, 4) + 2·(0, −2, 1) at p = ½.
    assert Losses().gradient(mixture, 0.5) == [2, 3 + 5 - 4, 2 + 20 + 2]
    # 7 + 5·5 + 2·(−1) at θ = (1, 1, 1).
    total = Losses().backward(mixture, 0.5)
    assert total.item() == 7 + 25 - 2
    assert not total.requires_grad


def test_without_alignment_terms_it_is_the_local_gradient() -> None:
    mixture = Mixture({})
    assert Losses().gradient(mixture) == [2, 3, 2]
    assert Losses().backward(mixture).item() == 7
    assert mixture.groups() == []
    assert mixture.dials({}, 0.5) == NONE_OF_THEM


def test_the_local_weight_is_the_mean_of_those_who_have_one() -> None:
    mixture = Mixture(
        {
            "anchors": started("uncertainty", {"start_local": math.log(2)}),  # ¼ and ½
            "feature-alignment": started("rescaled", {"start_local": math.log(0.5)}),  # 1 and 0
        }
    )
    expected = [0.625 * 2, 0.625 * 3 + 0.5, 0.625 * 2 + 2]
    assert Losses().gradient(mixture) == pytest.approx(expected)


def test_a_rule_without_a_local_weight_does_not_vote() -> None:
    mixture = Mixture(
        {
            "anchors": started("uncertainty", {"start_local": math.log(2)}),
            "feature-alignment": started("fixed", {"lambda": 1}),
        }
    )
    expected = [0.25 * 2, 0.25 * 3 + 0.5 - 2, 0.25 * 2 + 2 + 1]
    assert Losses().gradient(mixture) == pytest.approx(expected)


def test_mixed_gradients_are_only_so_on_what_both_losses_reach() -> None:
    theta = [nn.Parameter(torch.tensor(1.0)) for _ in range(3)]
    task = theta[0] + theta[1]
    align = {"anchors": -theta[1] + theta[2], "feature-alignment": 2 * theta[0]}
    mixture = Mixture({"anchors": started("gradient"), "feature-alignment": started("fixed")})
    mixture.backward({"task": task}, align, 0.0, theta)
    # On θ₁ alone 1 and −1 are opposite: a = b = 2, which cancels. θ₀ keeps 1 and gets 5·2.
    found = [float(parameter.grad) for parameter in theta if parameter.grad is not None]
    assert found == pytest.approx([1 + 10, 0, 2], abs=1e-3)


def test_every_rule_learns_from_its_own_losses() -> None:
    one, other = started("uncertainty"), started("attenuated")
    losses = Losses()
    losses.backward(Mixture({"anchors": one, "feature-alignment": other}), 0.5)
    # ½(1 − L_loc), ½(1 − L_al) and, attenuated, ½(1 − ½·L_al) at L_loc = 7, L_al = 5 and −1.
    for weigher, expected in ((one, [-3, -2]), (other, [-3, 0.75])):
        found = [float(p.grad) for p in weigher.parameters() if p.grad is not None]
        assert found == pytest.approx(expected)


def test_groups_of_all_rules() -> None:
    rules = {"a": started("uncertainty"), "b": started("fixed"), "c": started("rescaled")}
    groups = Mixture(rules).groups()
    assert [len(group.parameters) for group in groups] == [2, 1]


def test_all_state_is_kept_by_term() -> None:
    rules = {"anchors": started("stabilised"), "feature-alignment": started("gradnorm")}
    kept = {f"{name}.{key}" for name, rule in rules.items() for key in rule.state_dict()}
    found = {key.removeprefix("_weighers.") for key in Mixture(rules).state_dict()}
    assert found == kept
    assert {"anchors.log_local", "anchors.gamma.batches", "feature-alignment.weight"} < found


def test_the_dials_of_one_term_have_plain_names() -> None:
    mixture = Mixture({"anchors": started("attenuated", {"start_local": math.log(6)})})
    found = mixture.dials({"anchors": (3.0, 0.5)}, 0.75)
    assert found == {
        **NONE_OF_THEM,
        "lambda_raw": pytest.approx(6),
        "attenuation": 0.25,
        "lambda_effective": pytest.approx(1.5),
        "lambda_star": 3 / (0.25 * 0.5),
        "sigma_sq_local": pytest.approx(6),
        "sigma_sq_align": 1,
    }


def test_the_dials_of_several_terms_are_prefixed() -> None:
    mixture = Mixture({"anchors": started("fixed"), "feature-alignment": started("uncertainty")})
    found = mixture.dials({"anchors": (3.0, 0.5), "feature-alignment": (3.0, 2.0)}, 0.75)
    names = [*DIALS, *GRADIENTS]
    prefixes = ("anchors_", "feature_alignment_")
    assert list(found) == [prefix + name for prefix in prefixes for name in names]
    assert found["anchors_lambda_raw"] == 5
    assert found["anchors_lambda_star"] is None
    assert found["feature_alignment_lambda_raw"] == 1
    assert found["feature_alignment_lambda_star"] == 1.5


@pytest.mark.parametrize("align", [0.0, 1e-320])
def test_an_equilibrium_at_infinity_is_none(align: float) -> None:
    mixture = Mixture({"anchors": started("uncertainty")})
    assert mixture.dials({"anchors": (3.0, align)}, 0.5)["lambda_star"] is None


def test_looks_are_averaged_over_the_epoch_and_then_forgotten() -> None:
    mixture = Mixture({"anchors": started("fixed")})
    theta = nn.Parameter(torch.ones(2))
    # Norms 3 and 4 at a right angle; 5 and 2 in line; a step nobody looks at.
    steps = [((3, 0), (0, 4), True), ((0, 5), (0, 2), True), ((9, 9), (9, 9), False)]
    for local, align, look in steps:
        losses = [(theta * torch.tensor(gradient)).sum() for gradient in (local, align)]
        mixture.backward({"task": losses[0]}, {"anchors": losses[1]}, 0.0, [theta], look)
    found = mixture.dials({"anchors": (3.0, 0.5)}, 0.5)
    assert [found[name] for name in GRADIENTS] == pytest.approx([4, 3, 0.5])
    after = mixture.dials({"anchors": (3.0, 0.5)}, 0.5)
    assert [after[name] for name in GRADIENTS] == [None, None, None]


def test_looking_changes_nothing() -> None:
    looked, plain = Losses(), Losses()
    rules = ("uncertainty", "gradnorm")
    for losses, look in ((looked, True), (plain, False)):
        weighers = zip(losses.align, (started(name) for name in rules), strict=True)
        losses.backward(Mixture(dict(weighers)), 0.5, look)
    torch.testing.assert_close(looked.theta.grad, plain.theta.grad, rtol=0, atol=0)
