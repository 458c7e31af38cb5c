"""The SDK's stream becomes one run: iterated to its end, then the result, then the terminal event."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from ag_ui.encoder import EventEncoder

from dragent_stream.check import check_events
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

    def __init__(self, code: str | None) -> None:
        super().__init__("Traceback (most recent call last): secret")
        self.code = code


class ScriptedStream:
    """Imitates `OpenAIInvokeStream`, its trap included: a result asked for too early throws the unread chunks away."""

    def __init__(self, chunks: list[Any], result: Any = SUCCEEDED, *, raises: Exception | None = None) -> None:
        self.unread = list(chunks)
        self.outcome = result
        self.raises = raises
        self.steps: list[str] = []
        self.closing = asyncio.Event()
        self.may_close = asyncio.Event()
        self.may_close.set()

    def __aiter__(self) -> ScriptedStream:
        return self

    async def __anext__(self) -> Any:
        await asyncio.sleep(0)
        if self.unread:
            chunk = self.unread.pop(0)
            if chunk == "wait":
                await asyncio.Event().wait()
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
        self.closing.set()
        await self.may_close.wait()
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


async def test_an_empty_turn_is_an_empty_run() -> None:
    assert kinds(await run(ScriptedStream([]))) == ["RUN_STARTED", "RUN_FINISHED"]


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
    assert events[-1] == {"type": "RUN_ERROR", "message": "the agent's run failed", "code": "rate_limited"}
    assert kinds(events)[-2] == "TEXT_MESSAGE_END"


async def test_a_failed_results_text_can_be_shown() -> None:
    result = {"status": "failed", "error": {"code": "timeout", "message": "too slow"}}
    options = ConverterOptions(public_error=lambda error: f"{type(error).__name__}: {error}")
    events = await run(ScriptedStream([], result), options=options)
    assert events[-1] == {"type": "RUN_ERROR", "message": "UpstreamError: too slow", "code": "timeout"}


async def test_a_cancelled_result_is_a_cancelled_run() -> None:
    result = {"status": "cancelled", "error": {"code": "target_cancelled", "message": "x"}}
    events = await run(ScriptedStream([text_chunk("a")], result))
    assert events[-1]["type"] == "RUN_FINISHED"
    assert events[-1]["outcome"] == {"type": "cancelled"}
    old = await run(ScriptedStream([text_chunk("a")], result), {"threadId": "t", "runId": "r"})
    assert old[-1] == {"type": "RUN_ERROR", "message": "the run was stopped", "code": "abort"}


@pytest.mark.parametrize("code", ["timeout", "openai_stream_protocol_error", None, "a code with blanks", 7])
@pytest.mark.parametrize("where", ["iteration", "result"])
async def test_an_error_of_the_sdk_is_a_failed_run_without_its_text(where: str, code: Any) -> None:
    error = FabricError(code)
    stream = ScriptedStream([text_chunk("a")], error, raises=error if where == "iteration" else None)
    events = await run(stream)
    wanted = code if code in ("timeout", "openai_stream_protocol_error") else "STREAM_ERROR"
    assert events[-1] == {"type": "RUN_ERROR", "message": "the agent's run failed", "code": wanted}
    assert "secret" not in json.dumps(events)
    assert stream.steps == (["end"] if where == "iteration" else ["end", "result"])


async def test_an_error_inside_the_stream_waits_for_the_turns_end() -> None:
    stream = ScriptedStream([text_chunk("a"), error_chunk("secret"), text_chunk("b")])
    events = await run(stream)
    assert events[-1] == {"type": "RUN_ERROR", "message": "the agent's run failed", "code": "STREAM_ERROR"}
    assert kinds(events).count("TEXT_MESSAGE_CONTENT") == 1
    assert stream.steps == ["end", "result"]


async def test_the_results_usage_counts_where_the_chunks_had_none() -> None:
    usage = {"input_tokens": 5, "output_tokens": None, "cached_input_tokens": 1, "cost_usd": 0.1}
    events = await run(ScriptedStream([text_chunk("a")], {**SUCCEEDED, "usage": usage}))
    assert events[-1]["usage"] == [{"model": "test-model", "inputTokens": 5, "cachedInputTokens": 1}]
    events = await run(ScriptedStream([usage_chunk(1, 2)], {**SUCCEEDED, "usage": usage}))
    assert events[-1]["usage"][0]["inputTokens"] == 1


async def test_a_client_that_leaves_has_its_turn_drained_in_the_background() -> None:
    stream = ScriptedStream([text_chunk("a"), text_chunk("b")])
    stream.may_close.clear()
    events = convert_fabric_stream(stream, INPUT)
    with anyio.fail_after(5):
        await anext(events)
        await anext(events)
        await events.aclose()
        assert stream.steps == []
        await stream.closing.wait()
        stream.may_close.set()
        await wait_fabric_drains()
    assert stream.steps == ["closed"]
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_a_client_that_leaves_before_the_first_event_has_its_turn_drained_too() -> None:
    stream = ScriptedStream([text_chunk("a")])
    with anyio.fail_after(5):
        await convert_fabric_stream(stream, INPUT).aclose()
        await wait_fabric_drains()
    assert stream.steps == ["closed"]


async def test_a_cancelled_request_has_its_turn_drained() -> None:
    stream = ScriptedStream([text_chunk("a"), "wait"])
    seen = asyncio.Event()

    async def serve() -> None:
        async for event in convert_fabric_stream(stream, INPUT):
            if event.type == "TEXT_MESSAGE_CONTENT":
                seen.set()

    task = asyncio.create_task(serve())
    with anyio.fail_after(5):
        await seen.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await wait_fabric_drains()
    assert stream.steps == ["closed"]


async def test_a_drain_happens_once_and_never_fails() -> None:
    stream = ScriptedStream([text_chunk("a")], raises=FabricError("timeout"))
    with anyio.fail_after(5):
        first, second = drain_fabric_stream(stream), drain_fabric_stream(stream)
        assert first is second
        await first
        await wait_fabric_drains()
    assert stream.steps == ["closed"]


async def test_a_finished_run_drains_nothing() -> None:
    stream = ScriptedStream([text_chunk("a")])
    events = convert_fabric_stream(stream, INPUT)
    async for event in events:
        if event.type == "RUN_FINISHED":
            break
    await events.aclose()
    await wait_fabric_drains()
    assert stream.steps == ["end", "result"]
