"""One turn of a chunk source: run the target once, hand on its chunks, say what came of it.

Used by the adapter for the common host and by the process without one. The target is never run again, its failure is an
outcome and no exception, and only a lost transport is raised.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from dragent_stream.errors import ConversionError, UpstreamError
from dragent_stream.fabric.contract import INVALID_CHUNK, OVERSIZED_CHUNK
from dragent_stream.fabric.normalize import ChunkNormalizer, ReadyChunk
from dragent_stream.fabric.summary import TurnSummary
from dragent_stream.options import ConverterOptions
from dragent_stream.stream_converter import ChunkSource, error_text, open_upstream

__all__ = ["Lifespan", "Prepare", "StreamTarget", "TurnOutcome", "TurnSource"]

logger = logging.getLogger("dragent_stream.fabric")

TurnSource: TypeAlias = Callable[[Any], ChunkSource]
"""Called once per turn with what `Prepare` made of the request; see `ChunkSource` for what it may return."""
Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[TurnSource]]
"""Called once per runtime with the start payload; enters at start, gives the source, exits at stop."""
Prepare: TypeAlias = Callable[[Any, Any], Any]
"""(request, context) of one turn to the source's argument; by default the request's `input`."""
Send: TypeAlias = Callable[[ReadyChunk], Awaitable[None]]

_MESSAGE_LIMIT = 2000
_MARGIN = 10.0  # seconds that Fabric leaves between an adapter's deadline and its own timeout, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """The result of one turn.

    Attributes:
        status: As in Fabric's `AgentRunStatus`.
        output: `{"response": text}` and, where there are any, `tool_calls`; what there was of them at a failure.
        code: Of a failure or cancellation: `timeout`, `target_failed`, `target_cancelled`, `upstream_error`,
            `invalid_chunk`, `content_filter`, `length`; else empty.
        message: Its text.
        usage: The fields of `AgentUsage`, or None.
    """

    status: Literal["succeeded", "failed", "cancelled"]
    output: dict[str, Any]
    code: str = ""
    message: str = ""
    usage: dict[str, Any] | None = None

    def to_mapping(self) -> dict[str, Any]:
        """The wire form of an `AgentRunResult`."""
        result: dict[str, Any] = {"status": self.status, "output": self.output}
        if self.code:
            result["error"] = {"code": self.code, "message": self.message}
        if self.usage:
            result["usage"] = self.usage
        return result


class StreamTarget:
    """A chunk source with its lifetime: start, turns one after the other, stop."""

    def __init__(
        self,
        source: TurnSource | None = None,
        *,
        lifespan: Lifespan | None = None,
        prepare: Prepare | None = None,
        model: str = "unknown-model",
        options: ConverterOptions | None = None,
    ) -> None:
        if (source is None) == (lifespan is None):
            raise ConversionError("give either a source or a lifespan that yields one")
        self._source = source
        self._lifespan = lifespan
        self._prepare = prepare
        self._model = model
        self._options = options or ConverterOptions()
        self._stack = AsyncExitStack()

    async def start(self, payload: Any) -> None:
        """Enter the lifespan, if there is one."""
        if self._lifespan is not None:
            self._source = await self._stack.enter_async_context(self._lifespan(payload))

    async def stop(self) -> None:
        """Leave the lifespan."""
        await self._stack.aclose()

    async def run(self, request: Any, context: Any, *, chunk_limit: int, send: Send | None = None) -> TurnOutcome:
        """Run the target once and report.

        Args:
            request: Has `input`; goes to `prepare`.
            context: Has `deadline_millis` (Unix milliseconds or None).
            chunk_limit: Bytes that one chunk's JSON may have.
            send: Takes each valid chunk; awaited, so a slow consumer slows the target. None gathers only.

        Raises:
            Exception: What `send` raised, except a refusal of the chunk; the transport is lost then.
            asyncio.CancelledError: The caller's task was cancelled; never because the target was.
        """
        turn = _Turn(self._options, self._model, chunk_limit, send)
        timer = asyncio.timeout_at(_loop_deadline(getattr(context, "deadline_millis", None)))
        try:
            async with timer:
                await turn.pump(self._open, request, context, timer)
        except _SendError as error:
            if getattr(error.cause, "code", None) not in (INVALID_CHUNK, OVERSIZED_CHUNK):
                raise error.cause from None
            return turn.outcome("failed", "invalid_chunk", "Fabric refused a chunk of this adapter")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return turn.outcome("cancelled", "target_cancelled", "the target was cancelled")
        except UpstreamError as error:
            return turn.outcome("failed", "upstream_error", error_text(error, self._options))
        except (Exception, SystemExit) as error:
            if not timer.expired():
                logger.debug("the target failed", exc_info=error)
                code = "invalid_chunk" if isinstance(error, ConversionError) else "target_failed"
                return turn.outcome("failed", code, error_text(error, self._options))
        if timer.expired() or turn.late:
            return turn.outcome("failed", "timeout", "the target did not finish before the invocation's deadline")
        return turn.outcome("succeeded")

    def _open(self, request: Any, context: Any) -> ChunkSource:
        if self._source is None:
            raise ConversionError("the runtime was not started")
        return self._source(self._prepare(request, context) if self._prepare else request.input)


class _SendError(Exception):
    """`send` failed, which is no failure of the target."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause


class _Turn:
    """The state of one turn.

    Attributes:
        late: The deadline passed while the target was not waiting, so that nothing could interrupt it.
    """

    def __init__(self, options: ConverterOptions, model: str, chunk_limit: int, send: Send | None) -> None:
        self.late = False
        self._options = options
        self._send = send
        self._summary = TurnSummary(options)
        self._normalizer = ChunkNormalizer(
            chunk_limit=chunk_limit, model=model, created=int(time.time()), new_id=options.new_id
        )

    async def pump(
        self, open_source: Callable[[Any, Any], ChunkSource], request: Any, context: Any, timer: asyncio.Timeout
    ) -> None:
        """Read the source to its end, to the first failure in its chunks, or to the deadline."""
        deadline = timer.when()
        now = asyncio.get_running_loop().time
        summary, feed, send = self._summary, self._normalizer.feed, self._send
        close_timeout = self._options.close_timeout
        if deadline is not None:
            # Closing must not use up what Fabric leaves for the answer.
            close_timeout = min(close_timeout, max(0.1, min(_MARGIN, deadline - now()) / 2))
        async with open_upstream(open_source(request, context), close_timeout) as upstream:
            async for chunk in upstream:
                for ready in feed(chunk):
                    summary.add(ready.chunk)
                    if send is None:
                        continue
                    # A cancelled emit of the common host would use its number twice; so no deadline while it waits.
                    if deadline is not None and not timer.expired():
                        timer.reschedule(None)
                    try:
                        await send(ready)
                    except Exception as error:
                        raise _SendError(error) from error
                    if deadline is not None and not timer.expired():
                        timer.reschedule(deadline)
                if deadline is not None and now() >= deadline:
                    self.late = True
                    return
                if summary.failure is not None:
                    return

    def outcome(
        self, status: Literal["succeeded", "failed", "cancelled"], code: str = "", text: str = ""
    ) -> TurnOutcome:
        """What the turn came to, the chunks' own failure included."""
        output = self._summary.output()
        if status == "succeeded" and self._summary.failure is not None:
            status = "failed"
            code, text = self._summary.failure
            code = "upstream_error" if code == "STREAM_ERROR" else code
        usage = self._summary.usage()
        text = text[:_MESSAGE_LIMIT].encode("utf-8", "replace").decode()
        return TurnOutcome(status=status, output=output, code=code, message=text.strip() or code, usage=usage)


def _loop_deadline(deadline_millis: int | None) -> float | None:
    """The deadline on the running loop's clock; None where the host gives none (before Fabric 0.5)."""
    if deadline_millis is None:
        return None
    return asyncio.get_running_loop().time() + max(0.0, deadline_millis / 1000 - time.time())
