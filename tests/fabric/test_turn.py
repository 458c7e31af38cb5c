"""One turn: the target runs once, its chunks go out valid, and whatever it does becomes an outcome."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from nemo_fabric_adapter_contract.models import AgentRunRequest, AgentRunStatus, RuntimeContext

from dragent_stream.errors import ConversionError, UpstreamError
from dragent_stream.fabric import ChunkStreamAdapter, FabricStreamError
from dragent_stream.fabric.contract import RECORD_LIMIT, TRANSPORT_FAILED, chunk_problem
from dragent_stream.options import ConverterOptions
from dragent_stream.testing import error_chunk, finish_chunk, text_chunk, tool_call_chunk, usage_chunk
from dragent_stream.testing.fabric import FakeSink

Json = dict[str, Any]


def turn(input: Any = "hi", deadline_in: float | None = None) -> tuple[AgentRunRequest, RuntimeContext]:
    deadline = None if deadline_in is None else int((time.time() + deadline_in) * 1000)
    payload = FakeSink().payload(input, deadline_millis=deadline)
    return AgentRunRequest.from_mapping(payload["request"]), RuntimeContext.from_mapping(payload["runtime_context"])


def failed_with(error: BaseException) -> str:
    return f"the target failed with {type(error).__name__}; the traceback is on the adapter's stderr"


class Emitted(list[Json]):
    """An `emit` that keeps what comes and checks it."""

    async def __call__(self, chunk: Any) -> None:
        assert chunk_problem(chunk) is None
        assert (
            len(
                json.dumps(
                    {"sequence": 2**64, **FakeSink().ids, "chunk": chunk}, ensure_ascii=False, separators=(",", ":")
                ).encode()
            )
            < RECORD_LIMIT
        )
        self.append(chunk)

    @property
    def text(self) -> str:
        return "".join(choice["delta"].get("content") or "" for chunk in self for choice in chunk["choices"])


async def stream(
    source: Any, *, input: Any = "hi", deadline_in: float | None = None, **options: Any
) -> tuple[Json, Emitted]:
    """(the result's mapping, what was emitted)."""
    emitted = Emitted()
    adapter = ChunkStreamAdapter(source, **options)
    with anyio.fail_after(10):
        await adapter.start({})
        result = await adapter.invoke_openai_stream(*turn(input, deadline_in), emitted)
        await adapter.stop()
    return result.to_mapping(), emitted


async def test_chunks_go_out_and_the_result_gathers_them() -> None:
    calls: list[Any] = []

    async def source(question: Any) -> AsyncIterator[Json]:
        calls.append(question)
        yield text_chunk("Hel", role="assistant")
        yield text_chunk("lo")
        yield tool_call_chunk('{"a":', call_id="c1", name="f")
        yield tool_call_chunk("1}")
        yield finish_chunk("tool_calls")
        yield usage_chunk(3, 4)

    result, emitted = await stream(source, input={"q": 1})
    assert calls == [{"q": 1}]
    assert emitted == [chunk async for chunk in source(None)]
    assert result == {
        "status": "succeeded",
        "output": {
            "response": "Hello",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}],
        },
        "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
    }


async def test_invoke_gives_the_same_result_without_chunks() -> None:
    async def source(question: Any) -> AsyncIterator[Json]:
        yield text_chunk(f"to {question}")

    adapter = ChunkStreamAdapter(source)
    result = await adapter.invoke(*turn("x"))
    assert result.to_mapping() == {"status": "succeeded", "output": {"response": "to x"}}


async def test_an_empty_stream_succeeds_with_empty_text() -> None:
    result, emitted = await stream(lambda _: [])
    assert result == {"status": "succeeded", "output": {"response": ""}}
    assert emitted == []


async def test_chunks_that_say_nothing_are_a_failed_result() -> None:
    result, emitted = await stream(lambda _: [{"choices": [{"index": 0, "delta": {"role": "assistant"}}]}])
    assert (result["status"], result["error"]["code"], len(emitted)) == ("failed", "EMPTY_ANSWER", 1)
    result, _ = await stream(lambda _: [finish_chunk()])
    assert (result["status"], result["output"]) == ("succeeded", {"response": ""})


def messages_of_two_nodes(*, ends: bool) -> list[Any]:
    def piece(name: str, text: str, **more: Any) -> Any:
        fields = {"type": "AIMessageChunk", "id": name, "content": text, **more}
        return (fields, {"langgraph_node": name, "langgraph_step": 1})

    pieces = [piece("a", "A1"), piece("b", "B1"), piece("a", "A2"), piece("b", "B2")]
    return [*pieces, *(piece(name, "", chunk_position="last") for name in ("a", "b") if ends)]


@pytest.mark.parametrize("ends", [False, True])
async def test_messages_of_parallel_nodes_are_sent_one_after_the_other(ends: bool) -> None:
    result, emitted = await stream(lambda _: messages_of_two_nodes(ends=ends))
    assert emitted.text == "A1A2B1B2"
    assert [chunk["id"] for chunk in emitted if chunk["choices"][0]["delta"]] == ["a", "a", "b", "b"]
    assert (result["status"], result["output"]["response"]) == ("succeeded", "B1B2")


@pytest.mark.parametrize("error", [RuntimeError("secret"), UpstreamError("overloaded")])
async def test_what_a_target_said_before_it_failed_is_sent(error: Exception) -> None:
    async def source(_: Any) -> AsyncIterator[Any]:
        for chunk in messages_of_two_nodes(ends=False):
            yield chunk
        raise error

    result, emitted = await stream(source)
    assert emitted.text == "A1A2B1B2"
    assert result["status"] == "failed"


async def test_an_interrupted_graph_is_a_failed_result_that_says_so() -> None:
    result, _ = await stream(lambda _: [("updates", {"__interrupt__": ({"value": "sure?"},)})])
    assert (result["status"], result["error"]["code"]) == ("failed", "INTERRUPTED")


async def test_the_response_is_the_last_answer_of_several_turns() -> None:
    chunks = [
        text_chunk("let me see"),
        tool_call_chunk("{}", call_id="c1", name="f"),
        finish_chunk("tool_calls"),
        usage_chunk(1, 2),
        text_chunk("it is 4"),
        finish_chunk("stop"),
        usage_chunk(10, 20),
    ]
    result, _ = await stream(lambda _: chunks)
    assert result["output"]["response"] == "it is 4"
    assert result["usage"] == {"input_tokens": 11, "output_tokens": 22, "total_tokens": 33}


CACHED = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}}


async def test_cached_tokens_are_reported_as_part_of_the_input() -> None:
    result, _ = await stream(lambda _: [{**text_chunk("x"), "usage": CACHED}], deadline_in=60)
    assert result["usage"] == {
        "input_tokens": 9,
        "output_tokens": 1,
        "cached_input_tokens": 8,
        "input_tokens_include_cache": True,
    }


async def test_a_fabric_that_knows_no_deadline_is_told_nothing_of_cached_tokens() -> None:
    result, _ = await stream(lambda _: [{**text_chunk("x"), "usage": CACHED}])
    assert result["usage"] == {"input_tokens": 9, "output_tokens": 1}


@pytest.mark.parametrize("kind", ["generator", "list", "awaitable", "coroutine"])
async def test_a_source_may_be_any_kind_of_stream(kind: str) -> None:
    async def generate() -> AsyncGenerator[Json, None]:
        yield text_chunk("x")

    async def create() -> AsyncGenerator[Json, None]:
        return generate()

    sources: Json = {
        "generator": lambda _: generate(),
        "list": lambda _: [text_chunk("x")],
        "awaitable": lambda _: asyncio.ensure_future(create()),
        "coroutine": lambda _: create(),
    }
    _, emitted = await stream(sources[kind])
    assert emitted.text == "x"


async def test_a_source_may_be_the_bytes_of_an_answer() -> None:
    body = f"data: {json.dumps(text_chunk('x'))}\n\n".encode()
    result, emitted = await stream(lambda _: [body[:20], body[20:] + b"data: [DONE]\n\n"])
    assert (result["status"], emitted.text) == ("succeeded", "x")
    result, emitted = await stream(lambda _: [body])
    assert (result["status"], result["error"]["code"], emitted.text) == ("failed", "upstream_error", "x")


@pytest.mark.parametrize(
    ("reads", "text", "problem"),
    [
        ([bytearray(b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\ndata: [DONE]\n\n')], "x", ""),
        ([b'{"choices": [{"index": 0, "finish_reason": "stop", "mess', b'age": {"content": "x"}}]}'], "x", ""),
        ([b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n'], "x", "without finish_reason"),
        ([b"<html>no</html>"], "", "an HTML page"),
        ([b""], "", "is empty"),
    ],
)
async def test_bytes_that_are_no_whole_answer_fail_the_turn(reads: list[Any], text: str, problem: str) -> None:
    result, emitted = await stream(lambda _: reads)
    assert (result["status"], emitted.text) == ("failed" if problem else "succeeded", text)
    assert problem in result.get("error", {}).get("message", "")


async def test_prepare_makes_the_sources_argument() -> None:
    _, emitted = await stream(lambda word: [word], prepare=lambda request, context: request.input + context.request_id)
    assert emitted.text == "hirequest-fake"


async def test_a_lifespan_gives_the_source_and_lives_as_long_as_the_runtime() -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def lifespan(payload: Any) -> AsyncIterator[Any]:
        steps.append(f"start {payload['config']}")
        async with anyio.create_task_group():
            yield lambda question: [text_chunk(question)]
        steps.append("stop")

    adapter = ChunkStreamAdapter(lifespan=lifespan)
    await adapter.start({"config": "c"})
    for question in ("a", "b"):
        result = await adapter.invoke(*turn(question))
        assert result.output == {"response": question}
    assert steps == ["start c"]
    await adapter.stop()
    assert steps == ["start c", "stop"]


def test_neither_or_both_of_source_and_lifespan_is_a_mistake() -> None:
    with pytest.raises(ConversionError, match="either a source or a lifespan"):
        ChunkStreamAdapter()


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("boom"),
        KeyError("OPENAI_API_KEY"),
        TimeoutError("slow"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        ExceptionGroup("g", [ValueError("v")]),
    ],
)
@pytest.mark.parametrize("before", [0, 1])
async def test_a_failing_target_is_a_failed_result_with_its_type_and_a_traceback_in_the_log(
    error: BaseException, before: int, caplog: pytest.LogCaptureFixture
) -> None:
    runs = 0

    async def source(_: Any) -> AsyncIterator[Json]:
        nonlocal runs
        runs += 1
        for _ in range(before):
            yield text_chunk("x")
        raise error

    result, emitted = await stream(source)
    assert result["status"] == "failed"
    assert result["error"] == {"code": "target_failed", "message": failed_with(error), "retryable": False}
    (record,) = caplog.records
    assert record.levelname == "ERROR" and record.exc_info and record.exc_info[1] is error
    assert result["output"] == {"response": "x" * before}
    assert emitted.text == "x" * before
    assert runs == 1


async def test_a_target_that_fails_when_called_is_a_failed_result() -> None:
    def source(_: Any) -> Any:
        raise RuntimeError("")

    result, _ = await stream(source)
    assert result["error"]["message"] == failed_with(RuntimeError())


async def test_the_failures_text_can_be_worded() -> None:
    def source(_: Any) -> Any:
        raise RuntimeError("secret")

    result, _ = await stream(source, options=ConverterOptions(public_error=lambda error: "sorry"))
    assert result["error"]["message"] == "sorry"


@pytest.mark.parametrize("text", [" ", "\ud800", "x" * 100_000])
async def test_any_text_of_a_failure_fits_the_result(text: str) -> None:
    def source(_: Any) -> Any:
        raise RuntimeError(text)

    result, _ = await stream(source, options=ConverterOptions(public_error=str))
    message = result["error"]["message"]
    assert message.strip() and len(message) <= 2000
    assert message.encode()


async def test_a_cancelled_target_is_a_cancelled_result() -> None:
    async def source(_: Any) -> AsyncIterator[Json]:
        yield text_chunk("x")
        raise asyncio.CancelledError

    result, _ = await stream(source)
    assert result["status"] == "cancelled"
    assert result["error"]["code"] == "target_cancelled"
    assert result["output"] == {"response": "x"}


async def test_a_cancelled_host_is_not_swallowed_and_the_target_is_closed() -> None:
    running, closed = asyncio.Event(), asyncio.Event()

    async def source(_: Any) -> AsyncIterator[Json]:
        try:
            running.set()
            await asyncio.Event().wait()
            yield text_chunk("x")
        finally:
            closed.set()

    task = asyncio.create_task(ChunkStreamAdapter(source).invoke(*turn()))
    with anyio.fail_after(5):
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert closed.is_set()


async def test_an_error_in_the_stream_is_a_failed_result() -> None:
    result, emitted = await stream(lambda _: [text_chunk("x"), error_chunk("overloaded"), text_chunk("never")])
    assert result["status"] == "failed"
    assert result["error"] == {"code": "upstream_error", "message": "overloaded", "retryable": False}
    assert emitted.text == "x"


@pytest.mark.parametrize(("reason", "code"), [("content_filter", "content_filter"), ("error", "upstream_error")])
async def test_an_answer_that_was_stopped_is_a_failed_result(reason: str, code: str) -> None:
    result, emitted = await stream(lambda _: [text_chunk("x"), finish_chunk(reason)])
    assert (result["status"], result["error"]["code"]) == ("failed", code)
    assert len(emitted) == 2


async def test_arguments_cut_by_the_length_limit_are_a_failed_result() -> None:
    result, _ = await stream(lambda _: [tool_call_chunk('{"a', call_id="c", name="f"), finish_chunk("length")])
    assert (result["status"], result["error"]["code"]) == ("failed", "length")


async def test_a_chunk_that_fits_no_record_is_a_failed_result() -> None:
    result, emitted = await stream(lambda _: [{**text_chunk("x"), "citations": ["y" * RECORD_LIMIT]}])
    assert (result["status"], result["error"]["code"]) == ("failed", "invalid_chunk")
    assert emitted == []


@pytest.mark.parametrize("before", [[], [text_chunk("a")]])
async def test_a_source_that_yields_no_chunks_fails_the_turn_and_says_what_it_yields(before: list[Any]) -> None:
    result, emitted = await stream(lambda _: [*before, {"text": "b"}, finish_chunk()])
    assert result["error"] == {
        "code": "invalid_chunk",
        "message": "the source yielded a dict with the keys text, which is no chunk",
        "retryable": False,
    }
    assert emitted == before


@pytest.mark.parametrize("source", [lambda _: "text", lambda _: text_chunk("x"), lambda _: None, lambda _: b"data: x"])
async def test_a_source_that_is_no_stream_fails_the_turn_and_says_so(source: Any) -> None:
    result, _ = await stream(source)
    assert result["error"]["code"] == "invalid_chunk"
    assert "not a stream of chunks" in result["error"]["message"]


async def test_what_exceeds_a_record_is_divided() -> None:
    result, emitted = await stream(lambda _: [text_chunk("é" * RECORD_LIMIT)])
    assert emitted.text == "é" * RECORD_LIMIT
    assert len(emitted) == 3
    assert result["output"]["response"] == "é" * RECORD_LIMIT


async def test_the_deadline_ends_a_waiting_target_in_time() -> None:
    closed = asyncio.Event()

    async def source(_: Any) -> AsyncIterator[Json]:
        try:
            yield text_chunk("x")
            await asyncio.Event().wait()
        finally:
            closed.set()

    result, emitted = await stream(source, deadline_in=0.2)
    assert result["status"] == "failed"
    assert result["error"]["code"] == "timeout"
    assert result["output"] == {"response": "x"}
    assert emitted.text == "x"
    assert closed.is_set()


async def test_the_deadline_ends_a_target_that_never_waits() -> None:
    def source(_: Any) -> Any:
        while True:
            yield text_chunk("x")

    result, _ = await stream(source, deadline_in=0.1)
    assert result["error"]["code"] == "timeout"


async def test_the_deadline_ends_a_target_that_swallows_its_cancellation() -> None:
    async def source(_: Any) -> AsyncIterator[Json]:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                yield text_chunk("x")

    result, _ = await stream(source, deadline_in=0.1)
    assert result["error"]["code"] == "timeout"


async def test_a_target_that_does_not_close_holds_nothing_up_beyond_the_deadline() -> None:
    async def source(_: Any) -> AsyncIterator[Json]:
        yield text_chunk("x")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()

    begun = time.monotonic()
    result, _ = await stream(source, deadline_in=0.4)
    assert result["error"]["code"] == "timeout"
    assert time.monotonic() - begun < 2


async def test_an_emit_that_waits_is_not_cancelled_by_the_deadline() -> None:
    emitted: list[Json] = []
    reading = asyncio.Event()

    async def emit(chunk: Any) -> None:
        asyncio.get_running_loop().call_later(0.3, reading.set)
        await reading.wait()
        emitted.append(chunk)

    async def source(_: Any) -> AsyncIterator[Json]:
        yield text_chunk("x")
        await asyncio.Event().wait()

    with anyio.fail_after(5):
        result = await ChunkStreamAdapter(source).invoke_openai_stream(*turn(deadline_in=0.05), emit)
    assert len(emitted) == 1
    assert result.status is AgentRunStatus.FAILED
    assert result.error is not None and result.error.code == "timeout"


async def test_a_target_that_swallows_every_cancellation_is_abandoned_and_the_runtime_goes_on() -> None:
    released = asyncio.Event()

    async def source(question: Any) -> AsyncIterator[Json]:
        yield text_chunk("x")
        while question == "hang" and not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                pass
        yield text_chunk("y")

    adapter, emitted = ChunkStreamAdapter(source, turn_timeout=0.05, options=ConverterOptions(close_timeout=0.05)), []

    async def emit(chunk: Any) -> None:
        emitted.append(chunk)

    with anyio.fail_after(5):
        result = await adapter.invoke_openai_stream(*turn("hang"), emit)
        assert result.error is not None and result.error.code == "timeout"
        assert (await adapter.invoke(*turn("go on"))).output == {"response": "xy"}
        released.set()
        await asyncio.sleep(0.01)
    assert emitted == [text_chunk("x")]  # what the abandoned target says later goes nowhere


async def test_a_turn_has_a_limit_of_its_own_where_fabric_tells_none() -> None:
    async def source(_: Any) -> AsyncIterator[Json]:
        yield text_chunk("x")
        await asyncio.Event().wait()

    result, emitted = await stream(source, turn_timeout=0.05)
    assert (result["status"], result["error"]["code"], emitted.text) == ("failed", "timeout", "x")
    result, _ = await stream(source, turn_timeout=60, deadline_in=0.1)
    assert result["error"]["code"] == "timeout"
    result, _ = await stream(source, turn_timeout=0.05, deadline_in=60)
    assert result["error"]["code"] == "timeout"


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_limit_that_no_turn_can_keep_is_refused(seconds: float) -> None:
    with pytest.raises(ConversionError, match="turn_timeout"):
        ChunkStreamAdapter(lambda _: [], turn_timeout=seconds)


async def test_a_host_that_is_cancelled_does_not_wait_for_a_target_that_swallows_it() -> None:
    running, released = asyncio.Event(), asyncio.Event()

    async def source(_: Any) -> AsyncIterator[Json]:
        while not released.is_set():
            try:
                running.set()
                await released.wait()
            except asyncio.CancelledError:
                pass
        yield text_chunk("x")

    adapter = ChunkStreamAdapter(source, options=ConverterOptions(close_timeout=0.01))
    task = asyncio.create_task(adapter.invoke(*turn()))
    with anyio.fail_after(5):
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        released.set()
        await asyncio.sleep(0.01)


async def test_a_deadline_in_time_changes_nothing() -> None:
    result, emitted = await stream(lambda _: [text_chunk("x")] * 10, deadline_in=60)
    assert result["status"] == "succeeded"
    assert emitted.text == "x" * 10


async def test_a_lost_transport_is_raised_and_the_target_closed() -> None:
    closed = asyncio.Event()

    async def source(_: Any) -> AsyncIterator[Json]:
        try:
            while True:
                yield text_chunk("x")
        finally:
            closed.set()

    async def emit(chunk: Any) -> None:
        raise FabricStreamError(TRANSPORT_FAILED, "gone")

    with pytest.raises(FabricStreamError, match="gone"):
        await ChunkStreamAdapter(source).invoke_openai_stream(*turn(), emit)
    assert closed.is_set()


async def test_a_slow_consumer_holds_the_target_back() -> None:
    made = 0

    async def source(_: Any) -> AsyncIterator[Json]:
        nonlocal made
        for _ in range(3):
            made += 1
            yield text_chunk("x")

    seen: list[int] = []

    async def emit(chunk: Any) -> None:
        await asyncio.sleep(0)
        seen.append(made)

    await ChunkStreamAdapter(source).invoke_openai_stream(*turn(), emit)
    assert seen == [1, 2, 3]


async def test_the_callers_think_tags_are_no_part_of_the_response() -> None:
    result, emitted = await stream(
        lambda _: [text_chunk("<think>hm</think>yes")], options=ConverterOptions(think_tags=True)
    )
    assert result["output"]["response"] == "yes"
    assert emitted.text == "<think>hm</think>yes"
