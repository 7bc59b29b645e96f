"""Tells how far the drawing of a page is, if it takes long."""

from __future__ import annotations

import time
from collections.abc import Callable

from accord.report.durations import spoken

PATIENCE = 5.0  # seconds before the first line, and between two lines


class Drawn:
    """Hears how many figures are drawn, and tells it now and then with the remaining time."""

    def __init__(
        self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.tell, self.clock = tell, clock
        self.began = self.spoke = clock()

    def heard(self, done: int, total: int) -> None:
        now = self.clock()
        if now - self.spoke < PATIENCE or done == total:
            return
        self.spoke = now
        left = (now - self.began) * (total - done) / done
        self.tell(f"figure {done} of {total}, about {spoken(left)} left")
