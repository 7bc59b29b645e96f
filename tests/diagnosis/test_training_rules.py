"""Rules about alignment, σ, gradients and the course of a training."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from accord.diagnosis.rules.sigma import reversals, swing
from diagnosed import Written, findings, fused

PARTITION: dict[str, Any] = {"partition_hash": "same"}


def pulled(value: float, losses: list[float]) -> Written:
    trial = Written("etf-fixed").dial("lambda_effective", {"0": [value] * len(losses)})
    return trial.dial("loss_local", {"0": losses})


def test_a_high_weight_is_too_much_only_where_the_local_loss_stalls(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, pulled(60, [8.0, 7.9, 7.9, 7.85]), rule="over-alignment")
    assert "at least 50 since epoch 1, up to 60" in found.evidence[0]
    assert "8 (epoch 1), 7.85 (epoch 4)" in found.evidence[1]
    assert findings(tmp_path, pulled(60, [8.0, 7.5, 7.0, 6.5]), rule="over-alignment") == []
    assert findings(tmp_path, pulled(10, [8.0, 7.9, 7.9, 7.85]), rule="over-alignment") == []


def note_001(recipe: str, accuracy: float, values: dict[str, list[float]], loss: float) -> Written:
    """The figures of research note 001; it gives no L_loc, so that L_loc is made up."""
    trial = Written(recipe, **PARTITION).dial("lambda_effective", values)
    trial.dial("loss_local", {name: [8.0, loss + 0.1, loss] for name in values})
    return trial.at(50, features=accuracy)


def test_the_high_weights_of_note_001_are_found_beside_accurate_recipes(tmp_path: Path) -> None:
    fixed = note_001("etf-fixed", 0.5877, {"0": [5.0] * 3, "1": [5.0] * 3}, 6.5)
    low = {"0": [5.7859] * 3, "2": [1.9152] * 3}
    entropy = note_001("etf-entropy", 0.5904, low, 6.5)
    high = {"0": [16.767, 8.4952, 8.9657], "2": [4.5188, 7.5856, 7.5807]}
    learnt = note_001("etf-uncertainty", 0.4635, high, 7.2)
    (found,) = findings(tmp_path, fixed, entropy, learnt, rule="over-alignment")
    assert found.trials == ["etf-uncertainty-s0-02"]
    assert "up to 8.97" in found.evidence[0]
    assert "(etf-entropy, etf-fixed) it is at most 5.79" in found.evidence[0]
    assert "12.7 points lower (46.4 %, 59.0 %)" in found.evidence[1]
    # The same λ with the same L_loc, or with nearly the same accuracy, is no problem.
    for harmless in (("etf-uncertainty", 0.4635, high, 6.6), ("etf-uncertainty", 0.57, high, 7.2)):
        trials = (fixed, entropy, note_001(*harmless))
        assert findings(tmp_path, *trials, rule="over-alignment") == []


def fitted(recipe: str, neighbours: float, losses: list[float]) -> Written:
    trial = Written(recipe, **PARTITION).dial("loss_align", {"0": losses})
    return trial.at(3, [{"client": "0", "neighbours": neighbours}], features=0.4)


def test_poor_features_behind_fitted_prototypes_are_found(tmp_path: Path) -> None:
    poor = partial(findings, tmp_path, rule="poor-features")
    good = fitted("fafi", 0.55, [1.0, 1.0, 1.0])
    (found,) = poor(good, fitted("etf-fixed", 0.4, [1.0, 0.1, 0.01]))
    assert "L_al fell to 1 (epoch 1), 0.01 (epoch 3)" in found.evidence[0]
    assert "Only 40.0 %" in found.evidence[1]
    assert "55.0 %" in found.evidence[1]
    assert poor(good, fitted("etf-fixed", 0.4, [1.0, 0.9, 0.8])) == []
    assert poor(good, fitted("etf-fixed", 0.5, [1.0, 0.1, 0.01])) == []
    # Without another recipe, features must be close to guessing.
    assert poor(fitted("etf-fixed", 0.4, [1.0, 0.1, 0.01])) == []
    assert poor(fitted("etf-fixed", 0.15, [1.0, 0.1, 0.01]))


def divided(recipe: str, value: float, clipped: float = 0.0) -> Written:
    trial = Written(recipe).dial("sigma_sq_local", {"0": [value] * 4, "1": [0.5] * 4})
    return trial.dial("clipped", {"0": [clipped] * 4})


def test_a_learning_rate_that_sigma_divides_is_found(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, divided("etf-uncertainty", 6.5), rule="shrunken-learning-rate")
    assert "1/(2σ_l²) of client 0 is 0.0769" in found.evidence[0]
    harmless = (
        divided("etf-uncertainty", 1.0),  # half of the learning rate
        divided("etf-attenuated", 6.5),  # this balance does not divide L_loc
        divided("etf-uncertainty", 6.5, clipped=1.0),  # clipping sets the length of every step
    )
    for trial in harmless:
        assert findings(tmp_path, trial, rule="shrunken-learning-rate") == []


def test_sigma_that_swings_is_found_and_one_that_settles_is_not(tmp_path: Path) -> None:
    wild = {"0": [1.0, 4.0, 0.5, 3.0, 0.4]}
    (found,) = findings(tmp_path, Written("etf-uncertainty").dial("sigma_sq_align", wild))
    assert found.rule == "unstable-sigma"
    assert "between 0.4 (epoch 5) and 4 (epoch 2) and turns 3 times" in found.evidence[0]
    assert found.override is not None
    assert "lr_factor: 0.01" in found.override
    # λ of note 001, as if it were σ²: after the first rounds it hardly moves.
    note = {"1": [22.1632, 7.2043, 8.7624, 8.5049, 8.3853, 8.2330, 8.1852, 8.6777]}
    overshoot = {"0": [2.06, 8.25, 17.8, 18, 12, 7.32, 5.41, 5.37, 6.34, 7.24]}
    falling = {"0": [1.0, 0.1, 1e-3, 1e-6]}
    for calm in (note, overshoot, falling):
        assert findings(tmp_path, Written("etf-uncertainty").dial("sigma_sq_align", calm)) == []


def test_swings_and_reversals_by_hand() -> None:
    up_and_down = dict(enumerate([1.0, 2.0, 1.0, 2.0], 1))
    assert abs(swing(up_and_down) - 2 * 0.6931471805599453) < 1e-12  # 3 log 2 − log 2
    assert reversals(up_and_down) == 2
    assert swing(dict(enumerate([1.0, 2.0, 4.0]))) == 0
    assert reversals(dict(enumerate([1.0, 2.0, 1.95, 4.0]))) == 0  # less than 10 % back


def gradients(cosines: list[float], local: float, align: float, weight: float = 5.0) -> Written:
    trial = Written("etf-fixed")
    for name in ("0", "1"):
        trial.dial("gradient_cosine", {name: cosines})
        trial.dial("gradient_norm_local", {name: [local] * len(cosines)})
        trial.dial("gradient_norm_align", {name: [align] * len(cosines)})
        trial.dial("lambda_effective", {name: [weight] * len(cosines)})
    return trial


def test_opposed_gradients_are_found_unless_they_are_in_balance(tmp_path: Path) -> None:
    against = [0.1, -0.5, -0.6, -0.7]
    (found,) = findings(tmp_path, gradients(against, 1.0, 0.02), rule="gradient-conflict")
    assert "is -0.60 at client 0" in found.evidence[0]
    assert "0.1 × that of ∇L_loc" in found.evidence[0]
    # With λ‖∇L_al‖ = ‖∇L_loc‖ the prototypes have reached the equilibrium of both losses.
    assert findings(tmp_path, gradients(against, 1.0, 0.2), rule="gradient-conflict") == []
    sometimes = [0.1, -0.9, 0.1, -0.9]
    assert findings(tmp_path, gradients(sometimes, 1.0, 0.02), rule="gradient-conflict") == []


def test_a_gradient_that_dominates_is_found(tmp_path: Path) -> None:
    for local, align, which in ((0.1, 1.0, "alignment"), (1.0, 1e-4, "local")):
        (found,) = findings(tmp_path, gradients([0.1] * 4, local, align))
        assert found.rule == "dominating-gradient"
        assert f"the {which} gradient dominates" in found.title
    assert findings(tmp_path, gradients([0.1] * 4, 1.0, 0.07)) == []
    # An attenuated λ ends at 0; this is intended.
    ending = {"0": [5, 5, 0.0], "1": [5, 5, 0.0]}
    faded = gradients([-0.5] * 3, 1.0, 0.15).dial("lambda_effective", ending)
    assert findings(tmp_path, faded) == []


def test_clipping_in_every_step_is_a_remark(tmp_path: Path) -> None:
    trial = Written("fafi").dial("clipped", {"0": [0.5, 1.0, 1.0, 1.0], "1": [1.0] * 4})
    (found,) = findings(tmp_path, trial)
    assert (found.rule, found.level) == ("always-clipped", "remark")
    assert "lr·clip/(1 − m) = 0.5" in found.meaning
    assert "budget.clip=[1.0, 10.0]" in (found.override or "")
    assert findings(tmp_path, Written("fafi").dial("clipped", {"0": [1, 0.9, 0.7, 0.5]})) == []


def two_stages(after: float, losses: list[float]) -> Written:
    trial = Written("bank-two-stage").dial("stage", {"0": [1, 2, 2], "1": [1, 2, 2]})
    trial.dial("loss_align", {"0": losses, "1": losses})
    return trial.at(1, features=after).at(3, features=0.4)


def test_a_first_stage_that_teaches_nothing_is_found(tmp_path: Path) -> None:
    # Note 000: a test accuracy of 10.22 % after the first stage.
    (found,) = findings(tmp_path, two_stages(0.1022, [4.0, 4.0, 4.0]))
    assert found.rule == "wasted-warm-up"
    assert "After stage 1 (epoch 1 of 3)" in found.evidence[0]
    assert "10.2 %; guessing reaches 10.0 %" in found.evidence[0]
    assert "bank-curriculum" in (found.override or "")
    assert findings(tmp_path, two_stages(0.25, [4.0, 4.0, 4.0])) == []


def test_alignment_that_the_second_stage_undoes_is_found(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, two_stages(0.25, [4.0, 4.6, 4.5]))
    assert found.rule == "forgetting"
    assert "rises from 4 at the end of stage 1 (epoch 1) to 4.6" in found.evidence[0]
    assert findings(tmp_path, two_stages(0.25, [4.0, 4.1, 3.9])) == []


def test_a_model_that_guesses_is_found(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, Written("fafi").at(5, features=0.105))
    assert found.rule == "at-chance"
    assert "the fusion loses it" in found.meaning  # 90 % on the clients' own images
    assert findings(tmp_path, Written("fafi").at(5, features=0.15)) == []
    # Guessing is better where one class is frequent: 600 of 1,000 images.
    uneven: list[list[int]] = [[600, 0], [380, 20]]
    trial = Written("fafi").at(5, features=fused(0.62) | {"confusion": uneven})
    assert findings(tmp_path, trial, rule="at-chance")


def test_an_accuracy_that_falls_is_found(tmp_path: Path) -> None:
    def course(*accuracies: float, **more: Any) -> Written:
        trial = Written("fafi")
        for epoch, accuracy in enumerate(accuracies, 1):
            trial.at(epoch, features=fused(accuracy, **more))
        return trial

    (found,) = findings(tmp_path, course(0.3, 0.5, 0.4))
    assert found.rule == "decline"
    assert "50.0 % in epoch 2 and is 40.0 % in epoch 3" in found.evidence[0]
    assert findings(tmp_path, course(0.3, 0.5, 0.49)) == []
    assert findings(tmp_path, course(0.3, 0.5, 0.4, images=50)) == []  # ten points are chance
