"""The connection of this process to a Dask cluster: all that it uses of the library `distributed`.

Accord passes JSON text to functions and gets JSON text back. Dask itself pickles the names of these
functions and its own envelopes, because everyone who can reach its scheduler is trusted.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import queue
import uuid
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from accord.core.errors import AccordError

CONNECT = 8.0  # seconds in which a scheduler must answer
FETCH = 30.0  # seconds in which the result of a call must arrive
CLOSE = 5.0  # seconds in which a connection must close

Function = Callable[[str], str]


@dataclass(frozen=True)
class Seen:
    """A worker as the scheduler describes it."""

    key: str  # differs for every process, also if a new process gets an old address
    address: str
    name: str
    threads: int
    running: bool  # False: it has paused, for example because its memory is full, or it retires


@dataclass(frozen=True, eq=False)
class Call:
    """A function that one worker executes."""

    number: int
    future: Any


@dataclass(frozen=True)
class Outcome:
    """The end of a call: JSON; an error, if the worker could not execute the function; or lost."""

    kind: Literal["answered", "error", "lost"]
    body: dict[str, Any]


class Link:
    """A connection to the scheduler. What happens is put into `inbox`, as (call, news or None)."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.inbox: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()
        self._client = _connect(address)
        self._topic = f"accord-{uuid.uuid4().hex}"
        self._numbers = itertools.count()
        self._open: dict[int, Call] = {}
        self.listen()

    def listen(self) -> None:
        """Asks the scheduler for the news of this run; also after the connection was lost."""
        self._refuse_closed()
        self._client.subscribe_topic(self._topic, self._take_news)

    def _take_news(self, event: tuple[float, str]) -> None:
        news = json.loads(event[1])
        self.inbox.put((news.pop("call"), news))

    def workers(self) -> dict[str, Seen] | None:
        """The workers of the cluster; None while the connection is being made again."""
        found = self._ask_scheduler()
        if found is None:
            return None
        seen = (_seen(address, facts) for address, facts in found["workers"].items())
        return {worker.key: worker for worker in seen}

    def _ask_scheduler(self) -> dict[str, Any] | None:
        # Not Client.scheduler_info(): a timer of the client replaces its answer, about every two
        # seconds, by one without workers, and all workers would seem to be gone.
        try:
            if self._client.status == "running":
                found: dict[str, Any] = self._client.sync(
                    self._client.scheduler.identity, n_workers=-1
                )
                return found
        except (OSError, AttributeError):
            pass  # the connection was lost just now; its `scheduler` is then None
        self._refuse_closed()
        return None

    def _refuse_closed(self) -> None:
        """Raises AccordError if the connection is lost and cannot be made again."""
        if self._client.status not in ("running", "connecting"):
            raise AccordError(
                f"the connection to the Dask scheduler at {self.address} was lost. Check whether "
                "the scheduler still runs, and run the same command again: it continues where it "
                "stopped."
            )

    def call(self, function: Function, content: dict[str, Any], address: str) -> Call:
        """Lets the worker at `address`, and no other, execute `function`."""
        self._refuse_closed()
        number = next(self._numbers)
        text = json.dumps({**content, "topic": self._topic, "call": number})
        future = self._client.submit(
            function,
            text,
            key=f"{self._topic}-{number}",
            workers=[address],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )
        call = Call(number, future)
        self._open[number] = call
        future.add_done_callback(lambda _: self.inbox.put((number, None)))
        return call

    def outcome(self, call: Call) -> Outcome:
        """How an ended call has ended."""
        self._open.pop(call.number, None)
        from distributed import KilledWorker

        try:
            return Outcome("answered", json.loads(call.future.result(timeout=FETCH)))
        except KilledWorker:
            return Outcome("lost", {})
        except Exception as error:
            # `distributed` has many errors for a worker or a connection that is gone. The status
            # "error" means that the worker is there and that the function could not be executed.
            if call.future.status != "error":
                return Outcome("lost", {})
            return Outcome("error", {"message": f"{type(error).__name__}: {error}"})

    def drop(self, calls: Iterable[Call]) -> None:
        """Cancels calls. A job that is running sees this when it next tells its progress."""
        dropped = list(calls)
        for call in dropped:
            self._open.pop(call.number, None)
        with suppress(Exception):  # without a connection there is nothing to cancel
            self._client.cancel([call.future for call in dropped], force=True)

    def close(self) -> None:
        """Cancels what is still open, and closes the connection. The cluster goes on running."""
        self.drop(list(self._open.values()))
        with suppress(Exception):  # a scheduler that is gone does not answer
            self._client.close(timeout=CLOSE)


def _seen(address: str, facts: dict[str, Any]) -> Seen:
    return Seen(
        # Every worker process makes its own local folder, but a new one may get an old address.
        key=f"{address} {facts.get('local_directory')}",
        address=address,
        name=str(facts.get("name", address)),
        threads=int(facts.get("nthreads", 1)),
        running=facts.get("status", "running") == "running",
    )


def _connect(address: str) -> Any:
    try:
        import distributed
    except ImportError:
        raise AccordError(
            "--cluster needs the library `distributed`, which is not installed. Install it with: "
            "pip install 'accord[dask]'"
        ) from None
    # A worker with other versions is refused by name; Dask would print a table of all versions.
    warnings.filterwarnings("ignore", category=distributed.versions.VersionMismatchWarning)
    # What goes wrong with the connection is told in sentences of Accord instead.
    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    problem = "no scheduler answered"
    if address.strip():
        try:
            return _client(address)
        except Exception as error:  # OSError, ValueError, ImportError, … from many layers
            problem = " ".join(str(error).split()) or problem
    raise AccordError(
        "--cluster: expected the address of a running Dask scheduler, such as "
        f"tcp://scheduler:8786; found {address!r} ({problem}). Start a scheduler with "
        "`dask scheduler`; it prints its address."
    )


def _client(address: str) -> Any:
    from distributed import Client

    class Tidy(Client):  # type: ignore[misc]  # mypy does not read distributed
        async def _start(self, **options: Any) -> Any:
            try:
                # Its own limit does not hold if something else than a scheduler listens there.
                return await asyncio.wait_for(super()._start(**options), CONNECT + 1)
            except Exception:
                self.status = "closed"  # or its destructor waits for a connection that is not there
                raise

    return Tidy(address, timeout=CONNECT, set_as_default=False)
