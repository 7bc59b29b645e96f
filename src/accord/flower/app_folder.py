"""Writes the folder of a Flower app, which `flwr run` sends to a SuperLink.

The app is small: it imports the installed accord, and it carries the study. It has no dependencies
of its own, so that Flower installs nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accord.core.files import write_atomic
from accord.core.replacing import new_version
from accord.core.targets import refuse_folder
from accord.core.yamls import to_yaml
from accord.flower.run_config import RunConfig
from accord.flower.supported import TESTED
from accord.study.study import Study

PACKAGE = "accord_app"
OURS = (PACKAGE, "pyproject.toml", "__init__.py", "server.py", "client.py", "study.yaml")
MADE_BY_PYTHON = ("__pycache__",)
MARK = "# An Accord study as a Flower app; written by `accord flower app`."

SERVER = '''"""The server: it runs study.yaml with the nodes as clients."""

from pathlib import Path

from accord.flower.server import run_app
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    run_app(grid, context, Path(__file__).parent / "study.yaml")
'''

CLIENT = '''"""A node: it says its name, and it answers briefings with its own images."""

from accord.flower.client import answer, say_name
from flwr.clientapp import ClientApp

app = ClientApp()
app.query()(say_name)
app.train()(answer)
'''


def write_app(folder: Path, study: Study, values: dict[str, Any] | None = None) -> None:
    """Writes the app of `study` where a user wants it; `values` replace those of its run."""
    config = RunConfig.of(values or {}, "the app's configuration").values()
    refuse_folder(folder, "", "Flower app of Accord", _stranger)
    replace_app(folder, study, config)


def replace_app(folder: Path, study: Study, config: dict[str, Any]) -> None:
    """Writes the app to a folder that is known to be ours, as the one in a record is."""
    files = {
        "pyproject.toml": _project(study.name, config),
        f"{PACKAGE}/__init__.py": f'"""The study {study.name} as a Flower app."""\n',
        f"{PACKAGE}/server.py": SERVER,
        f"{PACKAGE}/client.py": CLIENT,
        f"{PACKAGE}/study.yaml": to_yaml(study.resolved),
    }
    with new_version(folder) as partial:
        for name, content in files.items():
            write_atomic(partial / name, content.encode())


def _project(study: str, config: dict[str, Any]) -> str:
    settings = "\n".join(f"{key} = {_toml(value)}" for key, value in config.items())
    name = "accord-" + "".join(sign if sign.isalnum() else "-" for sign in study.lower()).strip("-")
    return f"""{MARK}
[project]
name = "{name}"
version = "1.0.0"
description = "The Accord study {study}, for Flower {TESTED}"
license = "Apache-2.0"
# No dependencies: every machine has the same accord installed.
dependencies = []

[tool.flwr.app]
publisher = "accord"

[tool.flwr.app.components]
serverapp = "{PACKAGE}.server:app"
clientapp = "{PACKAGE}.client:app"

# out: the record's folder (default: runs/NAME where the SuperLink was started)
# min-clients: uploads that a round needs to go on; 0: all, or as the study says
# deadline: seconds to wait for an answer; wait: seconds to wait for a node to connect
[tool.flwr.app.config]
{settings}
"""


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


def _stranger(folder: Path) -> str | None:
    """The name of something in a folder that is no part of an app; None if there is none."""
    inside = [path.name for path in folder.iterdir() if path.name not in MADE_BY_PYTHON]
    if inside and not is_app(folder):
        return inside[0]
    package = folder / PACKAGE
    inside += [path.name for path in package.iterdir()] if package.is_dir() else []
    known = (*OURS, *MADE_BY_PYTHON)
    return next((name for name in inside if name not in known), None)


def is_app(folder: Path) -> bool:
    """Whether a folder holds an app that this module wrote."""
    project = folder / "pyproject.toml"
    return project.is_file() and project.read_text("utf-8", "replace").startswith(MARK)
