"""What a stream carried and what its recording gives are the same run, to the byte."""

from __future__ import annotations

import asyncio
import io
import json
import math
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import Any
from uuid import UUID

import langgraph.types
import pytest
from agui_case import counted_ids
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langgraph.types import Command
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel, ConfigDict, Field, computed_field

from dragent_stream import (
    AgentStep,
    ConverterOptions,
    UpstreamError,
    convert_trace,
    read_trace,
    record_chunks,
    replay_trace,
    stream_agui_sse,
)
from dragent_stream.testing import error_chunk, finish_chunk, reasoning_chunk, text_chunk, tool_call_chunk, usage_chunk

Overwrite: Any = getattr(langgraph.types, "Overwrite", list)  # newer than Command

REQUEST = {"threadId": "t", "runId": "r", "messages": []}


def options() -> ConverterOptions:
    return ConverterOptions(new_id=counted_ids(), public_error=lambda error: str(error) or type(error).__name__)


async def recorded(source: Any) -> str:
    """The trace that a recorder writes, whatever becomes of the stream."""
    out = io.StringIO()
    try:
        async for _ in record_chunks(source, out):
            pass
    except Exception:
        pass
    out.getvalue().encode()
    return out.getvalue()


async def wire(source: Any) -> bytes:
    return b"".join([frame async for frame in stream_agui_sse(source, REQUEST, options=options())])


async def assert_replays(make: Any) -> list[str]:
    """The source that `make` gives is the same run live, recorded and passed through, replayed and converted."""
    live = await wire(make())
    trace = await recorded(make())
    lines = trace.splitlines(keepends=True)
    assert await wire(replay_trace(lines)) == live
    assert await wire(record_chunks(make(), io.StringIO())) == live
    converted = "".join(
        f"data: {event}\n\n" for event in convert_trace(lines, thread_id="t", run_id="r", options=options())
    )
    assert converted.encode() == live
    assert await wire(replay_trace((await recorded(replay_trace(lines))).splitlines())) == live, "recorded once more"
    return lines


# What a stream may carry.


class Point(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: float = Field(serialization_alias="theX")
    inner: Any = None

    @computed_field
    def doubled(self) -> float:
        return self.x * 2


@dataclass
class Place:
    name: Any
    point: Any = None


class Color(Enum):
    RED = "red"
    ONE = 1


class Word(StrEnum):
    A = "a"


class Foreign:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class Slotted:
    __slots__ = ("content",)

    def __init__(self) -> None:
        self.content = "never text"


class Rude:
    def __str__(self) -> str:
        raise RuntimeError("no text")


class NatLike(BaseModel):
    """The shape of NAT's ChatResponseChunk."""

    class Choice(BaseModel):
        class Delta(BaseModel):
            content: str | None = None
            role: Word | None = None
            tool_calls: list[dict[str, Any]] | None = None

        delta: Delta
        index: int = 0
        finish_reason: str | None = None

    id: str = "nat"
    choices: list[Choice]
    created: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    model: str = "m"
    usage: Any = None


def nat(content: str, finish: str | None = None) -> NatLike:
    return NatLike.model_validate({"choices": [{"delta": {"content": content}, "finish_reason": finish}]})


def cycle() -> Any:
    held: dict[str, Any] = {"a": 1}
    held["self"] = held
    return held


def linked() -> Any:
    one = Foreign(content="x", choices_of=None)
    one.me = one  # type: ignore[attr-defined]
    return one


PLAIN: list[Any] = ["rain", "", None, 0, 1.5, True, [1, "a"], {"a": {"b": [None]}}, "\ud83d", {"k\udc00": "\ud83d"}]
VALUES: list[Any] = [
    *PLAIN,
    math.nan,
    -math.inf,
    {"n": math.nan},
    b"bytes",
    b"\xff\x00",
    {"b": b"bytes"},
    {"tags"},
    frozenset(),
    ("a", 1),
    {1: "one", 2.5: "two"},
    {"$recorded": {"type": "int"}},
    datetime(2026, 1, 2, 3, tzinfo=UTC),
    timedelta(seconds=90),
    Decimal("1.50"),
    UUID(int=7),
    PurePosixPath("a/b"),
    Color.RED,
    Color.ONE,
    Word.A,
    Point(x=1.5),
    Point(x=1.0, inner=Place("a", {"d": datetime(2026, 1, 1, tzinfo=UTC)}), more=b"x"),
    Place("Oslo", Point(x=2.0)),
    [Place("a"), {"p": Point(x=math.inf)}],
    {"model": Point(x=1.0), "text": "\ud83d"},
    MappingProxyType({"a": 1}),
    SimpleNamespace(a=1, b=[2]),
    SimpleNamespace(tool_call_id="c1", content="from an object"),
    ToolMessage("from a message", tool_call_id="c1", id="tm"),
    ValueError("not a text"),
    Slotted(),
    object,
    Command(update={"messages": [AIMessage("a", id="u")]}, goto="x"),
    Overwrite([AIMessage("a", id="u"), 1]),
]
UNKNOWN: list[Any] = [
    {"hello": "world"},
    {"role": "user", "content": "me"},
    {},
    [],
    [1, 2, 3],
    ("a", "b", "c"),
    42,
    1.5,
    True,
    math.nan,
    Foreign(),
    Foreign(text="never", number=1, _private=object(), other=Foreign(a=1)),
    Slotted(),
    Place("never text"),
    Point(x=1.0),
    Color.RED,
    {"never", },
    datetime(2026, 1, 2, tzinfo=UTC),
    linked(),
    Rude(),
    {"$recorded": {"type": "Foreign"}},
    {"type": "response.output_text.delta", "delta": "never text"},
    HumanMessage("not the agent's"),
]  # fmt: skip
KNOWN: list[Any] = [
    None,
    "text",
    "",
    "half \ud83d",
    text_chunk("Hi"),
    text_chunk("\ude00 \u2028\x85"),
    reasoning_chunk("hm"),
    tool_call_chunk('{"a": ', call_id="c1", name="f"),
    tool_call_chunk("1}"),
    tool_call_chunk('{"city": "Oslo"}', call_id="c2", name="g", index=1),
    finish_chunk(),
    finish_chunk("tool_calls"),
    finish_chunk("length"),
    usage_chunk(1, 2, cached_tokens=1),
    error_chunk("down", code="E1"),
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "sun"}]},
    ChatCompletionChunk.model_validate(text_chunk("openai")),
    ChatCompletionChunk.model_validate(tool_call_chunk("{}", call_id="c3", name="h", index=2)),
    nat("nat"),
    nat("", "stop"),
    SimpleNamespace(
        id="s",
        choices=[SimpleNamespace(index=0, delta=SimpleNamespace(content="plain object"), finish_reason=None)],
    ),
    MappingProxyType(text_chunk("a mapping")),
    AIMessageChunk("lc", id="lc-1"),
    AIMessageChunk(
        "", id="lc-1", tool_call_chunks=[{"name": "f", "args": '{"a": 1}', "id": "c4", "index": 0, "type": "tool_call_chunk"}]
    ),
    AIMessageChunk("", id="lc-1", response_metadata={"finish_reason": "stop"}),
    AIMessageChunk("", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    AIMessageChunk([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "parts"}]),
    AIMessage("whole", id="lc-2", tool_calls=[{"name": "g", "args": {"when": 1}, "id": "c5"}]),
    ToolMessage("result", tool_call_id="c4", artifact=Foreign(client=object())),
    ToolMessage([{"type": "text", "text": "a"}], tool_call_id="c5"),
    (AIMessageChunk("pair", id="lc-3"), {"langgraph_node": "agent", "tags": ("a", "b")}),
    ("messages", (AIMessageChunk("mode", id="lc-3"), {"langgraph_node": "agent"})),
    (("sub:1",), (AIMessageChunk("subgraph", id="lc-4"), {"langgraph_node": "sub"})),
    (("sub:1",), "messages", (AIMessageChunk("both", id="lc-4"), {"langgraph_node": "sub"})),
    ((), "updates", {"agent": {"messages": [AIMessage("updated", id="lc-5")]}}),
    {"type": "messages", "ns": ("sub:1",), "data": (AIMessageChunk("v2", id="lc-6"), {"langgraph_node": "agent"})},
    [AIMessageChunk("a list", id="lc-7"), {}],
    *[
        chunk
        for given in (
            Command(update={"messages": [HumanMessage("hi"), AIMessage("given", id="lc-8")]}, goto="b"),
            [Command(update={"messages": [AIMessage("given", id="lc-8")]}), {"messages": [("ai", "more")]}],
            Command(update={"messages": Overwrite([HumanMessage("hi"), AIMessage("given", id="lc-8")])}),
            {"messages": Overwrite([HumanMessage("hi"), AIMessage("given", id="lc-8")])},
            {"messages": Overwrite([("human", "hi"), {"role": "assistant", "content": "given"}])},
        )
        for chunk in (
            {"agent": given},
            ("updates", {"agent": given}),
            {
                "event": "on_chain_end",
                "run_id": "1",
                "name": "agent",
                "metadata": {"langgraph_node": "agent"},
                "data": {"output": given},
            },
            {"event": "on_chain_stream", "run_id": "1", "name": "agent", "metadata": {}, "data": {"chunk": given}},
        )
    ],
    *[{"role": "tool", "tool_call_id": "c1", "content": value} for value in VALUES],
    *[
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 7, "id": "v", "function": {"name": "f", "arguments": value}}]}}]}
        for value in VALUES
    ],
]  # fmt: skip


def step(kind: str, **fields: Any) -> dict[str, Any]:
    return {"payload": {"event_type": kind, "UUID": "u1", "name": "f", **fields}, "function_ancestry": None}


class Payload(BaseModel):
    event_type: Word | str
    UUID: str
    name: str
    data: Any = None
    metadata: Any = None


STEPS: list[Any] = [
    None,
    "no step",
    step("TOOL_START", data={"input": {"a": 1}}),
    step("TOOL_START", data={"input": "{'a': 1}"}),
    step("FUNCTION_START", UUID="u2"),
    step("FUNCTION_END", UUID="u2"),
    step("LLM_START", UUID="u3"),
    step("LLM_NEW_TOKEN", UUID="u3", data={"chunk": "token"}),
    step("LLM_END", UUID="u3", data={"output": "token"}),
    Place("x"),
    *[step("TOOL_START", data={"input": value}) for value in VALUES],
    *[step("TOOL_END", data={"output": value}) for value in VALUES],
    *[step("TOOL_END", metadata={"tool_outputs": value}) for value in VALUES],
    *[step("CUSTOM_START", data={"value": value}) for value in VALUES if "inf" not in repr(value)],
    *[{"payload": Payload(event_type="TOOL_END", UUID="u1", name="f", data=SimpleNamespace(output=v))} for v in VALUES],
]
CHUNKS: list[Any] = [*KNOWN, *UNKNOWN, *map(AgentStep, STEPS)]


class Failing(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


ENDINGS: list[Exception | None] = [
    None,
    RuntimeError("boom"),
    ConnectionError(),
    UpstreamError("limit", code="RATE_LIMIT"),
    UpstreamError("no code"),
    KeyError("key"),
    ValueError("half \ud83d"),
]


@pytest.mark.parametrize("chunk", CHUNKS, ids=lambda chunk: type(chunk).__name__)
async def test_every_chunk_is_the_same_again(chunk: Any) -> None:
    around = [tool_call_chunk('{"a": 1}', call_id="c1", name="f"), finish_chunk("tool_calls")]
    await assert_replays(lambda: [*around, chunk, text_chunk("end", id="last"), finish_chunk(id="last")])
    await assert_replays(lambda: [chunk])


def sse(chunks: list[dict[str, Any]], done: bool) -> bytes:
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    return (body + ("data: [DONE]\n\n" if done else "")).encode()


ON_THE_WIRE = [chunk for chunk in KNOWN if type(chunk) is dict and "choices" in chunk][:10]


@st.composite
def reads(draw: st.DrawFn) -> list[bytes | bytearray]:
    body = sse(draw(st.lists(st.sampled_from(ON_THE_WIRE), max_size=5)), draw(st.booleans()))
    body += draw(st.sampled_from([b"", b": ping\n\n", b"data: {broken\n\n", b"data: "]))
    cuts = sorted(draw(st.sets(st.integers(0, len(body)), max_size=4)))
    parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    return [bytearray(part) if draw(st.booleans()) else part for part in parts]


@given(st.lists(st.sampled_from(CHUNKS), max_size=8), st.sampled_from(ENDINGS), st.booleans())
@settings(deadline=None, max_examples=150)
def test_any_stream_is_the_same_again(items: list[Any], ending: Exception | None, sync: bool) -> None:
    def each() -> Iterator[Any]:
        yield from items
        if ending is not None:
            raise ending

    async def arriving() -> AsyncIterator[Any]:
        for item in each():
            yield item

    asyncio.run(assert_replays(each if sync else arriving))


@given(reads(), st.sampled_from(ENDINGS))
@settings(deadline=None, max_examples=100)
def test_any_body_is_the_same_again(body: list[Any], ending: Exception | None) -> None:
    def each() -> Iterator[Any]:
        yield from body
        if ending is not None:
            raise ending

    asyncio.run(assert_replays(each))


async def test_a_body_that_cannot_be_read_passes_and_its_recording_fails_in_the_same_way() -> None:
    body = [sse([text_chunk("Hi")], False), b"data: " + b"x" * 3_000_000, b"x" * 30_000_000, b"\n\n"]
    passed = [item async for item in record_chunks(body, io.StringIO())]
    assert passed == body
    await assert_replays(lambda: body)


@pytest.mark.parametrize("sync", [True, False])
async def test_a_consumer_that_leaves_ends_the_replay_as_a_stopped_run(sync: bool) -> None:
    async def arriving() -> AsyncIterator[Any]:
        yield text_chunk("Hel")
        yield text_chunk("lo")

    out = io.StringIO()
    stream = record_chunks([text_chunk("Hel"), text_chunk("lo")] if sync else arriving(), out)
    live = stream_agui_sse(stream, REQUEST, options=options())
    seen = b"".join([await anext(live) for _ in range(3)])
    await live.aclose()
    await stream.aclose()
    replayed = await wire(replay_trace(out.getvalue().splitlines()))
    assert replayed.startswith(seen)
    last = json.loads(replayed.split(b"\n\n")[-2].removeprefix(b"data: "))
    assert (last["type"], last["code"]) == ("RUN_ERROR", "abort")
    converted = [json.loads(event) for event in convert_trace(out.getvalue().splitlines())]
    assert converted[-1] == last


async def test_a_cancelled_consumer_is_recorded_as_such() -> None:
    out = io.StringIO()
    begun = asyncio.Event()

    async def source() -> AsyncIterator[Any]:
        yield text_chunk("Hel")
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(wire(record_chunks(source(), out)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert json.loads(out.getvalue().splitlines()[-1])["closed"] == "CancelledError"


async def test_a_failure_without_a_text_is_recorded_and_raised() -> None:
    async def source() -> AsyncIterator[Any]:
        yield text_chunk("Hel")
        raise Failing

    out = io.StringIO()
    with pytest.raises(Failing):
        async for _ in record_chunks(source(), out):
            pass
    assert json.loads(out.getvalue().splitlines()[-1])["error"] == {"type": "Failing", "message": ""}


async def test_the_code_of_a_failure_is_recorded() -> None:
    async def source() -> AsyncIterator[Any]:
        raise UpstreamError("slow down", code="RATE_LIMIT")
        yield

    lines = (await recorded(source())).splitlines()
    with pytest.raises(UpstreamError) as failed:
        async for _ in replay_trace(lines):
            pass
    assert failed.value.code == "RATE_LIMIT"


@pytest.mark.parametrize("error", [error for error in ENDINGS if error], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("exposed", [False, True])
async def test_a_client_of_a_replay_learns_as_much_of_a_failure_as_one_of_the_stream(
    error: Exception, exposed: bool
) -> None:
    async def source() -> AsyncIterator[Any]:
        yield text_chunk("Hel")
        raise error

    async def shown(chunks: Any) -> bytes:
        told = ConverterOptions(new_id=counted_ids(), expose_errors=exposed)
        return b"".join([frame async for frame in stream_agui_sse(chunks, REQUEST, options=told)])

    lines = (await recorded(source())).splitlines()
    live = await shown(source())
    assert await shown(replay_trace(lines)) == live
    assert (b"boom" in live) is (exposed and str(error) == "boom")
    told = ConverterOptions(new_id=counted_ids(), expose_errors=exposed)
    events = convert_trace(lines, thread_id="t", run_id="r", options=told)
    assert "".join(f"data: {event}\n\n" for event in events).encode() == live


async def test_an_object_that_nobody_knows_is_never_text() -> None:
    for unknown in UNKNOWN:
        assert b"TEXT_MESSAGE" not in await wire(replay_trace((await recorded([unknown])).splitlines()))


async def test_what_is_replayed_is_called_what_it_was() -> None:
    replayed = [chunk async for chunk in replay_trace((await recorded([Foreign(a=1), {1}, Slotted()])).splitlines())]
    assert [type(chunk).__name__ for chunk in replayed] == ["Foreign", "set", "Slotted"]
    assert replayed[0].a == 1


async def test_a_chunk_of_a_client_is_plain_json_in_the_trace() -> None:
    chunks = [ChatCompletionChunk.model_validate(text_chunk("Hi")), nat("x"), AIMessageChunk("lc"), text_chunk("ü")]
    lines = (await recorded(chunks)).splitlines()
    assert len(lines) == 6
    assert "$recorded" not in "".join(lines[1:2] + lines[3:])
    assert json.loads(lines[1])["chunk"]["choices"][0]["delta"]["content"] == "Hi"
    assert json.loads(lines[3])["chunk"]["content"] == "lc"


async def test_what_a_foreign_object_holds_is_not_searched() -> None:
    secret = Foreign(key="hunter2")
    held = Foreign(client=secret, _secret="hunter2", messages=[secret], point=Point(x=1.0, inner=secret))
    trace = await recorded([held, AgentStep(step("TOOL_END", data={"output": held})), {"agent": {"client": secret}}])
    assert "hunter2" not in trace


@pytest.mark.parametrize("make", [cycle, lambda: text_chunk("x") | {"me": cycle()}, lambda: 10**5000])
async def test_what_cannot_be_written_passes_and_costs_nothing_else(make: Any) -> None:
    chunk = make()
    out = io.StringIO()
    passed = [item async for item in record_chunks([text_chunk("a"), chunk, finish_chunk()], out)]
    assert passed[1] is chunk
    replayed = [item async for item in replay_trace(out.getvalue().splitlines())]
    assert [replayed[0], replayed[2]] == [text_chunk("a"), finish_chunk()]


async def test_a_pause_is_a_pause_again() -> None:
    lines = (await recorded([None, "a", None])).splitlines()
    assert [chunk async for chunk in replay_trace(lines)] == [None, "a", None]


async def test_the_header_takes_whatever_is_given() -> None:
    out = io.StringIO()
    async for _ in record_chunks(
        [], out, when=datetime(2026, 1, 1, tzinfo=UTC), path=PurePosixPath("a"), half="\ud83d"
    ):
        pass
    header = json.loads(out.getvalue().splitlines()[0])
    assert header == {"dragent_trace": 1, "when": "2026-01-01T00:00:00Z", "path": "a", "half": "\ud83d"}


# A recording that was cut.

ANSWER = [text_chunk("Hel"), text_chunk("lo"), finish_chunk(), usage_chunk(1, 2)]


def last_of(lines: list[str], **more: Any) -> str:
    return [json.loads(event) for event in convert_trace(lines, **more)][-1]["type"]


async def test_a_trace_that_is_cut_at_any_line_is_a_success_only_if_the_answer_had_ended() -> None:
    lines = (await recorded(ANSWER)).splitlines()
    assert [last_of(lines[:count]) for count in range(1, len(lines) + 1)] == [
        "RUN_ERROR",
        "RUN_ERROR",
        "RUN_ERROR",
        "RUN_FINISHED",
        "RUN_FINISHED",
        "RUN_FINISHED",
    ]


async def test_a_trace_that_is_cut_at_any_byte_is_never_half_a_success() -> None:
    whole = (await recorded(ANSWER)).encode()
    finished = whole.index(b"\n", whole.index(b'"stop"'))
    for size in range(1, len(whole)):
        problems: list[Any] = []
        try:
            last = last_of([whole[:size]], on_problem=problems.append)  # type: ignore[list-item]
        except Exception as exc:
            assert size < len('{"dragent_trace":1}'), exc
            continue
        assert last == ("RUN_FINISHED" if size >= finished and not problems else "RUN_ERROR"), size


@pytest.mark.parametrize(
    "before",
    [
        [text_chunk("Hel")],
        [tool_call_chunk("{}", call_id="c", name="f"), finish_chunk("tool_calls")],
        [tool_call_chunk("{}", call_id="c", name="f"), finish_chunk("tool_calls"), {"role": "tool", "tool_call_id": "c", "content": "1"}],
        [finish_chunk(), text_chunk("the next turn", id="2")],
        ["text"],
        [AIMessageChunk("lc")],
        [AgentStep(step("FUNCTION_START"))],
        [],
    ],
)  # fmt: skip
async def test_a_cut_recording_fails_replayed_and_converted(before: list[Any]) -> None:
    lines = (await recorded(before)).splitlines()[:-1]
    assert last_of(lines) == "RUN_ERROR"
    assert [record.kind for record in read_trace(lines)][-1] == "cut"
    with pytest.raises(UpstreamError, match="the recording was cut"):
        async for _ in replay_trace(lines):
            pass
    headless = lines[1:]
    if headless:
        assert "cut" not in [record.kind for record in read_trace(headless)]


@pytest.mark.parametrize(
    "line",
    [
        '{"t":0,"chunk":{"$recorded":5}}',
        '{"t":0,"chunk":{"$recorded":{"type":5}}}',
        '{"t":0,"chunk":{"$recorded":{"type":"a\\u0000b","fields":{"$recorded":{}}}}}',
        '{"t":0,"chunk":{"$recorded":{"type":"\\ud800"}}}',
        '{"t":0,"chunk":{"$recorded":{"type":"list","items":5}}}',
        '{"t":0,"chunk":{"$recorded":{"type":"dict","pairs":[1,[1],[[1],2],[1,2]]}}}',
        '{"t":0,"step":{"$recorded":{"type":"X","fields":{"payload":{"event_type":"TOOL_END"}}}}}',
        '{"t":0,"chunk":[[[]],{"$recorded":{"type":"tuple","items":[]}}]}',
    ],
)
def test_a_strange_tag_never_raises(line: str) -> None:
    assert last_of(['{"dragent_trace":1}', line, '{"t":1,"end":true}']) in ("RUN_FINISHED", "RUN_ERROR")
