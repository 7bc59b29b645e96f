"""Runs a study over Flower on this machine: a SuperLink and a SuperNode per client, on loopback.

RUN/flower/              the app, Flower's own files and the logs of all its processes
RUN/flower/nodes/NAME/   what each client keeps for itself, until the study is finished
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.core.files import locked, read_json
from accord.core.names import file_name, shown
from accord.core.partials import sweep
from accord.core.tied import tied_environment
from accord.federation.plan import Plan
from accord.flower.app_folder import is_app, replace_app
from accord.flower.guard import Guard, running
from accord.flower.run_config import RunConfig
from accord.flower.supported import require_flower
from accord.record.record import Record
from accord.study.study import Study

Tell = Callable[[str], None]
LINK = "accord"  # the name of the connection in Flower's own configuration
LOOPBACK = "127.0.0.1"
STARTING = 120.0  # seconds in which Flower must start
AGAIN = "Run the same command again: it continues where it stopped."
# No telemetry, no look for updates, and no environments that Flower would build by itself.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class LocalFlower:
    """One run on this machine."""

    study: Study
    record: Path
    data_root: Path | None
    secure: bool
    values: dict[str, Any]  # of the app's run configuration
    tell: Tell

    @property
    def folder(self) -> Path:
        return self.record / "flower"

    def run(self) -> dict[str, list[str]]:
        """Runs the study, and returns the reasons of failure of each failed trial."""
        require_flower()
        clients = self.clients()
        Record(self.record).refuse_another(self.study)
        busy = (
            f"another process runs Flower in {self.record}. Wait for it, or choose another --out."
        )
        with locked(self.record, busy, ".flower.lock"), Guard() as guard:
            self._prepare()
            port = _free_port()
            started = {"the SuperLink": self._start_link(guard, port)}
            self._wait_for_link(started, port)
            if self.secure:
                self._register(clients)
            for name in clients:
                started[f"the SuperNode of {shown(name)}"] = self._start_node(guard, name, port)
            self.tell(f"started a SuperLink and {len(clients)} SuperNodes on {LOOPBACK}:{port}")
            self._flwr("run", str(self.folder / "app"), LINK)
            started["the guard of Flower's processes"] = guard.pid
            return self._follow(started)

    def clients(self) -> list[str]:
        """The clients of all trials that take part in the study."""
        if any(setup.partition.elsewhere for setup in self.study.setups):
            raise AccordError(
                "`accord flower local` gives every node its part of the study's dataset, but in "
                "this study the clients have their own images (partition.scheme: sites). Start "
                "their SuperNodes by hand, see docs/flower.md."
            )
        needed = RunConfig.of(self.values, "options").min_clients or None
        plan = Plan(self.study, self._root, lambda _: None, min_clients=needed)
        plan.check()
        trials = [trial for trial in plan.trials if not trial.recipe.pooled]
        names = (plan.allocation(trial)[1].partition.names for trial in trials)
        return list(dict.fromkeys(name for some in names for name in some))

    # --- files ---------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Writes the app and Flower's configuration; the record is checked by the app itself."""
        sweep(self.folder)
        found = self.folder.exists() and any(self.folder.iterdir())
        if found and not is_app(self.folder / "app"):
            raise AccordError(f"{self.folder} holds other files. Choose another folder with --out.")
        for name in ("home", "keys", "logs"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for path in (self._report, self._report.with_suffix(".log")):
            path.unlink(missing_ok=True)
        values = {
            "out": str(self.record.absolute()),
            "data-root": str(self._root.absolute()) if self._root else "",
            "nodes": str(self._nodes.absolute()),
            "report": str(self._report.absolute()),
            **self.values,
        }
        config = RunConfig.of(values, "the app's configuration").values()
        replace_app(self.folder / "app", self.study, config)

    @property
    def _root(self) -> Path | None:
        """The given data root, else the one that the record remembers."""
        known = {root for root in Record(self.record).roots().values() if root.is_dir()}
        return self.data_root or (known.pop() if len(known) == 1 else None)

    @property
    def _report(self) -> Path:
        return self.folder / "report.json"

    @property
    def _nodes(self) -> Path:
        return self.folder / "nodes"

    @property
    def _keys(self) -> Path:
        return self.folder.absolute() / "keys"

    def _env(self, home: str) -> dict[str, str]:
        own = Path(sys.executable).parent
        path = os.pathsep.join([str(own), os.environ.get("PATH", "")])
        home_path = self.folder.absolute() / "home" / home
        home_path.mkdir(parents=True, exist_ok=True)
        return {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(home_path)}

    # --- processes -----------------------------------------------------------------------------

    def _start_link(self, guard: Guard, port: int) -> int:
        secure: list[str] = ["--insecure"]
        connection = f'[superlink]\ndefault = "{LINK}"\n'
        connection += f'[superlink.{LINK}]\naddress = "{LOOPBACK}:{port}"\n'
        if self.secure:
            from accord.flower.keys import make_keys

            make_keys(
                self._keys,
                [LOOPBACK, "localhost"],
                [_key_name(name) for name in self.clients()],
                days=2,
            )
            mine = self._keys / "server"
            secure = [
                *("--ssl-ca-certfile", str(mine / "ca.crt")),
                *("--ssl-certfile", str(mine / "server.crt")),
                *("--ssl-keyfile", str(mine / "server.key")),
                "--enable-supernode-auth",
            ]
            connection += f'root-certificates = "{mine / "ca.crt"}"\n'
        else:
            connection += "insecure = true\n"
        env = self._env("link")
        (Path(env["FLWR_HOME"]) / "config.toml").write_text(connection, encoding="utf-8")
        command = ["flower-superlink", *secure, "--host", LOOPBACK, "--port", str(port)]
        return self._start(guard, command, "superlink", env)

    def _start_node(self, guard: Guard, name: str, port: int) -> int:
        keep = (self._nodes / file_name(name)).absolute()
        config = {"name": name, "partition": True, "keep": str(keep)}
        if self._root is not None:
            config["data-root"] = str(self._root.absolute())
        secure = ["--insecure"]
        if self.secure:
            key = _key_name(name)
            secure = [
                *("--root-certificates", str(self._keys / key / "ca.crt")),
                *("--auth-supernode-private-key", str(self._keys / key / f"{key}.key")),
            ]
        command = [
            *("flower-supernode", "--superlink", f"{LOOPBACK}:{port}", *secure),
            *("--port", str(_free_port()), "--node-config", node_config(config)),
        ]
        own_log = f"node-{file_name(name)}"
        return self._start(guard, command, own_log, self._env(own_log))

    def _start(self, guard: Guard, command: list[str], log: str, env: dict[str, str]) -> int:
        program = Path(sys.executable).parent / command[0]
        if not program.exists():
            raise AccordError(
                f"expected Flower's command {program}; found none. Install Flower beside Accord: "
                "pip install 'accord[flower]'"
            )
        return guard.start([str(program), *command[1:]], env, self._log(log), Path.cwd())

    def _log(self, name: str) -> Path:
        return (self.folder / "logs" / f"{name}.log").absolute()

    def _wait_for_link(self, started: dict[str, int], port: int) -> None:
        context = ssl._create_unverified_context() if self.secure else None
        url = f"{'https' if self.secure else 'http'}://{LOOPBACK}:{port}/health"
        for _ in _ticks(STARTING):
            self._refuse_ended(started)
            try:
                with urllib.request.urlopen(url, timeout=2, context=context):
                    return
            except OSError:
                continue
        log = self._log("superlink")
        raise AccordError(f"the SuperLink did not start within {STARTING:.0f} s. Its log is {log}.")

    def _register(self, clients: list[str]) -> None:
        for name in clients:
            key = self._keys / "server" / f"{_key_name(name)}.pub"
            self._flwr("supernode", "register", str(key), LINK, f"--name={name}")

    def _flwr(self, *words: str) -> None:
        """Runs a command of Flower's own command line."""
        program = Path(sys.executable).parent / "flwr"
        command = [sys.executable, "-m", "accord.core.tied", str(program), *words]
        env = {**self._env("link"), **tied_environment()}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        if done.returncode:
            said = " ".join((done.stdout + done.stderr).split())[-500:]
            raise AccordError(f"`flwr {' '.join(words[:2])}` failed: {said}")

    # --- the end -------------------------------------------------------------------------------

    def _follow(self, started: dict[str, int]) -> dict[str, list[str]]:
        """Shows the progress of the ServerApp until its end."""
        shown = 0
        for passed in _ticks(None):
            log = self._report.with_suffix(".log")
            lines = log.read_text("utf-8").splitlines() if log.exists() else []
            for line in lines[shown:]:
                self.tell(line)
            shown = len(lines)
            report: dict[str, Any] = {"status": "starting"}
            if self._report.exists():
                report = read_json(self._report)
            if report["status"] == "refused":
                raise AccordError(report["message"])
            if report["status"] == "finished":
                shutil.rmtree(self._nodes, ignore_errors=True)  # nothing is left to do
            if report["status"] in ("finished", "failed"):
                return dict(report["failures"])
            gone = report["status"] == "running" and not running(report["pid"])
            if gone or report["status"] == "broken" or (not shown and passed > STARTING):
                said = f" ({report['message']})" if report.get("message") else ""
                raise AccordError(
                    f"the ServerApp ended without a result{said}. Its log is "
                    f"{self._log('superlink')}. {AGAIN}"
                )
            vital = {what: pid for what, pid in started.items() if "SuperNode" not in what}
            self._refuse_ended(vital)
        raise AssertionError("the loop above has no end")

    def _refuse_ended(self, started: dict[str, int]) -> None:
        for what, pid in started.items():
            if not running(pid):
                raise AccordError(f"{what} ended. Its log is in {self.folder / 'logs'}. {AGAIN}")


def node_config(values: dict[str, Any]) -> str:
    """The text of `--node-config`: TOML values, separated by spaces."""
    told = {k: str(v).lower() if isinstance(v, bool) else _toml(v) for k, v in values.items()}
    return " ".join(f"{key}={value}" for key, value in told.items())


def _toml(text: str) -> str:
    """A string of TOML. Signs that TOML or Flower's own reader could mistake are escaped."""
    plain = "".join(
        sign if sign.isprintable() and sign not in "\"\\'" else f"\\U{ord(sign):08x}"
        for sign in str(text)
    )
    return f'"{plain}"'


def _key_name(client: str) -> str:
    """The name of a client's key; clients are named by their data, and may have any name."""
    return f"node-{file_name(client).replace('~', '--')}"


def _free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind((LOOPBACK, 0))
        return int(found.getsockname()[1])


def _ticks(seconds: float | None) -> Iterator[float]:
    """The time that has passed, several times per second, until `seconds` are over."""
    began = time.monotonic()
    while seconds is None or time.monotonic() - began < seconds:
        yield time.monotonic() - began
        time.sleep(0.2)
