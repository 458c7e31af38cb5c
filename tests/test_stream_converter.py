"""ChunkConverter and its async shell: any soup of chunks is a valid run, and an upstream is closed exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
from collections.abc import AsyncIterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import anyio
import pytest
from ag_ui.core import RunErrorEvent
from ag_ui_validate.pytest_plugin import validate_agui
from agui_case import both_writers, calls, convert, counted_ids, delta, order_of, texts, wire
from hypothesis import given, settings
from hypothesis import strategies as st

from dragent_stream import (
    AgentStep,
    ChunkConverter,
    ConversionError,
    ConverterOptions,
    RunLedger,
    stream_agui_sse,
)
from dragent_stream.check import check_events
from dragent_stream.errors import UpstreamError
from dragent_stream.events import ModelEvents, WireEvents
from dragent_stream.stream_converter import convert_chunks_to_agui_events

CASE: dict[str, Any] = {}


def call(
    index: int | None = 0, call_id: str | None = None, name: str | None = None, arguments: Any = ""
) -> dict[str, Any]:
    return delta(tool_calls=[{"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}])


def run(*chunks: Any) -> list[dict[str, Any]]:
    return both_writers(CASE, list(chunks))


_indexes = st.sampled_from([0, 0, 0, 1, 2, None, "1", 7])
_ids = st.sampled_from([None, "", " ", "a", "b", "c", "a__thought__x", 5])
_names = st.sampled_from([None, "", "f", "g", "f_", "front"])
_arguments = st.sampled_from(
    [None, "", "{", "}", "{}", '{"a":1}', '{"a":', "1}", '"x', '"', "\\", " ", {"a": 1}, "\ud83d", "\ude00"]
)
_entries = st.builds(
    lambda i, c, n, a: {"index": i, "id": c, "function": {"name": n, "arguments": a}},
    _indexes,
    _ids,
    _names,
    _arguments,
)
_texts = st.sampled_from([None, "", "a", " ", "b\n", "\ud83d", "\ude00", "é", "<think>", "</think>", "<th", 6, ["x"]])
_finishes = st.sampled_from([None] * 8 + ["", "stop", "tool_calls", "length", "content_filter", "error", "eos"])
_chunks = st.one_of(
    st.builds(
        lambda text, thought, entries, finish, i: delta(
            finish, chunk_id=i, content=text, reasoning_content=thought, tool_calls=entries
        ),
        _texts,
        st.sampled_from([None] * 5 + ["hm", "\ud83d"]),
        st.lists(_entries, max_size=2),
        _finishes,
        st.sampled_from(["x", "y"]),
    ),
    st.sampled_from([None, {}, {"choices": None}, {"choices": []}, 5, "text", {"error": ""}, {"object": "x"}, []]),
)
_steps = st.builds(
    lambda kind, uuid, name, level, data: AgentStep(
        {"event_type": kind, "UUID": uuid, "name": name, "level": level, "data": data}
    ),
    st.sampled_from(
        "LLM_START LLM_NEW_TOKEN LLM_END TOOL_START TOOL_END FUNCTION_START FUNCTION_END TASK_START TASK_END "
        "CUSTOM_START WORKFLOW_START WORKFLOW_END SPAN_CHUNK".split()
    ),
    st.sampled_from(["1", "2", "3", None]),
    st.sampled_from(["f", "g", "", None]),
    st.sampled_from([1, 2, None]),
    st.sampled_from(
        [None, {"input": {"a": 1}}, {"output": "o"}, {"chunk": "t"}, {"output": {"tool_call_id": "a", "content": 1}}]
    ),
)


@given(st.lists(st.one_of(_chunks, _chunks, _steps), max_size=25), st.booleans())
@settings(deadline=None, max_examples=400)
def test_any_soup_of_chunks_and_steps_is_a_valid_run(feed: list[Any], think: bool) -> None:
    case = {"option": "think_tags"} if think else {}
    events = both_writers(case, feed)
    assert check_events(events) == []
    report = validate_agui(events)
    assert not [found for found in report.diagnostics if found.severity == "error"]


class NothingGoesOn(dict[str | int, Any]):
    """Keeps no writer, so that every chunk is read in full and everything is decided."""

    def __setitem__(self, kind: str | int, write: Any) -> None:
        pass

    def update(self, *writers: Any, **more: Any) -> None:
        pass


_plain = st.one_of(
    st.builds(lambda text: delta(content=text), st.sampled_from(["a", "b", "é", "\ud83d", "\ude00"])),
    st.builds(lambda text: delta(reasoning=text), st.sampled_from(["hm", "so", "\ud83d"])),
    st.builds(call, st.integers(0, 2), arguments=st.sampled_from(['{"a":', "1", "}", '"}"', "[", "]", "{}", "\ude00"])),
    st.builds(call, st.integers(0, 2), st.sampled_from(["a", "b"]), st.just("f"), st.sampled_from(["", "{", "{}"])),
)


@given(st.lists(st.one_of(_plain, _plain, _plain, _chunks, _steps), max_size=40), st.booleans())
@settings(deadline=None, max_examples=400)
def test_what_goes_on_without_a_decision_is_what_would_be_decided(feed: list[Any], think: bool) -> None:
    said: list[list[dict[str, Any]]] = []
    for hot in ({}, NothingGoesOn()):
        options = ConverterOptions(new_id=counted_ids(), think_tags=think)
        ledger = RunLedger(WireEvents(), options=options, thread_id="t", run_id="r")
        ledger.hot = hot
        converter = ChunkConverter(ledger)
        frames = [frame for chunk in feed for frame in converter.feed(chunk)]
        said.append([wire(frame) for frame in frames + converter.finish() + ledger.finish_run()])
    assert said[0] == said[1]


def test_what_may_be_the_beginning_of_a_tag_comes_before_the_fragment_behind_it() -> None:
    opening = call(0, "a", "f", '{"a":')
    events = both_writers({"option": "think_tags"}, [opening, delta(content="<th"), call(arguments="1}")])
    assert list(texts(events).values()) == ["<th"]
    assert calls(events)[0]["args"] == '{"a":1}'
    kinds = order_of(events)
    assert kinds.index("TEXT_MESSAGE_START") < kinds.index("TOOL_CALL_END")


def test_a_chunk_without_an_index_is_no_followed_choice_before_there_is_one() -> None:
    nameless = {"choices": [{"index": None, "delta": {"content": "b"}}]}
    assert "".join(texts(run("a", nameless, {"choices": [{"index": 2, "delta": {"content": "c"}}]})).values()) == "ab"


@given(st.lists(_chunks, max_size=15))
@settings(deadline=None, max_examples=100)
def test_frontend_calls_appear_whole_or_not_at_all(feed: list[Any]) -> None:
    options = ConverterOptions(new_id=counted_ids(), frontend_tools=frozenset({"front"}))
    events = convert(feed, WireEvents(), options)
    assert check_events(events) == []
    for found in calls(events):
        if found["name"] == "front":
            assert found["complete"]


def test_text_after_complete_arguments_begins_the_next_turn() -> None:
    events = run(call(0, "a", "f", "{}"), delta(content="Done."))
    assert order_of(events) == [
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
    ]
    assert calls(events)[0]["parent"] not in texts(events)


def test_stop_on_every_chunk_does_not_cut_an_answer_into_messages() -> None:
    events = run(delta("stop", content="Hel"), delta("stop", content="lo"), delta("stop"))
    assert list(texts(events).values()) == ["Hello"]


def test_text_of_another_answer_after_stop_is_another_message() -> None:
    events = run(delta("stop", content="One"), delta("stop", chunk_id="d", content="Two"))
    assert list(texts(events).values()) == ["One", "Two"]


def test_thoughts_between_text_deltas_leave_the_answer_one_message() -> None:
    events = run(delta(reasoning_content="r1", content="a"), delta(reasoning_content="r2", content="b"))
    assert list(texts(events).values()) == ["ab"]
    assert list(texts(events, "REASONING_MESSAGE").values()) == ["r1", "r2"]


def test_a_name_that_comes_after_complete_arguments_opens_the_call() -> None:
    (found,) = calls(run(call(0, "a", None, '{"a":1}'), call(0, None, "f", ""), delta("tool_calls")))
    assert (found["id"], found["name"], found["args"], found["complete"]) == ("a", "f", '{"a":1}', True)


def test_a_truncated_call_that_is_tried_again_on_its_index_is_a_second_call() -> None:
    found = calls(run(call(0, "A", "f", '{"a":'), call(0, "B", "f", '{"a":1}')))
    assert [(c["id"], c["args"]) for c in found] == [("A", '{"a":'), ("B", '{"a":1}')]


def test_a_tool_message_between_the_chunks_is_the_result() -> None:
    events = run(
        call(0, "a", "f", "{}"),
        {"role": "tool", "tool_call_id": "a", "content": "4"},
        delta(content="It is 4."),
    )
    (result,) = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert (result["toolCallId"], result["content"]) == ("a", "4")
    assert result["messageId"] not in ("a", *texts(events))


def test_the_answer_of_a_choice_is_converted_and_the_others_counted() -> None:
    converter: ChunkConverter[Any] = ChunkConverter()
    converter.feed({"choices": [{"index": 1, "delta": {"content": "B"}}, {"index": 0, "delta": {"content": "A"}}]})
    converter.feed({"choices": [{"index": 1, "delta": {"content": "B"}}]})
    assert converter.ignored_choices == 2


def test_a_chunk_of_unknown_type_is_skipped_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    converter: ChunkConverter[Any] = ChunkConverter()
    with caplog.at_level(logging.WARNING):
        assert converter.feed(object()) == [] == converter.feed(3.5)
    assert len(caplog.records) == 1


def test_options_beside_a_ledger_are_refused() -> None:
    with pytest.raises(ConversionError, match="options belong to the ledger"):
        ChunkConverter(RunLedger(), ConverterOptions())


def test_usage_is_counted_once_per_model_call_and_summed() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
    running = {**delta(content="a"), "model": "m", "usage": {"prompt_tokens": 5, "completion_tokens": 0}}
    last = {**delta("stop"), "model": "m", "usage": usage}
    tool = {**call(0, "x", "f", "{}"), "model": "m"}
    done = {**delta("tool_calls"), "usage": usage, "model": "m"}
    (entry,) = run(tool, done, running, last)[-1]["usage"]
    assert entry == {"model": "m", "inputTokens": 10, "outputTokens": 2, "totalTokens": 12}


async def test_an_exception_ends_the_run_and_its_text_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def chunks() -> AsyncIterator[Any]:
        yield delta(content="a")
        raise ConnectionResetError("postgres://user:secret@db")

    batches = [batch async for batch in convert_chunks_to_agui_events(chunks())]
    error = wire(batches[-1].events[-1])
    message = error.pop("message")
    assert error == {"type": "RUN_ERROR", "code": "STREAM_ERROR"}
    assert message.startswith("The agent failed. Reference: ")
    (record,) = caplog.records
    assert message.rpartition(" ")[2] in record.getMessage() and record.exc_info


async def test_an_exception_without_text_still_says_what_it_was_where_errors_are_exposed() -> None:
    async def chunks() -> AsyncIterator[Any]:
        yield delta(content="a")
        raise ConnectionResetError

    options = ConverterOptions(expose_errors=True)
    batches = [batch async for batch in convert_chunks_to_agui_events(chunks(), options=options)]
    assert wire(batches[-1].events[-1])["message"] == "ConnectionResetError"


async def test_public_error_hides_the_exception() -> None:
    async def chunks() -> AsyncIterator[Any]:
        raise RuntimeError("secret")
        yield

    options = ConverterOptions(public_error=lambda _: "The agent failed.")
    frames = [frame async for frame in stream_agui_sse(chunks(), options=options)]
    assert b"secret" not in b"".join(frames)
    assert b"The agent failed." in frames[-1]


class Source:
    """An upstream that is no generator: it counts how often it is closed."""

    def __init__(self, *, hang: bool = False, refuse: bool = False) -> None:
        self.closed = 0
        self.hang = hang
        self.refuse = refuse
        self.waits = asyncio.Event()

    def __aiter__(self) -> Source:
        return self

    async def __anext__(self) -> Any:
        if self.hang:
            self.waits.set()
            await asyncio.Event().wait()
        return delta(content="a")

    async def aclose(self) -> None:
        self.closed += 1
        if self.refuse:
            raise RuntimeError("async generator ignored GeneratorExit")


async def test_closing_the_run_closes_a_plain_iterator_once() -> None:
    source = Source()
    stream = stream_agui_sse(source)
    async with contextlib.aclosing(stream):
        await anext(stream)
        await anext(stream)
    assert source.closed == 1


async def test_cancelling_the_consumer_of_a_hanging_upstream_closes_it_and_passes_through() -> None:
    source = Source(hang=True)
    seen: list[bytes] = []

    async def consume() -> None:
        async for frame in stream_agui_sse(source):
            seen.append(frame)

    with anyio.fail_after(5):
        task = asyncio.create_task(consume())
        await source.waits.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert source.closed == 1
    assert len(seen) == 1


async def test_an_upstream_that_refuses_to_close_does_not_disturb_the_consumer() -> None:
    source = Source(refuse=True)
    stream = stream_agui_sse(source)
    await anext(stream)
    await anext(stream)
    await stream.aclose()
    assert source.closed == 1


async def test_an_upstream_whose_closing_hangs_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(Source):
        async def aclose(self) -> None:
            self.closed += 1
            await asyncio.Event().wait()

    source = Stuck()
    stream = stream_agui_sse(source, options=ConverterOptions(close_timeout=0.01))
    with anyio.fail_after(5), caplog.at_level(logging.WARNING):
        await anext(stream)
        await anext(stream)
        await stream.aclose()
    assert source.closed == 1
    assert "left behind" in caplog.text


async def test_the_upstream_is_closed_in_the_context_in_which_it_ran() -> None:
    variable: ContextVar[int] = ContextVar("variable")
    outcome: list[str] = []

    async def chunks() -> AsyncIterator[Any]:
        token = variable.set(1)
        try:
            while True:
                yield delta(content="a")
        finally:
            variable.reset(token)
            outcome.append("reset")

    stream = convert_chunks_to_agui_events(chunks())
    await anext(stream)
    await stream.aclose()
    assert outcome == ["reset"]


async def test_an_awaitable_of_a_stream_and_a_plain_list_are_sources() -> None:
    async def create() -> AsyncIterator[Any]:
        async def chunks() -> AsyncIterator[Any]:
            yield delta(content="a")

        return chunks()

    for source in (create(), [delta(content="a")]):
        frames = [frame async for frame in stream_agui_sse(source)]
        assert len(frames) == 5


class _Odd(Exception):
    code = 429

    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize("writer", [ModelEvents(), WireEvents()], ids=["objects", "wire"])
def test_a_foreign_exception_may_have_any_code_and_no_text(writer: Any) -> None:
    converter = ChunkConverter(RunLedger(writer, options=ConverterOptions(expose_errors=True)))
    (event,) = (wire(event) for event in converter.fail(_Odd()))
    assert (event["code"], event["message"]) == ("STREAM_ERROR", "_Odd")


def test_names_of_model_and_provider_can_always_be_written() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    events = run({**delta(content="a"), "model": "m\ud800", "provider": "p\udc00", "usage": usage})
    assert (events[-1]["usage"][0]["model"], events[-1]["usage"][0]["provider"]) == ("m\ufffd", "p\ufffd")


async def test_a_stream_that_must_be_asked_whether_it_succeeded_is_refused_and_closed() -> None:
    steps: list[str] = []

    class Turn:
        async def __aiter__(self) -> AsyncIterator[Any]:
            yield delta(content="a")

        async def result(self) -> Any:
            raise RuntimeError("it failed")

        async def aclose(self) -> None:
            steps.append("closed")

    frames = [frame async for frame in stream_agui_sse(Turn())]
    assert len(frames) == 2
    assert "whose result() says whether it has succeeded" in frames[1].decode()
    assert steps == ["closed"]


async def test_a_private_error_gives_its_code_and_a_reference_until_texts_are_exposed() -> None:
    async def chunks() -> AsyncIterator[Any]:
        yield delta(content="a")
        raise UpstreamError("secret", "host_crashed", private=True)

    frames = [frame async for frame in stream_agui_sse(chunks())]
    last = json.loads(frames[-1][6:])
    assert last["code"] == "host_crashed"
    assert last["message"].startswith("The agent failed (host_crashed). Reference: ")
    frames = [frame async for frame in stream_agui_sse(chunks(), options=ConverterOptions(expose_errors=True))]
    assert json.loads(frames[-1][6:])["message"] == "secret"


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("trace.jsonl", "replay_trace"),
        (Path("trace.jsonl"), "replay_trace"),
        (io.StringIO("line"), "replay_trace"),
        (b"data: {}", "[body]"),
        (delta(content="a"), "[chunk]"),
        (RunErrorEvent(message="x"), "[chunk]"),
        (5, "an iterable of chunks"),
    ],
)
async def test_what_is_no_stream_of_chunks_is_refused_with_a_remedy(source: Any, remedy: str) -> None:
    frames = [frame async for frame in stream_agui_sse(source)]
    assert len(frames) == 2
    assert "not a stream of chunks" in frames[1].decode()
    assert remedy in frames[1].decode()


def message(text: str | None, *call_ids: str) -> dict[str, Any]:
    made = [{"id": each, "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}} for each in call_ids]
    return {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}


def test_the_chat_messages_that_an_agent_keeps_are_answers() -> None:
    result = {"role": "tool", "tool_call_id": "a", "content": "r"}
    events = run(message("Let me", "a"), result, message("done"))
    assert list(texts(events).values()) == ["Let me", "done"]
    assert [(each["id"], each["complete"]) for each in calls(events)] == [("a", True)]
    assert [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"] == ["r"]
    assert events[-1]["type"] == "RUN_FINISHED"
    assert calls(run(message(None, "a", "b")))[1]["id"] == "b"


@pytest.mark.parametrize("text", ["Hello", "Hello, this is a longer answer than what is remembered of it."])
def test_a_chat_message_behind_its_own_deltas_says_nothing_again(text: str) -> None:
    pieces = [delta(content=piece) for piece in (text[:3], text[3:])]
    for finish in ([], [delta("stop")]):
        assert list(texts(run(*pieces, *finish, message(text))).values()) == [text]
    events = run(*pieces, call(0, "a", "f", '{"a":1}'), delta("tool_calls"), message(text, "a"))
    assert (list(texts(events).values()), [each["id"] for each in calls(events)]) == ([text], ["a"])


def test_chat_messages_in_a_row_are_messages_of_their_own() -> None:
    assert list(texts(run(delta(content="a"), message("b"), message("c"), message("c"))).values()) == ["a", "b", "c"]


def test_a_call_that_nobody_named_is_no_success_beside_text() -> None:
    events = run(delta(content="a"), call(0, "a", arguments='{"a":1}'), delta("tool_calls"))
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "INCOMPLETE_TOOL_CALL")
    assert "without the tool's name" in events[-1]["message"]


def test_calls_that_were_said_to_come_and_did_not_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    run(delta(content="Let me look."), delta("tool_calls"))
    assert "ended in tool calls, but none came" in caplog.text
