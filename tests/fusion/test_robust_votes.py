"""Median and clipped votes: by hand, and bounded whatever one client says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from accord.core.parts import make_part
from accord.fusion import fusions
from accord.fusion.base import Combiner, Outputs, Summary, Vote
from accord.fusion.clipped import ClippedClasswise, ClippedCombiner
from accord.fusion.evaluate import combiner_of
from accord.fusion.placing import median_among, placed
from accord.fusion.uploads import UploadFiles
from accord.messages import UploadHeader
from accord.model.export import export_onnx
from accord.model.predictor import Predictor
from core.cases import case
from fusion.clients import BRIEFING, HOLDINGS, TEST, written

ROBUST = ("median-outputs", "median-classwise", "clipped-classwise")


def summaries(counts: list[list[int]]) -> list[Summary]:
    found = []
    for index, row in enumerate(counts):
        header = UploadHeader(client=str(index), epoch=1, samples=sum(row), briefing="")
        unit = {"score_mean": torch.zeros(3), "score_std": torch.ones(3)}
        tensors = {"label_counts": torch.tensor(row), "net.head.prototypes": torch.eye(3), **unit}
        found.append(Summary(header, tensors))
    return found


def combiner(name: Any, counts: list[list[int]]) -> Combiner:
    rule = make_part(fusions, name, "fusion")
    assert isinstance(rule, Vote)
    return rule.combiner(summaries(counts), BRIEFING)


def decided(made: Combiner, each: list[Tensor]) -> Tensor:
    votes = [made.vote(k, Outputs(rows, rows)) for k, rows in enumerate(each)]
    return made.decide(torch.stack(votes).sum(dim=0))


def test_votes_stand_side_by_side() -> None:
    votes = [torch.full((2, 3), float(k + 1)) for k in range(4)]
    total = sum((placed(vote, k, 4) for k, vote in enumerate(votes)), torch.zeros(2, 12))
    assert total[0].tolist() == [1.0] * 3 + [2.0] * 3 + [3.0] * 3 + [4.0] * 3


def test_the_median_is_over_those_who_hold_a_class() -> None:
    held = torch.tensor([[True, True, False], [True, True, False], [True, False, False]])
    total = torch.tensor([[1.0, 5.0, 9.0, 8.0, 7.0, 9.0, 3.0, 0.0, 9.0]])
    assert median_among(total, held, -30.0).tolist() == [[3.0, 6.0, -30.0]]
    everybody = torch.ones(3, 3, dtype=torch.bool)
    assert median_among(total, everybody, 0.0).tolist() == [[3.0, 5.0, 9.0]]


def test_median_outputs_by_hand() -> None:
    logits = [
        torch.tensor([[0.0, 0.0, 0.0]]),
        torch.tensor([[5.0, 0, 0]]),
        torch.tensor([[9.0, 0, 0]]),
    ]
    made = combiner("median-outputs", [[1, 1, 1], [3, 1, 0], [2, 2, 0]])
    p = [row.softmax(dim=1)[0].tolist() for row in logits]
    expected = [sorted(one[c] for one in p)[1] for c in range(2)] + [p[0][2]]  # one holds class 2
    torch.testing.assert_close(decided(made, logits).exp(), torch.tensor([expected]))
    everybody = combiner(
        {"use": "median-outputs", "among": "all"}, [[1, 1, 1], [3, 1, 0], [2, 2, 0]]
    )
    expected[2] = sorted(one[2] for one in p)[1]
    torch.testing.assert_close(decided(everybody, logits).exp(), torch.tensor([expected]))


def test_a_minority_of_holders_cannot_decide() -> None:
    """Of five holders two say the same wrong thing, with any confidence and any counts."""
    right, wrong = torch.tensor([[4.0, 0.0, 0.0]]), torch.tensor([[0.0, 1e4, 0.0]])
    for name in ("median-outputs", "median-classwise"):
        made = combiner(name, [[5, 5, 5]] * 3 + [[10**9, 10**9, 10**9]] * 2)
        assert decided(made, [right] * 3 + [wrong] * 2).argmax().item() == 0, name


def test_the_influence_of_a_clipped_client_is_bounded() -> None:
    """Its score is cut at the limit, and its weight at twice the median of the holders."""
    made = combiner("clipped-classwise", [[4, 4, 4]] * 4 + [[4 * 10**8, 4, 4]])
    assert isinstance(made, ClippedCombiner)
    assert made.votes[:, 0].tolist() == pytest.approx([1 / 6] * 4 + [2 / 6])  # √n was 10⁴ times
    assert made.votes[:, 1].tolist() == pytest.approx([1 / 5] * 5)
    narrow = torch.ones(5, 3)
    narrow[4] = 1e-6
    made.spread = narrow
    said = made.calibrated(4, Outputs(torch.tensor([[1.0, 0.0, 0.0]]), torch.zeros(1, 3)))
    assert said.tolist() == [[3.0, 0.0, 0.0]]
    assert ClippedClasswise(limit=1.0).combiner(summaries([[1, 1, 1]]), BRIEFING).limit == 1.0


def test_they_are_saved_and_exported(tmp_path: Path) -> None:
    """A saved model and its ONNX file say the same as the fusion."""
    clients = UploadFiles(written(tmp_path, HOLDINGS["skewed"]), BRIEFING)
    for name in ROBUST:
        with case(name):
            rule = make_part(fusions, name, "fusion")
            assert isinstance(rule, Vote)
            model = saved_model(name, clients, tmp_path)
            assert model.combiner.name == combiner_of(rule, clients).name
            assert bool(model.scores(TEST).isfinite().all())
            assert export_onnx(model, tmp_path / f"{name}.onnx") < 1e-4


def saved_model(name: str, clients: UploadFiles, folder: Path) -> Predictor:
    from accord.federation.modelling import model_of
    from accord.fusion.named import NamedFusion

    made = model_of(NamedFusion.read(name, "fusion"), clients.paths, BRIEFING, {})
    made.save(folder / name)
    return Predictor.load(folder / name)
