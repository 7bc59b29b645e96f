"""The section `attack` of a study. This module does not import torch."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from accord.core.config import Config

NONE = "none"  # the name of no attack


class AttackConfig(Config):
    """Some simulated clients are hostile; the default is that none is."""

    name: str = Field(NONE, description="name of the attack; none: all clients are honest")
    clients: int = Field(
        1, ge=0, description="number of hostile clients, which are drawn at random for each seed"
    )
    names: tuple[str, ...] = Field(
        (), description="names of the hostile clients, which replaces the draw"
    )
    strength: float | None = Field(
        None,
        gt=0,
        le=1e6,
        description="factor or amount of the attack; null: the attack's own default",
    )

    @model_validator(mode="before")
    @classmethod
    def _nobody(cls, values: Any) -> Any:
        """Without an attack there is no hostile client, so that all such trials are the same."""
        if not isinstance(values, dict):
            return values
        if values and "name" not in values:
            raise ValueError("an attack needs a `name`, such as scaled")
        if values.get("name", NONE) == NONE:
            return {**values, "clients": 0, "names": (), "strength": None}
        named = values.get("names")
        return (
            {**values, "clients": len(named)}
            if isinstance(named, list | tuple) and named
            else values
        )

    @model_validator(mode="after")
    def _known(self) -> AttackConfig:
        if self.name == NONE:
            return self
        from accord.attacks.base import attacks  # slow to import: it needs torch

        attacks.get(self.name)
        if self.names and len(set(self.names)) < len(self.names):
            raise ValueError(f"names of hostile clients should differ; found {list(self.names)}")
        if not self.names and not self.clients:
            raise ValueError("an attack needs a hostile client: set clients to 1 or more")
        return self

    @property
    def attacks(self) -> bool:
        """Whether there is any hostile client."""
        return self.name != NONE


NO_ATTACK = AttackConfig()
