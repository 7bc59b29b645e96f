"""The same work under two names: it would count twice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from accord.core.errors import AccordError
from accord.core.names import shown, typed
from accord.messages import NET, Briefing, Upload
from accord.messages.upload import COUNTED

SUMS = ("feature_sums", "scatter", "scatter_factor", "scatter_spread")


def digest_of_work(upload: Upload, briefing: Briefing) -> str | None:
    """A digest of the weights or sums alone, without name, counts and telemetry.

    None for a net with the weights of the briefing: a client that changed nothing copied nobody.
    """
    names = sorted(n for n in upload.tensors if n in SUMS or _is_weight(n))
    if all(n in briefing.tensors and upload.tensors[n].equal(briefing.tensors[n]) for n in names):
        return None
    digest = hashlib.sha256()
    for name in names:
        tensor = upload.tensors[name].contiguous()
        digest.update(name.encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def pairs_alike(
    works: Iterable[tuple[str, str | None]], known: Callable[[str, str], bool] | None = None
) -> list[tuple[str, str]]:
    """Pairs of clients with the same work. `known`: whether two clients hold the same images."""
    first: dict[str, str] = {}
    found = []
    for client, digest in works:
        if digest is None:
            continue
        other = first.setdefault(digest, client)
        if other != client and not (known is not None and known(other, client)):
            found.append((other, client))
    return found


def refuse_alike(
    works: Iterable[tuple[str, str | None]], known: Callable[[str, str], bool] | None = None
) -> None:
    """Raises AccordError with the names of two clients that sent the same work."""
    for one, two in pairs_alike(works, known):
        raise AccordError(
            f"clients {shown(one)} and {shown(two)} sent the same weights or sums, bit for bit, "
            "which would count twice: one is a copy of the other, or both have the same images. "
            f"Ask both for their own upload, or leave one out: --without {typed(two)}"
        )


def _is_weight(name: str) -> bool:
    return name.startswith(NET) and not name.endswith(COUNTED)
