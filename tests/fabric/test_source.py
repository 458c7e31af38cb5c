"""Runtimes as an agent: the result is asked for, turns of one runtime wait, harnesses without streaming answer, too."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from enum import Enum
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from ag_ui.core import RunAgentInput
from asgi_wire import exchange
from hypothesis import given, settings
from hypothesis import strategies as st

from dragent_stream import stream_agui_sse
from dragent_stream.asgi import create_app
from dragent_stream.check import check_events
from dragent_stream.errors import ConversionError, UpstreamError
from dragent_stream.fabric import FabricSource, fabric_source
from dragent_stream.fabric.failure import STREAMING_UNSUPPORTED
from dragent_stream.testing import finish_chunk, text_chunk, usage_chunk

Json = dict[str, Any]
HOST = "adapter lifecycle {} failed for runtime `runtime-1-2` ({}): secret"


class Status(Enum):
    ACTIVE = "active"
    FAILED = "failed"
    STOPPED = "stopped"


class FabricRuntimeError(RuntimeError):
    code = None


class Stream:
    """A turn of `Runtime`."""

    def __init__(self, runtime: Runtime, told: Json) -> None:
        self.runtime = runtime
        self.told = told
        self.finalized = False

    async def __aiter__(self) -> AsyncIterator[Any]:
        if self.runtime.lies:
            return
        for chunk in self.runtime.script(self.told):
            if chunk == "pause":
                await self.runtime.resumed.wait()
            else:
                await asyncio.sleep(0)
                yield chunk

    async def result(self) -> Any:
        self.runtime.stream = None
        if self.runtime.lies:
            self.runtime._status = Status.FAILED
            raise FabricRuntimeError(HOST.format("invoke_openai_stream", STREAMING_UNSUPPORTED))
        return self.runtime.finish(self.told)

    async def aclose(self) -> None:
        self.runtime.stream = None


class Runtime:
    """Imitates the SDK's `Runtime`: one turn at a time, a failed one takes none, and a stop needs an idle one."""

    def __init__(self, script: Any = None, *, streams: bool = True, lies: bool = False, result: Any = None) -> None:
        self.script = script or (lambda told: [text_chunk(json.dumps(told["input"])), finish_chunk()])
        self.supports_openai_streaming = streams
        self.lies = lies
        self.outcome = result
        self.stream: Stream | None = None
        self.asked: list[Any] = []
        self.invocations: list[Json] = []
        self.stops = 0
        self.resumed = asyncio.Event()
        self._status = Status.ACTIVE

    @property
    def status(self) -> Status:
        return self._status

    def check(self, told: Json) -> None:
        if self._status is not Status.ACTIVE:
            raise FabricRuntimeError("cannot invoke a failed runtime")
        if self.stream is not None:
            raise FabricRuntimeError("a streaming invocation is active")
        self.asked.append(told.get("input", told.get("request")))

    def finish(self, told: Json) -> Any:
        self.invocations.append({})
        if isinstance(self.outcome, Exception):
            self._status = Status.FAILED
            raise self.outcome
        return self.outcome or {"status": "succeeded", "output": {"response": f"to {told.get('input')}"}}

    def invoke_openai_stream(self, **told: Any) -> Stream:
        self.check(told)
        self.stream = Stream(self, told)
        return self.stream

    async def invoke(self, **told: Any) -> Any:
        self.check(told)
        await asyncio.sleep(0)
        return self.finish(told)

    async def stop(self) -> None:
        assert self.stream is None
        self.stops += 1
        self._status = Status.STOPPED


def asks(text: Any = "hi", *, thread: str = "t", run: str = "r", before: tuple[Json, ...] = ()) -> RunAgentInput:
    last = () if text is None else ({"id": "last", "role": "user", "content": text},)
    return RunAgentInput.model_validate(
        {
            "threadId": thread,
            "runId": run,
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {},
            "messages": [*before, *last],
        }
    )


async def run(agent: FabricSource, run_input: RunAgentInput | None = None) -> list[Json]:
    run_input = run_input or asks()
    frames = b"".join([frame async for frame in stream_agui_sse(agent(run_input), run_input)])
    events = [json.loads(frame[6:]) for frame in frames.decode().split("\n\n") if frame]
    assert check_events(events) == []
    return events


def said(events: list[Json]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


async def serve(agent: FabricSource, body: Json) -> list[Json]:
    """The events of one POST to `create_app`."""
    done = await exchange(create_app(agent), body=body, headers={"host": "127.0.0.1"})
    return done.events


async def test_a_turn_that_failed_is_a_failed_run_in_an_application_and_in_a_stream() -> None:
    failed = {"status": "failed", "error": {"code": "rate_limited", "message": "secret"}}
    with anyio.fail_after(10):
        events = await serve(fabric_source(Runtime(result=failed)), {"threadId": "t", "runId": "r", "messages": []})
        assert events[-1]["type"] == "RUN_ERROR"
        assert events[-1]["code"] == "rate_limited"
        assert "secret" not in json.dumps(events)
        events = await run(fabric_source(Runtime(result=failed)))
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "rate_limited")
        assert events[-1]["message"].startswith("The agent failed (rate_limited). Reference: ")
        assert "secret" not in json.dumps(events)


async def test_a_cancelled_turn_is_an_aborted_run() -> None:
    with anyio.fail_after(10):
        events = await run(fabric_source(Runtime(result={"status": "cancelled"})))
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "abort")


async def test_an_error_of_the_sdk_has_fabrics_code_and_its_exception_as_its_cause() -> None:
    error = FabricRuntimeError(HOST.format("invoke_openai_stream", "host_crashed"))
    runtime = Runtime(result=error)
    agent = fabric_source(runtime)
    with anyio.fail_after(10):
        with pytest.raises(UpstreamError) as caught:
            async for _ in agent(asks()):
                pass
        assert caught.value.code == "host_crashed"
        assert caught.value.__cause__ is error
        with pytest.raises(UpstreamError, match="cannot invoke a failed runtime") as caught:
            async for _ in agent(asks()):
                pass
        assert caught.value.code == "fabric_runtime_error"


async def test_turns_of_one_runtime_wait_for_each_other_in_order() -> None:
    runtime = Runtime()
    agent = fabric_source(runtime)
    with anyio.fail_after(10):
        runs = await asyncio.gather(*[run(agent, asks(f"q{n}", thread=str(n % 3))) for n in range(9)])
    assert all(events[-1]["type"] == "RUN_FINISHED" for events in runs)
    assert [asked[-1]["content"] for asked in runtime.asked] == [f"q{n}" for n in range(9)]
    assert runtime.stops == 0


async def test_the_next_turn_waits_until_a_turn_that_was_left_is_over() -> None:
    runtime = Runtime(lambda told: [text_chunk("a"), "pause", text_chunk("b")])
    agent = fabric_source(runtime)
    with anyio.fail_after(10):
        left = agent(asks("one"))
        assert await anext(left) == text_chunk("a")
        await left.aclose()
        waiting = asyncio.ensure_future(run(agent, asks("two")))
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(runtime.asked) == 1
        runtime.resumed.set()
        assert said(await waiting) == "ab"


async def test_who_leaves_while_he_waits_in_line_costs_no_turn() -> None:
    runtime = Runtime(lambda told: [text_chunk("a"), "pause"])
    agent = fabric_source(runtime)
    with anyio.fail_after(10):
        first = asyncio.ensure_future(run(agent, asks("one")))
        leaving = asyncio.ensure_future(run(agent, asks("two")))
        third = asyncio.ensure_future(run(agent, asks("three")))
        for _ in range(10):
            await asyncio.sleep(0)
        leaving.cancel()
        runtime.resumed.set()
        assert said(await first) == said(await third) == "a"
        with pytest.raises(asyncio.CancelledError):
            await leaving
    assert [asked[0]["content"] for asked in runtime.asked] == ["one", "three"]


class Starts(list[Runtime]):
    """Starts runtimes and keeps them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.arguments = arguments
        self.options = options
        self.errors: list[Exception] = []

    async def __call__(self) -> Runtime:
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop()
        self.append(Runtime(*self.arguments, **self.options))
        return self[-1]

    @property
    def alive(self) -> int:
        return sum(runtime.status is Status.ACTIVE for runtime in self)


async def test_each_thread_has_a_runtime_of_its_own_and_keeps_it() -> None:
    starts = Starts()
    with anyio.fail_after(10):
        async with fabric_source(starts) as agent:
            await asyncio.gather(*[run(agent, asks(f"{n}", thread=f"thread {n % 3}")) for n in range(9)])
            assert [sorted(asked[0]["content"] for asked in runtime.asked) for runtime in starts] == [
                ["0", "3", "6"],
                ["1", "4", "7"],
                ["2", "5", "8"],
            ]
    assert [runtime.stops for runtime in starts] == [1, 1, 1]


async def test_a_pool_that_keeps_no_conversations_takes_any_idle_runtime() -> None:
    starts = Starts()
    with anyio.fail_after(10):
        async with fabric_source(starts, key=None, max_runtimes=2) as agent:
            await run(agent, asks(thread="a"))
            await run(agent, asks(thread="b"))
            assert len(starts) == 1
            await asyncio.gather(*[run(agent, asks(thread=str(n))) for n in range(6)])
            assert len(starts) == 2


async def test_a_full_pool_stops_the_runtime_that_was_idle_for_longest() -> None:
    starts = Starts()
    with anyio.fail_after(10):
        async with fabric_source(starts, max_runtimes=2) as agent:
            for thread in ("a", "b", "a", "c"):
                await run(agent, asks(thread=thread))
                assert starts.alive <= 2
            assert [runtime.stops for runtime in starts] == [0, 1, 0]


async def test_a_full_pool_without_an_idle_runtime_lets_turns_wait() -> None:
    starts = Starts(lambda told: [text_chunk("a"), "pause"])
    with anyio.fail_after(10):
        async with fabric_source(starts, max_runtimes=1) as agent:
            runs = [asyncio.ensure_future(run(agent, asks(thread=thread))) for thread in "abc"]
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(starts) == 1
            while not all(task.done() for task in runs):
                starts[-1].resumed.set()
                await asyncio.sleep(0)
            assert [said(task.result()) for task in runs] == ["a", "a", "a"]
            assert len(starts) == 3


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 3), st.integers(0, 9)), max_size=8),
    st.integers(1, 3),
    st.booleans(),
)
def test_whoever_comes_and_leaves_a_runtime_has_one_turn_at_a_time_and_none_is_lost(
    visits: list[tuple[str, int | None, int]], limit: int, keyed: bool
) -> None:
    starts = Starts(lambda told: [text_chunk("a"), text_chunk("b"), finish_chunk()])

    async def visit(agent: FabricSource, thread: str, leaves_after: int | None, wait: int) -> None:
        for _ in range(wait):
            await asyncio.sleep(0)
        if leaves_after is None:
            events = await run(agent, asks(thread=thread))  # the runtime raises where it is asked twice at once
            assert (said(events), events[-1]["type"]) == ("ab", "RUN_FINISHED")
            return
        chunks = agent(asks(thread=thread))
        for _ in range(leaves_after):
            await anext(chunks)
        await chunks.aclose()

    async def serve_all() -> None:
        options: Json = {} if keyed else {"key": None}
        with anyio.fail_after(10):
            async with fabric_source(starts, max_runtimes=limit, **options) as agent:
                await asyncio.gather(*[visit(agent, *each) for each in visits])
                assert starts.alive <= limit
            assert starts.alive == 0
            assert all(runtime.stops == 1 for runtime in starts)

    asyncio.run(serve_all())


async def test_a_failed_runtime_is_replaced() -> None:
    starts = Starts(result=FabricRuntimeError(HOST.format("invoke", "host_crashed")))
    with anyio.fail_after(10):
        async with fabric_source(starts) as agent:
            for _ in range(2):
                assert (await run(agent))[-1]["code"] == "host_crashed"
    assert [runtime.stops for runtime in starts] == [1, 1]


async def test_a_start_that_fails_fails_its_run_and_not_the_next() -> None:
    starts = Starts()
    starts.errors.append(FabricRuntimeError(HOST.format("start", "lifecycle_adapter_start_failed")))
    with anyio.fail_after(10):
        async with fabric_source(starts, max_runtimes=1) as agent:
            assert (await run(agent))[-1]["code"] == "lifecycle_adapter_start_failed"
            assert (await run(agent))[-1]["type"] == "RUN_FINISHED"


async def test_a_start_is_never_cut_short_and_its_runtime_is_used_by_the_next() -> None:
    starts = Starts()
    with anyio.fail_after(10):
        async with fabric_source(starts, max_runtimes=1) as agent:
            leaving = asyncio.ensure_future(run(agent, asks("one")))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            assert (await run(agent, asks("two")))[-1]["type"] == "RUN_FINISHED"
            assert len(starts) == 1
    assert starts[0].stops == 1


async def test_closing_lets_open_turns_end_turns_others_away_and_can_be_repeated() -> None:
    starts = Starts(lambda told: [text_chunk("a"), "pause"])
    agent = fabric_source(starts, max_runtimes=1)
    with anyio.fail_after(10):
        runs = [asyncio.ensure_future(run(agent, asks(thread=thread))) for thread in "ab"]
        while not (starts and starts[0].stream):
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(agent.aclose())
        await asyncio.sleep(0)
        assert (await runs[1])[-1]["code"] == "shutdown"
        starts[0].resumed.set()
        await closing
        assert said(await runs[0]) == "a"
        assert starts[0].stops == 1
        assert (await run(agent))[-1]["code"] == "shutdown"
        await agent.aclose()


async def test_closing_leaves_behind_what_is_not_over_in_time(caplog: pytest.LogCaptureFixture) -> None:
    starts = Starts(lambda told: [text_chunk("a"), "pause"])
    agent = fabric_source(starts, close_timeout=0.01)
    with anyio.fail_after(10):
        turn = asyncio.ensure_future(run(agent))
        while not (starts and starts[0].stream):
            await asyncio.sleep(0)
        await agent.aclose()
        assert "left behind" in caplog.text
        starts[0].resumed.set()
        assert said(await turn) == "a"


@pytest.mark.parametrize("how", ["no streaming", "told so"])
async def test_a_harness_without_streaming_is_invoked_and_its_answer_shown(how: str) -> None:
    runtime = Runtime(streams=how == "told so", lies=True)
    agent = fabric_source(runtime, streaming=False if how == "told so" else None)
    with anyio.fail_after(10):
        events = await run(agent, asks("hi"))
    assert said(events) == "to hi"
    assert events[-1]["type"] == "RUN_FINISHED"
    assert runtime.asked == ["hi"]


async def test_a_descriptor_that_lies_is_believed_once(caplog: pytest.LogCaptureFixture) -> None:
    runtime = Runtime(lies=True)
    agent = fabric_source(runtime)
    with anyio.fail_after(10):
        for question in ("one", "two"):
            events = await run(agent, asks(question))
            assert said(events) == f"to {question}"
            assert events[-1]["type"] == "RUN_FINISHED"
    assert runtime.asked == [[{"role": "user", "content": "one"}], "one", "two"]
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == 1


async def test_a_target_that_has_spoken_is_never_run_again() -> None:
    runtime = Runtime(result=FabricRuntimeError(HOST.format("invoke_openai_stream", STREAMING_UNSUPPORTED)))
    with anyio.fail_after(10):
        events = await run(fabric_source(runtime))
    assert events[-1]["code"] == STREAMING_UNSUPPORTED
    assert len(runtime.asked) == 1


async def test_a_harness_that_fails_fails_the_run_with_fabrics_code() -> None:
    error = FabricRuntimeError(HOST.format("invoke", "my_code"))
    failed = {"status": "failed", "output": {"response": "secret"}, "error": {"code": "other", "message": "secret"}}
    with anyio.fail_after(10):
        for outcome, code in ((error, "my_code"), (failed, "other")):
            events = await serve(
                fabric_source(Runtime(streams=False, result=outcome)), {"threadId": "t", "runId": "r", "messages": []}
            )
            assert [event["type"] for event in events] == ["RUN_STARTED", "RUN_ERROR"]
            assert events[-1]["code"] == code
            assert "secret" not in json.dumps(events)


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ({"response": "yes", "messages": ["secret"]}, "yes"),
        ({"output": "yes", "usage": {"api_calls": 1}}, "yes"),
        ({"response": {"a": [1]}}, '{"a": [1]}'),
        ("yes", "yes"),
        ([1, "é"], '[1, "é"]'),
        (SimpleNamespace(to_mapping=lambda: {"response": "yes"}), "yes"),
    ],
)
async def test_the_answer_of_a_harness_is_its_response(output: Any, text: str) -> None:
    with anyio.fail_after(10):
        events = await run(fabric_source(Runtime(streams=False, result={"status": "succeeded", "output": output})))
    assert said(events) == text
    assert events[-1]["type"] == "RUN_FINISHED"


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("output", [{"response": None, "messages": ["secret"]}, {"response": ""}, {}, "", None])
async def test_a_turn_without_an_answer_is_a_failed_run(output: Any, streams: bool) -> None:
    result = {"status": "succeeded", "output": output}
    with anyio.fail_after(10):
        events = await run(fabric_source(Runtime(lambda told: [], streams=streams, result=result)))
    assert [event["type"] for event in events] == ["RUN_STARTED", "RUN_ERROR"]
    assert events[-1]["code"] == "EMPTY_ANSWER"
    assert "secret" not in json.dumps(events)


async def test_a_stream_that_says_nothing_shows_the_answer_of_its_result() -> None:
    silent = [{"choices": [{"index": 0, "delta": {"role": "assistant"}}]}]
    with anyio.fail_after(10):
        for chunks in ([], silent):
            result = {"status": "succeeded", "output": {"response": "yes"}}
            events = await run(fabric_source(Runtime(lambda told, chunks=chunks: chunks, result=result)))
            assert said(events) == "yes"
            assert events[-1]["type"] == "RUN_FINISHED"


async def test_an_output_without_a_response_is_a_failure_that_names_what_it_has() -> None:
    result = {"status": "succeeded", "output": {"transcript": "secret", "cost": 1}}
    with anyio.fail_after(10):
        events = await run(fabric_source(Runtime(streams=False, result=result)))
    assert events[-1]["code"] == "no_response"
    assert events[-1]["message"] == "the turn's output has no response, only transcript, cost"


async def test_calls_and_usage_of_a_result_are_shown() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    result = {
        "status": "succeeded",
        "output": {"response": "", "tool_calls": [call, "x"]},
        "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "cached_input_tokens": 1},
    }
    with anyio.fail_after(10):
        events = await run(fabric_source(Runtime(streams=False, result=result)))
        assert [event["toolCallName"] for event in events if event["type"] == "TOOL_CALL_START"] == ["f"]
        (usage,) = events[-1]["usage"]
        assert (usage["inputTokens"], usage["outputTokens"], usage["cachedInputTokens"]) == (3, 4, 1)
        counted = Runtime(lambda told: [text_chunk("a"), usage_chunk(1, 2)], result=result)
        assert (await run(fabric_source(counted)))[-1]["usage"][0]["inputTokens"] == 1


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a'}}
BEFORE: tuple[Json, ...] = (
    {"id": "0", "role": "system", "content": "Be brief."},
    {"id": "1", "role": "user", "content": [{"type": "text", "text": "one"}]},
    {"id": "2", "role": "assistant", "toolCalls": [CALL]},
    {"id": "3", "role": "tool", "toolCallId": "c", "content": "1"},
    {"id": "4", "role": "assistant", "content": "first"},
)
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "one"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "1"},
    {"role": "assistant", "content": "first"},
    {"role": "user", "content": "two"},
]


async def test_an_adapter_that_streams_is_asked_with_chat_messages() -> None:
    runtime = Runtime()
    with anyio.fail_after(10):
        await run(fabric_source(runtime), asks("two", before=BEFORE))
    assert runtime.asked == [CHAT]


async def test_a_harness_is_asked_with_text_and_with_what_it_does_not_know() -> None:
    runtime = Runtime(streams=False)
    agent = fabric_source(runtime)
    with anyio.fail_after(10):
        await run(agent, asks("two", before=BEFORE))
        await run(agent, asks([{"type": "text", "text": "th"}, {"type": "text", "text": "ree"}], before=BEFORE))
        await run(agent, asks(None, before=BEFORE[:3]))
    assert runtime.asked == [
        "system: Be brief.\n\nuser: one\n\nassistant: f({})\n\ntool: 1\n\nassistant: first\n\nuser: two",
        "three",
        "system: Be brief.\n\nuser: one\n\nassistant: f({})\n\ntool: ",
    ]


async def test_prepare_words_the_input_or_the_whole_request() -> None:
    runtime = Runtime()
    request = SimpleNamespace(request_id="r", input="whole")
    with anyio.fail_after(10):
        await run(fabric_source(runtime, prepare=lambda run_input: run_input.thread_id))
        await run(fabric_source(runtime, prepare=lambda run_input: request))
    assert runtime.asked == ["t", request]


@pytest.mark.parametrize("runtime", [None, "runtime", 3, {}])
def test_what_is_no_runtime_is_refused(runtime: Any) -> None:
    with pytest.raises(ConversionError, match="takes a runtime or a function that starts one"):
        fabric_source(runtime)


async def test_a_runtime_that_was_not_awaited_is_refused_with_the_remedy() -> None:
    starting = Starts()()
    with pytest.raises(ConversionError, match="await it first"):
        fabric_source(starting)
    starting.close()


def test_a_pool_of_nothing_is_refused() -> None:
    with pytest.raises(ConversionError, match="max_runtimes"):
        fabric_source(Runtime, max_runtimes=0)
