"""The checker: one good stream for every rule that stays silent, one broken stream for every rule that speaks."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragent_stream import convert_chunks_to_agui_events, stream_agui_run, stream_agui_sse
from dragent_stream.check import RULES, EventChecker, Violation, check_events
from dragent_stream.event_shapes import EVENT_SHAPES
from dragent_stream.testing import finish_chunk, text_chunk, tool_call_chunk

Event = dict[str, Any]


def e(type: str, **fields: Any) -> Event:
    return {"type": type, **fields}


def started(**fields: Any) -> Event:
    return e("RUN_STARTED", **{"threadId": "t", "runId": "r", "protocolVersion": "1.0", **fields})


def finished(**fields: Any) -> Event:
    return e("RUN_FINISHED", **{"threadId": "t", "runId": "r", **fields})


def run(*events: Event, **end: Any) -> list[Event]:
    return [started(), *events, finished(**end)]


def text(id: str = "m", delta: str = "hi", **tag: Any) -> list[Event]:
    return [
        e("TEXT_MESSAGE_START", messageId=id, role="assistant", **tag),
        e("TEXT_MESSAGE_CONTENT", messageId=id, delta=delta),
        e("TEXT_MESSAGE_END", messageId=id),
    ]


def reasoning(span: str = "s", id: str = "th") -> list[Event]:
    return [
        e("REASONING_START", messageId=span),
        e("REASONING_MESSAGE_START", messageId=id, role="reasoning"),
        e("REASONING_MESSAGE_CONTENT", messageId=id, delta="hm"),
        e("REASONING_MESSAGE_END", messageId=id),
        e("REASONING_END", messageId=span),
    ]


def call_start(id: str = "c", parent: str | None = "p", **fields: Any) -> Event:
    named = {} if parent is None else {"parentMessageId": parent}
    return e("TOOL_CALL_START", toolCallId=id, toolCallName="add", **named, **fields)


def call(id: str = "c", parent: str | None = "p") -> list[Event]:
    return [
        call_start(id, parent),
        e("TOOL_CALL_ARGS", toolCallId=id, delta="{}"),
        e("TOOL_CALL_END", toolCallId=id),
    ]


def arguments(*deltas: str, id: str = "c") -> list[Event]:
    return [e("TOOL_CALL_ARGS", toolCallId=id, delta=delta) for delta in deltas]


def result(id: str = "c", message_id: str = "x", content: Any = "3", **fields: Any) -> Event:
    return e("TOOL_CALL_RESULT", messageId=message_id, toolCallId=id, content=content, **fields)


def rules(events: list[Event], **options: Any) -> list[str]:
    return [violation.rule for violation in check_events(events, **options)]


REQUEST = {"threadId": "t", "runId": "r", "messages": [], "tools": [{"name": "pay", "description": ""}]}
REQUEST_1_0 = REQUEST | {"protocolVersion": "1.0"}
HISTORY = [
    {"id": "u0", "role": "user", "content": "?"},
    {
        "id": "a0",
        "role": "assistant",
        "toolCalls": [{"id": "c0", "type": "function", "function": {"name": "add", "arguments": "{}"}}],
    },
]

GOOD: dict[str, list[Event]] = {
    "an empty run": run(),
    "text": run(*text()),
    "reasoning, then text": run(*reasoning(), *text()),
    "one id for a reasoning span and its message": run(*reasoning("th", "th")),
    "the portable recipe": run(
        *reasoning(),
        e("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="th", encryptedValue="="),
        e("TEXT_MESSAGE_START", messageId="m1", role="assistant"),
        e("TEXT_MESSAGE_CONTENT", messageId="m1", delta="a"),
        call_start("c0", "m1"),
        call_start("c1", "m1"),
        e("TOOL_CALL_ARGS", toolCallId="c0", delta="{"),
        e("TOOL_CALL_ARGS", toolCallId="c1", delta="{}"),
        e("TEXT_MESSAGE_CONTENT", messageId="m1", delta="b"),
        e("TOOL_CALL_ARGS", toolCallId="c0", delta="}"),
        e("TEXT_MESSAGE_END", messageId="m1"),
        e("TOOL_CALL_END", toolCallId="c0"),
        e("TOOL_CALL_END", toolCallId="c1"),
        result("c1", "x1"),
        result("c0", "x0"),
        *text("m2"),
        outcome={"type": "success"},
        usage=[{"provider": "p", "model": "m", "inputTokens": 3, "outputTokens": 2, "totalTokens": 5}],
    ),
    "a turn of calls only, its message never announced": run(
        *call("c0"), *call("c1"), result("c0", "x"), result("c1", "y")
    ),
    "a text opened under the id that a call named first": run(*call("c", "m"), *text("m"), result("c")),
    "a call without a parent": run(*call("c", None), result("c")),
    "a call without arguments": run(call_start(), e("TOOL_CALL_END", toolCallId="c"), result()),
    "arguments that break off with the run": [
        started(),
        call_start(),
        e("TOOL_CALL_ARGS", toolCallId="c", delta='{"a'),
        e("RUN_ERROR", message="x"),
    ],
    "a failure with everything open": [
        started(),
        text()[0],
        call_start("c", "m"),
        e("RUN_ERROR", message="x", code="E"),
    ],
    "a failure before the run": [e("RUN_ERROR", message="x")],
    "two runs of one thread": [*run(*text("m1")), started(runId="r2"), *text("m2"), finished(runId="r2")],
    "a run after a failed one": [started(), e("RUN_ERROR", message="x"), started(runId="r2"), finished(runId="r2")],
    "steps of one name with two owners": run(
        e("STEP_STARTED", stepName="s"),
        e("STEP_STARTED", stepName="s", subagentRunId="a"),
        e("STEP_FINISHED", stepName="s", subagentRunId="a"),
        e("STEP_FINISHED", stepName="s"),
    ),
    "a subagent": run(
        e("SUBAGENT_STARTED", subagentRunId="a", name="n"),
        e("SUBAGENT_STARTED", subagentRunId="b", name="n", parentSubagentRunId="a"),
        *text(subagentRunId="a"),
        e("SUBAGENT_ERROR", subagentRunId="b", message="x"),
        e("SUBAGENT_FINISHED", subagentRunId="a", outcome={"type": "success"}),
    ),
    "an interrupt": run(*call(), outcome={"type": "interrupt", "interrupts": [{"id": "i", "reason": "ok?"}]}),
    "state, raw, custom, activity": run(
        e("STATE_SNAPSHOT", snapshot=None),
        e("STATE_DELTA", delta=[{"op": "add", "path": "/a", "value": None}, {"op": "remove", "path": ""}]),
        e("RAW", event=None, rawEvent=None),
        e("CUSTOM", name="a.b", value={"x": 1.5}),
        e("ACTIVITY_SNAPSHOT", messageId="v", activityType="PLAN", content={}, replace=True),
        e("ACTIVITY_DELTA", messageId="v", activityType="PLAN", patch=[]),
        result=None,
    ),
    "a snapshot of the history, and a result for its call": run(
        e("MESSAGES_SNAPSHOT", messages=HISTORY), result("c0", "x0"), *text()
    ),
    "content parts": run(
        *call(),
        result(content=[{"type": "text", "text": "a"}, {"type": "image", "source": {"type": "url", "value": "u"}}]),
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_stream_has_no_violation(name: str) -> None:
    assert check_events(GOOD[name]) == []


BAD: list[tuple[str, list[Event]]] = [
    ("V1", []),
    ("V1", [*text(), finished()]),
    ("V2", run(started())),
    ("V3", [started(), e("RUN_ERROR", message="x"), e("RUN_ERROR", message="x")]),
    ("V4", [*run(), e("CUSTOM", name="a", value=1)]),
    ("V5", run(text()[0], *text())),
    ("V6", run(text()[1])),
    ("V6", run(*text(), text()[2])),
    ("V7", run(call_start(), *call(), result())),
    ("V8", run(e("TOOL_CALL_ARGS", toolCallId="c", delta="{}"))),
    ("V8", run(*call(), e("TOOL_CALL_END", toolCallId="c"), result())),
    ("V9", run(e("STEP_STARTED", stepName="s"), e("STEP_STARTED", stepName="s"), e("STEP_FINISHED", stepName="s"))),
    ("V9", run(e("STEP_FINISHED", stepName="s"))),
    ("V10", run(reasoning()[0], *reasoning())),
    ("V10", run(reasoning()[1], *reasoning())),
    ("V11", run(reasoning()[2])),
    ("V11", run(reasoning()[3])),
    ("V11", run(reasoning()[4])),
    ("V12", run(*text()[:2])),
    ("V12", run(call_start())),
    ("V12", run(reasoning()[0])),
    ("V12", run(*reasoning()[1:3])),
    ("V12", run(e("STEP_STARTED", stepName="s"))),
    ("V12", run(e("SUBAGENT_STARTED", subagentRunId="a", name="n"))),
    ("V13", run(e("SUBAGENT_FINISHED", subagentRunId="a"))),
    ("V13", run(*[e("SUBAGENT_STARTED", subagentRunId="a", name="n"), e("SUBAGENT_FINISHED", subagentRunId="a")] * 2)),
    (
        "V13",
        run(
            e("SUBAGENT_STARTED", subagentRunId="a", name="n", parentSubagentRunId="b"),
            e("SUBAGENT_FINISHED", subagentRunId="a"),
        ),
    ),
    ("V14", run(text()[0], e("TEXT_MESSAGE_CONTENT", messageId="m", delta="x", subagentRunId="a"), text()[2])),
    ("V14", run(*text("p"), call_start("c", "p", subagentRunId="a"), e("TOOL_CALL_END", toolCallId="c"), result())),
    ("V14", run(*call(), result(subagentRunId="a"))),
    ("S1", run(e("THINKING_START"))),
    ("S1", run({"messageId": "m"})),
    ("S2", run(text()[0], e("TEXT_MESSAGE_CONTENT", messageId="m"), *text()[1:])),
    ("S2", run(e("CUSTOM", name="a"))),
    ("S2", run(e("RAW"))),
    ("S3", run(e("CUSTOM", name="a", value=1, timestamp=1.5))),
    ("S3", run(e("CUSTOM", name="a", value=1, timestamp="now"))),
    ("S3", run(e("CUSTOM", name="a", value=1, timestamp=2**60))),
    ("S3", run({**text()[0], "role": "tool"}, *text()[1:])),
    ("S3", run(reasoning()[0], {**reasoning()[1], "role": "assistant"}, *reasoning()[2:])),
    ("S3", run(*text("p"), call_start("c", None) | {"parentMessageId": ""}, *call()[2:], result())),
    ("S3", [started(runId=""), finished(runId="")]),
    ("S3", run(*text(""))),
    ("S3", run(usage=[{"inputTokens": -1}])),
    ("S3", run(usage=[{"inputTokens": 1.0}])),
    ("S3", run(outcome={"type": "interrupt", "interrupts": []})),
    ("S3", run(outcome={"type": "fine"})),
    ("S3", run(*call(), result(content={"a": 1}))),
    ("S3", run(e("STATE_DELTA", delta=[{"op": "add", "path": "a", "value": 1}]))),
    ("S3", run(e("STATE_DELTA", delta=[{"op": "set", "path": "/a", "value": 1}]))),
    ("S3", run(e("STATE_DELTA", delta=[{"op": "move", "path": "/a"}]))),
    (
        "S3",
        run(*call(), e("REASONING_ENCRYPTED_VALUE", subtype="tool_call", entityId="c", encryptedValue="="), result()),
    ),
    ("S4", run(e("CUSTOM", name="a", value=1, timestamp=None))),
    ("S4", run(e("CUSTOM", name="a", value=1, metadata=None))),
    ("S4", run(*text("m", subagentRunId=None))),
    ("S4", run(*call("c", None)[:0], call_start("c", None) | {"parentMessageId": None}, *call()[2:], result())),
    ("S4", run(outcome=None)),
    ("S4", [started(), e("RUN_ERROR", message="x", code=None)]),
    ("S5", run(e("CUSTOM", name="a", value=1, thread_id="t"))),
    ("S6", run(*text("m", "\ud83d"))),
    ("S6", run(e("CUSTOM", name="a", value={"b": [float("nan")]}))),
    ("I1", run(*text("m"), *text("m"))),
    ("I1", run(*reasoning("s", "m"), *text("m"))),
    ("I1", run(*text("m"), *reasoning("m", "th"))),
    ("I1", run(*reasoning("m", "th"), *text("m"))),
    ("I1", run(*reasoning("s", "th1"), *reasoning("s", "th2"))),
    ("I1", run(e("MESSAGES_SNAPSHOT", messages=HISTORY), *text("u0"))),
    ("I1", [*run(*text("m")), started(runId="r2"), *text("m"), finished(runId="r2")]),
    ("I1", run(*text("m"), e("ACTIVITY_SNAPSHOT", messageId="m", activityType="PLAN", content={}))),
    ("I2", run(*text("m"), *call("c", "m"), result("c", "m"))),
    ("I3", run(*call(), result("c", "c"))),
    ("I3", run(*call("c", "p"), *text("c"), result("c"))),
    ("I3", run(*text("c"), *call("c", "p"), result("c"))),
    ("I3", run(*call("c", "c"), result("c"))),
    ("I4", run(*call(), *call(), result())),
    ("I5", run(*reasoning("s", "th"), *call("c", "th"), result())),
    ("I5", run(e("MESSAGES_SNAPSHOT", messages=HISTORY), *call("c", "u0"), result())),
    ("I6", run(*call("c0", "p"), result("c0", "x0"), *call("c1", "p"), result("c1", "x1"))),
    ("I6", run(text("m")[0], *call("c", "m"), result("c"), *text("m")[1:])),
    ("I6", run(*call("c", "m"), result("c"), *text("m"))),
    (
        "I7",
        run(
            call_start("c0", "a"),
            *call("c1", None),
            e("TOOL_CALL_END", toolCallId="c0"),
            result("c0", "x"),
            result("c1", "y"),
        ),
    ),
    (
        "I7",
        run(
            call_start("c0", None),
            *call("c1", None),
            e("TOOL_CALL_END", toolCallId="c0"),
            result("c0", "x"),
            result("c1", "y"),
        ),
    ),
    ("I8", run(e("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="th", encryptedValue="="), *reasoning())),
    (
        "I8",
        run(e("REASONING_ENCRYPTED_VALUE", subtype="tool-call", entityId="c", encryptedValue="="), *call(), result()),
    ),
    ("I9", [started(), finished(runId="other")]),
    ("I9", [started(), finished(threadId="other")]),
    ("I9", [*run(), *run()]),
    ("I9", [*run(), started(threadId="t2", runId="r2"), finished(threadId="t2", runId="r2")]),
    ("I10", run(outcome={"type": "interrupt", "interrupts": [{"id": "i", "reason": "a"}] * 2})),
    ("I11", run(text()[0], e("MESSAGES_SNAPSHOT", messages=HISTORY), *text()[1:])),
    ("I11", run(call_start(), e("MESSAGES_SNAPSHOT", messages=HISTORY), *call()[1:], result())),
    ("D1", [{k: v for k, v in started().items() if k != "protocolVersion"}, finished()]),
    ("D1", [started(protocolVersion="one"), finished()]),
    ("D2", [started()]),
    ("D2", [*run(), e("RUN_ERROR", message="x")]),
    ("D3", run(e("TEXT_MESSAGE_CHUNK", messageId="m", delta="x"))),
    ("D4", run(text()[0], text("m", "")[1], *text()[1:])),
    ("D4", run(text()[0], text()[2])),
    ("D4", run(reasoning()[1], reasoning()[3])),
    ("D5", run(call_start(), result(), e("TOOL_CALL_END", toolCallId="c"))),
    ("D6", run(*call(), result("c", "x"), result("c", "y"))),
    ("D7", run(result())),
    ("D10", run(*call(), outcome={"type": "success", "pendingToolCallIds": []})),
    ("D12", run(usage=[{"model": "m"}, {"model": "m"}])),
    ("D12", run(usage=[{"inputTokens": 2, "outputTokens": 2, "totalTokens": 3}])),
    ("D12", run(usage=[{"inputTokens": 2, "cachedInputTokens": 3}])),
    ("D13", run(e("CUSTOM", name="a", value=1, metadata={"ag-ui": {}}))),
    ("D14", run(outcome={"type": "cancelled"}, result={})),
    *[
        ("D15", run(call_start(), *arguments(*deltas), e("TOOL_CALL_END", toolCallId="c"), result()))
        for deltas in (["{"], ["hello"], ['{"a":', "NaN}"], ['{"a": 1}', '{"b": 2}'], ["  "], ["'x'"])
    ],
]


@pytest.mark.parametrize(("rule", "events"), BAD, ids=[f"{n}-{rule}" for n, (rule, _) in enumerate(BAD)])
def test_a_broken_rule_is_named_and_nothing_else_is(rule: str, events: list[Event]) -> None:
    assert set(rules(events)) == {rule}


AGAINST_THE_REQUEST: list[tuple[str | None, dict[str, Any], list[Event]]] = [
    (None, REQUEST, run(*text())),
    ("I9", REQUEST, [started(threadId="other"), finished(threadId="other")]),
    ("I9", REQUEST, [started(runId="other"), finished(runId="other")]),
    ("I1", REQUEST | {"messages": HISTORY}, run(*text("u0"))),
    ("I4", REQUEST | {"messages": HISTORY}, run(*call("c0"), result("c0"))),
    (None, REQUEST | {"messages": HISTORY}, run(result("c0"))),
    ("D8", REQUEST, run(*call())),
    (None, REQUEST, run(*call(), outcome={"type": "interrupt", "interrupts": [{"id": "i", "reason": "a"}]})),
    (None, REQUEST, run(call_start() | {"toolCallName": "pay"}, *call()[1:])),
    ("D9", REQUEST, run(call_start() | {"toolCallName": "pay"}, *call()[1:], result())),
    ("D11", REQUEST, run(outcome={"type": "cancelled"})),
    (None, REQUEST_1_0, run(outcome={"type": "cancelled"})),
    ("D11", REQUEST, run(outcome={"type": "success", "pendingToolCallIds": []})),
    ("D11", REQUEST, run(*call(), result(content=[]))),
    ("D11", REQUEST | {"protocolVersion": "0.9"}, run(*call(), result(content=[]))),
    (None, REQUEST_1_0, run(*call(), result(content=[]))),
    ("D11", REQUEST, GOOD["a subagent"]),
    (None, REQUEST_1_0, GOOD["a subagent"]),
]


@pytest.mark.parametrize(("rule", "request_", "events"), AGAINST_THE_REQUEST)
def test_the_request_decides_on_ids_tools_and_versions(
    rule: str | None, request_: dict[str, Any], events: list[Event]
) -> None:
    assert set(rules(events, run_input=request_)) == ({rule} if rule else set())


SHOWS_NOTHING = [
    run(),
    run(outcome={"type": "success"}, result=None),
    run(e("STEP_STARTED", stepName="s"), e("STEP_FINISHED", stepName="s")),
    [*run(*text()), started(runId="r2"), e("RAW", event={"a": 1}), finished(runId="r2")],
]
SHOWS_SOMETHING = [
    run(*text()),
    run(*reasoning()),
    run(*call(), result()),
    run(e("CUSTOM", name="a.b", value=1)),
    run(e("STATE_SNAPSHOT", snapshot={})),
    run(e("MESSAGES_SNAPSHOT", messages=[])),
    run(e("ACTIVITY_SNAPSHOT", messageId="v", activityType="PLAN", content={})),
    run(result={"a": 1}),
    run(outcome={"type": "cancelled"}),
    run(outcome={"type": "interrupt", "interrupts": [{"id": "i", "reason": "a"}]}),
    [started(), e("RUN_ERROR", message="x")],
]


@pytest.mark.parametrize("events", SHOWS_NOTHING)
def test_a_success_that_shows_nothing_is_named_where_content_is_asked_for(events: list[Event]) -> None:
    assert rules(events, content=True) == ["D16"]
    assert rules(events) == []


@pytest.mark.parametrize("events", SHOWS_SOMETHING)
def test_a_run_that_shows_something_or_does_not_succeed_has_content(events: list[Event]) -> None:
    assert rules(events, content=True) == []


NOTE = e("CUSTOM", name="test.note", value=1)
TEXTS_THAT_ARE_NO_EVENTS: list[tuple[str, Any]] = [
    ("a word", ["hello"]),
    ("[DONE]", ["data: [DONE]\n\n"]),
    ("null", [b"data: null\n\n"]),
    ("a list", "[1]"),
    ("two events in a frame", [f"data: {json.dumps(NOTE)}\ndata: {json.dumps(NOTE)}\n\n"]),
    ("two events on a line", [json.dumps(NOTE) * 2]),
    ("half a frame at the end", b'data: {"type": "CUS'),
    ("line ends of CRLF", [f"data: {json.dumps(NOTE)}\r\n\r\n"]),
    ("an object of another kind", [object()]),
]


@pytest.mark.parametrize(
    "items", [items for _, items in TEXTS_THAT_ARE_NO_EVENTS], ids=[n for n, _ in TEXTS_THAT_ARE_NO_EVENTS]
)
def test_text_that_is_no_event_is_named(items: Any) -> None:
    assert set(rules(items, lifecycle=False)) == {"S7"}


def test_every_rule_has_a_broken_stream() -> None:
    assert {"S7", "D16"} | {rule for rule, _ in BAD} | {rule for rule, _, _ in AGAINST_THE_REQUEST if rule} == set(
        RULES
    )


def test_a_violation_names_its_event() -> None:
    assert check_events(run(*text(), text()[1])) == [Violation(4, "V6", "no text message 'm' is open")]


def test_an_empty_result_beside_one_of_an_unknown_call_is_named_at_the_unknown_one() -> None:
    events = run(*call("call_1"), result("call_9", "x", "rain"), result("call_1", "y", ""))
    assert [(found.rule, found.index) for found in check_events(events)] == [("D7", 4)]


def test_what_is_missing_at_the_end_stands_behind_the_last_event() -> None:
    assert check_events([started()]) == [Violation(1, "D2", "the stream ends without RUN_FINISHED or RUN_ERROR")]


def test_a_stretch_without_the_run_is_judged_by_what_is_open() -> None:
    assert rules(text(), lifecycle=False) == []
    assert rules(text()[:2], lifecycle=False) == ["V12"]
    assert rules([], lifecycle=False) == []
    assert rules([*text(), e("RUN_ERROR", message="x")], lifecycle=False) == []


def test_the_events_of_the_sdk_are_the_events_of_the_table() -> None:
    from ag_ui.core import EventType

    newer = {"SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR"}
    named = {kind.value for kind in EventType if not kind.value.startswith("THINKING_")}
    assert set(EVENT_SHAPES) - newer == named - newer


def test_ids_are_all_that_is_kept() -> None:
    checker = EventChecker()
    checker.feed(started())
    checker.feed(text()[0])
    kept = len(repr([vars(checker)]))
    for _ in range(200):
        assert checker.feed(text("m", "x" * 1000)[1]) == []
    assert len(repr([vars(checker)])) < kept + 100


def test_arguments_are_kept_only_while_their_call_is_open() -> None:
    checker = EventChecker()
    checker.feed(started())
    sizes: list[int] = []
    for number in range(3):
        checker.feed(call_start(f"c{number}"))
        for _ in range(1000):
            assert checker.feed(e("TOOL_CALL_ARGS", toolCallId=f"c{number}", delta="[" + " " * 100 + "],")) == []
        assert [found.rule for found in checker.feed(e("TOOL_CALL_END", toolCallId=f"c{number}"))] == ["D15"]
        sizes.append(len(repr(vars(checker))))
    assert sizes[-1] < sizes[0] + 1000
    checker.feed(call_start("open"))
    checker.feed(e("TOOL_CALL_ARGS", toolCallId="open", delta="x" * 10_000))
    checker.feed(e("RUN_ERROR", message="x"))
    assert "x" * 10_000 not in repr(vars(checker))


# The forms in which a run is held.


def frames_of(events: list[Event]) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)


FORMS: dict[str, Any] = {
    "lines of JSON": lambda events: [json.dumps(event) for event in events],
    "lines of JSON with their ends": lambda events: [json.dumps(event).encode() + b"\n" for event in events],
    "frames": lambda events: [frames_of([event]) for event in events],
    "frames of bytes": lambda events: [frames_of([event]).encode() for event in events],
    "frames with comments": lambda events: [": ping\n\nid: 1\n" + frames_of([event]) for event in events],
    "lines of frames": lambda events: frames_of(events).split("\n"),
    "the whole as text": frames_of,
    "the whole as a bytearray": lambda events: bytearray(frames_of(events).encode()),
    "the whole as bytes": lambda events: b"\xef\xbb\xbf" + frames_of(events).encode(),
    "lines as one text": lambda events: "\n".join(map(json.dumps, events)),
    "reads of 7 bytes": lambda events: [
        frames_of(events).encode()[at : at + 7] for at in range(0, len(frames_of(events)), 7)
    ],
}
HELD = {"good": GOOD["the portable recipe"], "bad": [*run(*text()[:2]), e("CUSTOM", name="ü", value="\U0001f600")]}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", HELD)
async def test_a_run_is_judged_the_same_in_every_form(form: str, name: str) -> None:
    held = FORMS[form](HELD[name])
    expected = check_events(HELD[name])
    assert check_events(held) == expected

    async def arriving() -> AsyncIterator[Any]:
        for item in [held] if isinstance(held, str | bytes | bytearray) else held:
            yield item

    assert await check_events(arriving()) == expected


@given(st.data())
@settings(deadline=None)
def test_frames_may_be_cut_anywhere(data: st.DataObject) -> None:
    events = data.draw(st.sampled_from([*GOOD.values(), *(events for _, events in BAD)]))
    wire = frames_of(events).encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(wire)), max_size=6)))
    reads = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    assert check_events([read for read in reads if read]) == check_events(events)


async def test_objects_and_batches_are_judged_as_the_wire_they_make() -> None:
    chunks = [text_chunk("Hi"), tool_call_chunk('{"a": 1}', call_id="c", name="f"), finish_chunk("tool_calls")]
    objects = [event async for event in stream_agui_run(chunks)]
    assert check_events(objects) == []
    assert await check_events(stream_agui_run(chunks)) == []
    assert await check_events(stream_agui_sse(chunks)) == []
    assert [found.rule for found in check_events(objects[:-1])] == ["D2"]
    assert await check_events(convert_chunks_to_agui_events(chunks), lifecycle=False) == []
    batches = [batch async for batch in convert_chunks_to_agui_events(chunks)]
    assert [found.rule for found in check_events(batches[:-1], lifecycle=False)] == ["V12"]


@settings(deadline=None)
@given(st.lists(st.sampled_from([event for events in GOOD.values() for event in events]), max_size=12))
def test_any_order_of_events_is_judged_the_same_from_the_wire_and_never_raises(events: list[Event]) -> None:
    found = check_events(events)
    assert found == check_events(json.loads(json.dumps(events)))
    assert all(violation.rule in RULES and 0 <= violation.index <= len(events) for violation in found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELD_NAMES = sorted({name for fields in EVENT_SHAPES.values() for name in fields} - {"type"})


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(EVENT_SHAPES)), st.dictionaries(st.sampled_from(FIELD_NAMES), JSON, max_size=5)
        ),
        max_size=6,
    )
)
def test_odd_values_in_known_fields_are_reported_and_never_raise(events: list[tuple[str, dict[str, Any]]]) -> None:
    check_events([{"type": kind, **fields} for kind, fields in events], run_input={"messages": [1], "tools": "x"})
