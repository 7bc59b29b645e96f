"""The tree of modules: imports go one way, from the lowest room to the highest."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "accord"

# A module may import from its own room and from the rooms before it.
ROOMS = (
    "core",  # typed settings, registries, files, random numbers
    "attacks",  # what hostile clients of a simulation do
    "data",  # images, splits, partition schemes
    "closed_form",  # sums and what is solved from them
    "messages",  # briefing, upload, server state, saved model
    "nets",  # backbones, heads, maps of fixed features
    "objective",  # loss terms, anchors, the bank
    "balance",  # how the losses are weighed
    "client",  # what happens at a client
    "checks",  # what an upload may claim
    "fusion",  # uploads → one predictor
    "methods",  # what happens from round to round
    "study",  # what a user asks for
    "record",  # the run directory
    "trackers",  # copies of finished trials for TensorBoard and MLflow
    "engines",  # where the work is done
    "model",  # a fused model that a user keeps
    "federation",  # brief, ask, advance, fuse, measure
    "report",  # tables, progress, estimates
    "diagnosis",  # findings about a run, and their rules
    "auditing",  # which clients stand out by what they sent
    "page",  # the report as a page, as Markdown and as LaTeX
    "advice",  # facts about a federation, and the recipe that fits it
    "flower",  # many machines, over Flower
    "commands",  # the commands of the command line
)
ROOT = ("__init__", "__main__", "api", "cli")


def imports(path: Path) -> Iterator[str]:
    """The modules of Accord that a file imports, also inside functions and for typing only."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("accord"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("accord"):
            yield str(node.module)
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_the_root_holds_rooms_and_few_modules() -> None:
    assert {path.stem for path in SOURCE.glob("*.py")} == set(ROOT)
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert folders == {*ROOMS, "recipes"}


@pytest.mark.parametrize("room", ROOMS)
def test_imports_go_one_way(room: str) -> None:
    allowed = {*ROOMS[: ROOMS.index(room) + 1]}
    if room == "commands":
        allowed.add("api")  # the functions of the package, which commands call
    for path in (SOURCE / room).rglob("*.py"):
        for module in imports(path):
            parts = module.split(".")
            assert len(parts) > 1, f"{path} imports the package itself"
            assert parts[1] in allowed, f"{path} imports {module}, which is in a higher room"


def test_files_stay_small() -> None:
    """One idea per file: most have fewer than 300 lines."""
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 310, path


@pytest.mark.parametrize(
    "code",
    [
        "import accord",
        "import accord.cli",
        "from accord.report.listing import show_recipes; show_recipes()",
        "from accord.data.inventory import inventory; inventory(None)",
        "import accord.report.results, accord.report.dials",
        "import accord.report.compare.table, accord.report.compare.content",
        "import accord.engines.local",
    ],
)
def test_what_needs_no_net_does_not_load_torch(code: str) -> None:
    asked = f"import sys; {code}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked]).returncode == 0


def test_a_client_trains_without_torch_s_compiler() -> None:
    """It takes a second to load, at every worker."""
    code = """
        import sys
        sys.path.insert(0, "tests")
        from tests_support import brief_for, images_of, train
        train(images_of([0] * 20 + [1] * 20), brief_for("etf-uncertainty", epochs=1), "0")
        sys.exit("torch._dynamo" in sys.modules)
    """
    root = SOURCE.parents[1]
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=root)
    assert done.returncode == 0
