"""The SDK's stream becomes one run: iterated to its end, then the result, then the terminal event."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import re
from contextlib import aclosing, suppress
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from ag_ui.encoder import EventEncoder

from dragent_stream.asgi_response import EventStreamResponse
from dragent_stream.check import check_events
from dragent_stream.errors import ConversionError
from dragent_stream.fabric import (
    convert_fabric_sse,
    convert_fabric_stream,
    drain_fabric_stream,
    wait_fabric_drains,
)
from dragent_stream.options import ConverterOptions
from dragent_stream.testing import error_chunk, finish_chunk, text_chunk, tool_call_chunk, usage_chunk

Json = dict[str, Any]
INPUT = {"threadId": "t", "runId": "r", "protocolVersion": "1.0"}
SUCCEEDED = {"status": "succeeded", "output": None, "error": None, "usage": None}


class FabricError(RuntimeError):
    """Like the SDK's, with the adapter's stderr in its text."""

    def __init__(self, code: Any, text: str = "Traceback (most recent call last): secret") -> None:
        super().__init__(text)
        self.code = code


class ScriptedStream:
    """Imitates `OpenAIInvokeStream`, its trap included: a result asked for too early throws the unread chunks away."""

    def __init__(self, chunks: list[Any], result: Any = SUCCEEDED, *, raises: Exception | None = None) -> None:
        self.unread = list(chunks)
        self.outcome = result
        self.raises = raises
        self.steps: list[str] = []
        self.resumed = asyncio.Event()

    def __aiter__(self) -> ScriptedStream:
        return self

    async def __anext__(self) -> Any:
        await asyncio.sleep(0)
        if self.unread:
            chunk = self.unread.pop(0)
            if chunk == "pause":
                await self.resumed.wait()
                return await self.__anext__()
            return chunk
        self.steps.append("end")
        if self.raises is not None:
            raise self.raises
        raise StopAsyncIteration

    async def result(self) -> Any:
        assert not self.unread, "the result was asked for before the end of the stream"
        self.steps.append("result")
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    async def aclose(self) -> None:
        if "pause" in self.unread:
            await self.resumed.wait()
        self.unread.clear()
        self.steps.append("closed")
        if self.raises is not None:
            raise self.raises


async def run(stream: ScriptedStream, run_input: Any = INPUT, options: ConverterOptions | None = None) -> list[Json]:
    with anyio.fail_after(5):
        events = [event async for event in convert_fabric_stream(stream, run_input, options=options)]
    wire = [json.loads(EventEncoder().encode(event)[6:]) for event in events]
    assert check_events(wire) == []
    return wire


def kinds(events: list[Json]) -> list[str]:
    return [event["type"] for event in events]


def masked(event: Json) -> str:
    """The code of a RUN_ERROR that says nothing but its code and a reference."""
    assert event["type"] == "RUN_ERROR"
    said = "" if event["code"] == "STREAM_ERROR" else f" ({event['code']})"
    assert re.fullmatch(rf"The agent failed{re.escape(said)}\. Reference: [0-9a-f]{{8}}", event["message"])
    return event["code"]


async def test_a_turn_becomes_a_run_that_ends_after_the_result() -> None:
    stream = ScriptedStream([text_chunk("a"), text_chunk("b"), finish_chunk("stop"), usage_chunk(1, 2)])
    events = await run(stream)
    assert kinds(events) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert (events[0]["threadId"], events[0]["runId"]) == ("t", "r")
    assert events[-1]["usage"] == [{"model": "test-model", "inputTokens": 1, "outputTokens": 2, "totalTokens": 3}]
    assert stream.steps == ["end", "result"]


@pytest.mark.parametrize("chunks", [[], [{"choices": [{"index": 0, "delta": {"role": "assistant"}}]}]])
@pytest.mark.parametrize("output", [None, {}, {"response": ""}, {"response": None}, {"transcript": "secret"}])
async def test_a_turn_that_says_nothing_is_a_failed_run(chunks: list[Json], output: Any) -> None:
    events = await run(ScriptedStream(chunks, {"status": "succeeded", "output": output}))
    assert kinds(events) == ["RUN_STARTED", "RUN_ERROR"]
    assert events[-1]["code"] == "EMPTY_ANSWER"
    assert "secret" not in json.dumps(events)


async def test_a_model_that_stops_without_a_word_is_no_failure() -> None:
    assert kinds(await run(ScriptedStream([finish_chunk()]))) == ["RUN_STARTED", "RUN_FINISHED"]


@pytest.mark.parametrize(
    "chunks", [[], [{"choices": [{"index": 0, "delta": {"role": "assistant"}}]}], [finish_chunk()]]
)
async def test_an_answer_that_stands_in_the_result_alone_is_shown(chunks: list[Json]) -> None:
    for output in ({"response": "yes"}, "yes"):
        events = await run(ScriptedStream(chunks, {"status": "succeeded", "output": output}))
        assert [event["delta"] for event in events if "delta" in event] == ["yes"]
        assert events[-1]["type"] == "RUN_FINISHED"


async def test_the_response_of_a_turn_that_spoke_is_not_said_again() -> None:
    result = {"status": "succeeded", "output": {"response": "a"}}
    events = await run(ScriptedStream([text_chunk("a")], result))
    assert [event["delta"] for event in events if "delta" in event] == ["a"]


async def test_frames_say_the_same_as_events() -> None:
    chunks = [text_chunk("a"), tool_call_chunk("{}", call_id="c", name="f"), finish_chunk("tool_calls")]
    options = [ConverterOptions(new_id=iter("12345678").__next__) for _ in range(2)]
    events = await run(ScriptedStream(chunks), options=options[0])
    frames = [frame async for frame in convert_fabric_sse(ScriptedStream(chunks), INPUT, options=options[1])]
    assert [json.loads(frame[6:]) for frame in frames] == events


@pytest.mark.parametrize("as_object", [False, True])
async def test_a_failed_result_is_a_failed_run_without_its_text(as_object: bool) -> None:
    error: Any = {"code": "rate_limited", "message": "secret"}
    result: Any = {"status": "failed", "error": error}
    if as_object:
        result = SimpleNamespace(status="failed", error=SimpleNamespace(**error))
    events = await run(ScriptedStream([text_chunk("a")], result))
    assert masked(events[-1]) == "rate_limited"
    assert kinds(events)[-2] == "TEXT_MESSAGE_END"


async def test_a_failed_results_text_can_be_shown() -> None:
    result = {"status": "failed", "error": {"code": "timeout", "message": "too slow"}}
    options = ConverterOptions(public_error=lambda error: f"{type(error).__name__}: {error}")
    events = await run(ScriptedStream([], result), options=options)
    assert events[-1] == {"type": "RUN_ERROR", "message": "UpstreamError: too slow", "code": "timeout"}
    events = await run(ScriptedStream([], result), options=ConverterOptions(expose_errors=True))
    assert events[-1] == {"type": "RUN_ERROR", "message": "too slow", "code": "timeout"}


async def test_a_cancelled_result_is_a_cancelled_run() -> None:
    result = {"status": "cancelled", "error": {"code": "target_cancelled", "message": "x"}}
    events = await run(ScriptedStream([text_chunk("a")], result))
    assert events[-1]["type"] == "RUN_FINISHED"
    assert events[-1]["outcome"] == {"type": "cancelled"}
    old = await run(ScriptedStream([text_chunk("a")], result), {"threadId": "t", "runId": "r"})
    assert old[-1] == {"type": "RUN_ERROR", "message": "the run was stopped", "code": "abort"}


HOST = "adapter lifecycle invoke_openai_stream failed for runtime `runtime-1-2` (host_crashed): (other): secret"


@pytest.mark.parametrize(
    ("code", "text", "shown"),
    [
        ("timeout", "secret", "timeout"),
        ("timeout", HOST, "timeout"),
        ("openai_stream_protocol_error", "secret", "openai_stream_protocol_error"),
        # Host and runtime say theirs in the text alone.
        (None, HOST, "host_crashed"),
        (None, "secret (other): x", "fabric_error"),
        ("a code with blanks", "secret", "fabric_error"),
        (7, "secret", "fabric_error"),
    ],
)
@pytest.mark.parametrize("where", ["iteration", "result"])
async def test_an_error_of_the_sdk_is_a_failed_run_with_its_code_and_without_its_text(
    where: str, code: Any, text: str, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = FabricError(code, text)
    stream = ScriptedStream([text_chunk("a")], error, raises=error if where == "iteration" else None)
    events = await run(stream)
    assert masked(events[-1]) == shown
    assert "secret" not in json.dumps(events)
    assert stream.steps[0] == "end"
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert events[-1]["message"].split()[-1] in record.getMessage()
    assert record.exc_info and record.exc_info[1] is error


async def test_another_error_is_a_failed_run_too() -> None:
    events = await run(ScriptedStream([text_chunk("a")], raises=ValueError("secret")))
    assert masked(events[-1]) == "STREAM_ERROR"


async def test_an_error_inside_the_stream_waits_for_the_turns_end() -> None:
    stream = ScriptedStream([text_chunk("a"), error_chunk("overloaded"), text_chunk("b")])
    events = await run(stream)
    assert (events[-1]["code"], events[-1]["message"]) == ("STREAM_ERROR", "overloaded")  # the stream's own words
    assert kinds(events).count("TEXT_MESSAGE_CONTENT") == 1
    assert stream.steps == ["end", "result"]


async def test_the_results_usage_counts_where_the_chunks_had_none() -> None:
    usage = {"input_tokens": 5, "output_tokens": None, "cached_input_tokens": 1, "cost_usd": 0.1}
    events = await run(ScriptedStream([text_chunk("a")], {**SUCCEEDED, "usage": usage}))
    assert events[-1]["usage"] == [{"model": "test-model", "inputTokens": 5, "cachedInputTokens": 1}]
    events = await run(ScriptedStream([usage_chunk(1, 2)], {**SUCCEEDED, "usage": usage}))
    assert events[-1]["usage"][0]["inputTokens"] == 1


OVER = (["end", "result"], ["closed"])
"""How a turn may have run out: read to its end, or closed before anybody read."""


class Closing:
    """A run in some state of its life, and how it is closed there."""

    def __init__(self) -> None:
        self.stream = ScriptedStream([text_chunk("a"), text_chunk("b"), "pause", text_chunk("c")])
        self.run = convert_fabric_sse(self.stream, INPUT)

    async def bring_to(self, state: str) -> None:
        if state == "begun":
            await anext(self.run)
        elif state == "in the middle":
            for _ in range(3):
                await anext(self.run)
        elif state == "finished":
            self.stream.resumed.set()
            assert len([frame async for frame in self.run]) == 7
        elif state == "cancelled":
            for _ in range(4):
                await anext(self.run)
            pull = asyncio.ensure_future(anext(self.run))
            await asyncio.sleep(0)
            pull.cancel()
            with pytest.raises(asyncio.CancelledError):
                await pull

    async def over(self) -> None:
        """The turn has run out, and once."""
        self.stream.resumed.set()
        await wait_fabric_drains()
        assert self.stream.steps in OVER


STATES = ["never begun", "begun", "in the middle", "finished", "cancelled"]


@pytest.mark.parametrize("state", STATES)
async def test_a_run_can_be_closed_in_every_state_and_again(state: str) -> None:
    closing = Closing()
    with anyio.fail_after(5):
        await closing.bring_to(state)
        for _ in range(3):
            await closing.run.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(closing.run)
        await closing.over()


@pytest.mark.parametrize("state", STATES)
async def test_a_run_can_be_dropped_in_every_state(state: str) -> None:
    closing = Closing()
    with anyio.fail_after(5):
        await closing.bring_to(state)
        del closing.run
        gc.collect()
        await closing.over()


@pytest.mark.parametrize("state", STATES)
async def test_a_run_can_be_ended_with_an_exception_in_every_state(state: str) -> None:
    closing = Closing()
    with anyio.fail_after(5):
        await closing.bring_to(state)
        with suppress(ZeroDivisionError, StopAsyncIteration):  # a generator that is over takes it without a word
            await closing.run.athrow(ZeroDivisionError())
        await closing.run.aclose()
        await closing.over()


async def test_aclosing_lets_a_finished_run_and_a_cancellation_through() -> None:
    with anyio.fail_after(5):
        async with aclosing(convert_fabric_sse(ScriptedStream([text_chunk("a")]), INPUT)) as frames:
            assert len([frame async for frame in frames]) == 5
        stream = ScriptedStream([text_chunk("a"), "pause"])
        seen = asyncio.Event()

        async def serve() -> None:
            async with aclosing(convert_fabric_stream(stream, INPUT)) as events:
                async for event in events:
                    if event.type == "TEXT_MESSAGE_CONTENT":
                        seen.set()

        task = asyncio.create_task(serve())
        await seen.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stream.resumed.set()
        await wait_fabric_drains()
    assert stream.steps in OVER


@pytest.mark.parametrize("leaves", [False, True])
async def test_the_librarys_own_response_closes_a_run_without_an_error(leaves: bool) -> None:
    stream = ScriptedStream([text_chunk("a"), *(["pause"] if leaves else []), finish_chunk()])
    sent: list[bytes] = []
    text_sent = asyncio.Event()

    async def receive() -> Json:
        await (text_sent if leaves else asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))
        if b"TEXT_MESSAGE_CONTENT" in sent[-1]:
            text_sent.set()

    with anyio.fail_after(5):
        await EventStreamResponse(convert_fabric_sse(stream, INPUT))({}, receive, send)
        stream.resumed.set()
        await wait_fabric_drains()
    assert (b"RUN_FINISHED" in b"".join(sent)) is not leaves
    assert stream.steps == ["end", "result"]


async def test_a_pull_of_another_task_ends_when_the_run_is_closed() -> None:
    closing = Closing()
    with anyio.fail_after(5):
        await closing.bring_to("in the middle")
        await anext(closing.run)
        pull = asyncio.ensure_future(anext(closing.run))
        await asyncio.sleep(0)
        await closing.run.aclose()
        with pytest.raises(StopAsyncIteration):
            await pull
        await closing.over()


async def test_closing_does_not_wait_for_the_turn() -> None:
    stream = ScriptedStream([text_chunk("a"), "pause"])
    events = convert_fabric_stream(stream, INPUT)
    with anyio.fail_after(5):
        await anext(events)
        await events.aclose()
        assert stream.steps == []
        assert drain_fabric_stream(stream) is drain_fabric_stream(stream)
        stream.resumed.set()
        await drain_fabric_stream(stream)
        await wait_fabric_drains()
    assert stream.steps in OVER


async def test_a_wrong_run_input_is_refused_and_its_turn_drained() -> None:
    stream = ScriptedStream([text_chunk("a")])
    with anyio.fail_after(5):
        with pytest.raises(ConversionError, match="messages"):
            convert_fabric_stream(stream, {"messages": 1})
        await wait_fabric_drains()
    assert stream.steps == ["closed"]


async def test_a_drain_happens_once_and_never_fails() -> None:
    stream = ScriptedStream([text_chunk("a")], raises=FabricError("timeout"))
    with anyio.fail_after(5):
        first, second = drain_fabric_stream(stream), drain_fabric_stream(stream)
        assert first is second
        await first
        await wait_fabric_drains()
    assert set(stream.steps) == {"closed"}


def test_a_run_may_be_made_before_there_is_a_loop() -> None:
    stream = ScriptedStream([text_chunk("a")])
    events = convert_fabric_stream(stream, INPUT)

    async def read() -> list[str]:
        return [event.type async for event in events]

    assert asyncio.run(read())[-1] == "RUN_FINISHED"
