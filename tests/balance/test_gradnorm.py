"""`gradnorm`: ‖w∇L_al‖ tracks ‖∇L_loc‖·(r_al/r_loc)^a, r = L/L_max."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from accord.balance import Mixture, Weigher
from accord.core.errors import AccordError
from balance.support import a_step, gradients, started
from core.cases import looped

LOCAL, ALIGN = (3.0, 4.0), (0.0, 2.5)  # norms 5 and 2.5


def weight(weigher: Weigher, local: float, align: float, scale: float = 1.0) -> float:
    """w of a step with these losses and the gradients above, that of L_al times `scale`."""
    scaled = [scale * element for element in ALIGN]
    return float(weigher.weigh(a_step(local, align, gradients=gradients(LOCAL, scaled))).align)


def test_by_hand() -> None:
    weigher = started("gradnorm")
    assert weight(weigher, 8.0, 6.0) == pytest.approx(2.0)  # both rates 1: 5/2.5, at once
    # r_loc = ½, r_al = 1: L_al lags, target 2·2 = 4, and 0.9·2 + 0.1·4.
    assert weight(weigher, 4.0, 6.0) == pytest.approx(2.2)
    # r_loc = ½, r_al = ¼: target 2·½ = 1.
    assert weight(weigher, 4.0, 1.5) == pytest.approx(0.9 * 2.2 + 0.1)
    assert weigher.readings(0.5).lambda_raw == pytest.approx(2.08)


def test_two_parameters_by_hand() -> None:
    """At θ = (3, 1), ∇L_loc = (6, 8) of norm 10 and ∇L_al = (4, 3) of norm 5: w = 2."""
    theta = nn.Parameter(torch.tensor([3.0, 1.0]))
    local = theta[0].square() + 8 * theta[1]
    align = 4 * theta[0] + 3 * theta[1]
    mixture = Mixture({"anchors": started("gradnorm")})
    mixture.backward({"task": local}, {"anchors": align}, 0.0, [theta])
    torch.testing.assert_close(theta.grad, torch.tensor([6.0 + 2 * 4, 8.0 + 2 * 3]))


@looped(("rate", "expected"), [(0, 2.0), (0.5, 4.0), (1, 8.0), (2, 32.0)])
def test_the_rate_is_an_exponent(rate: float, expected: float) -> None:
    weigher = started("gradnorm", {"rate": rate, "memory": 0.0})
    weight(weigher, 8.0, 6.0)
    assert weight(weigher, 2.0, 6.0) == pytest.approx(expected)


def test_the_target_has_a_ceiling() -> None:
    weigher = started("gradnorm", {"highest": 30})
    assert weight(weigher, 1.0, 1.0, scale=1e-3) == 30


def test_it_does_not_explode_as_alignment_is_reached() -> None:
    """Near its anchors L_al falls like ε² and its gradient like ε."""
    tamed, plain = started("gradnorm"), started("gradnorm", {"rate": 0})
    for step in range(400):
        gap = 0.9**step
        found = weight(tamed, 3.0, gap**2, scale=gap)
        assert found <= 2.0 + 1e-6
        unrated = weight(plain, 3.0, gap**2, scale=gap)
    assert found < 1e-3
    assert unrated > 900  # equal norms whatever the rates: w goes to its ceiling


@pytest.mark.parametrize("local", [0.0, 8.0])
def test_losses_at_zero_leave_the_weight(local: float) -> None:
    weigher = started("gradnorm")
    weight(weigher, 8.0, 6.0)
    zero = a_step(local, 0.0, gradients=gradients((local, 0.0), (0.0, 0.0)))
    assert float(weigher.weigh(zero).align) == pytest.approx(2.0)


def test_a_loss_at_zero_leaves_the_weight_whatever_the_rate() -> None:
    weigher = started("gradnorm", {"rate": 0})
    weight(weigher, 8.0, 6.0)
    assert weight(weigher, 8.0, 0.0, scale=0.0) == pytest.approx(2.0)


def test_a_first_alignment_loss_of_zero_only_waits() -> None:
    """As with `progressive: true`, which starts at the prototypes themselves."""
    weigher = started("gradnorm")
    assert weight(weigher, 8.0, 0.0, scale=0.0) == 1
    assert weight(weigher, 8.0, 1.0) == pytest.approx(2.0)


def test_rates_are_of_the_largest_loss_so_far() -> None:
    weigher = started("gradnorm", {"memory": 0.0})
    weight(weigher, 8.0, 6.0)
    assert weight(weigher, 16.0, 6.0) == pytest.approx(2.0)  # no slower than at its worst
    assert weight(weigher, 8.0, 6.0) == pytest.approx(4.0)
    assert weight(weigher, 8.0, 12.0) == pytest.approx(4.0)
    assert weight(weigher, 8.0, 6.0) == pytest.approx(2.0)


def test_it_needs_gradients() -> None:
    assert started("gradnorm").wants_gradients
    with pytest.raises(ValueError, match="gradients"):
        started("gradnorm").weigh(a_step())


@pytest.mark.parametrize(("key", "value"), [("rate", -1), ("memory", 1), ("highest", 0)])
def test_a_parameter_out_of_range_is_refused(key: str, value: float) -> None:
    with pytest.raises(AccordError, match=rf"balance\.{key}"):
        started("gradnorm", {key: value})
