"""The figures of `--dry-run`: computed by hand from given speeds, and compared with a real run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accord
from accord.core.budget import Budget
from accord.core.errors import AccordError, ClientError
from accord.data.allocation import Allocation
from accord.federation.execute import in_this_process
from accord.federation.plan import Plan
from accord.federation.rehearsal.rehearsal import Rehearsal
from accord.federation.rehearsal.speed import Effort, Speed
from accord.federation.work import Run
from accord.fusion.average import Average
from accord.fusion.base import Scene
from accord.fusion.distilled import Distilled
from accord.methods.mergenet import MergeNet
from accord.record.record import Record
from accord.report.costs import Cost
from accord.report.estimate import Estimate, estimate, mapped_bytes
from closed_run import RECIPE as CLOSED

Raw = dict[str, Any]
SPEED = Speed(
    step=0.5, image=0.01, look=0.002, answer=3, upload=1, upload_image=0.1, upload_bytes=9, width=4
)


def test_the_seconds_of_a_client_by_hand() -> None:
    """300 images are 3 steps of 100 each, of which one measures the gradients."""
    budget = Budget(epochs=4, batch=128, checkpoints=(2,))
    assert SPEED.training(300, budget) == pytest.approx(4 * (3 * 0.5 + 300 * 0.01 + 100 * 0.002))
    uploads = 2 * (1 + 300 * 0.1)  # after epochs 2 and 4
    assert SPEED.answering(300, budget) == pytest.approx(3 + SPEED.training(300, budget) + uploads)
    # 40 steps: two of them measure the gradients.
    long = Budget(epochs=1, batch=10)
    assert SPEED.training(400, long) == pytest.approx(40 * 0.5 + 400 * 0.01 + 2 * 10 * 0.002)


@given(st.integers(1, 5_000), st.integers(1, 300), st.integers(1, 9))
def test_more_images_and_more_epochs_cost_more(images: int, batch: int, epochs: int) -> None:
    budget = Budget(epochs=epochs, batch=batch)
    seconds = SPEED.training(images, budget)
    assert 0 < seconds < SPEED.training(images + batch, budget)
    assert SPEED.training(images, budget.changed({"epochs": 3 * epochs})) == pytest.approx(
        3 * seconds
    )


def test_the_seconds_of_the_server_by_hand() -> None:
    """Ten clients instead of two; 900 images of work instead of 300."""
    assert Effort(seconds=5, clients=2, work=0).whole(10, 0, 0.25) == 5 + 8 * 0.25
    assert Effort(seconds=5, clients=2, work=300).whole(10, 900, 0.25) == 15 + 8 * 0.25


def test_both_times_by_hand() -> None:
    """Two workers: half of the core time, but no less than the chain of one trial's rounds."""
    short = Cost("a", 1, [10, 20], "", [[3.0, 5.0]], merge_seconds=1, measure_seconds=11)
    found = Estimate([short, short], 2, 10**9)
    assert (short.seconds, short.longest) == (20, 6)
    assert (found.core_seconds, found.wall_seconds) == (40, 20)
    chain = Cost("b", 3, [10, 90], "", [[1.0, 9.0]] * 3, merge_seconds=4, measure_seconds=2)
    found = Estimate([chain], 4, 10**9)
    assert (found.core_seconds, found.wall_seconds) == (36, 31)
    core, wall = (str(line) for line in found.lines()[1:3])
    assert core.startswith("core time: about 36 s of one core")
    assert wall.startswith("wall time if idle: about 31 s with 4 workers")


def allocations(study: Raw) -> list[Allocation]:
    checked = accord.load_study(study)
    plan = Plan(checked, None, print)
    return [plan.allocation(trial)[1] for trial in checked.trials()]


def test_mapped_images_by_hand(study: Raw, tmp_path: Path) -> None:
    """All of a small file, and 64 KiB for each image if few images of a large file are used."""
    images = np.zeros((4_000, 32, 32, 3), dtype=np.uint8)  # 12 MB
    labels = np.arange(4_000) % 10
    test: Raw = {"x_test": images[:20], "y_test": labels[:20]}
    np.savez(tmp_path / "some.npz", allow_pickle=False, x_train=images, y_train=labels, **test)
    study["data"] = {"name": "npz", "path": str(tmp_path / "some.npz")}
    assert mapped_bytes(allocations(study)) == (4_000 + 20) * 32 * 32 * 3
    study["data"]["train_limit"] = 100
    few = allocations(study)
    assert mapped_bytes(few) == 100 * 2**16 + 20 * 32 * 32 * 3
    assert mapped_bytes([*few, *few]) == mapped_bytes(few)  # they share the files


# --- what is rehearsed ---------------------------------------------------------------------------


def rehearsed(study: Raw, tmp_path: Path) -> tuple[Rehearsal, list[Run]]:
    checked = accord.load_study(study)
    plan = Plan(checked, None, print)
    plan.check()
    runs = plan.runs(Record(tmp_path / "record"))
    found = Rehearsal(Record(tmp_path / "stage"), in_this_process(), print)
    found.measure(runs)
    return found, runs


def test_every_kind_of_work_is_rehearsed(study: Raw, tmp_path: Path) -> None:
    """Training, uploads, the start of a round, merges and measuring; a map, sums and a ridge."""
    study["data"]["public"] = 0.2
    student = {"use": "distilled", "epochs": 40}
    study |= {"fusions": ["average", "classwise", student], "rounds": {"count": 2}}
    study["recipes"] = ["fafi", "fedavg", CLOSED]
    found, _ = rehearsed(study, tmp_path)
    assert len(found.speeds) == 3
    trained, rounds, closed = found.speeds.values()
    for speed in found.speeds.values():
        told = ("answer", "upload", "upload_bytes", "width", "load", "forward")
        assert speed.step + speed.image > 0  # a noisy clock can make one of the two 0
        assert all(getattr(speed, name) > 0 for name in told)
        assert all(effort.seconds > 0 for effort in speed.merges.values())
    assert [len(speed.merges) for speed in found.speeds.values()] == [2, 2, 1]
    assert trained.advance is None
    assert rounds.advance is not None
    assert rounds.advance.seconds > 0
    assert closed.width == 2 * 20 * 4  # both signs of 20 patches, in 2 × 2 windows
    assert min(found.drawing.values()) > 0
    assert found.memory > 10**8
    # The student is rehearsed for three epochs of the 30 public images.
    assert sorted(effort.work for effort in trained.merges.values()) == [0, 90]


def test_a_shortened_rule_has_less_work_of_the_same_kinds() -> None:
    short = Distilled(epochs=40, batch=16).shortened()
    assert (short.epochs, short.batch) == (3, 16)
    assert Distilled(epochs=2).shortened().epochs == 2
    assert Average().shortened() == Average()
    method = MergeNet(merge={"use": "average"}).shortened()
    assert method.asked.steps == 3
    assert method.fusion_applied(1)


def test_a_rehearsal_that_fails_is_explained(
    study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Average, scene: Scene) -> Any:  # noqa: ARG001
        raise ClientError("out of memory. Choose a smaller net.backbone.")

    monkeypatch.setattr(Average, "merge", fails)
    with pytest.raises(AccordError, match=r"cannot be estimated: out of memory\. Choose"):
        rehearsed({**study, "fusions": ["average"]}, tmp_path)


def test_the_memory_of_a_worker_is_close_to_the_recorded_peak(study: Raw, tmp_path: Path) -> None:
    """Two workers are processes of their own; the bounds are generous, the benchmark's are not."""
    study["net"] = {"backbone": "resnet10"}
    study["budget"] = {"epochs": 1, "batch": 64}
    found = estimate(accord.load_study(study), Record(tmp_path), None, 2)
    assert not list(tmp_path.iterdir())
    accord.run(study, out=tmp_path, workers=2, quiet=True)
    (trial,) = Record(tmp_path).trials()
    assert trial.info()["peak_memory_bytes"] / 1.4 < found.memory
    assert found.memory < 1.4 * trial.info()["peak_memory_bytes"]
