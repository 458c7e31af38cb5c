"""One turn of a runtime, read to its end at its own speed, whatever the reader of its chunks does.

A turn cannot be cancelled, its runtime takes no other one before it is over, and its clock runs on while nobody reads: a
stream that is pulled only when a client pulls costs the runtime as soon as a client stalls. So a task reads it from the
moment it is opened. What the reader has not taken yet waits as JSON, `BACKLOG_LIMIT` bytes at most; beyond that the rest is
read and dropped, and the reader, once it has taken what waited, gets an error that says so.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, cast

from dragent_stream.errors import UpstreamError

__all__ = ["BACKLOG_LIMIT", "FabricStream", "OpenTurn", "drain_fabric_stream", "wait_fabric_drains"]

logger = logging.getLogger("dragent_stream.fabric")

BACKLOG_LIMIT = 64 * 1024 * 1024
"""Bytes of JSON that may wait for a reader: some 400,000 tokens."""

_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_open: dict[int, OpenTurn] = {}


class FabricStream(Protocol):
    """What is used of the SDK's `OpenAIInvokeStream` (0.2 to 0.5)."""

    def __aiter__(self) -> AsyncIterator[Any]:
        """The chunks, as JSON values."""
        ...

    async def result(self) -> Any:
        """The turn's `RunResult`."""
        ...

    async def aclose(self) -> None:
        """Drop unread chunks and wait for the target's end."""
        ...


class OpenTurn:
    """Iterate it for the chunks, once; then ask for the result.

    Attributes:
        task: Reads the turn; done when the turn is over. It never fails. None where no event loop was running yet.
    """

    def __init__(
        self,
        stream: FabricStream,
        *,
        backlog_limit: int = BACKLOG_LIMIT,
        left: bool = False,
        on_over: Callable[[], None] | None = None,
    ) -> None:
        """Begin to read.

        Args:
            stream: The turn; nobody else may iterate it or await its result.
            backlog_limit: Bytes of JSON that may wait for the reader.
            left: Nobody wants the chunks.
            on_over: Called when the turn is over, before its reader knows.
        """
        self.task: asyncio.Task[None] | None = None
        self._stream = stream
        self._room = backlog_limit
        self._limit = backlog_limit
        self._left = left
        self._on_over = on_over
        self._held: deque[Any] = deque()
        self._arrived = asyncio.Event()
        self._over = False
        self._dropped = 0
        self._result: Any = None
        self._error: Exception | None = None
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # a stand-in made outside of a loop; the SDK's streams cannot be
        self._start()

    @property
    def left(self) -> bool:
        """Nobody wants the chunks any more."""
        return self._left

    def leave(self) -> None:
        """Nobody will read on: what waits is dropped, and the turn is read to its end."""
        self._left = True
        self._held.clear()
        self._arrived.set()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        """The next chunk; what the SDK raised, where the turn broke off. It ends at once for a reader that left."""
        if self.task is None and not self._left:
            self._start()
        while not self._held:
            if self._left:
                raise StopAsyncIteration
            if self._dropped:
                raise UpstreamError(
                    f"the rest of this run is lost: more than {self._limit} bytes of it waited for its reader",
                    "slow_reader",
                )
            if self._over:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        chunk = self._held.popleft()
        if type(chunk) is not bytes:
            return chunk
        self._room += len(chunk)
        return json.loads(chunk)

    async def result(self) -> Any:
        """The turn's result, once the chunks have ended; what the SDK raised instead of it. None for who left."""
        while not (self._over or self._left):
            self._arrived.clear()
            await self._arrived.wait()
        if self._error is not None:
            raise self._error
        return self._result

    def _start(self) -> None:
        _open[id(self._stream)] = self  # the turn holds the stream, so the id stays its own until the task is done
        self.task = asyncio.get_running_loop().create_task(self._read())
        self.task.add_done_callback(lambda _: _open.pop(id(self._stream), None))

    async def _read(self) -> None:
        stream = self._stream
        try:
            if self._left:
                await stream.aclose()
                return
            async for chunk in stream:
                self._keep(chunk)
            self._result = await stream.result()
        except asyncio.CancelledError:
            self._error = UpstreamError("the reading of this turn was cancelled")
            raise
        except Exception as error:
            self._error = error
            logger.debug("a turn failed", exc_info=error)
            await self._close_after(error)
        finally:
            self._over = True
            self._arrived.set()
            if self._on_over is not None:
                self._on_over()

    async def _close_after(self, error: Exception) -> None:
        try:
            await self._stream.aclose()
        except Exception as refusal:
            if refusal is not error:
                logger.debug("a turn failed once more while it was closed", exc_info=refusal)

    def _keep(self, chunk: Any) -> None:
        if self._left:
            return
        if self._dropped:
            self._dropped += 1
        elif not self._held:
            self._held.append(chunk)
        else:
            encoded = _JSON.encode(chunk).encode("utf-8", "surrogatepass")
            self._room -= len(encoded)
            if self._room < 0:
                self._dropped = 1
                logger.warning("a reader is more than %d bytes behind its turn; the rest is dropped", self._limit)
            else:
                self._held.append(encoded)
        self._arrived.set()


def drain_fabric_stream(stream: FabricStream) -> asyncio.Task[None]:
    """Let a turn that nobody reads any more run out; afterwards its runtime can take the next one.

    Returns:
        The one task that does it for this stream. It never fails: what became of the turn is the runtime's to tell.
    """
    turn = _open.get(id(stream)) or OpenTurn(stream, left=True)
    turn.leave()
    return cast("asyncio.Task[None]", turn.task)


async def wait_fabric_drains() -> None:
    """Wait until no turn that was left is still running on this event loop; before a runtime is stopped."""
    loop = asyncio.get_running_loop()
    while mine := [turn.task for turn in _open.values() if turn.left and turn.task and turn.task.get_loop() is loop]:
        await asyncio.wait(mine)
        await asyncio.sleep(0)  # their callbacks take them out
