"""Watches a study that runs elsewhere: in another process, or on a machine that shares the folder.

On a terminal the view is drawn again in its place. In a pipe, each change makes a block of lines.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.live import Live

from accord.core.text import printable
from accord.report.durations import spoken
from accord.report.live.layout import View, plain
from accord.report.live.picture import Picture
from accord.report.live.watched import Watched, continuing

# A process on another machine may be invisible, and it writes after every epoch. Nobody is said to
# write only if no file has changed for so many seconds.
QUIET = 120.0


@dataclass(frozen=True)
class Verdict:
    """Why the watching ends, and the exit code."""

    code: int
    sentence: str


class Display(Protocol):
    def show(self, picture: Picture) -> None: ...


def watch(
    path: Path, *, every: float, once: bool = False, wait: Callable[[float], None] = time.sleep
) -> int:
    """Shows a study until it ends or nobody writes it; returns the exit code."""
    watched = Watched(path)
    picture = watched.look()
    if once:
        Blocks().show(picture) if not sys.stdout.isatty() else Console().print(
            View(lambda: picture)
        )
        return 0
    if not sys.stdout.isatty():
        verdict = _follow(watched, picture, Blocks(), every, wait)
    else:
        screen = Screen(picture)
        with screen.live:
            verdict = _follow(watched, picture, screen, every, wait)
    print(printable(verdict.sentence))
    return verdict.code


def _follow(
    watched: Watched,
    picture: Picture,
    display: Display,
    every: float,
    wait: Callable[[float], None],
) -> Verdict:
    seen = watched.written  # whether the writing process was seen; then its end is seen, too
    while True:
        display.show(picture)
        verdict = ending(watched, picture, seen)
        if verdict is not None:
            return verdict
        wait(every)
        picture = watched.look()
        seen = seen or watched.written


def ending(watched: Watched, picture: Picture, seen: bool) -> Verdict | None:
    """The verdict if there is nothing more to watch."""
    failed, open_ = picture.count("failed"), picture.count("running") + (picture.waiting or 0)
    if not open_ and picture.asked is not None:
        said = "The study is finished."
        if failed:
            said += f" {failed} failed; run it again to repeat them: {continuing(watched.record)}"
        return Verdict(1 if failed else 0, said)
    if watched.written or (not seen and watched.ago() < QUIET):
        return None
    last = f"The last change was {spoken(watched.ago())} ago."
    if not open_:
        return Verdict(
            1 if failed else 0,
            f"No process is writing this record, and no trial of it is open. {last} How many "
            "trials the study has is not known without its images.",
        )
    return Verdict(
        1,
        f"No process is writing this record, and the study is not finished. {last} Continue it "
        f"with: {continuing(watched.record)}",
    )


class Blocks:
    """Plain text: a block of lines for every change."""

    def __init__(self) -> None:
        self.before: Picture | None = None

    def show(self, picture: Picture) -> None:
        now = replace(picture, timing="")
        if now == self.before:
            return
        if self.before is not None:
            print()
        self.before = now
        print(f"{time.strftime('%H:%M:%S')}  " + "\n".join(plain(picture)), flush=True)


class Screen:
    """The view on a terminal. Its last state stays there."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.live = Live(View(lambda: self.picture), console=Console(), auto_refresh=False)

    def show(self, picture: Picture) -> None:
        self.picture = picture
        self.live.refresh()
