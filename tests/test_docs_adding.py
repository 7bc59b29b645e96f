"""The examples of docs/adding.md are whole files: they pass the lint, and they work."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import accord
from accord.balance import balances
from accord.core.parts import make_part
from accord.core.registry import Registry
from accord.data.schemes import make_scheme, schemes
from accord.data.schemes.base import Pool
from accord.fusion.base import Outputs, combiners, fusions
from accord.messages import NET
from accord.methods import methods
from accord.objective import terms
from methods.scenes import scene_of
from pages import page, written_files
from tests_support import brief_for, images_of, train, training_recipe

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "adding.md").read_text()
EXAMPLES = {
    re.match(r"# (\S+)\n", code).group(1): code  # type: ignore[union-attr]
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.S)
}


@contextmanager
def added(name: str, part: str, *families: Registry[Any]) -> Iterator[None]:
    """Runs the example of that file; its part is registered as long as the test lasts."""
    (path,) = [path for path in EXAMPLES if path.endswith(f"{name}.py")]
    for family in families:
        family.names()  # all others are known before
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"shown_{name}.py"
        file.write_text(EXAMPLES[path])
        found = importlib.util.spec_from_file_location(file.stem, file)
        assert found is not None
        assert found.loader is not None
        sys.modules[file.stem] = importlib.util.module_from_spec(found)
        found.loader.exec_module(sys.modules[file.stem])
    try:
        yield
    finally:
        del sys.modules[file.stem]
        for family in families:
            del family._parts[part]


def test_there_is_one_of_each_kind() -> None:
    folders = {str(Path(path).parent) for path in EXAMPLES}
    assert folders == {
        f"src/accord/{room}"
        for room in ("objective", "balance", "fusion", "data/schemes", "methods")
    }


def test_examples_pass_the_lint() -> None:
    for path, code in EXAMPLES.items():
        for words in (["check", "-q"], ["format", "-q", "--check"]):
            done = subprocess.run(
                [sys.executable, "-m", "ruff", *words, "--stdin-filename", path, "-"],
                input=code,
                text=True,
                capture_output=True,
                cwd=ROOT,
            )
            assert done.returncode == 0, path + done.stdout + done.stderr


def test_examples_pass_the_types(tmp_path: Path) -> None:
    tutorial = written_files(page("tutorial-add-method.md"))
    shown = EXAMPLES | {path: code for path, code in tutorial.items() if path.startswith("src/")}
    assert len(shown) == len(EXAMPLES) + 1
    files = [tmp_path / Path(path).name for path in shown]
    for file, code in zip(files, shown.values(), strict=True):
        file.write_text(code)
    config = ["--config-file", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *config, *map(str, files)],
        text=True,
        capture_output=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_term_works_as_told() -> None:
    with added("shortness", "shortness", terms):
        change = {"objective": {"shortness": {"power": 1, "weight": 0.1}}}
        recipe = training_recipe({"use": "fafi", **change, "as": "short"}, ROOT)
        assert recipe.objective["shortness"] == {"weight": 0.1, "power": 1.0}


def test_the_balance_trains() -> None:
    with added("inverse", "inverse", balances):
        change = {"balance": {"use": "inverse", "lambda": 10}}
        upload = train(images_of([0] * 6 + [1] * 6), brief_for("etf-fixed", change=change), "0")
        dials = [event["lambda_raw"] for event in upload.header.telemetry]
        assert dials == pytest.approx([10 / 1.5, 5])


def test_the_fusion_counts_votes(study: dict[str, Any], tmp_path: Path) -> None:
    with added("majority", "majority", fusions, combiners):
        combiner = combiners.get("majority")(weights=torch.tensor([0.5, 0.3, 0.2]))
        logits = [[3.0, 1.0, 0.0], [0.0, 1.0, 0.5], [0.0, 4.0, 1.0]]
        votes = [
            combiner.vote(k, Outputs(torch.zeros(1, 2), torch.tensor([row])))
            for k, row in enumerate(logits)
        ]
        shares = combiner.decide(torch.stack(votes).sum(dim=0)).softmax(dim=1)
        torch.testing.assert_close(shares, torch.tensor([[0.5, 0.5, 0.0]]), atol=1e-5, rtol=0)
        rows = accord.run(
            {**study, "fusions": ["majority"]}, out=tmp_path, workers=1, quiet=True
        ).rows
        assert {row["fusion"] for row in rows} == {"features", "majority"}


def test_the_scheme_deals_out_all_images() -> None:
    with added("quantity", "quantity", schemes):
        scheme = make_scheme({"scheme": "quantity", "exponent": 1, "clients": 3})
        parts = scheme.draw(Pool(110, [np.arange(110)], {}), np.random.default_rng(0))
        assert [len(part) for part in parts] == [60, 30, 20]  # 6/11, 3/11, 2/11
        assert sorted(np.concatenate(parts).tolist()) == list(range(110))


def test_the_method_remembers_where_it_was_going(tmp_path: Path) -> None:
    """β = 0 is FedAvg; otherwise the second step goes on by β times the first."""
    with added("momentum", "momentum", methods):
        spec = {"use": "average"}
        plain = make_part(methods, "averaging", "method").filled(spec, "x")
        moving = {
            beta: make_part(methods, {"use": "momentum", "beta": beta}, "method").filled(spec, "x")
            for beta in (0.0, 0.5)
        }
        start = plain.start(brief_for("fedavg", epochs=1))
        scene = scene_of(plain.brief(start), tmp_path)
        mean = plain.advance(start, scene)
        assert torch.allclose(
            moving[0.0].advance(start, scene).tensors[NET + "head.bias"],
            mean.tensors[NET + "head.bias"],
            atol=1e-6,
        )
        first = moving[0.5].advance(start, scene)
        scene = scene_of(moving[0.5].brief(first), tmp_path)
        second, target = (m.advance(first, scene) for m in (moving[0.5], plain))
        name = NET + "head.bias"
        went = start.tensors[name] - first.tensors[name]
        expected = target.tensors[name] - 0.5 * went
        torch.testing.assert_close(second.tensors[name], expected, rtol=1e-4, atol=1e-6)
