"""From a chunk stream to AG-UI events: `ChunkConverter` decides, `convert_chunks_to_agui_events` awaits."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from io import IOBase
from os import PathLike
from types import TracebackType
from typing import Any, Generic, TypeAlias, cast

from ag_ui.core import BaseEvent
from pydantic import BaseModel
from typing_extensions import TypeVar

from dragent_stream.agui_parts import agui_parts
from dragent_stream.answer_body import READS, AnswerBody
from dragent_stream.chunk_record import Chunk
from dragent_stream.chunks import ChunkReader
from dragent_stream.content_parts import result_text
from dragent_stream.error_text import error_code, error_text
from dragent_stream.errors import AnswerError, ConversionError, SSEError
from dragent_stream.ledger import RunLedger
from dragent_stream.options import ConverterOptions
from dragent_stream.plain_chunks import TEXT, Glance
from dragent_stream.response import DRAgentEventResponse, batch_of
from dragent_stream.step_adaptor import AgentStep, StepConverter
from dragent_stream.think_tags import ThinkTags
from dragent_stream.turn import Place
from dragent_stream.usage import Usage
from dragent_stream.well_formed import well_formed

__all__ = ["ChunkConverter", "ChunkSource", "Upstream", "convert_chunks_to_agui_events"]

logger = logging.getLogger("dragent_stream")

E = TypeVar("E", default=BaseEvent)
_SSE_LINE = re.compile(r"data: ?(\{|\[DONE\])|event: ?[\w.-]+\s*$")
ChunkSource: TypeAlias = AsyncIterable[Any] | Iterable[Any] | Awaitable[AsyncIterable[Any]]
"""An async iterable of chunks, an awaitable of one (openai's `create(stream=True)`), or a plain iterable.

A chunk may also be `bytes`: the next part, cut anywhere, of the body of a Chat Completions answer (SSE, or JSON from a server
that does not stream), or of several, one after the other. Beside chunks the source may bring `AgentStep`s, and tool results as chat messages: `{"role": "tool", "tool_call_id", "content"}`.
"""


class ChunkConverter(Generic[E]):
    """Chunks in, events out; no clock, no await.

    Args:
        ledger: The run to write to; a new one, with `options`, where None.
        options: Of a new ledger; give them to the ledger where there is one.

    Attributes:
        ledger: The run this converter writes to.
        model: The model that the last chunks named; empty before.
        usage: What the last chunk said about usage; the reader of it sets it back to None.
        ignored_choices: How many choices beside the converted one were passed over.
        glance: Called with a chunk, gives the one event of a plain chunk, and None for a chunk that `read` must take.
            A shell that calls both saves what `feed` spends on its list; the events are the same.
    """

    __slots__ = (
        "_body",
        "_line_end",
        "_plain",
        "_reader",
        "_steps",
        "_think",
        "_warned",
        "glance",
        "ledger",
        "model",
        "usage",
    )

    def __init__(self, ledger: RunLedger[E] | None = None, options: ConverterOptions | None = None) -> None:
        if ledger is not None and options is not None and options is not ledger.options:
            raise ConversionError("options belong to the ledger: RunLedger(options=…), then ChunkConverter(ledger)")
        self.ledger: RunLedger[E] = ledger or RunLedger(options=options)
        self.model = ""
        self.usage: Usage | None = None
        self._reader = ChunkReader()
        self._plain = Glance(self.ledger.hot)
        self.glance: Callable[[object], E | None] = self._plain.event
        self._steps: StepConverter[E] | None = None
        self._body: AnswerBody[E] | None = None
        self._think = ThinkTags() if self.ledger.options.think_tags else None
        self._warned = False
        self._line_end: str | None = None  # of strings that are an SSE body; None where they are none

    @property
    def done(self) -> bool:
        """The run has its terminal event; later chunks are not read."""
        return self.ledger.finished

    @property
    def steps(self) -> StepConverter[E]:
        """The converter of the steps that come inside the chunk stream, and in a run that has an owner beside it."""
        if self._steps is None:
            self._steps = StepConverter(self.ledger, lifecycle=False)
        return self._steps

    @property
    def ignored_choices(self) -> int:
        """How many choices beside the converted one were passed over."""
        return self._reader.ignored_choices

    def feed(self, chunk: object) -> list[E]:
        """The events of one chunk; none after a terminal event. Never raises for what a provider sends."""
        event = self.glance(chunk)
        return [event] if event is not None else self.read(chunk)

    def read(self, chunk: object) -> list[E]:
        """The events of a chunk that `glance` has left."""
        ledger = self.ledger
        if ledger.finished:
            return []
        if isinstance(chunk, READS):
            return self._read_body(bytes(cast("bytes", chunk)))
        if isinstance(chunk, AgentStep):
            return self.steps.feed(chunk.step)
        reader = self._reader
        if isinstance(chunk, str) and (
            self._line_end is not None or (not reader.understood and _SSE_LINE.match(chunk))
        ):
            if self._line_end is None:
                self._line_end = "" if "\n" in chunk else "\n"  # the body as text, or its lines
            return self._read_body((chunk + self._line_end).encode("utf-8", "surrogatepass"))
        records = reader.read(chunk)
        index = reader.choice_index
        if index is not None:
            self._plain.choice_index = index
        if reader.unknown and not self._warned:
            from dragent_stream.foreign import describe  # its words are seldom needed

            self._warned = True
            logger.warning("skipped a chunk that was not understood: %s", describe(chunk))
        for record in records:
            self._act(record)
        return ledger.drain()

    def _read_body(self, data: bytes) -> list[E]:
        if self._body is None:
            self._body = AnswerBody(self._plain, self.feed)
        events: list[E] = []
        try:
            self._body.read(data, events)
        except SSEError as exc:
            events += self.fail(exc)
        return events

    def finish(self) -> list[E]:
        """The upstream ended normally: close what is open. The run's own end is its owner's to write.

        RUN_ERROR where it is none: nothing was understood or said, or a call's arguments are no JSON.
        """
        ledger = self.ledger
        events = self._end_body(self._body) if self._body else []
        if not ledger.finished:
            for record in self._reader.finish():
                self._act(record)
            self._release_text()
            if self._steps:
                ledger.keep(self._steps.finish())
            ledger.silence = self._silence()
            ledger.end_turns()
            ledger.chunks_ended()
        return events + ledger.drain()

    def _silence(self) -> AnswerError | None:
        """The failure of a run that has shown nothing; None where the model has said that this is its answer."""
        reader, ledger = self._reader, self.ledger
        if reader.unknown:
            from dragent_stream.foreign import describe

            what = f"the first is {describe(reader.first_unknown)}"
            number = (
                "1 chunk of the stream was" if reader.unknown == 1 else f"{reader.unknown} chunks of the stream were"
            )
            if ledger.heard:
                logger.warning("%s not understood; %s", number, what)
            return AnswerError(f"nothing was said: {number} not understood; {what}", "UNKNOWN_CHUNKS")
        if reader.unread:
            unread = "the answer holds images, sound or other parts that no message of AG-UI has"
            if ledger.heard:
                logger.warning("%s; they are left out", unread)
            return AnswerError(f"{unread}; ask for text, or send them as events of your own", "UNKNOWN_CHUNKS")
        if reader.others_spoke and not ledger.heard:
            return AnswerError("the followed choice said nothing, another one did; ask for n=1", "EMPTY_ANSWER")
        if ledger.ended_well or (ledger.steps_seen and not reader.understood):
            return None
        return AnswerError(
            "the stream ended without text, thought or tool call, and without a reason to stop", "EMPTY_ANSWER"
        )

    def _end_body(self, body: AnswerBody[E]) -> list[E]:
        events: list[E] = []
        try:
            body.end(events)
        except SSEError as exc:
            return events + self.fail(exc)
        if self._reader.unknown and not self.ledger.heard:
            return events  # what they look like says more
        return events + self.fail(body.problem) if body.problem else events

    def fail(self, exc: BaseException) -> list[E]:
        """The upstream failed: close what may be closed and write the one RUN_ERROR."""
        ledger = self.ledger
        if ledger.finished:
            return ledger.drain()
        self._release_text()
        events = ledger.drain()
        return events + ledger.fail_run(error_text(exc, ledger.options), error_code(exc))

    def _act(self, record: Chunk) -> None:
        ledger = self.ledger
        ledger.chunk_id = record.id
        self.model = well_formed(record.model) or self.model
        if record.message != ledger.place.message and (record.message or _speaks(record)):
            self._release_text()
            ledger.enter(Place(record.message, record.step, record.lane))
        if record.whole and not record.message:
            self._release_text()
            if ledger.has_said(record.text):
                record.text = record.reasoning = ""
                record.tool_calls = [delta for delta in record.tool_calls if not ledger.has_called(delta.id)]
            else:
                ledger.end_turn()
        if record.reasoning:
            self._release_text()
            ledger.reasoning(ledger.new_thought(record.reasoning), new=record.new_thought)
        for value in record.encrypted:
            ledger.encrypted(value)
        if record.text:
            ledger.chunks_seen = True
            text = ledger.new_text(record.text, repeats=bool(record.tool_calls or record.finish))
            self._speak(self._think.feed(text) if self._think else [(False, text)])
        for delta in record.tool_calls:
            ledger.chunks_seen = True
            self._release_text()
            ledger.tool_call(delta)
        if record.tool_result:
            result = record.tool_result
            parts = agui_parts(result.content) if ledger.takes_parts else None
            ledger.streamed_result(result.call_id, parts or result_text(result.content), result.name)
        if record.usage:
            self.usage = record.usage
            ledger.usage.from_chunk(
                record.usage,
                provider=well_formed(record.provider),
                model=self.model,
                adds=record.usage_adds and not record.whole,
                call=record.message,
            )
        if record.error:
            ledger.keep(self.fail(record.error))
        elif record.finish:
            self._release_text()
            ledger.finish_answer(record.finish)
        if record.last or record.whole:
            self._release_text()
            ledger.end_turn()

    def _release_text(self) -> None:
        """What was held back is no tag and no snapshot, as something else follows it."""
        released = self.ledger.released_text()
        if self._think:
            self._speak(self._think.feed(released) + self._think.flush())
        elif released:
            self._speak([(False, released)])

    def _speak(self, pieces: Iterable[tuple[bool, str]]) -> None:
        ledger = self.ledger
        for is_thought, piece in pieces:
            (ledger.reasoning if is_thought else ledger.text)(piece)
        if self._think:
            ledger.hot.pop(TEXT, None)
            if self._think.held:
                ledger.hot.clear()  # what is held comes before whatever else may go on


def _speaks(record: Chunk) -> bool:
    return bool(record.text or record.reasoning or record.tool_calls or record.encrypted)


async def convert_chunks_to_agui_events(
    chunks: ChunkSource,
    *,
    ledger: RunLedger[BaseEvent] | None = None,
    options: ConverterOptions | None = None,
) -> AsyncGenerator[DRAgentEventResponse, None]:
    """Convert a chunk stream into batches of AG-UI events, one batch for each chunk that says something.

    An upstream exception, or an error inside the stream, ends in `RUN_ERROR(code="STREAM_ERROR")` and is not raised.
    Cancellation and `aclose()` pass through: the upstream is closed once, in this task, and nothing more is yielded.
    RUN_STARTED and RUN_FINISHED belong to the run's owner; `stream_agui_run` adds them.

    Args:
        chunks: The chunks; see `ChunkSource`.
        ledger: The run to write to, shared with a `StepConverter` where the agent's steps arrive beside the chunks.
        options: Of a new ledger.

    Yields:
        `DRAgentEventResponse(events, model, usage_metrics)`.
    """
    converter = ChunkConverter(ledger, options)
    try:
        async with Upstream(chunks, converter.ledger.options.close_timeout) as upstream:
            async for chunk in upstream:
                event = converter.glance(chunk)
                if event is not None:
                    yield batch_of([event], converter.model or None)
                    continue
                events = converter.read(chunk)
                if events or converter.usage:
                    yield _batch(events, converter)
                if converter.done:
                    return
    except Exception as exc:
        logger.debug("the upstream failed", exc_info=exc)
        events = converter.fail(exc)
    else:
        events = converter.finish()
    if events:
        yield _batch(events, converter)


def _batch(events: list[BaseEvent], converter: ChunkConverter[BaseEvent]) -> DRAgentEventResponse:
    metrics = None
    if converter.usage:
        counts = zip(("prompt_tokens", "completion_tokens", "total_tokens"), converter.usage, strict=False)
        metrics = {name: count for name, count in counts if count is not None}
        converter.usage = None
    return batch_of(events, converter.model or None, metrics)


class Upstream:
    """Iterate an upstream and close it exactly once, in this task, whatever happens: `async with Upstream(…) as items`.

    An upstream whose closing hangs is left behind after `close_timeout` seconds; one that refuses to close is logged.
    A source with a coroutine method `result` is refused: its end says nothing, and a failure would pass for a success.
    """

    __slots__ = ("_close_timeout", "_source", "_upstream")

    def __init__(self, chunks: ChunkSource, close_timeout: float) -> None:
        self._source: Any = chunks
        self._upstream: Any = None
        self._close_timeout = close_timeout

    async def __aenter__(self) -> AsyncIterator[Any]:
        if inspect.isawaitable(self._source):
            self._source = await self._source
        kind = type(cast("object", self._source))
        if inspect.iscoroutinefunction(getattr(kind, "result", None)):
            await self.__aexit__(None, None, None)
            raise ConversionError(
                f"the chunk source is a {kind.__name__}, whose result() says whether it has succeeded, and"
                " nobody asks for it here; give a generator that does (for NeMo Fabric: dragent_stream.fabric.fabric_chunks)"
            )
        self._upstream = _iterator(self._source)
        return self._upstream

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        import anyio  # costs 40 modules, which a converter without a shell does not need

        # openai's AsyncStream is closed by close(), generators by aclose(); an iterable may be closed only by its maker.
        close = _closer(self._upstream) or _closer(self._source)
        if close is not None:
            with anyio.move_on_after(self._close_timeout, shield=True) as scope:
                try:
                    result = close()
                    if inspect.isawaitable(result):
                        await result
                except Exception as refusal:
                    logger.debug("the upstream did not close", exc_info=refusal)
            if scope.cancelled_caught:
                logger.warning("the upstream did not close within %g s and is left behind", self._close_timeout)


def _iterator(source: object) -> AsyncIterator[Any]:
    kind = type(source).__name__
    if isinstance(source, AsyncIterable):
        return aiter(cast("AsyncIterable[Any]", source))
    remedy = "give an iterable of chunks, or an async one"
    if isinstance(source, str | PathLike | IOBase):
        remedy = "replay_trace(path) gives the chunks of a recording"
    elif isinstance(source, bytes | bytearray | memoryview):
        remedy = "give the reads of the body, or [body]"
    elif isinstance(source, Mapping | BaseModel):  # their items are fields
        remedy = "give a list for a single chunk: [chunk]"
    elif isinstance(source, Iterable):
        return _each(cast("Iterable[Any]", source))
    raise ConversionError(f"the chunk source is a {kind}, not a stream of chunks; {remedy}")


def _closer(upstream: object) -> Callable[[], Any] | None:
    return getattr(upstream, "aclose", None) or getattr(upstream, "close", None)


async def _each(chunks: Iterable[Any]) -> AsyncGenerator[Any, None]:
    for chunk in chunks:
        yield chunk
