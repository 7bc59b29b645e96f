"""Several alignment terms, each with its own balance: the backward pass and the dials."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from accord.balance import Mixture, balances
from accord.balance.mixture import DIALS, GRADIENTS
from balance.support import started
from core.cases import case, looped

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


# --- alignment alone -----------------------------------------------------------------------------


def align_alone(losses: Losses, mixture: Mixture, look: bool = False) -> Tensor:
    align = {name: losses.align[name] for name in mixture.weighers}
    return mixture.backward(losses.local, align, 0.5, [losses.theta], look, align_alone=True)


def state_of(mixture: Mixture) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in mixture.state_dict().items()}


@looped("name", balances.names())
def test_alone_alignment_terms_are_summed_whatever_their_rules(name: str) -> None:
    for look in (False, True):
        with case(look):
            assert_summed(name, look)


def assert_summed(name: str, look: bool) -> None:
    params = {"watch": "task"} if "watch" in balances.get(name).model_fields else {}
    losses, mixture = Losses(), Mixture({term: started(name, params) for term in Losses().align})
    before = state_of(mixture)
    total = align_alone(losses, mixture, look)
    assert losses.theta.grad is not None
    assert losses.theta.grad.tolist() == [0, 1 - 2, 4 + 1]
    assert total.item() == 5 - 1
    assert not total.requires_grad
    # The rules rest: nothing they keep is renewed, nothing they learn has a gradient.
    torch.testing.assert_close(state_of(mixture), before, rtol=0, atol=0, equal_nan=True)
    assert all(parameter.grad is None for parameter in mixture.parameters())


def test_rules_that_rested_start_where_they_were() -> None:
    # Confidence measures from the first loss it sees: that of the first step with both losses.
    rested, fresh = (Mixture({"anchors": started("confidence", {"watch": "task"})}) for _ in "ab")
    align_alone(Losses(), rested)
    for mixture in (rested, fresh):
        later = Losses()
        later.local["task"] = later.of(0, 0, 9)
        later.backward(mixture, 0.5)
    torch.testing.assert_close(state_of(rested), state_of(fresh), rtol=0, atol=0)
    assert 9 in [value.item() for value in state_of(rested).values()]


def test_after_a_rest_rules_do_learn() -> None:
    mixture = Mixture({"anchors": started("uncertainty")})
    align_alone(Losses(), mixture)
    Losses().backward(mixture)
    assert all(parameter.grad is not None for parameter in mixture.parameters())


def test_alone_one_terms_gradient_is_its_own() -> None:
    losses, mixture = Losses(), Mixture({"anchors": started("fixed", {"lambda": 7})})
    assert align_alone(losses, mixture).item() == 5
    assert losses.theta.grad is not None
    assert losses.theta.grad.tolist() == [0, 1, 4]


@pytest.mark.parametrize(("look", "walks"), [(False, 0), (True, 1)])
def test_alone_the_local_loss_is_not_walked_back_unless_somebody_looks(
    look: bool, walks: int
) -> None:
    losses = Losses()
    walked: list[Tensor] = []
    losses.local["task"].register_hook(walked.append)  # type: ignore[no-untyped-call]
    align_alone(losses, Mixture({"anchors": started("gradnorm")}), look)
    assert len(walked) == walks


def test_rules_that_rest_have_no_dials_but_a_look_tells_of_gradients() -> None:
    rules = {"anchors": started("uncertainty"), "feature-alignment": started("confidence")}
    mixture, means = Mixture(rules), dict.fromkeys(rules, (7.0, 5.0))
    align_alone(Losses(), mixture, look=True)
    found = mixture.dials(means, 0.5, align_alone=True)
    local, gradients = (2, 3, 2), {"anchors_": (0, 1, 4), "feature_alignment_": (0, -2, 1)}
    for prefix, own in gradients.items():
        assert [found[prefix + dial] for dial in DIALS] == [None] * len(DIALS)
        norms = math.hypot(*local), math.hypot(*own)
        cosine = sum(a * b for a, b in zip(local, own, strict=True)) / math.prod(norms)
        expected = pytest.approx([*norms, cosine], rel=1e-6)
        assert [found[prefix + name] for name in GRADIENTS] == expected
    # The next epoch, with both losses, has dials again and no look of the one before.
    after = mixture.dials(means, 0.5)
    assert after["anchors_lambda_raw"] == 1
    assert all(after["anchors_" + name] is None for name in GRADIENTS)


def test_rules_that_rest_and_nobody_looks_at_have_nothing_to_tell() -> None:
    mixture = Mixture({"anchors": started("uncertainty")})
    align_alone(Losses(), mixture)
    assert mixture.dials({"anchors": (7.0, 5.0)}, 0.5, align_alone=True) == NONE_OF_THEM
