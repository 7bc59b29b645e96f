"""MLflow: one run per trial, with parameters, tags, and metrics by epoch.

The server is that of the environment variable MLFLOW_TRACKING_URI. Without it, everything is
written to RUN/mlflow/mlflow.db, and no network is used.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from accord.record.folders import client_file
from accord.trackers.base import Tracker, trackers
from accord.trackers.course import Course, Value

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

URI = "MLFLOW_TRACKING_URI"
# MLflow reports its use to its makers and tries for minutes to reach a server, unless told not to.
DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
MOST_CLIENTS = 20  # with more clients, only their mean is written
METRICS, PARAMETERS = 1000, 100  # the most that one request may contain
LONGEST_NAME, LONGEST_VALUE = 250, 500  # characters


@trackers.register("mlflow")
class MLflow(Tracker):
    """Writes the run of a trial, and replaces it if the trial changed or the run is not whole."""

    name = "mlflow"
    needs = ("mlflow", "sqlalchemy", "alembic")

    def write(self, course: Course) -> None:
        for key, value in DEFAULTS.items():
            os.environ.setdefault(key, value)
        with redirect_stdout(io.StringIO()):  # it prints links, which would disturb the live view
            self._write(course)

    def _write(self, course: Course) -> None:
        client = self._client()
        experiment = self._experiment(client, course.tags["study"])
        known = {"accord.trial": course.trial, "accord.record": self._record_key()}
        wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in known.items())
        for run in client.search_runs([experiment], wanted):
            if run.data.tags.get("accord.content") == course.digest:
                return
            client.delete_run(run.info.run_id)
        tags = {**course.tags, **known, "accord.folder": str(self.record.path)}
        run = client.create_run(experiment, run_name=course.trial, tags=tags)
        self._log(client, run.info.run_id, course)
        client.set_tag(run.info.run_id, "accord.content", course.digest)  # now it is whole
        failed = course.tags.get("status") == "failed"
        client.set_terminated(run.info.run_id, "FAILED" if failed else "FINISHED")

    def _client(self) -> MlflowClient:
        from mlflow.tracking import MlflowClient

        for logger in ("mlflow", "alembic"):
            logging.getLogger(logger).setLevel(logging.WARNING)
        uri = os.environ.get(URI)
        if not uri:
            folder = self.record.path.resolve() / "mlflow"
            folder.mkdir(parents=True, exist_ok=True)
            uri = f"sqlite:///{folder / 'mlflow.db'}"
        return MlflowClient(tracking_uri=uri)

    def _experiment(self, client: MlflowClient, study: str) -> str:
        """The experiment of the study; it is made if it does not exist."""
        found = client.get_experiment_by_name(study)
        if found is not None:
            return str(found.experiment_id)
        here = (self.record.path.resolve() / "mlflow" / "artifacts").as_uri()
        place = None if os.environ.get(URI) else here
        return str(client.create_experiment(study, artifact_location=place))

    def _record_key(self) -> str:
        """A short name of the record's folder, for tags; a path may contain any character."""
        return hashlib.sha256(str(self.record.path.resolve()).encode()).hexdigest()[:16]

    def _log(self, client: MlflowClient, run: str, course: Course) -> None:
        from mlflow.entities import Metric, Param

        now = int(1000 * time.time())
        parameters = [
            Param(_name(key), value[:LONGEST_VALUE]) for key, value in course.parameters.items()
        ]
        for some in _batches(parameters, PARAMETERS):
            client.log_batch(run, params=some)
        metrics = [
            Metric(_name(key), value, now, epoch) for key, epoch, value in _metrics(course.values)
        ]
        for some in _batches(metrics, METRICS):
            client.log_batch(run, metrics=some)


def _metrics(values: Sequence[Value]) -> Iterator[tuple[str, int, float]]:
    """Name, epoch and value: of the model, of the mean over clients, and of each of few clients."""
    clients = {one.client for one in values if one.client is not None}
    groups: dict[tuple[str, int], list[float]] = {}
    for one in values:
        if one.client is None:
            yield one.name, one.epoch, one.value
            continue
        groups.setdefault((one.name, one.epoch), []).append(one.value)
        if len(clients) <= MOST_CLIENTS:
            yield f"{client_file(one.client)}/{one.name}", one.epoch, one.value
    for (name, epoch), found in groups.items():
        yield f"clients/{name}", epoch, statistics.mean(found)


def _name(key: str) -> str:
    """A name that MLflow accepts."""
    allowed = "".join(sign if sign.isalnum() or sign in "_-./ " else "_" for sign in key)
    return allowed[:LONGEST_NAME]


def _batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
