"""The fusions of uploads that arrived as files: those that were asked for, or the recipe's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from accord.core.errors import AccordError
from accord.federation.fuse_again import read_fusion
from accord.fusion.base import ReferenceRule
from accord.fusion.named import NamedFusion
from accord.messages.briefing import BriefingHeader
from accord.study.syntax import Spec

Tell = Callable[[str], None]


def asked_fusions(
    path: Path, header: BriefingHeader, asked: Sequence[str | Spec]
) -> list[NamedFusion]:
    """The fusions of `asked`, or else those of the recipe, whose briefing is at `path`."""
    named = [read_fusion(entry) for entry in asked] or _of_recipe(path, header)
    for fusion in named:
        if isinstance(fusion.rule, ReferenceRule):
            raise AccordError(
                f"--fusion {fusion.use}: this is a reference and makes no model. Name another one."
            )
        if fusion.rule.of != header.uploads:
            raise AccordError(
                f"--fusion {fusion.use}: it fuses {fusion.rule.of}, but the clients of {path} "
                f"upload {header.uploads}. Choose another fusion."
            )
    labels = [fusion.label for fusion in named]
    for label in labels:
        if labels.count(label) > 1:
            raise AccordError(f"--fusion: {label!r} was named twice. Give one `as: NAME`.")
    return named


def _of_recipe(path: Path, header: BriefingHeader) -> list[NamedFusion]:
    if header.origin is None:
        raise AccordError(
            f"{path} does not say how its uploads are fused. Name a fusion with --fusion, e.g. "
            "--fusion classwise (accord recipes lists them)."
        )
    entries = [NamedFusion.read(one, str(path)) for one in header.origin.fusions]
    return [one for one in entries if not isinstance(one.rule, ReferenceRule)]


def without_validation(named: list[NamedFusion], tell: Tell) -> list[NamedFusion]:
    """The recipe's fusions that need no validation images, if there are any."""
    found = [one for one in named if not one.rule.needs_validation]
    if not found:
        return named
    for one in named:
        if one not in found:
            tell(
                f"fusion {one.label!r} is left out: it needs labelled images on which nobody has "
                "trained. Give some with --validation IMAGES"
            )
    return found


def require(
    fusions: Sequence[NamedFusion], header: BriefingHeader, public: int, validation: int
) -> None:
    """Raises AccordError if a fusion needs more images of the server than these."""
    for fusion in fusions:
        if fusion.rule.needs_validation and not validation:
            raise AccordError(
                f"fusion {fusion.label!r}: it needs labelled images on which nobody has trained. "
                "Give such images with --validation IMAGES, or choose another fusion."
            )
        try:
            fusion.rule.require(header.net.norm, public)
            if fusion.rule.needs_labelled and not public + validation:
                raise AccordError("it needs labelled images of the server, found none.")
        except AccordError as error:
            hint = "" if public else " With files, give such images with --public IMAGES."
            raise AccordError(f"fusion {fusion.label!r}: {error}{hint}") from None
