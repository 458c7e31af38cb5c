"""The SDK's `OpenAIInvokeStream` as one AG-UI run.

The order is Fabric's trap: the end of the iteration is no success, and `result()` before it throws chunks away. So the
stream is iterated to its end, then `result()` is awaited, then the terminal event is written. Fabric's error texts hold
the adapter's stderr and go nowhere near a client. There is no cancellation: when the client leaves, the stream is
drained in the background, because its runtime takes no other turn before.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol, TypeVar

from ag_ui.core import BaseEvent, RunAgentInput

from dragent_stream.error_text import error_text
from dragent_stream.errors import UpstreamError
from dragent_stream.events import ModelEvents, WireEvents
from dragent_stream.fabric.contract import field
from dragent_stream.ledger import RunLedger
from dragent_stream.options import DEFAULT_OPTIONS, ConverterOptions
from dragent_stream.run import ledger_for
from dragent_stream.stream_converter import ChunkConverter
from dragent_stream.usage import Usage

__all__ = [
    "FabricStream",
    "convert_fabric_sse",
    "convert_fabric_stream",
    "drain_fabric_stream",
    "wait_fabric_drains",
]

logger = logging.getLogger("dragent_stream.fabric")

E = TypeVar("E")

FAILED_TEXT = "the agent's run failed"
"""What RUN_ERROR says unless `ConverterOptions.public_error` words it."""

_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_drains: dict[int, asyncio.Task[None]] = {}


class FabricStream(Protocol):
    """What is used of the SDK's `OpenAIInvokeStream` (0.2 to 0.5)."""

    def __aiter__(self) -> AsyncIterator[Any]:
        """The chunks."""
        ...

    async def result(self) -> Any:
        """The turn's `RunResult`."""
        ...

    async def aclose(self) -> None:
        """Drop unread chunks and wait for the target's end."""
        ...


def convert_fabric_stream(
    stream: FabricStream,
    run_input: RunAgentInput | Mapping[str, Any] | None = None,
    *,
    options: ConverterOptions | None = None,
) -> AsyncGenerator[BaseEvent, None]:
    """Convert one turn of a Fabric runtime into one whole AG-UI run.

    A failed result, and an error of the SDK, end in RUN_ERROR with Fabric's code (`timeout`, `target_failed`; else
    `STREAM_ERROR`) and a fixed text; `options.public_error` may word it, and gets the SDK's exception, or an
    `UpstreamError` with the result's own message. A cancelled result ends the run as cancelled. Nothing is raised.

    Closing or cancelling the iteration leaves the turn to `drain_fabric_stream`.

    Args:
        stream: `runtime.invoke_openai_stream(...)`; nobody else may iterate it or await its result.
        run_input: The client's request, as for `stream_agui_run`.
        options: See `ConverterOptions`.

    Returns:
        An async generator of ag_ui events.
    """
    return _FabricRun(stream, ledger_for(run_input, ModelEvents(), _public(options)))


def convert_fabric_sse(
    stream: FabricStream,
    run_input: RunAgentInput | Mapping[str, Any] | None = None,
    *,
    options: ConverterOptions | None = None,
) -> AsyncGenerator[bytes, None]:
    """`convert_fabric_stream` as the bytes of an SSE response, one frame per event."""
    return _FabricRun(stream, ledger_for(run_input, WireEvents(), _public(options)))


def drain_fabric_stream(stream: FabricStream) -> asyncio.Task[None]:
    """Let a turn that nobody reads any more run out; afterwards its runtime can take the next one.

    Returns:
        The one task that does it for this stream. It never fails: what became of the turn is the runtime's to tell.
    """
    task = _drains.get(id(stream))
    if task is None:
        task = asyncio.get_running_loop().create_task(_drain(stream))
        _drains[id(stream)] = task
        # The task holds the stream, so the id stays its own until the task is gone from here.
        task.add_done_callback(lambda _: _drains.pop(id(stream), None))
    return task


async def wait_fabric_drains() -> None:
    """Wait until no turn of this event loop is being drained; before a runtime is stopped."""
    loop = asyncio.get_running_loop()
    while mine := [task for task in _drains.values() if task.get_loop() is loop]:
        await asyncio.wait(mine)
        await asyncio.sleep(0)  # their callbacks take them out


async def _drain(stream: FabricStream) -> None:
    try:
        await stream.aclose()
    except Exception as error:
        logger.debug("a turn failed while it was drained (%s)", type(error).__name__)


class _FabricRun(AsyncGenerator[E, None]):
    """The run's generator; a class, because one that is closed before it was started must drain its turn, too."""

    def __init__(self, stream: FabricStream, ledger: RunLedger[E]) -> None:
        self._stream = stream
        self._started = False
        self._events = _convert(stream, ledger)

    async def asend(self, value: None) -> E:
        """The next event."""
        self._started = True
        return await self._events.asend(value)

    async def athrow(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
        /,
    ) -> E:
        """End the run early (`aclose` comes here with GeneratorExit)."""
        if not self._started:
            self._started = True
            drain_fabric_stream(self._stream)
        error = typ if isinstance(typ, BaseException) else typ()
        return await self._events.athrow(error)


async def _convert(stream: FabricStream, ledger: RunLedger[E]) -> AsyncGenerator[E, None]:
    converter = ChunkConverter(ledger)
    over = False
    try:
        for event in ledger.start_run():
            yield event
        held: list[E] = []
        try:
            async for chunk in stream:
                events = converter.feed(chunk)
                if converter.done:
                    held += events  # a failure inside the stream: its event waits for the turn's end
                    continue
                for event in events:
                    yield event
            result: Any = await stream.result()
            held += _end(converter, result)
        except Exception as error:
            logger.debug("the turn failed", exc_info=error)
            held += _fail(converter, error, getattr(error, "code", None))
        over = True
        for event in held:
            yield event
    finally:
        if not over:
            drain_fabric_stream(stream)


def _end(converter: ChunkConverter[E], result: Any) -> list[E]:
    """The events of a turn that has a result."""
    ledger = converter.ledger
    if converter.done:
        return []
    status = str(field(result, "status") or "")
    if status == "cancelled":
        return ledger.drain() + ledger.cancel_run()
    if status != "succeeded":
        error = field(result, "error")
        code = field(error, "code")
        message = field(error, "message")
        return _fail(converter, UpstreamError(message if isinstance(message, str) else FAILED_TEXT), code)
    events = converter.finish()
    if not ledger.usage.entries() and (usage := _usage(field(result, "usage"))):
        ledger.usage.from_chunk(usage, provider="", model=converter.model, adds=False)
    return events + ledger.finish_run()


def _fail(converter: ChunkConverter[E], error: Exception, code: object) -> list[E]:
    ledger = converter.ledger
    word = code if isinstance(code, str) and _CODE.fullmatch(code) else "STREAM_ERROR"
    return ledger.drain() + ledger.fail_run(error_text(error, ledger.options), word)


def _public(options: ConverterOptions | None) -> ConverterOptions:
    """Options under which no text of Fabric, of its adapter or of a provider reaches the client unasked."""
    options = options or DEFAULT_OPTIONS
    return options if options.public_error else replace(options, public_error=_fixed_text)


def _fixed_text(error: BaseException) -> str:
    return FAILED_TEXT


def _usage(usage: Any) -> Usage | None:
    """Fabric's `RunUsage`, for a turn whose chunks counted nothing."""
    names = ("input_tokens", "output_tokens", "total_tokens", "", "cached_input_tokens")
    counts = [field(usage, name) if name else None for name in names]
    found = Usage(*(count if type(count) is int else None for count in counts))
    return found if any(count is not None for count in found) else None
