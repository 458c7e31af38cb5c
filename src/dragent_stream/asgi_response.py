"""One run's SSE frames as one ASGI response: pulled, sent, kept alive, and closed when either side goes.

Pure ASGI (asyncio servers: uvicorn, hypercorn, granian), no framework, so that every edge that serves HTTP can use it.

Nothing lies between the upstream and the socket but one `async for`: no queue, no task per frame. What must happen while
the upstream is silent (a keep-alive comment, text that a `FrameBuffer` held back) is sent from a timer beside the pending
pull, which is never cancelled for it. Frames are sent whole, so a comment can only stand between two of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Protocol, TypeAlias

from dragent_stream.asgi_exits import as_exception, exits_contained

__all__ = ["EventStreamResponse", "FrameBuffer", "Receive", "Scope", "Send", "hold_left_behind"]

logger = logging.getLogger("dragent_stream")

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# Every SSE reader ignores a comment (WHATWG HTML, section 9.2.7), so this needs no agreement with the client.
_PING = b": ping\n\n"

# `no-transform` and X-Accel-Buffering keep proxies from compressing or collecting what should flow.
_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)

# Seconds that one stream may go on without letting the event loop do anything else.
_BREATH = 0.005

# Pumps whose upstream would not close in time; held so that they can still end in their own time.
_left_behind: set[asyncio.Task[Any]] = set()


class FrameBuffer(Protocol):
    """Holds frames back for a moment, to send fewer and larger ones."""

    due: float | None
    """Loop time at which what is held must leave; None while nothing is held."""

    def feed(self, frames: bytes, now: float) -> bytes:
        """What is to be sent now, in order; empty while everything is held."""
        ...

    def take(self, now: float) -> bytes:
        """What is held; nothing is held afterwards."""
        ...


class _ClientGone(Exception):
    """The server refused a write (ASGI 2.4 raises OSError): nobody reads this response any more."""


class EventStreamResponse:
    """An ASGI application that answers one request with the frames of one run.

    The upstream is closed exactly once, whatever ends the response: its own end, `stop`, the client's disconnect, a
    client that stopped reading, the server's cancellation. A client that goes is no error and is not logged. Whatever
    `frames` raises of its own ends this response and no more, be it `SystemExit` or a CancelledError that nobody sent.
    Frames that swallow their cancellation are left behind, and what they yield then is not sent.

    Args:
        frames: Yields whole SSE frames, one or several at a time; closed with `aclose` where it has one.
        keep_alive: Seconds of silence after which a comment is sent; None for none.
        send_timeout: Seconds that a client may leave a frame unread before it counts as gone; None for no limit.
        close_timeout: Seconds that the upstream is given to close before it is left behind with a warning.
        buffer: Merges text deltas by holding them back.
        farewell: Gives the last frames of a run that ends early: called with None after `stop`, with the exception after
            a failure of `frames` itself. Without it such a failure is raised to the server.
        headers: More response headers.
        name: What the log calls this run.
    """

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        *,
        keep_alive: float | None = 15.0,
        send_timeout: float | None = 60.0,
        close_timeout: float = 5.0,
        buffer: FrameBuffer | None = None,
        farewell: Callable[[BaseException | None], Iterable[bytes]] | None = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
        name: str = "a run",
    ) -> None:
        self._frames = frames
        self._keep_alive = keep_alive
        self._send_timeout = send_timeout
        self._close_timeout = close_timeout
        self._buffer = buffer
        self._farewell = farewell
        self._headers = [*_HEADERS, *headers]
        self._name = name
        self._request: asyncio.Task[Any] | None = None
        self._pump: asyncio.Task[None] | None = None
        self._overdue: asyncio.Future[None] | None = None  # done when the upstream has not obeyed `stop` in time
        self._aside: asyncio.Task[None] | None = None  # a comment or held text on its way out beside the pump
        self._ticker: asyncio.TimerHandle | None = None
        self._flusher: asyncio.TimerHandle | None = None
        self._sending = True  # until the head is sent there is no pull that `stop` could cut
        self._sent_at = 0.0
        self._stuck: tuple[float, float] | None = None  # (the last finished write, when the next one was seen waiting)
        self._stopping = False
        self._gone = False
        self._left = False  # the pump is left behind, and the farewell leaves without it

    def stop(self) -> None:
        """End the run now: close the upstream, send the farewell, end the response. Only the first call counts.

        An upstream that does not close within `close_timeout` is left behind, and the farewell is sent without it.
        """
        if self._stopping:
            return
        self._stopping = True
        # A frame on its way out is never cut: the pump looks at the flag once it has left.
        if self._pump is not None and not self._sending:
            self._pump.cancel()
            self._pump.get_loop().call_later(self._close_timeout, self._give_up_waiting)

    def _give_up_waiting(self) -> None:
        # While a frame is being sent, or the farewell itself, the pump has obeyed.
        if self._overdue is not None and not self._sending and not self._overdue.done():
            self._overdue.set_result(None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; returns when it is complete or the client is gone."""
        self._request = asyncio.current_task()
        self._overdue = asyncio.get_running_loop().create_future()
        pump = self._pump = asyncio.create_task(self._run(send))
        listener = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((pump, listener, self._overdue), return_when=asyncio.FIRST_COMPLETED)
            if self._overdue.done() and not pump.done() and not listener.done():
                self._left = True
                self._leave_behind(pump)
                pump = self._pump = asyncio.create_task(self._take_leave(send))
                await asyncio.wait((pump, listener), return_when=asyncio.FIRST_COMPLETED)
        finally:
            listener.cancel()
            self._overdue.cancel()
            if not pump.done():
                self._gone = True
                pump.cancel()
                try:
                    await asyncio.wait((pump,), timeout=self._close_timeout)
                finally:
                    if not pump.done():
                        self._leave_behind(pump)
        if pump.done() and not pump.cancelled() and (error := pump.exception()) is not None:
            raise error

    def _leave_behind(self, pump: asyncio.Task[None]) -> None:
        logger.warning("%s: the upstream did not close within %g s and is left behind", self._name, self._close_timeout)
        hold_left_behind(pump)

    async def _run(self, send: Send) -> None:
        with exits_contained():
            try:
                await self._respond(send)
            except _ClientGone:
                self._gone = True
            finally:
                if not self._left:
                    self._fall_silent()
                await self._close_frames()

    async def _take_leave(self, send: Send) -> None:
        """Send the farewell in place of a pump that is left behind."""
        try:
            await self._end(asyncio.get_running_loop(), send)
        except _ClientGone:
            self._gone = True
        finally:
            self._fall_silent()

    def _fall_silent(self) -> None:
        for timer in (self._ticker, self._flusher):
            if timer is not None:
                timer.cancel()
        if self._aside is not None:
            self._aside.cancel()

    async def _close_frames(self) -> None:
        if (aclose := getattr(self._frames, "aclose", None)) is None:
            return
        try:
            await aclose()
        except BaseException as error:
            if self._is_cancellation(error):
                raise
            logger.warning("%s: the source of its frames failed when it was closed", self._name, exc_info=error)

    def _is_cancellation(self, error: BaseException) -> bool:
        """Whether the pump is cancelled or destroyed from outside, and this is not just what its source raised."""
        if isinstance(error, GeneratorExit):
            try:
                return asyncio.current_task() is not self._pump
            except RuntimeError:  # no loop runs any more
                return True
        if not isinstance(error, asyncio.CancelledError):
            return False
        return self._gone or self._stopping or (self._request is not None and self._request.cancelling() > 0)

    async def _respond(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        except OSError:
            raise _ClientGone from None
        self._sent_at = loop.time()
        self._sending = False
        self._tick(loop, send)
        ending: Iterable[bytes] = ()
        try:
            await self._send_frames(loop, send)
        except _ClientGone:
            raise
        except BaseException as error:
            if self._left:
                logger.debug("%s: the upstream that was left behind failed", self._name, exc_info=error)
            elif self._is_cancellation(error):
                # `stop` cancelled the pull; every other cancellation goes on.
                if self._gone or not self._stopping:
                    raise
            else:
                if self._farewell is None:
                    if isinstance(error, Exception):
                        raise
                    raise as_exception(error) from error
                logger.error("%s: the source of its frames failed", self._name, exc_info=error)
                ending = self._farewell(as_exception(error))
        if not self._left:
            await self._end(loop, send, ending)

    async def _end(self, loop: asyncio.AbstractEventLoop, send: Send, ending: Iterable[bytes] = ()) -> None:
        """Send what is held and the ending, which after `stop` is the farewell."""
        self._sending = True  # from here on `stop` comes too late to cut anything
        if self._stopping and self._farewell is not None and not ending:
            ending = self._farewell(None)
        last = b"".join(ending)
        if self._buffer is not None:
            last = self._buffer.take(loop.time()) + last
        await self._write(loop, send, last, more=False)

    async def _send_frames(self, loop: asyncio.AbstractEventLoop, send: Send) -> None:
        if self._stopping:
            return
        buffer = self._buffer
        breath = loop.time() + _BREATH
        async for frames in self._frames:
            if self._left:
                return
            if buffer is not None:
                frames = buffer.feed(frames, loop.time())
                if buffer.due is not None and self._flusher is None:
                    self._flusher = loop.call_at(buffer.due, self._flush, loop, send)
                if not frames:
                    if self._stopping:
                        return
                    continue
            await self._write(loop, send, frames)
            if self._stopping:
                return
            if self._sent_at >= breath:
                # Neither an agent that never waits nor a socket that takes everything (a closed one does) may keep
                # the loop from its other streams, nor this one from hearing that its client has gone.
                await asyncio.sleep(0)
                breath = loop.time() + _BREATH

    async def _write(self, loop: asyncio.AbstractEventLoop, send: Send, body: bytes, *, more: bool = True) -> None:
        self._sending = True
        if self._aside is not None:
            await asyncio.wait((self._aside,))
        try:
            await send({"type": "http.response.body", "body": body, "more_body": more})
        except OSError:
            raise _ClientGone from None
        self._sent_at = loop.time()
        self._sending = not more

    def _tick(self, loop: asyncio.AbstractEventLoop, send: Send) -> None:
        """Look whether the stream is silent or the client is stuck, and when to look again."""
        now = loop.time()
        wait = self._keep_alive or self._send_timeout
        if self._sending:
            if self._stuck is None or self._stuck[0] != self._sent_at:
                self._stuck = (self._sent_at, now)
            elif self._send_timeout and now - self._stuck[1] >= self._send_timeout:
                logger.info("%s: the client has not read for %g s and counts as gone", self._name, self._send_timeout)
                self._give_up()
                return
            wait = min(self._keep_alive or now, self._send_timeout or now)
        elif self._keep_alive:
            silence = now - self._sent_at
            # The clock of a timer may run a tick ahead of `loop.time()`.
            if silence + 0.001 >= self._keep_alive:
                self._write_aside(loop, send, _PING)
            else:
                wait = self._keep_alive - silence
        if wait:
            self._ticker = loop.call_later(wait, self._tick, loop, send)

    def _flush(self, loop: asyncio.AbstractEventLoop, send: Send) -> None:
        """Send what the buffer holds if its time has come."""
        self._flusher = None
        buffer = self._buffer
        if buffer is None or buffer.due is None:
            return
        now = loop.time()
        if self._sending or self._aside is not None:
            self._flusher = loop.call_later(0.01, self._flush, loop, send)
        elif buffer.due > now + 0.001:
            self._flusher = loop.call_at(buffer.due, self._flush, loop, send)
        else:
            self._write_aside(loop, send, buffer.take(now))

    def _write_aside(self, loop: asyncio.AbstractEventLoop, send: Send, body: bytes) -> None:
        async def write() -> None:
            try:
                await send({"type": "http.response.body", "body": body, "more_body": True})
                self._sent_at = loop.time()
            except OSError:
                self._give_up()
            finally:
                self._aside = None

        if self._aside is None:
            self._aside = loop.create_task(write())

    def _give_up(self) -> None:
        self._gone = True
        if self._pump is not None:
            self._pump.cancel()


def hold_left_behind(task: asyncio.Task[Any]) -> None:
    """Keep a task that does not end when it is cancelled, so that it can still end in its own time."""
    _left_behind.add(task)
    task.add_done_callback(_left_behind.discard)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
