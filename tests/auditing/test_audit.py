"""The audit: robust distances by hand, and hostile clients among honest ones."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import accord
from accord.auditing.audit import Audited
from accord.auditing.kinds.answers import Answers, skill_of
from accord.auditing.kinds.base import Case
from accord.auditing.kinds.rank import Rank
from accord.auditing.kinds.scale import within
from accord.auditing.sign import FEWEST, distances, ratio_strengths
from accord.auditing.warn import warn
from accord.client.summing import sums_of
from accord.closed_form.packing import PACKINGS, Packing
from accord.closed_form.sums import Sums
from accord.core.errors import AccordError
from accord.fusion.base import Outputs
from accord.messages import Upload, UploadHeader
from command_line import Here
from core.cases import case
from tests_support import brief_for

CLIENTS = 6


def study(recipe: str, attack: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "name": "audited",
        "data": {"name": "digits", "validation": 0.2, "train_limit": 600, "test_limit": 50},
        "partition": {"scheme": "dirichlet", "alpha": 1.0, "clients": CLIENTS},
        "attack": attack,
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 4, "batch": 16},
        "recipes": [recipe],
        "references": False,
        **changes,
    }


def audited(folder: Path, recipe: str, attack: dict[str, Any]) -> tuple[Audited, list[str]]:
    """The audit of a small run, and its hostile clients."""
    accord.run(study(recipe, attack), out=folder, workers=1, quiet=True)
    (found,) = accord.audit(folder)
    (trial,) = (folder / "trials").iterdir()
    return found, list(json.loads((trial / "trial.json").read_text())["hostile"])


def test_distances_by_hand() -> None:
    values = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "e": 100.0}
    found = distances(values, floor=0.1)  # the median is 3, the median absolute deviation 1
    assert found["e"] == pytest.approx(97 / 1.4826)
    assert found["c"] == 0
    equal = dict.fromkeys("abcd", 1.0) | {"e": 1.05}
    assert distances(equal, floor=0.1)["e"] == pytest.approx(0.5)  # not infinitely far
    assert distances(dict.fromkeys("abc"[: FEWEST - 1], 1.0), floor=0.1) == {}


def test_a_ratio_must_be_far_and_large() -> None:
    values = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0, "e": 1.9, "f": 50.0}
    found = ratio_strengths(values, factor=5.0)
    assert found["e"][0] < 1 < found["f"][0]
    assert found["f"][1] == pytest.approx(50.0)
    assert ratio_strengths({"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0}, factor=5.0)["a"][0] == 0


def test_the_spread_within_classes_does_not_depend_on_the_classes() -> None:
    draws = torch.Generator().manual_seed(0)
    centres = 10 * torch.randn(3, 4, generator=draws).double()
    for labels in ([0] * 50, [0, 1] * 25, [0, 1, 2, 2, 2] * 10):
        with case(labels[:5]):
            told = torch.tensor(labels)
            rows = centres[told] + torch.randn(50, 4, generator=draws)
            counts = torch.bincount(told, minlength=3)
            sums = torch.zeros(3, 4).double().index_add_(0, told, rows)
            apart = rows - rows.mean(dim=0)
            expected = sum(
                (rows[told == c] - rows[told == c].mean(dim=0)).square().sum().item()
                for c in set(labels)
            ) / (50 - len(set(labels)))
            for packing in PACKINGS:
                found = within(sent(Sums(counts, sums, apart.T @ apart), packing))
                assert found == pytest.approx(expected, rel=1e-5)
    one = Sums(torch.tensor([1]), torch.ones(1, 4), torch.zeros(4, 4))
    assert within(sent(one, "float32")) is None


def sent(sums: Sums, packing: Packing) -> Upload:
    header = UploadHeader(client="a", epoch=1, samples=sums.total, briefing="")
    return Upload(header, sums.tensors(packing))


def test_skill_is_asked_only_of_classes_that_a_client_holds() -> None:
    logits = torch.tensor([[9.0, 1.0, 0.0], [2.0, 1.0, 9.0], [0.0, 1.0, 9.0], [0.0, 9.0, 0.0]])
    labels = torch.tensor([0, 0, 1, 2])
    found = skill_of(Outputs(logits, logits), torch.tensor([20, 10, 0]), labels)
    assert found is not None
    assert (found.value, found.right, found.classes) == (1.0, 1.0, 2)  # class 2 does not count
    swapped = skill_of(Outputs(logits, logits), torch.tensor([20, 0, 10]), labels)
    assert swapped is not None
    assert swapped.right == pytest.approx(0.25)  # right on one of two images of class 0, none of 2
    assert skill_of(Outputs(logits, logits), torch.tensor([20, 1, 0]), labels) is None


def test_nobody_stands_out_where_nobody_has_learnt() -> None:
    labels = torch.arange(4).repeat(10)
    logits = torch.zeros(40, 4)  # always class 0: exactly as good as guessing
    outputs = [Outputs(logits, logits)] * 4
    images = SimpleNamespace(labels=labels.numpy())
    kind = Answers(SimpleNamespace(labelled=images, outputs=outputs, part="validation"))  # type: ignore[arg-type]
    kind.counts = {name: torch.full((4,), 50) for name in "abcd"}
    kind.claimed = dict.fromkeys("abcd", 0.25)
    assert {sign.strength for sign in kind.judge()} == {0.0}
    wrong = torch.nn.functional.one_hot((labels + 1) % 4).float()
    right = torch.nn.functional.one_hot(labels, 4).float()
    kind.case.outputs[:] = [Outputs(right, right)] * 3 + [Outputs(wrong, wrong)]
    found = {sign.client: sign.strength for sign in kind.judge()}
    assert found["a"] == 0
    assert found["d"] > 1


def test_hostile_nets_are_first(tmp_path: Path) -> None:
    for name in ("random", "near-copied"):
        with case(name):
            found, hostile = audited(tmp_path / name, "ce-ensemble", {"name": name})
            assert hostile[0] in found.clear
            assert name == "near-copied" or next(iter(found.signs)) == hostile[0]
            assert name in " ".join(found.remarks)
            assert f"--without {found.clear[0]}" in (found.command or "")


def test_hostile_sums_are_first(tmp_path: Path) -> None:
    for name in ("flipped", "inflated"):
        with case(name):
            found, hostile = audited(tmp_path / name, "closed-form-small", {"name": name})
            assert next(iter(found.signs)) == hostile[0]
            assert found.clear == hostile


def test_a_client_with_one_image_is_not_suspected_for_its_rank() -> None:
    """It has no scatter at all, like every honest client of its size."""
    draws = torch.Generator().manual_seed(0)
    briefing = brief_for("ce-ensemble")
    kind = Rank(Case(briefing, None, None, ""))
    for name, images in (("a", 30), ("b", 25), ("solo", 1)):
        found = sums_of(torch.randn(images, 40, generator=draws), torch.zeros(images).long(), 10)
        header = UploadHeader(client=name, epoch=1, samples=images, briefing=briefing.digest)
        kind.see(Upload(header, found.tensors("float32")))
    signs = {sign.client: sign.strength for sign in kind.judge()}
    assert signs.keys() == {"a", "b"}
    assert max(signs.values()) == 0


def test_honest_clients_are_not_named(tmp_path: Path) -> None:
    for recipe in ("ce-ensemble", "closed-form-small"):
        with case(recipe):
            found, _ = audited(tmp_path / recipe, recipe, {"name": "none"})
            assert found.clear == []
            assert found.command is None
            assert "validation" in found.images
            assert {*found.signs} == {str(k) for k in range(CLIENTS)}
            lines: list[str] = []
            warn(tmp_path / recipe, lines.append)
            assert lines == []
    with pytest.raises(AccordError, match="no trial has"):
        accord.audit(tmp_path / "ce-ensemble", trial="nowhere")


def test_the_command_shows_the_clients_and_what_to_do(
    tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, hostile = audited(tmp_path / "run", "ce-ensemble", {"name": "scaled", "strength": 20.0})
    lines: list[str] = []
    warn(tmp_path / "run", lines.append)
    assert len(lines) == 1
    assert f"client {hostile[0]} stands out" in lines[0]
    unread: list[str] = []
    monkeypatch.setattr("accord.auditing.warn.MOST_BYTES", 0)
    warn(tmp_path / "run", unread.append)
    assert unread == [
        f"the uploads of 1 further trial were not looked at: accord audit {tmp_path / 'run'}"
    ]
    done = here("audit", str(tmp_path / "run"))
    assert done.code == 0
    assert "stands out clearly" in done.out
    assert found.command is not None
    assert found.command in done.out
    other = next(str(k) for k in range(CLIENTS) if str(k) != hostile[0])
    (path,) = (tmp_path / "run").glob(f"trials/*/uploads/client-{other}.safetensors")
    path.write_bytes(b"")  # a damaged upload is the clearest sign, and the others are still judged
    (damaged,) = accord.audit(tmp_path / "run")
    assert list(damaged.signs)[:2] == [other, hostile[0]]
    assert damaged.signs[other][0].kind == "refused"
    told = json.loads(here("audit", str(tmp_path / "run"), "--json").out)
    assert told[0]["clients"][1]["client"] == hostile[0]
    assert told[0]["clients"][1]["clear"] is True
