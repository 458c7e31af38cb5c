"""The SDK's `OpenAIInvokeStream` as one AG-UI run.

The order is Fabric's trap: the end of the iteration is no success, and `result()` before it throws chunks away. So the
stream is iterated to its end, then `result()` is awaited, then the terminal event is written. There is no cancellation: a
client that leaves, in whatever way, leaves a turn that runs out in the background (`open_turn`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from types import AsyncGeneratorType
from typing import Any, TypeVar, cast

from ag_ui.core import BaseEvent, RunAgentInput

from dragent_stream.error_text import error_text
from dragent_stream.events import EventWriter, ModelEvents, WireEvents
from dragent_stream.fabric.answer import answer_chunks
from dragent_stream.fabric.failure import TurnCancelledError, fabric_code, result_error
from dragent_stream.fabric.open_turn import FabricStream, OpenTurn
from dragent_stream.fabric.turn_chunks import TurnReader, result_usage
from dragent_stream.ledger import RunLedger
from dragent_stream.options import ConverterOptions
from dragent_stream.run import ledger_for
from dragent_stream.stream_converter import ChunkConverter

__all__ = ["convert_fabric_sse", "convert_fabric_stream"]

E = TypeVar("E")


def convert_fabric_stream(
    stream: FabricStream,
    run_input: RunAgentInput | Mapping[str, Any] | None = None,
    *,
    options: ConverterOptions | None = None,
) -> AsyncGenerator[BaseEvent, None]:
    """Convert one turn of a Fabric runtime into one whole AG-UI run.

    A failed result, and an error of the SDK, end in RUN_ERROR with Fabric's code (`timeout`, `host_crashed`,
    `target_failed`, …; else `STREAM_ERROR`). Its message is that code and a reference under which the log
    (`dragent_stream`) has the rest; `options.public_error` may word it, and gets the SDK's exception, or an
    `UpstreamError` with the result's own message, which `options.expose_errors` shows. A cancelled result ends the run as
    cancelled. A turn whose chunks said nothing shows the answer in its result, and without one fails with `EMPTY_ANSWER`.
    Nothing is raised.

    The turn is read at its own speed from this call on, whatever the reader of the events does; what waits for the
    reader is bounded (`open_turn.BACKLOG_LIMIT`), beyond it the run ends with the code `slow_reader`. Closing,
    cancelling or dropping the iterator, begun or not, leaves the turn to run out in the background: await
    `wait_fabric_drains()` before the runtime's next turn.

    Args:
        stream: `runtime.invoke_openai_stream(...)`; nobody else may iterate it or await its result.
        run_input: The client's request, as for `stream_agui_run`.
        options: See `ConverterOptions`.

    Returns:
        An async generator of ag_ui events.

    Raises:
        ConversionError: `run_input` is no run input; the turn is drained.
    """
    return _run(stream, run_input, ModelEvents(), options)


def convert_fabric_sse(
    stream: FabricStream,
    run_input: RunAgentInput | Mapping[str, Any] | None = None,
    *,
    options: ConverterOptions | None = None,
) -> AsyncGenerator[bytes, None]:
    """`convert_fabric_stream` as the bytes of an SSE response, one frame per event."""
    return _run(stream, run_input, WireEvents(), options)


def _run(
    stream: FabricStream,
    run_input: RunAgentInput | Mapping[str, Any] | None,
    events: EventWriter[E],
    options: ConverterOptions | None,
) -> AsyncGenerator[E, None]:
    turn = OpenTurn(stream)
    try:
        ledger = ledger_for(run_input, events, options)
    except BaseException:
        turn.leave()  # it runs already
        raise
    return TurnReader(turn, cast("AsyncGeneratorType[E, None]", _convert(turn, ledger)))


async def _convert(turn: OpenTurn, ledger: RunLedger[E]) -> AsyncGenerator[E, None]:
    converter = ChunkConverter(ledger)
    try:
        for event in ledger.start_run():
            yield event
        held: list[E] = []
        try:
            async for chunk in turn:
                events = converter.feed(chunk)
                if converter.done:
                    held += events  # a failure inside the stream: its event waits for the turn's end
                    continue
                for event in events:
                    yield event
            result = await turn.result()
            if turn.left:
                return
            held += _end(converter, result)
        except Exception as error:
            held += _fail(converter, error)
        for event in held:
            yield event
    finally:
        turn.leave()


def _end(converter: ChunkConverter[E], result: Any) -> list[E]:
    """The events of a turn that has a result."""
    ledger = converter.ledger
    if converter.done:
        return []
    error = result_error(result)
    if isinstance(error, TurnCancelledError):
        return ledger.drain() + ledger.cancel_run()
    if error is not None:
        return _fail(converter, error)
    events: list[E] = []
    if not ledger.heard:  # the adapter has told its answer in the result alone
        events += [event for chunk in answer_chunks(result) for event in converter.feed(chunk)]
    events += converter.finish()
    if not ledger.usage.entries() and (usage := result_usage(result)):
        ledger.usage.from_chunk(usage, provider="", model=converter.model, adds=False)
    return events + ledger.finish_run()


def _fail(converter: ChunkConverter[E], error: Exception) -> list[E]:
    ledger = converter.ledger
    if ledger.finished:
        return []
    code = fabric_code(error)
    return ledger.drain() + ledger.fail_run(error_text(error, ledger.options, code), code)
