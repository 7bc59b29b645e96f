"""`attenuated`: s(p) on the data term of σ_a undoes itself, as note 003 saw."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.core.errors import AccordError
from balance.support import a_step, own_loss, settle, sigmas
from core.cases import looped

# Note 003: client 3 on SVHN, 50 rounds.
ROUND = [0, 9, 14, 15, 19, 29]
RAW = [12.04, 65.22, 204658.41, 482429.48, 1516252.51, 4147315.36]
S = [0.980, 0.800, 0.700, 0.680, 0.600, 0.400]
EFFECTIVE = [11.80, 52.17, 143260.89, 328052.05, 909751.50, 1658926.14]

loss = st.floats(0.01, 10)


@looped(("round_", "raw", "s", "effective"), list(zip(ROUND, RAW, S, EFFECTIVE, strict=True)))
def test_the_dials_of_note_003(round_: int, raw: float, s: float, effective: float) -> None:
    # Where σ_l² and σ_a² stand does not matter, their ratio does.
    weigher = sigmas("attenuated", {"start_local": math.log(raw) - 2, "start_align": -2})
    progress = (round_ + 1) / 50
    found = weigher.readings(progress)
    assert found.lambda_raw == pytest.approx(raw, rel=1e-5)
    assert found.attenuation == pytest.approx(s, abs=1e-3)
    assert found.lambda_effective == pytest.approx(effective, abs=0.01, rel=2e-4)
    seen = float(weigher.weigh(a_step(progress=progress)).align)
    assert seen == pytest.approx(effective, abs=0.01, rel=2e-4)


def test_the_figures_above_are_the_notes() -> None:
    oracle = Path(__file__).resolve().parents[3] / "shared" / "oracles" / "note-003-explosion.json"
    if not oracle.exists():
        pytest.skip(f"needs {oracle}")
    note = json.loads(oracle.read_text(encoding="utf-8"))
    found = [note[key] for key in ("round", "raw_lambda", "s", "effective")]
    assert found == [ROUND, RAW, S, EFFECTIVE]
    assert note["rounds"] == 50


def test_weights_by_hand() -> None:
    weigher = sigmas("attenuated", {"start_local": math.log(6), "start_align": math.log(2)})
    weights = weigher.weigh(a_step(progress=0.75))
    assert float(weights.align) == pytest.approx(0.25 * 3)
    assert weights.local is None  # the net's own loss keeps its learning rate


def test_the_own_loss_by_hand() -> None:
    weigher = sigmas("attenuated", {"start_local": math.log(6), "start_align": math.log(2)})
    expected = 2 / 12 + 0.25 * 3 / 4 + math.log(6) / 2 + math.log(2) / 2
    assert own_loss(weigher, a_step(2.0, 3.0, 0.75)).item() == pytest.approx(expected)


@settings(max_examples=15, deadline=None)
@given(local=loss, align=loss, p=st.floats(0, 0.9))
def test_the_attenuation_undoes_itself(local: float, align: float, p: float) -> None:
    weigher = sigmas("attenuated")
    settle(weigher, a_step(local, align, p))
    found = weigher.readings(p)
    assert found.sigma_sq_local == pytest.approx(local, rel=1e-4)
    assert found.sigma_sq_align == pytest.approx((1 - p) * align, rel=1e-4)
    assert found.lambda_raw == pytest.approx(weigher.equilibrium(local, align, p), rel=1e-4)
    assert found.lambda_effective == pytest.approx(local / align, rel=1e-4)


def test_cosine_and_constant_attenuation() -> None:
    cosine = sigmas("attenuated", {"attenuation": "cosine"})
    constant = sigmas("attenuated", {"attenuation": "constant"})
    s = (1 + math.cos(math.pi / 4)) / 2
    assert float(cosine.weigh(a_step(progress=0.25)).align) == pytest.approx(s)
    assert cosine.equilibrium(2.0, 4.0, 0.25) == pytest.approx(0.5 / s)
    assert float(constant.weigh(a_step(progress=0.25)).align) == 1
    assert constant.equilibrium(2.0, 4.0, 0.25) == 0.5


def test_at_the_very_end_nothing_holds_lambda() -> None:
    weigher = sigmas("attenuated")
    assert weigher.equilibrium(2.0, 4.0, 1.0) is None
    assert weigher.readings(1.0).lambda_effective == 0


def test_an_unknown_attenuation_is_refused() -> None:
    with pytest.raises(AccordError, match=r"balance\.attenuation"):
        sigmas("attenuated", {"attenuation": "none"})
