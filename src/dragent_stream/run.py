"""Whole runs: a chunk stream between RUN_STARTED and one terminal event, as ag_ui objects or as SSE frames."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from ag_ui.core import BaseEvent, RunAgentInput
from pydantic_core import PydanticSerializationError

from dragent_stream.errors import ConversionError
from dragent_stream.events import EventWriter, ModelEvents, WireEvents
from dragent_stream.ledger import RunLedger
from dragent_stream.options import DEFAULT_OPTIONS, ConverterOptions
from dragent_stream.stream_converter import ChunkConverter, ChunkSource, Upstream

__all__ = ["frames_of_a_chunk", "ledger_for", "run_events", "stream_agui_run", "stream_agui_sse"]

logger = logging.getLogger("dragent_stream")

E = TypeVar("E")


def stream_agui_run(
    chunks: ChunkSource,
    run_input: RunAgentInput | Mapping[str, Any] | str | bytes | None = None,
    *,
    options: ConverterOptions | None = None,
) -> AsyncGenerator[BaseEvent, None]:
    """Convert a chunk stream into one whole AG-UI run of ag_ui objects.

    Failures of the upstream end in RUN_ERROR; cancellation and `aclose()` pass through and close the upstream once.

    Args:
        chunks: The chunks; see `ChunkSource`.
        run_input: The client's request; gives thread and run id, frontend tools, protocol version and the ids that the
            history uses. Fresh ids where None.
        options: See `ConverterOptions`.

    Returns:
        RUN_STARTED, the events of the chunks, and RUN_FINISHED or RUN_ERROR.

    Raises:
        ConversionError: `run_input` is no run input.
    """
    return run_events(chunks, ledger_for(run_input, ModelEvents(), options))


def stream_agui_sse(
    chunks: ChunkSource,
    run_input: RunAgentInput | Mapping[str, Any] | str | bytes | None = None,
    *,
    options: ConverterOptions | None = None,
) -> AsyncGenerator[bytes, None]:
    """`stream_agui_run` as the bytes of an SSE response: one frame `data: {…}` per event; no event objects are made.

    Where the source gives bytes, the frames of one read leave together.
    """
    return run_events(chunks, ledger_for(run_input, WireEvents(), options), _frames_of_a_read)


async def run_events(
    chunks: ChunkSource, ledger: RunLedger[E], arrange: Callable[[object, list[E]], list[E]] | None = None
) -> AsyncGenerator[E, None]:
    """A whole run, written by the ledger's writer.

    Args:
        chunks: The chunks; see `ChunkSource`.
        ledger: The run.
        arrange: What to yield for the events of one chunk, given both; of the run's ending, given None.
    """
    converter = ChunkConverter(ledger)
    for event in ledger.start_run():
        yield event
    try:
        async with Upstream(chunks, ledger.options.close_timeout) as upstream:
            glance = converter.glance
            async for chunk in upstream:
                event = glance(chunk)
                if event is not None:
                    yield event
                    continue
                events = converter.read(chunk)
                if arrange:
                    events = arrange(chunk, events)
                events.reverse()
                while events:
                    yield events.pop()  # held by nobody here while the consumer has it
                if ledger.finished:
                    return
    except Exception as exc:
        logger.debug("the upstream failed", exc_info=exc)
        rest = converter.fail(exc)
    else:
        rest = converter.finish() + ledger.finish_run()
    for event in arrange(None, rest) if arrange else rest:
        yield event


def frames_of_a_chunk(chunk: object, frames: list[bytes]) -> list[bytes]:
    """The frames of a chunk in one piece: whoever stops between two of them leaves client and ledger agreed."""
    return [b"".join(frames)] if frames else frames


def _frames_of_a_read(chunk: object, frames: list[bytes]) -> list[bytes]:
    return frames_of_a_chunk(chunk, frames) if isinstance(chunk, bytes) else frames


def ledger_for(
    run_input: RunAgentInput | Mapping[str, Any] | str | bytes | None,
    events: EventWriter[E],
    options: ConverterOptions | None = None,
) -> RunLedger[E]:
    """The ledger of the run that a request asks for.

    Args:
        run_input: A RunAgentInput of any ag-ui-protocol version, its wire mapping, or None.
        events: The writer.
        options: The request's frontend tools are added to theirs.

    Raises:
        ConversionError: `run_input` is of another type, or its messages or tools are no lists of objects.
    """
    options = options or DEFAULT_OPTIONS
    if run_input is None:
        return RunLedger(events, options=options)
    if isinstance(run_input, RunAgentInput):
        try:
            fields: Mapping[str, Any] = run_input.model_dump(by_alias=True, warnings=False)
        except PydanticSerializationError as exc:
            raise ConversionError(f"run_input cannot be read: {exc}") from exc
    elif isinstance(run_input, str | bytes | bytearray):
        fields = _parsed(run_input)
    elif isinstance(run_input, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        fields = run_input
    else:
        raise ConversionError(f"run_input must be a RunAgentInput or a mapping, not {type(run_input).__name__}")
    tools = frozenset(str(tool["name"]) for tool in _objects(fields, "tools") if tool.get("name"))
    if tools:
        options = replace(options, frontend_tools=options.frontend_tools | tools)
    version = fields.get("protocolVersion")
    messages = _objects(fields, "messages")
    calls = {str(call["id"]) for message in messages for call in _objects(message, "toolCalls") if call.get("id")}
    return RunLedger(
        events,
        options=options,
        thread_id=str(fields.get("threadId") or ""),
        run_id=str(fields.get("runId") or ""),
        protocol_version=version if isinstance(version, str) else None,
        used_call_ids=calls,
        unanswered_call_ids=calls - {str(message.get("toolCallId")) for message in messages},
    )


def _parsed(text: str | bytes | bytearray) -> Mapping[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ConversionError(f"run_input is no JSON: {exc}") from exc
    if not isinstance(fields, dict):
        raise ConversionError("run_input is JSON, but no object")
    return cast("dict[str, Any]", fields)


def _objects(fields: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    """The list of objects under a key; empty where there is none."""
    value = fields.get(key) or ()
    items = cast("Sequence[object]", value)
    if not (isinstance(value, list | tuple) and all(isinstance(item, Mapping) for item in items)):
        raise ConversionError(f"{key} of the run input must be a list of objects")
    return cast("Sequence[Mapping[str, Any]]", items)
