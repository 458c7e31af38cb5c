"""One turn of a chunk source: run the target once, hand on its chunks, say what came of it.

Used by the adapter for the common host and by the process without one. The target is never run again, its failure is an
outcome and no exception, and only a lost transport is raised.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from dragent_stream.answer_body import chunks_of_bodies
from dragent_stream.error_text import error_text, may_be_told
from dragent_stream.errors import ConversionError, UpstreamError
from dragent_stream.fabric.contract import INVALID_CHUNK, OVERSIZED_CHUNK
from dragent_stream.fabric.deadline import TurnDeadline, check_turn_timeout
from dragent_stream.fabric.normalize import ChunkNormalizer, ReadyChunk
from dragent_stream.fabric.summary import TurnSummary
from dragent_stream.options import DEFAULT_OPTIONS, ConverterOptions
from dragent_stream.stream_converter import ChunkSource, Upstream

__all__ = ["Lifespan", "Prepare", "StreamTarget", "TurnOutcome", "TurnSource", "failure_text"]

logger = logging.getLogger("dragent_stream.fabric")

TurnSource: TypeAlias = Callable[[Any], ChunkSource]
"""Called once per turn with what `Prepare` made of the request; see `ChunkSource` for what it may return."""
Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[TurnSource]]
"""Called once per runtime with the start payload; enters at start, gives the source, exits at stop."""
Prepare: TypeAlias = Callable[[Any, Any], Any]
"""(request, context) of one turn to the source's argument; by default the request's `input`."""
Send: TypeAlias = Callable[[ReadyChunk], Awaitable[None]]

_MESSAGE_LIMIT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """The result of one turn.

    Attributes:
        status: As in Fabric's `AgentRunStatus`.
        output: `{"response": text}` and, where there are any, `tool_calls`; what there was of them at a failure.
        code: Of a failure or cancellation: `timeout`, `target_failed`, `target_cancelled`, `upstream_error`,
            `invalid_chunk`, or a code of the core (`content_filter`, `length`, `INCOMPLETE_TOOL_CALL`, `EMPTY_ANSWER` where
            chunks came and none said anything, `INTERRUPTED`, `UNKNOWN_CHUNKS`); else empty.
        message: Its text. Of a foreign exception it names the type; the rest is on stderr, unless the options show it.
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
        turn_timeout: float | None = None,
        options: ConverterOptions | None = None,
    ) -> None:
        check_turn_timeout(turn_timeout)
        if (source is None) == (lifespan is None):
            raise ConversionError("give either a source or a lifespan that yields one")
        self._source = source
        self._lifespan = lifespan
        self._prepare = prepare
        self._model = model
        self._turn_timeout = turn_timeout
        self._options = options or DEFAULT_OPTIONS
        self._stack = AsyncExitStack()

    @property
    def options(self) -> ConverterOptions:
        """What it was told."""
        return self._options

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
        deadline_millis = getattr(context, "deadline_millis", None)
        deadline = TurnDeadline(deadline_millis, self._turn_timeout, self._options.close_timeout)
        # The same release brought deadlines and counts of cached tokens; the SDK before it refuses a result with them.
        turn = _Turn(self._options, self._model, chunk_limit, send, deadline, counts_cache=deadline_millis is not None)
        # A task of its own: it can be left behind, and its cancellation is never mistaken for the caller's.
        work = asyncio.create_task(turn.work(self._open, request, context))
        await deadline.keep(work)
        error = work.result() if work.done() and not work.cancelled() else None
        if isinstance(error, _SendError):
            if getattr(error.cause, "code", None) not in (INVALID_CHUNK, OVERSIZED_CHUNK):
                raise error.cause
            return turn.outcome("failed", "invalid_chunk", "Fabric refused a chunk of this adapter")
        if deadline.expired:
            return turn.outcome("failed", "timeout", "the target did not finish before the turn's deadline")
        if work.cancelled():
            return turn.outcome("cancelled", "target_cancelled", "the target was cancelled")
        if error is not None:
            logger.error("the target failed", exc_info=error)
            return turn.outcome("failed", _code(error), failure_text("target", error, self._options))
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
    """The state of one turn."""

    def __init__(
        self,
        options: ConverterOptions,
        model: str,
        chunk_limit: int,
        send: Send | None,
        deadline: TurnDeadline,
        *,
        counts_cache: bool,
    ) -> None:
        self._send = send
        self._deadline = deadline
        self._counts_cache = counts_cache
        self._summary = TurnSummary(options)
        self._normalizer = ChunkNormalizer(
            chunk_limit=chunk_limit, model=model, created=int(time.time()), new_id=options.new_id
        )

    async def work(
        self, open_source: Callable[[Any, Any], ChunkSource], request: Any, context: Any
    ) -> BaseException | None:
        """Read the source to its end, to the first failure in its chunks, or to the deadline; what was raised."""
        try:
            await self._pump(open_source, request, context)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a task that raises SystemExit or KeyboardInterrupt would end its event loop
            return error
        return None

    async def _pump(self, open_source: Callable[[Any, Any], ChunkSource], request: Any, context: Any) -> None:
        normalizer = self._normalizer
        async with (
            Upstream(open_source(request, context), self._deadline.grace) as upstream,
            aclosing(chunks_of_bodies(upstream)) as chunks,
        ):
            try:
                async for chunk in chunks:
                    if not await self._hand_on(normalizer.feed(chunk)):
                        return
                rest = normalizer.finish()
            except _SendError:
                raise
            except Exception:
                await self._hand_on(normalizer.release())
                raise
            await self._hand_on(rest)

    async def _hand_on(self, ready_chunks: list[ReadyChunk]) -> bool:
        """Note the chunks and send them; False where the turn is over: its deadline has passed, or it failed in them."""
        summary, send, deadline = self._summary, self._send, self._deadline
        for ready in ready_chunks:
            if deadline.passed():
                return False
            summary.add(ready.chunk)
            if send is not None:
                deadline.sent.clear()
                try:
                    await send(ready)
                except Exception as error:
                    raise _SendError(error) from error
                finally:
                    deadline.sent.set()
        return not deadline.passed() and summary.failure is None

    def outcome(
        self, status: Literal["succeeded", "failed", "cancelled"], code: str = "", text: str = ""
    ) -> TurnOutcome:
        """What the turn came to, the chunks' own failure included."""
        output = self._summary.output()
        if status == "succeeded" and self._summary.failure is not None:
            status = "failed"
            code, text = self._summary.failure
            code = _known_code(code)
        usage = self._summary.usage(with_cache=self._counts_cache)
        text = text[:_MESSAGE_LIMIT].encode("utf-8", "replace").decode()
        return TurnOutcome(status=status, output=output, code=code, message=text.strip() or code, usage=usage)


def failure_text(what: str, error: BaseException, options: ConverterOptions) -> str:
    """What a result says of an exception: its type, where its text may hold secrets.

    Args:
        what: What failed, as in "the target".
        error: The exception.
        options: `public_error` words it, `expose_errors` shows it.
    """
    if options.public_error is not None or may_be_told(error, options):
        return error_text(error, options)
    return f"the {what} failed with {type(error).__name__}; the traceback is on the adapter's stderr"


def _code(error: BaseException) -> str:
    if isinstance(error, UpstreamError):
        return _known_code(error.code)
    return "invalid_chunk" if isinstance(error, ConversionError) else "target_failed"


def _known_code(code: str) -> str:
    return "upstream_error" if code == "STREAM_ERROR" else code
