"""What the closed form says: before a run, in a record, and of mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import accord
from accord.cli import app
from accord.closed_form.ridge import solve
from accord.closed_form.sums import Sums
from accord.core.errors import AccordError
from accord.federation.plan import Plan
from accord.messages import Upload
from accord.record.record import Record
from accord.report.estimate import estimate
from accord.study.resolve import resolve
from accord.study.study import load_study
from closed_run import RECIPE, SMALL, run, study, uploads


def test_a_record_tells_the_solution(made: Path) -> None:
    (trial,) = Record(made).trials()
    solution = trial.measures()["checkpoints"][0]["fusions"]["ridge"]["solution"]
    parts = [Sums.of(Upload.load(path).tensors) for path in uploads(made)]
    expected = solve(sum(parts[1:], parts[0]))
    assert solution["penalty"] == pytest.approx(expected.penalty)
    assert solution["freedom"] == pytest.approx(expected.freedom)
    assert solution["seconds"] > 0


def test_a_class_that_leaves_with_its_client_is_told(
    record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (trial,) = Record(record).trials()
    counts = np.array(trial.info()["label_counts"])
    client = int(np.argmax(counts[:, 0]))
    others = [str(index) for index in range(4) if index != client]
    lost = [
        str(label) for label in range(10) if counts[:, label].any() and not counts[client, label]
    ]
    accord.fuse(record, ["ridge"], remove=others, workers=1)
    assert f"no remaining client has images of {', '.join(lost)}\n" in capsys.readouterr().err
    fewer = [c for c in others if (np.delete(counts, int(c), axis=0).sum(axis=0) > 0).all()]
    accord.fuse(record, ["ridge"], remove=fewer[:1], workers=1)
    assert "no remaining client" not in capsys.readouterr().err


def test_few_images_are_told_before_they_are_summed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accord.run(study(), out=tmp_path / "run", workers=1)
    said = capsys.readouterr().err
    sizes = [counts.sum() for counts in np.array(_info(tmp_path / "run")["label_counts"])]
    few = sum(size < 160 for size in sizes)  # two signs, 20 patches, 2×2 windows
    assert few > 0
    assert f"closed: {few} of 4 clients hold fewer images than φ has features (160)" in said
    tiny = {**RECIPE, "map": {"blocks": [{**SMALL, "count": 1, "grid": 1}]}}
    enough = study(recipes=[tiny], partition={"scheme": "iid", "clients": 2})
    accord.run(enough, out=tmp_path / "b", workers=1)
    assert "fewer images" not in capsys.readouterr().err


def test_every_setting_and_no_reference_is_asked_for_few_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = {**RECIPE, "pooled": True, "as": "alone"}
    partition = {"scheme": "iid", "clients": [1, 2]}
    accord.run(study(recipes=[alone, RECIPE], partition=partition), out=tmp_path / "run", workers=1)
    said = [line for line in capsys.readouterr().err.splitlines() if "fewer images" in line]
    assert len(said) == 1
    assert said[0].startswith("closed: 2 of 3 clients (in 1 of 2 partitions) hold fewer images")


def test_every_cell_of_a_grid_is_counted_and_the_advice_works(
    capsys: pytest.CaptureFixture[str],
) -> None:
    partition = {"scheme": "dirichlet", "alpha": [10.0, 0.05], "clients": [2, 4]}
    asked = study(partition=partition, seeds=[0, 1], recipes=[RECIPE])
    plan = Plan(load_study(asked), None, print)
    plan.check()
    (said,) = [line for line in capsys.readouterr().out.splitlines() if "fewer images" in line]
    sizes = [plan.allocation(t)[1].partition.label_counts.sum(1) for t in plan.study.trials()]
    small = [int((size < 160).sum()) for size in sizes]
    cells = f"{sum(s > 0 for s in small)} of {len(small)} partitions"
    clients = sum(map(len, sizes))
    assert said.startswith(f"closed: {sum(small)} of {clients} clients (in {cells}) hold fewer")
    assert clients == 24
    assert "may reveal individual images. Use a map with fewer features (a smaller count" in said
    narrow = {**RECIPE, "map": {"blocks": [{**SMALL, "count": 1, "grid": 1}]}}
    few = {**asked, "partition": {"scheme": "iid", "clients": 2}, "recipes": [narrow]}
    Plan(load_study(few), None, print).check()  # a smaller count and fewer clients
    assert "fewer images" not in capsys.readouterr().out


def _info(record: Path) -> dict[str, Any]:
    (trial,) = Record(record).trials()
    return trial.info()


def test_parameters_of_the_one_fusion_are_laid_over_it() -> None:
    recipe = resolve({"use": "closed-form", "fusion": {"prior": "data"}, "as": "x"}, Path())
    (fusion,) = recipe.fusion
    expected = {"use": "ridge", "penalty": None, "prior": "data", "as": "ridge"}
    assert fusion.to_json() == expected


@pytest.mark.parametrize(
    ("fixed", "said"),
    [
        ({"blocks": [SMALL, {**SMALL, "size": 0}]}, r"^recipes\.x: 'map\.blocks\[1\]\.size'"),
        ({"blocks": [SMALL], "gamma": 0.5}, r"recipes\.x\.map'?: `gamma` has an effect only"),
        ({"blocks": [SMALL], "teacher_epochs": 3}, "`teacher_epochs` has an effect only with"),
    ],
)
def test_a_mistake_in_a_map_is_told_with_its_place(fixed: Any, said: str) -> None:
    with pytest.raises(AccordError, match=said):
        resolve({"use": "closed-form", "map": fixed, "as": "x"}, Path())


@pytest.mark.parametrize(
    ("part", "said"), [("patches", "threshold"), ("encoder", "(needed)"), ("ridge", "penalty")]
)
def test_parts_of_a_recipe_explain_themselves(part: str, said: str) -> None:
    shown = CliRunner().invoke(app, ["recipes", part])
    assert shown.exit_code == 0
    assert said in shown.output


def test_other_images_are_named_when_fusing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    file = tmp_path / "scans.npz"

    def write(images: int) -> None:
        labels = np.arange(images) % 3
        np.savez(file, images=rng.integers(0, 256, (images, 8, 8), np.uint8), labels=labels)

    write(60)
    out = run(tmp_path / "run", data={"name": "npz", "path": str(file), "test_fraction": 0.2})
    write(66)
    with pytest.raises(AccordError, match=r"the images of .*scans\.npz are not those"):
        accord.fuse(out, [{"use": "ridge", "penalty": 1.0, "as": "again"}], workers=1, quiet=True)


def test_a_dry_run_counts_what_the_record_will_hold(tmp_path: Path) -> None:
    asked = load_study(study())
    drawing, cost = estimate(asked, Record(tmp_path / "run"), None, 1).costs
    assert drawing.note == "draws the fixed features"
    assert drawing.seconds > 0
    out = run(tmp_path / "run")
    kept = sum(
        path.stat().st_size for path in out.rglob("*.safetensors") if "allocations" not in str(path)
    )
    assert cost.disk_bytes == pytest.approx(kept, rel=0.02)


def test_a_reference_uploads_nothing(tmp_path: Path) -> None:
    out = run(tmp_path / "run", recipes=[RECIPE, "central"], budget={"epochs": 1, "batch": 64})
    lines = str(accord.load(out)).splitlines()
    (central,) = [line for line in lines if " central " in line]
    assert " – " in central
    (closed,) = [line for line in lines if " closed " in line]
    assert " – " not in closed
