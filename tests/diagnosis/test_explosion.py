"""λ that explodes: note 003's figures, and the bounds of docs/balance.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diagnosed import Written, findings

# Research note 003: SVHN, client 3, after these rounds.
EPOCHS = [1, 10, 15, 16, 20, 30]
RAW = [12.04, 65.22, 204658.41, 482429.48, 1516252.51, 4147315.36]
EFFECTIVE = [11.80, 52.17, 143260.89, 328052.05, 909751.50, 1658926.14]
ACCURACY = [0.259, 0.454, 0.495, 0.375, 0.263, 0.188]
# Research note 001: λ of the five clients of V10 after some rounds.
NOTE_001 = {
    "0": [16.7670, 8.2207, 8.7494, 8.8349, 8.8261, 8.5376, 8.4952, 8.9657],
    "1": [22.1632, 7.2043, 8.7624, 8.5049, 8.3853, 8.2330, 8.1852, 8.6777],
    "2": [4.5188, 9.1799, 8.3374, 7.9224, 7.7627, 7.6954, 7.5856, 7.5807],
}


def note_003(accuracy: list[float] = ACCURACY) -> Written:
    trial = Written("etf-attenuated", client_files={"0": "a", "3": "b"})
    trial.info["config"]["net"]["backbone"] = "resnet18"
    trial.dial("lambda_raw", {"3": RAW, "0": [1.5, 3, 5, 7, 9, 12]}, EPOCHS)
    trial.dial("lambda_effective", {"3": EFFECTIVE, "0": [1.4, 2, 3, 4, 4, 3]}, EPOCHS)
    trial.dial("lr", {"3": [0.05] * 6, "0": [0.05] * 6}, EPOCHS)
    for epoch, value in zip(EPOCHS, accuracy, strict=True):
        trial.at(epoch, features=value)
    return trial


def test_the_explosion_of_note_003_is_found_with_its_client_and_epoch(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, note_003(), rule="lambda-explosion")
    assert found.weight == 95
    course, accuracy, bound = found.evidence
    assert "client 3" in course
    assert "above 1,204 since epoch 15" in course
    assert "fell from 49.5 % (epoch 15) to 18.8 % (epoch 30)" in accuracy
    # (1 + 0.9)·10·512/0.05 = 194,560, which λ passes in round 15, the sixteenth
    assert "194,560 since epoch 16" in bound
    assert found.override is not None
    assert "recipes=[etf-stabilised]" in found.override


def test_an_explosion_without_a_fall_weighs_less_and_says_so(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, note_003([0.2, 0.3, 0.4, 0.41, 0.42, 0.41]))
    assert found.rule == "lambda-explosion"
    assert found.weight == 85
    assert any("has not fallen clearly" in sentence for sentence in found.evidence)


def test_a_learnt_weight_that_settles_is_no_explosion(tmp_path: Path) -> None:
    trial = Written("etf-uncertainty").dial("lambda_raw", NOTE_001)
    trial.dial("lambda_effective", NOTE_001).dial("lr", {name: [0.05] * 8 for name in NOTE_001})
    assert findings(tmp_path, trial) == []


def test_a_small_weight_may_grow_a_hundredfold(tmp_path: Path) -> None:
    trial = Written("etf-gradnorm").dial("lambda_raw", {"0": [0.01, 0.1, 1.5, 2]})
    assert findings(tmp_path, trial, rule="lambda-explosion") == []


def constant(value: float, **budget: Any) -> Written:
    trial = Written("etf-fixed")
    trial.info["config"]["budget"] |= budget
    trial.dial("lambda_raw", {"0": [value] * 3}).dial("lambda_effective", {"0": [value] * 3})
    return trial.dial("lr", {"0": [0.05] * 3})


def test_a_constant_weight_beyond_the_bound_of_sgd_is_found(tmp_path: Path) -> None:
    # resnet10 is 128 wide and the client holds ten classes: 1.9·10·128/0.05 = 48,640
    (found,) = findings(tmp_path, constant(48_641.0), rule="lambda-bound")
    assert "48,640 since epoch 1" in found.evidence[0]
    assert findings(tmp_path, constant(48_639.0), rule="lambda-bound") == []
    # Without momentum the bound is 25,600, and with fewer classes it is smaller.
    assert findings(tmp_path, constant(25_601.0, momentum=0.0), rule="lambda-bound")
    few = constant(24_321.0)
    few.info["label_counts"][0] = [10] * 5 + [0] * 5
    assert findings(tmp_path, few, rule="lambda-bound")


@pytest.mark.parametrize("gamma", [None, 0.1])
def test_a_rising_weight_above_its_tipping_point_is_found(
    tmp_path: Path, gamma: float | None
) -> None:
    """λ_tip = C·d·‖g‖²/(4·L_loc) = 10·128·0.1²/(4·8) = 0.4."""
    trial = Written("etf-uncertainty")
    values = {"0": [0.3, 0.5, 1.0, 2.0, 4.0]}
    trial.dial("lambda_raw", values).dial("lambda_effective", values)
    trial.dial("lambda_star", values).dial("loss_local", {"0": [8.0] * 5})
    trial.dial("gradient_norm_local", {"0": [0.1] * 5}).dial("gamma", {"0": [gamma] * 5})
    trial.dial("lr", {"0": [0.05] * 5})
    found = findings(tmp_path, trial, rule="lambda-tip")
    assert len(found) == (gamma is None)
    for one in found:
        assert "λ_tip = 0.4 since epoch 2 and has grown from 0.5 to 4" in one.evidence[0]
    settled = {"0": [0.3, 0.5, 0.6, 0.7, 0.7]}
    trial.dial("lambda_effective", settled)
    assert findings(tmp_path, trial, rule="lambda-tip") == []
