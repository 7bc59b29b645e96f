"""The run configuration of an app: in its pyproject.toml, or in `flwr run --run-config`.

out=""               the record's folder (default: runs/NAME, from where the SuperLink was started)
data-root=""         the folder of the datasets
min-clients=0        uploads that a round needs to go on; 0: all, or as the study says
deadline=86400       seconds that the server waits for the answer of a client
wait=60              seconds that the server waits for the node of a client to connect
nodes="", report=""  used by `accord flower local`
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from accord.core.config import Config, keys, parse


class RunConfig(Config):
    """The run configuration of the app, with its defaults."""

    out: str = ""
    data_root: str = Field("", alias="data-root")
    min_clients: int = Field(0, ge=0, alias="min-clients")
    deadline: float = Field(86_400, gt=0, le=10**9)
    wait: float = Field(60, ge=0, le=10**9)
    nodes: str = ""
    report: str = ""

    @classmethod
    def of(cls, given: dict[str, Any], where: str) -> RunConfig:
        """The configuration in `given`, which may have further keys of Flower's own."""
        return parse(cls, {key: v for key, v in given.items() if key in keys(cls)}, where)

    def values(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True)
