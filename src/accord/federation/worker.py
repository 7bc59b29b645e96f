"""A worker process: it reads tasks from standard input and answers on standard output, in JSON.

It is started as a program of its own rather than forked, so that it works the same from a script, a
notebook and a test, and nothing is ever pickled. When its parent process is gone, it ends at once:
Linux kills it, and elsewhere it notices that its standard input ends.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from typing import Any

from accord.core.tied import end_with_parent


def main() -> None:
    end_with_parent()  # first of all: to load torch takes seconds
    # Standard output belongs to the protocol: what libraries print goes to the log instead.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    waiting: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(waiting,), daemon=True).start()

    def answer(message: dict[str, Any]) -> None:
        try:
            answers.write(json.dumps(message) + "\n")
        except BrokenPipeError:
            os._exit(0)  # the parent process is gone

    from accord.federation.serving import serve  # loads torch, which takes more than a second

    serve(waiting, answer)


def _listen(waiting: queue.Queue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        waiting.put(json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    main()
