"""The runtimes behind a source: who may use which one next.

A runtime takes one turn at a time and remembers what its harness remembers, so by default it belongs to one conversation.
Who finds his runtime busy, or no place for another one, waits in line. A runtime that failed is replaced by a new one.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any

from dragent_stream.errors import UpstreamError

__all__ = ["RuntimePool", "Seat"]

logger = logging.getLogger("dragent_stream.fabric")


@dataclass(eq=False, slots=True)
class Seat:
    """The place of one runtime.

    Attributes:
        key: The conversation that it belongs to; None for any.
        runtime: The runtime; None until `RuntimePool.ready`.
        busy: A turn has it.
    """

    key: Hashable
    runtime: Any = None
    busy: bool = False
    replaced: Any = None
    starting: asyncio.Task[None] | None = None


class RuntimePool:
    """Hands out runtimes, to each one turn at a time, in the order of asking.

    Args:
        start: Starts a runtime; None where there is only the one given, which is never stopped here.
        runtime: The one runtime.
        limit: How many may run at once.
    """

    def __init__(self, start: Callable[[], Any] | None, runtime: Any, limit: int) -> None:
        self._start = start
        self._limit = limit
        self._seats = [Seat(None, runtime)] if start is None else []  # the one that was used last stands last
        self._line: list[tuple[Hashable, asyncio.Future[Seat]]] = []
        self._background: set[asyncio.Task[None]] = set()
        self._changed: asyncio.Event | None = None
        self._closed = False

    async def take(self, key: Hashable) -> Seat:
        """A seat for one turn of a conversation, as soon as it is free; `give_back` it when the turn is over."""
        if self._closed:
            raise UpstreamError("the agent is shutting down", "shutdown")
        future: asyncio.Future[Seat] = asyncio.get_running_loop().create_future()
        self._line.append((None if self._start is None else key, future))
        self._serve_line()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.give_back(future.result())
            raise

    async def ready(self, seat: Seat) -> Any:
        """The seat's runtime, started where it is not; what the start raises. A start is never cut short."""
        if seat.runtime is None:
            if seat.starting is None:
                seat.starting = asyncio.get_running_loop().create_task(self._start_for(seat))
            await asyncio.shield(seat.starting)
        return seat.runtime

    def give_back(self, seat: Seat) -> None:
        """The turn is over."""
        starting = seat.starting
        if starting is not None and not starting.done():
            starting.add_done_callback(lambda _: self.give_back(seat))
            return
        if starting is not None and not starting.cancelled() and (error := starting.exception()) is not None:
            logger.debug("a runtime did not start", exc_info=error)
        seat.busy = False
        if self._start is not None and (seat.runtime is None or _spent(seat.runtime)):
            self._seats.remove(seat)
            self._stop_aside(seat.runtime)
            self._stop_aside(seat.replaced)
        self._serve_line()
        if self._changed is not None:
            self._changed.set()

    async def aclose(self, seconds: float) -> None:
        """Turn away who waits, let running turns end, and stop the runtimes that were started here.

        Args:
            seconds: What is not over by then is left behind with a warning; it ends with this process.
        """
        self._closed = True
        for _, future in self._line:
            if not future.done():
                future.set_exception(UpstreamError("the agent is shutting down", "shutdown"))
        self._line.clear()
        self._changed = asyncio.Event()
        try:
            async with asyncio.timeout(seconds):
                while any(seat.busy for seat in self._seats):
                    self._changed.clear()
                    await self._changed.wait()
                self._stop_idle()
                while self._background:
                    await asyncio.wait(set(self._background))
        except TimeoutError:
            self._stop_idle()
            logger.warning("Fabric's runtimes were not over within %g s and are left behind", seconds)

    def _serve_line(self) -> None:
        for place in list(self._line):
            key, future = place
            if future.done():
                self._line.remove(place)
            elif (seat := self._seat_for(key)) is not None:
                seat.busy = True
                self._seats.remove(seat)
                self._seats.append(seat)
                self._line.remove(place)
                future.set_result(seat)

    def _seat_for(self, key: Hashable) -> Seat | None:
        own = [seat for seat in self._seats if seat.key == key]
        idle = next((seat for seat in own if not seat.busy), None)
        if idle is not None or self._start is None or (own and key is not None):
            return idle
        if len(self._seats) < self._limit:
            seat = Seat(key)
        elif (old := next((seat for seat in self._seats if not seat.busy), None)) is not None:
            self._seats.remove(old)
            seat = Seat(key, replaced=old.runtime)
        else:
            return None
        self._seats.append(seat)
        return seat

    async def _start_for(self, seat: Seat) -> None:
        assert self._start is not None
        if seat.replaced is not None:
            old, seat.replaced = seat.replaced, None
            await _stop(old)
        started = self._start()
        seat.runtime = await started if inspect.isawaitable(started) else started

    def _stop_idle(self) -> None:
        if self._start is not None:
            for seat in [seat for seat in self._seats if not seat.busy]:
                self._seats.remove(seat)
                self._stop_aside(seat.runtime)

    def _stop_aside(self, runtime: Any) -> None:
        if runtime is not None:
            self._aside(_stop(runtime))

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _spent(runtime: Any) -> bool:
    status = getattr(runtime, "status", None)
    return getattr(status, "value", status) in ("failed", "stopped")


async def _stop(runtime: Any) -> None:
    try:
        await runtime.stop()
    except Exception as error:
        logger.warning("a runtime did not stop (%s)", type(error).__name__)
        logger.debug("the failure", exc_info=error)
