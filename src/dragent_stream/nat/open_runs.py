"""The runs that the front end has open: how many there may be, and how they end when the server goes down."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from dragent_stream.nat.failures import ServerStoppingError, TooManyRunsError

__all__ = ["OpenRuns", "drain_on_signals", "runs_of_request"]

runs_of_request: ContextVar[list[Callable[[], None]] | None] = ContextVar("dragent_stream_runs", default=None)
"""How the runs of the current request are left when it ends."""


class OpenRuns:
    """The open runs of one server.

    Args:
        limit: How many there may be at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._stops: set[Callable[[], None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False
        self._over = False

    @contextmanager
    def admitted(self) -> Generator[None]:
        """Count a run for the duration of the block.

        Raises:
            TooManyRunsError: The limit is reached.
            ServerStoppingError: The server is going down.
        """
        if self.draining:
            raise ServerStoppingError("the server is shutting down; try again")
        if self._count >= self._limit:
            raise TooManyRunsError(f"the server has its limit of {self._limit} runs open; try again")
        self._count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._idle.set()

    @contextmanager
    def stopped_by(self, stop: Callable[[], None]) -> Generator[None]:
        """Say how the run of the block is stopped."""
        self._stops.add(stop)
        if self._over:
            stop()
        try:
            yield
        finally:
            self._stops.discard(stop)

    async def drain(self, grace: float) -> None:
        """Admit no more runs, wait up to `grace` seconds for the open ones, then stop the rest and wait for them."""
        self.draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._idle.wait()
        self._over = True
        for stop in list(self._stops):
            stop()
        await self._idle.wait()


@contextmanager
def drain_on_signals(runs: OpenRuns, grace: float) -> Generator[None]:
    """Drain at SIGINT and SIGTERM, beside what the server does at them.

    The server waits for its open connections before it tells the application anything, and they are open until their
    runs end.
    """
    loop = asyncio.get_running_loop()
    draining: list[asyncio.Task[None]] = []
    before: dict[signal.Signals, Any] = {}

    def begin() -> None:
        if not draining:
            draining.append(loop.create_task(runs.drain(grace)))

    def handler_of(previous: Callable[[int, Any], Any]) -> Callable[[int, Any], None]:
        def handle(number: int, frame: Any) -> None:
            loop.call_soon_threadsafe(begin)
            previous(number, frame)

        return handle

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            previous = signal.getsignal(number)
            if callable(previous):
                before[number] = previous
                signal.signal(number, handler_of(previous))
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
        for task in draining:
            task.cancel()
