"""Rules about clients, fusions, collapse, batch norms, confidences and failures."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from accord.diagnosis.rules.batchnorm import mismatch
from accord.diagnosis.rules.collapse import mean_cosine, separation, spread
from diagnosed import Written, findings, fused

COUNTS = torch.tensor([10, 10, 0])


def counts(*rows: list[int]) -> Written:
    names = {str(index): f"client-{index}" for index in range(len(rows))}
    return Written("fafi", label_counts=list(rows), client_files=names, clients=len(rows))


def test_classes_that_nobody_holds_are_named(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, counts([50] * 8 + [0, 0], [50] * 9 + [0]))
    assert found.rule == "classes-nobody-holds"
    assert found.evidence == ["1 of 10 classes have no image: 9."]
    assert findings(tmp_path, counts([50] * 5 + [0] * 5, [0] * 5 + [50] * 5)) == []


def test_tiny_clients_and_clients_with_one_class_are_remarks(tmp_path: Path) -> None:
    single, tiny = findings(tmp_path, counts([50] * 10, [20] + [0] * 9))[::-1]
    assert tiny.rule == "tiny-clients"
    assert tiny.evidence == [
        "1 of 2 clients, with their images: 1 (20).", "They hold 3.8 % of all images.",
    ]  # fmt: skip
    assert single.rule == "single-class-clients"
    assert "1 of 2 clients hold one class: 1" in single.evidence[0]
    assert "closed-form-small" in (single.override or "")
    sums = counts([50] * 10, [20] + [0] * 9)
    sums.info["config"]["recipe"] = {"name": "closed-form-small", "map": {}, "pooled": False}
    assert findings(tmp_path, sums) == []


def leave(gain: float, part: str = "test", images: int = 1000) -> Written:
    told = {"part": part, "all": 0.5, "without": {"0": 0.5 + gain, "1": 0.4}}
    trial = Written("fafi").at(5, features=fused(0.5, images, leave_one_out=told))
    trial.info["config"]["data"]["validation"] = 0.1
    return trial


def test_a_client_whose_leaving_helps_is_named(tmp_path: Path) -> None:
    helps = partial(findings, tmp_path, rule="leaving-helps")
    (found,) = helps(leave(0.06))
    assert "without client 0: 56.0 % instead of 50.0 % on the test images" in found.evidence[0]
    # √((0.5·0.5 + 0.56·0.44)/1000) = 0.0223
    assert "standard error of the difference is at most 2.2 points" in found.evidence[0]
    assert "It holds 500 of 1000 images" in found.evidence[0]
    assert "confirm it on others" in found.meaning
    assert helps(leave(0.04)) == []  # less than two standard errors
    # 1,000 images at the clients and a tenth for validation: 111 images
    assert helps(leave(0.1, "validation")) == []
    (found,) = helps(leave(0.2, "validation"))
    assert "validation images" in found.evidence[0]
    assert "at most 6.4 points" in found.evidence[0]  # √((0.5·0.5 + 0.7·0.3)/111)
    assert "confirm" not in found.meaning


def test_a_row_without_a_client_counts_as_well(tmp_path: Path) -> None:
    def measured(accuracy: float) -> Written:
        left = fused(accuracy, without=["1"])
        both: dict[str, Any] = {"features": 0.5, "features-without-1": left}
        return Written("fafi").at(5, **both)

    (found,) = findings(tmp_path, measured(0.6), rule="leaving-helps")
    assert "features without client 1: 60.0 %" in found.evidence[0]
    assert findings(tmp_path, measured(0.52), rule="leaving-helps") == []


def alone(accuracy: float) -> list[dict[str, Any]]:
    return [{"client": "0", "test_accuracy": accuracy}, {"client": "1", "test_accuracy": 0.2}]


def test_a_fused_model_below_its_best_client_is_found(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, Written("fafi").at(5, alone(0.6), features=0.5))
    assert found.rule == "worse-than-client"
    assert "client 0 alone reaches 60.0 %" in found.evidence[0]
    assert found.override is None  # no uploads
    assert findings(tmp_path, Written("fafi").at(5, alone(0.52), features=0.5)) == []
    reference = Written("local-only").at(5, alone(0.6), **{"client-mean": 0.4})
    assert findings(tmp_path, reference) == []


def test_a_fusion_that_is_far_better_is_named_with_its_command(tmp_path: Path) -> None:
    def measured(better: float) -> Written:
        trial = Written("fafi").at(5, features=0.4, classwise=better)
        return trial.upload("0", x=torch.ones(1)).upload("1", x=torch.ones(1))

    (found,) = findings(tmp_path, measured(0.5))
    assert found.rule == "better-fusion"
    assert found.title == "classwise is far better than the recipe's own fusion"
    assert "reaches 50.0 %, features 40.0 %, 10.0 points less" in found.evidence[0]
    assert "--fusion classwise --trial fafi-s0-00 --save model" in (found.override or "")
    assert findings(tmp_path, measured(0.44)) == []


def test_one_fusion_alone_is_a_remark_if_the_uploads_are_there(tmp_path: Path) -> None:
    trial = Written("fafi").at(5, features=0.4)
    assert findings(tmp_path, trial) == []
    trial.upload("0", x=torch.ones(1)).upload("1", x=torch.ones(1))
    (found,) = findings(tmp_path, trial)
    assert (found.rule, found.weight) == ("one-fusion", 10)
    assert (found.override or "").endswith("--fusion classwise")


def test_classes_that_a_fusion_does_not_recognise_are_named(tmp_path: Path) -> None:
    figures = fused(0.8)
    figures["confusion"][3] = [100, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    (found,) = findings(tmp_path, Written("fafi").at(5, features=figures))
    assert found.rule == "blind-class"
    assert found.evidence == ["fafi, features: recall below 5.0 % of 3 (100 training images)."]
    figures["confusion"][3] = [90, 0, 0, 10, 0, 0, 0, 0, 0, 0]
    assert findings(tmp_path, Written("fafi").at(5, features=figures)) == []


def net(prototypes: torch.Tensor, means: torch.Tensor, variance: float = 1.0) -> dict[str, Any]:
    width = prototypes.shape[1]
    return {
        "net__head__prototypes": prototypes, "class_means": means, "label_counts": COUNTS,
        "feature_mean": means[:2].mean(dim=0), "feature_var": torch.full((width,), variance),
    }  # fmt: skip


APART = torch.eye(3, 4)
ALIKE = torch.tensor([[1.0, 0.1, 0, 0], [1.0, 0, 0.1, 0], [0, 0, 0, 1.0]])


def test_cosines_and_variances_by_hand() -> None:
    assert mean_cosine(torch.tensor([[2.0, 0], [0, 3.0], [1.0, 1.0]])) == pytest.approx(
        (0 + 2 / 2**0.5) / 3
    )
    found = {
        "label_counts": torch.tensor([3, 1]), "class_means": torch.tensor([[0.0], [4.0]]),
        "feature_mean": torch.tensor([1.0]), "feature_var": torch.tensor([6.0]),
    }  # fmt: skip
    assert separation(found) == pytest.approx((0.75 * 1 + 0.25 * 9) / 6)
    assert spread(found) == pytest.approx(6)


def test_collapsed_prototypes_are_found(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, Written("fafi").upload("0", **net(ALIKE, APART)))
    assert found.rule == "prototypes-collapsed"
    assert "client 0 is 0.990" in found.evidence[0]  # 1/1.01
    assert findings(tmp_path, Written("fafi").upload("0", **net(APART, APART))) == []


def test_collapsed_features_are_found(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, Written("fafi").upload("0", **net(APART, ALIKE)))
    assert found.rule == "features-collapsed"
    assert "classes make up 0.1 % of their variance" in found.evidence[0]
    (found,) = findings(tmp_path, Written("fafi").upload("0", **net(APART, APART, 1e-6)))
    assert "8e-06 × their squared mean" in found.evidence[0]
    # One client of three does not make a finding.
    trial = counts([10, 10, 0], [10, 10, 0], [10, 10, 0])
    trial.info["classes"] = ["a", "b"]
    for name in ("0", "1", "2"):
        trial.upload(name, **net(APART, ALIKE if name == "0" else APART))
    assert findings(tmp_path, trial, rule="features-collapsed") == []


def norms(mean: float, fusion: str = "average") -> Written:
    measured: dict[str, Any] = {fusion: 0.5}
    trial = Written("fedavg-once").at(5, **measured)
    for name, sign in (("0", -1), ("1", 1)):
        trial.upload(name, **{
            "net.encoder.bn.running_mean": torch.full((3,), sign * mean),
            "net.encoder.bn.running_var": torch.full((3,), 2.0),
        })  # fmt: skip
    return trial


def test_batch_norms_that_differ_between_averaged_clients_are_found(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, norms(1.0), rule="batch-norm-mismatch")
    assert "bn: the variance of running means between clients is 0.50 ×" in found.evidence[0]
    assert "net.norm=[batch, group]" in (found.override or "")
    assert findings(tmp_path, norms(0.5), rule="batch-norm-mismatch") == []
    assert findings(tmp_path, norms(1.0, "classwise"), rule="batch-norm-mismatch") == []


def test_the_mismatch_of_batch_norms_by_hand() -> None:
    nets = [
        {"a.running_mean": torch.tensor([0.0, 1.0]), "a.running_var": torch.tensor([1.0, 4.0])},
        {"a.running_mean": torch.tensor([2.0, 1.0]), "a.running_var": torch.tensor([3.0, 4.0])},
    ]
    assert mismatch(nets) == {"a": pytest.approx((1 / 2 + 0) / 2)}
    assert mismatch(nets[:1]) == {}


def test_confidences_far_from_the_accuracy_are_found_with_their_side(tmp_path: Path) -> None:
    def sure(confidence: float, ece: float) -> Written:
        bins = [[0, 0.0, 0.0]] * 14 + [[1000, confidence, 0.5]]
        return Written("fafi").at(5, features=fused(0.5, reliability=bins) | {"ece": ece})

    (found,) = findings(tmp_path, sure(0.9, 0.4))
    assert found.title == "fused models are over-confident"
    assert "40.0 % at an accuracy of 50.0 %. The mean confidence is 90.0 %" in found.evidence[0]
    (found,) = findings(tmp_path, sure(0.2, 0.3))
    assert found.title == "fused models are under-confident"
    assert findings(tmp_path, sure(0.6, 0.1)) == []
    old = Written("fafi").at(5, features=fused(0.5) | {"ece": 0.4})
    assert findings(tmp_path, old)[0].title == "fused models are not calibrated"


def test_trials_and_clients_that_failed_are_found(tmp_path: Path) -> None:
    reason = "client 0: epoch 3 gave loss = nan, lambda_raw = 1e+06"
    (found,) = findings(tmp_path, Written("fafi", status="failed", failures=[reason]))
    assert (found.rule, found.weight) == ("failed-trial", 90)
    assert found.evidence == [reason]
    assert "budget.lr=[0.05, 0.005]" in (found.override or "")
    rounds = [
        {"round": 1, "failed": {}},
        {"round": 2, "failed": {"1": "no\x1b[31m answer"}},
    ]
    (found,) = findings(tmp_path, Written("fafi", rounds=rounds))
    assert found.rule == "failed-clients"
    assert "Client 1 missed 1 of 2 rounds, first round 2: no�[31m answer" in found.evidence[1]
    assert findings(tmp_path, Written("fafi", rounds=rounds[:1])) == []


def test_a_client_that_does_not_learn_its_own_images_is_found(tmp_path: Path) -> None:
    def trained(*accuracies: float) -> Written:
        names = {str(index): "x" for index in range(len(accuracies))}
        trial = Written("fafi", client_files=names, label_counts=[[50] * 10] * len(names))
        clients = [{"client": str(k), "train_accuracy": a} for k, a in enumerate(accuracies)]
        return trial.at(5, clients, features=0.5)

    (found,) = findings(tmp_path, trained(0.9, 0.14, 0.95))
    assert found.rule == "client-does-not-learn"
    assert "client 1 is right on 14.0 %" in found.evidence[0]
    assert "the median of all clients is 90.0 %. It holds 500 images" in found.evidence[0]
    for usual in ((0.9, 0.7, 0.95), (0.4, 0.1, 0.5), (0.9, 0.1)):
        assert findings(tmp_path, trained(*usual)) == []
