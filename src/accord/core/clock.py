"""The clock of all recorded costs: every `seconds` of the record is measured here.

The cost of work is the time of the processor, not the time that passes: on a machine that also does
other things, the same work takes more time to end, but it does not cost more. A GPU does its work
while the thread waits for it, so that there the time that passes is the cost.
"""

from __future__ import annotations

import time


class Stopwatch:
    """The seconds of work since it was made: CPU time of this thread; on a GPU, wall time.

    All work of a job is done by one thread. Other threads of the process, such as those of a
    progress display or of a network connection, are not counted.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._now = time.thread_time if device == "cpu" else time.perf_counter
        self._began = self._now()

    @property
    def seconds(self) -> float:
        return self._now() - self._began
