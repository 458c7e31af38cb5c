"""A program as a user writes one. It is not run: `test_types` gives it to both type checkers, at their strictest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, assert_type

from ag_ui.core import BaseEvent, RunAgentInput, TextMessageContentEvent

from dragent_stream import (
    AgentStep,
    ChunkConverter,
    ConverterOptions,
    DRAgentEventResponse,
    RunLedger,
    StepConverter,
    convert_chunks_to_agui_events,
    convert_trace,
    read_trace,
    record_chunks,
    replay_trace,
    stream_agui_run,
    stream_agui_sse,
)
from dragent_stream.check import EventChecker, Violation, check_events
from dragent_stream.events import WireEvents
from dragent_stream.testing import AguiRun, assert_agui, finish_chunk, run_agent, text_chunk
from dragent_stream.testing.model import ScriptedModel
from dragent_stream.testing.plugin import AguiReplay, AguiRunAgent, AssertAgui
from dragent_stream.trace import TraceRecord, feed_record


async def agent(run_input: RunAgentInput) -> AsyncIterator[object]:
    yield text_chunk("x")
    yield AgentStep({"event_type": "TASK_START"})
    yield finish_chunk()


def converters() -> None:
    converter = ChunkConverter()
    assert_type(converter, ChunkConverter[BaseEvent])
    assert_type(converter.feed({"x": 1}), list[BaseEvent])
    assert_type(converter.fail(ValueError()), list[BaseEvent])
    assert_type(ChunkConverter(options=ConverterOptions(think_tags=True)).finish(), list[BaseEvent])
    ledger = RunLedger()
    assert_type(ledger, RunLedger[BaseEvent])
    assert_type(StepConverter(), StepConverter[BaseEvent])
    assert_type(StepConverter(ledger, lifecycle=False).feed({}), list[BaseEvent])
    wire = RunLedger(WireEvents())
    assert_type(ChunkConverter(wire).feed("x"), list[bytes])
    assert_type(StepConverter(wire).feed("x"), list[bytes])


def checks(
    objects: list[BaseEvent], dicts: list[dict[str, Any]], frames: list[bytes], mixed: list[BaseEvent | str]
) -> None:
    assert_type(check_events(objects), list[Violation])
    assert_type(check_events(dicts, run_input={"threadId": "t"}), list[Violation])
    assert_type(check_events(frames, lifecycle=False), list[Violation])
    assert_type(check_events(b"".join(frames)), list[Violation])
    assert_type(check_events("data: {}"), list[Violation])
    assert_type(check_events(mixed), list[Violation])
    assert_type(check_events(event for event in dicts), list[Violation])
    assert_type(EventChecker().feed(objects[0]), list[Violation])
    assert_agui(objects)
    assert_agui(frames, error="STREAM_ERROR")


async def streams(chunks: AsyncIterator[object]) -> None:
    async for frame in stream_agui_sse(chunks):
        assert_type(frame, bytes)
    async for event in stream_agui_run(chunks, {"threadId": "t", "runId": "r"}):
        assert_type(event, BaseEvent)
        if isinstance(event, TextMessageContentEvent):
            print(event.delta)
    async for batch in convert_chunks_to_agui_events(chunks):
        assert_type(batch, DRAgentEventResponse)
        assert_type(batch.events, list[BaseEvent])
    assert_type(await check_events(stream_agui_run(chunks)), list[Violation])
    assert_type(await check_events(stream_agui_sse(chunks)), list[Violation])
    assert_type(await check_events(convert_chunks_to_agui_events(chunks), lifecycle=False), list[Violation])
    await assert_agui(stream_agui_sse(chunks))


async def recordings(chunks: AsyncIterator[object]) -> None:
    async for chunk in record_chunks(chunks, "trace.jsonl", case="mine"):
        print(chunk.choices[0].delta.content)
    async for chunk in replay_trace("trace.jsonl"):
        print(chunk)
    converter = ChunkConverter()
    for record in read_trace("trace.jsonl"):
        assert_type(record, TraceRecord)
        assert_type(feed_record(converter, record), list[BaseEvent])
    for line in convert_trace("trace.jsonl"):
        assert_type(line, str)


async def tests(agui_run: AguiRunAgent, agui_replay: AguiReplay, assert_agui: AssertAgui) -> None:
    run = await agui_run(agent, "question", tools=["pay"], context={"the document": "x"})
    assert_type(run, AguiRun)
    assert_type(run.text, str)
    assert_type(run.error, dict[str, Any] | None)
    assert_type(await run_agent(agent, [{"role": "user", "content": "x"}]), AguiRun)
    assert_agui(run)
    assert_agui(agui_replay("trace.jsonl"))
    await assert_agui(stream_agui_run([text_chunk("a")]))
    async with ScriptedModel([["hello"], "hello", [text_chunk("Hel"), finish_chunk()]]) as model:
        assert_type(model.base_url, str)
