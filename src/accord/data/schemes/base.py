"""The interface of a partition scheme: its settings, and the distribution of images to clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from accord.core.config import Config, keys, parse
from accord.core.errors import AccordError
from accord.core.registry import Registry

if TYPE_CHECKING:  # the settings of a scheme are read without NumPy
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

    from accord.data.images import Indices

DEFAULT = "dirichlet"
EACH = "each"  # leave_out: each client in turn


class Pool(NamedTuple):
    """The images to distribute: the positions of every class that occurs, and the columns."""

    size: int
    classes: list[Indices]
    columns: Mapping[str, NDArray[np.str_]]


MOST_CLIENTS = 1_000_000  # of a scheme; more would only be a slip of the pen


class Scheme(Config, ABC):
    """The section `partition` of a study: how the training images are distributed to clients."""

    name: ClassVar[str]
    disjoint: ClassVar[bool] = True  # no two clients share an image
    varies: ClassVar[bool] = True  # another draw can change the clients' sizes
    elsewhere: ClassVar[bool] = False  # clients hold their own images, on other machines

    min_samples: int = Field(
        1, ge=1, description="smallest number of images that every client must have"
    )
    leave_out: str | None = Field(
        None,
        description="client that takes no part, but on whose held-out images the model is "
        "measured; each: one trial for every client",
    )
    pooled: int = Field(
        0,
        ge=0,
        le=10_000,
        description="if not 0, so many clients each hold the images of all clients, as in the "
        "recipe central",
    )

    @field_validator("leave_out", mode="before")
    @classmethod
    def _a_name(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _can_leave_out(self) -> Scheme:
        if self.leave_out is not None and (self.elsewhere or not self.disjoint):
            raise ValueError(
                f"leave_out is for schemes in which every image belongs to one client of this "
                f"study; the scheme {self.name!r} is not one of them. Remove leave_out"
            )
        return self

    @abstractmethod
    def draw(self, pool: Pool, rng: Generator) -> list[Indices]:
        """The positions of each client, in any order."""

    @property
    def expected_clients(self) -> int | None:
        """The number of clients; None if it depends on the data."""
        return None

    def uses_all(self, pool: Pool) -> bool:  # noqa: ARG002 - most schemes do
        """Whether every image is given to some client."""
        return True

    @property
    def skew(self) -> float | None:
        """α if the scheme has one, for tables and names."""
        return None

    @property
    def milder(self) -> tuple[str, str] | None:
        """The setting that makes small clients, and a change of it that makes them larger."""
        return None

    @property
    def named_by(self) -> str | None:
        """The column whose values are the clients' names, if there is one."""
        return None

    @property
    def reads_sites(self) -> bool:
        """Whether the files of the data are one folder or file for each site."""
        return False

    @model_serializer(mode="wrap")
    def _with_its_name(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"scheme": self.name, **dump(self)}


class Counted(Scheme):
    """A scheme in which the number of clients is a setting."""

    clients: int = Field(5, ge=1, le=MOST_CLIENTS, description="number of clients")

    @property
    def expected_clients(self) -> int | None:
        return self.clients


S = TypeVar("S", bound=Scheme)
schemes: Registry[type[Scheme]] = Registry("partition scheme", "accord.data.schemes")


def register(name: str) -> Callable[[type[S]], type[S]]:
    """Adds a scheme to the registry, under the name that a study uses."""

    def add(scheme: type[S]) -> type[S]:
        scheme.name = name
        schemes.register(name)(scheme)
        return scheme

    return add


def make_scheme(values: Any, where: str = "partition") -> Scheme:
    """The scheme that a study's section `partition` describes. null means the default."""
    if isinstance(values, Scheme):
        return values
    if not isinstance(values, Mapping):
        raise AccordError(f"{where!r}: expected a mapping of keys, found {values!r}.")
    name = values.get("scheme") or DEFAULT
    if not isinstance(name, str):
        raise AccordError(f"'{where}.scheme': expected the name of a scheme; found {name!r}.")
    kind = schemes.get(name)
    given = {key: v for key, v in values.items() if key != "scheme" and v is not None}
    for key, value in given.items():
        if key not in keys(kind) and any(key in keys(schemes.get(other)) for other in schemes):
            raise AccordError(
                f"'{where}.{key}': the scheme {name!r} has no {key!r}; found {value!r}. Remove it, "
                "or set it to null."
            )
    return parse(kind, given, where)


# A field that holds any scheme, written as the section `partition` of a study.
Partitioned = Annotated[SerializeAsAny[Scheme], BeforeValidator(make_scheme)]
