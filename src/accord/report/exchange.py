"""What the commands of a federation by files print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from accord.core.names import shown
from accord.core.parts import make_part
from accord.messages import Briefing
from accord.methods import methods
from accord.methods.in_turn import InTurn

if TYPE_CHECKING:
    from accord.federation.exchange.brief import Written
    from accord.federation.exchange.fuse import Fused


def written_lines(written: Written) -> list[str]:
    """What to do with the files of a new round."""
    header, path = written.briefing.header, written.path
    size = path.stat().st_size / 1e6
    recipe = header.origin.recipe if header.origin else "a recipe"
    of = f"round {header.round} of {header.rounds}, " if header.rounds > 1 else ""
    lines = [
        f"{path}: the briefing of {recipe}, {of}{len(header.classes)} classes, images "
        f"{header.height}×{header.width}×{header.channels}, {size:.1f} MB",
        _receivers(written.briefing),
        f"  accord answer {path.name} IMAGES --name NAME --out NAME.safetensors",
    ]
    if written.server is not None:
        lines.append(f"{written.server}: the server's own file, needed after the round. Keep it.")
    return lines


def _receivers(briefing: Briefing) -> str:
    origin = briefing.header.origin
    method = None if origin is None else make_part(methods, origin.method, "method")
    if isinstance(method, InTurn):
        turns = f"Each of the {method.turns} turns" if method.turns > 1 else "The only turn"
        return (
            f"{turns} visits {method.turn} client{'s' if method.turn > 1 else ''}, once each. "
            "Send it to one client that has not answered in this turn. It answers with:"
        )
    return "Send it to every client. A client answers with:"


def fused_lines(fused: Fused, save: Path | None) -> list[str]:
    """The clients that were fused, the measurements and the files."""
    inbox = fused.inbox
    images = sum(one.header.samples for one in inbox.arrived)
    size = sum(one.path.stat().st_size for one in inbox.arrived) / 1e6
    count = len(inbox.arrived)
    lines = [
        f"fused {count} upload{'s' if count > 1 else ''}, {images} images, {size:.1f} MB: "
        f"{', '.join(map(shown, inbox.clients))}"
    ]
    if len(fused.trained) > count:
        lines.append(f"clients that have trained this net: {', '.join(map(shown, fused.trained))}")
    if inbox.left_out:
        lines.append(f"left out: {', '.join(map(shown, inbox.left_out))}")
    if fused.metrics:
        wide = max(len(name) for name in ("fusion", *fused.metrics))
        lines.append(f"on {fused.tested} test images:")
        lines.append(f"  {'fusion':<{wide}}  accuracy %  balanced %  worst %  ECE %")
        for name, found in fused.metrics.items():
            values = (found.accuracy, found.balanced_accuracy, found.worst_class, found.ece)
            cells = [f"{100 * value:.1f}" for value in values]
            row = f"{cells[0]:>10}  {cells[1]:>10}  {cells[2]:>7}  {cells[3]:>5}"
            lines.append(f"  {name:<{wide}}  {row}")
    if save is not None:
        lines.append(f"model: {save}")
    if fused.following is not None:
        lines += written_lines(fused.following)
    return lines
