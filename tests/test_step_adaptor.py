"""StepConverter: which call a step belongs to, what is nested, and what cannot be processed."""

from __future__ import annotations

import logging
import time
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest
from agui_case import counted_ids, wire

from dragent_stream import ChunkConverter, ConverterOptions, RunLedger, StepConverter
from dragent_stream.chunk_record import ToolCallDelta
from dragent_stream.events import WireEvents
from dragent_stream.values import json_text


def shared(**options: Any) -> tuple[RunLedger[bytes], ChunkConverter[bytes], StepConverter[bytes]]:
    ledger = RunLedger(
        WireEvents(), options=ConverterOptions(new_id=counted_ids(), **options), thread_id="t", run_id="r"
    )
    return ledger, ChunkConverter(ledger), StepConverter(ledger)


def step(kind: str, uuid: str, name: str, data: Any = None, **more: Any) -> dict[str, Any]:
    return {"event_type": kind, "UUID": uuid, "name": name, "data": data, **more}


def results(frames: list[bytes]) -> list[tuple[str, str]]:
    events = [wire(frame) for frame in frames]
    return [(e["toolCallId"], e["content"]) for e in events if e["type"] == "TOOL_CALL_RESULT"]


def announce(ledger: RunLedger[bytes], *calls: tuple[str, str, str]) -> None:
    for index, (call_id, name, arguments) in enumerate(calls):
        ledger.tool_call(ToolCallDelta(index, call_id, name, arguments))
    ledger.drain()


def test_a_call_with_bad_arguments_does_not_get_the_result_of_the_good_one() -> None:
    ledger, _, steps = shared()
    announce(ledger, ("BAD", "add", '{"a":"not a number","b":2}'), ("GOOD", "add", '{"a":1,"b":2}'))
    steps.feed(step("FUNCTION_START", "f", "add", {"input": {"a": 1, "b": 2}}))
    frames = steps.feed(step("FUNCTION_END", "f", "add", {"input": {"a": 1, "b": 2}, "output": 3}))
    assert results(frames) == [("GOOD", "3")]
    ledger.text("Done.")
    assert results(ledger.drain()) == [("BAD", "")]


@pytest.mark.parametrize(
    "given",
    [
        {"a": 1, "b": 2, "unit": "default"},
        {"a": "1", "b": 2.0, "nested": None},
        SimpleNamespace(a=1, b=2),
    ],
)
def test_an_input_with_defaults_and_coerced_values_still_belongs_to_its_call(given: Any) -> None:
    ledger, _, steps = shared()
    announce(ledger, ("x", "add", '{"a":9}'), ("y", "add", '{"a":1}'))
    steps.feed(step("FUNCTION_START", "f", "add", {"input": given}))
    assert results(steps.feed(step("FUNCTION_END", "f", "add", {"output": "r"}))) == [("y", "r")]


def test_a_tool_message_names_its_call_whatever_the_step_was_matched_with() -> None:
    ledger, _, steps = shared()
    announce(ledger, ("x", "get", "{}"), ("y", "get", "{}"))
    steps.feed(step("TOOL_START", "1", "get", {"input": "{}"}, framework="langchain"))
    steps.feed(step("TOOL_START", "2", "get", {"input": "{}"}, framework="langchain"))
    message = {"content": "second", "tool_call_id": "y"}
    assert results(steps.feed(step("TOOL_END", "1", "get", {"output": message}))) == [("y", "second")]
    assert results(steps.feed(step("TOOL_END", "2", "get", {"output": {"content": "first", "tool_call_id": "x"}}))) == [
        ("x", "first")
    ]


def test_a_call_that_only_steps_tell_of_gets_the_result_that_its_message_brings() -> None:
    _, _, steps = shared()
    given = {"input": "{'a': 1}"}
    frames = steps.feed(step("TOOL_START", "1", "add", given, framework="langchain"))
    frames += steps.feed(step("TOOL_START", "2", "add", given, framework="langchain"))
    asked = [wire(frame)["toolCallId"] for frame in frames if wire(frame)["type"] == "TOOL_CALL_END"]
    two = {"type": "tool", "content": "two", "tool_call_id": "c2"}
    one = {"type": "tool", "content": "one", "tool_call_id": "c1"}
    frames = steps.feed(step("TOOL_END", "2", "add", {**given, "output": two}, framework="langchain"))
    frames += steps.feed(step("TOOL_END", "1", "add", {**given, "output": one}, framework="langchain"))
    frames += steps.feed(step("LLM_START", "m", "model", {"input": [one, two]}))
    assert results(frames) == [(asked[1], "two"), (asked[0], "one")]


def test_exact_results_leave_the_steps_without_a_voice() -> None:
    ledger, _, steps = shared()
    ledger.exact_results = True
    announce(ledger, ("x", "get", "{}"))
    steps.feed(step("FUNCTION_START", "f", "get", {"input": {}}))
    assert results(steps.feed(step("FUNCTION_END", "f", "get", {"output": "by step"}))) == []
    assert results(ledger.tool_result("x", "by callback")) == [("x", "by callback")]


def test_a_function_that_starts_after_its_call_is_known_to_run_is_no_step_of_its_own() -> None:
    ledger, _, steps = shared()
    ledger.exact_results = True
    announce(ledger, ("x", "get", "{}"))
    ledger.tool_started("x")
    assert steps.feed(step("FUNCTION_START", "f", "get", {"input": {}})) == []
    assert steps.feed(step("FUNCTION_END", "f", "get", {"output": "by step"})) == []
    assert results(ledger.tool_result("x", "by callback")) == [("x", "by callback")]


def test_chain_steps_of_langchain_say_nothing() -> None:
    _, _, steps = shared()
    assert steps.feed(step("FUNCTION_START", "c", "RunnableSequence", {"input": {}}, framework="langchain")) == []
    assert steps.feed(step("FUNCTION_END", "c", "RunnableSequence", {"output": {}}, framework="langchain")) == []


def test_a_function_that_no_call_asked_for_is_a_step() -> None:
    _, _, steps = shared()
    frames = steps.feed(step("FUNCTION_START", "f", "plan")) + steps.feed(step("FUNCTION_END", "f", "plan"))
    assert [wire(frame) for frame in frames] == [
        {"type": "STEP_STARTED", "stepName": "plan"},
        {"type": "STEP_FINISHED", "stepName": "plan"},
    ]


def test_nested_output_can_be_hidden() -> None:
    _, _, steps = shared(nested="hide")
    for kind, data in (("LLM_START", {}), ("LLM_NEW_TOKEN", {"chunk": "inner"}), ("LLM_END", {"output": "inner"})):
        assert steps.feed(step(kind, "l", "m", data, level=2)) == []


def test_text_that_both_paths_bring_in_any_order_appears_once() -> None:
    ledger, chunks, steps = shared()
    frames = steps.feed(step("LLM_START", "l", "m"))
    frames += steps.feed(step("LLM_END", "l", "m", {"output": "Hello"}))
    frames += chunks.feed("Hello")
    frames += chunks.finish() + steps.finish() + ledger.finish_run()
    assert [wire(frame)["delta"] for frame in frames if b"CONTENT" in frame] == ["Hello"]


def test_usage_of_nested_model_calls_is_added_to_that_of_the_chunks() -> None:
    ledger, chunks, steps = shared()
    usage = {"usage_info": {"token_usage": {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}}}
    chunks.feed({"model": "big", "choices": [], "usage": {"prompt_tokens": 1, "total_tokens": 1}})
    steps.feed(step("LLM_END", "r", "big", {}, level=1, **usage))
    steps.feed(step("LLM_END", "n", "small", {}, level=2, **usage))
    entries = wire(ledger.finish_run()[-1])["usage"]
    assert {entry["model"]: entry["inputTokens"] for entry in entries} == {"big": 1, "small": 7}


def test_custom_steps_are_custom_events_with_a_prefixed_name() -> None:
    _, _, steps = shared()
    (frame,) = steps.feed(step("CUSTOM_START", "c", "progress", {"payload": {"done": 0.5, "at": date(2026, 1, 2)}}))
    assert wire(frame) == {
        "type": "CUSTOM",
        "name": "nat.progress",
        "value": {"event": "start", "payload": {"done": 0.5, "at": "2026-01-02"}},
    }


@pytest.mark.parametrize(
    "broken", [None, 5, {}, {"event_type": None}, {"payload": {"event_type": "LLM_END", "data": 3}}]
)
def test_a_step_that_cannot_be_processed_is_skipped(broken: Any) -> None:
    ledger, chunks, steps = shared()
    assert steps.feed(broken) == []
    assert chunks.feed("still here")
    assert not ledger.finished


def test_a_skipped_step_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    _, _, steps = shared()
    with caplog.at_level(logging.WARNING):
        steps.feed({"no": "event type"})
    assert "skipped a step" in caplog.text


def test_many_tokens_cost_linear_time() -> None:
    def cost(tokens: int) -> float:
        steps: StepConverter[bytes] = StepConverter(RunLedger(WireEvents()))
        token = step("LLM_NEW_TOKEN", "l", "m", {"chunk": "word "}, level=2)
        started = time.process_time()
        for _ in range(tokens):
            steps.feed(token)
        return time.process_time() - started

    cost(100)
    assert min(cost(8000) for _ in range(3)) < 24 * min(cost(1000) for _ in range(3))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("as it is", "as it is"),
        (3, "3"),
        ({"a": float("nan"), "b": b"\xff"}, '{"a":null,"b":"_w=="}'),
        ({"at": date(2026, 1, 2), "s": {1}}, '{"at":"2026-01-02","s":[1]}'),
        (object, "\"<class 'object'>\""),
    ],
)
def test_values_of_tools_become_strict_json(value: Any, text: str) -> None:
    assert json_text(value) == text


def test_a_custom_event_with_a_lone_surrogate_is_written() -> None:
    _, _, steps = shared()
    (frame,) = steps.feed(step("CUSTOM_START", "c", "a.b\ud800", {"input": {"k\udc00": "v\ud800"}}))
    event = wire(frame)
    assert (event["name"], event["value"]["input"]) == ("a.b\ufffd", {"k\ufffd": "v\ufffd"})


def test_tokens_as_typed_parts_are_text() -> None:
    steps = StepConverter(options=ConverterOptions(new_id=counted_ids()))
    steps.feed(step("LLM_START", "m", "model"))
    frames = steps.feed(step("LLM_NEW_TOKEN", "m", "model", {"chunk": [{"type": "text", "text": "Hi"}, {"type": "x"}]}))
    assert [wire(event).get("delta") for event in frames][1:] == ["Hi"]


def test_what_an_unfinished_model_call_has_said_is_shown_where_the_chunks_bring_nothing() -> None:
    for brought in (False, True):
        ledger, chunks, steps = shared()
        steps.feed(step("LLM_START", "m", "model"))
        frames = steps.feed(step("LLM_NEW_TOKEN", "m", "model", {"chunk": "Hel"}))
        if brought:
            frames += chunks.feed("Hello")
        frames += steps.feed(step("LLM_NEW_TOKEN", "m", "model", {"chunk": "lo"}))
        frames += steps.finish() + chunks.finish() + ledger.finish_run()
        assert "".join(wire(frame).get("delta", "") for frame in frames) == "Hello"


@pytest.mark.parametrize("place", ["input", "chat_inputs"])
def test_the_tool_messages_that_a_model_is_asked_with_are_results(place: str) -> None:
    ledger, _, steps = shared()
    announce(ledger, ("a", "add", "{}"), ("b", "mul", "{}"))
    messages = [
        {"type": "human", "content": "hi"},
        {"type": "ai", "content": ""},
        {"type": "tool", "tool_call_id": "b", "content": "20"},
        {"type": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "10"}]},
    ]
    asked = step("LLM_START", "m", "model", {"input": messages if place == "input" else None})
    asked["metadata"] = {"chat_inputs": messages if place == "chat_inputs" else None}
    assert sorted(results(steps.feed(asked))) == [("a", "10"), ("b", "20")]


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ("hello", '{"value":"hello"}'),
        ("{'a': 1}", '{"a":1}'),
        ('{"a": 1}', '{"a":1}'),
        ([1, 2], '{"value":[1,2]}'),
        (5, '{"value":5}'),
        (None, "{}"),
        ({"a": float("nan")}, '{"a":null}'),
    ],
)
def test_the_call_of_a_tool_that_no_model_asked_for_has_arguments_that_are_an_object(
    given: Any, arguments: str
) -> None:
    steps = StepConverter(options=ConverterOptions(new_id=counted_ids()))
    frames = steps.feed(step("TOOL_START", "t", "f", {"input": given}))
    wires = [wire(frame) for frame in frames]
    assert "".join(e["delta"] for e in wires if e["type"] == "TOOL_CALL_ARGS") == arguments
    assert wires[-1]["type"] == "TOOL_CALL_END"


@pytest.mark.parametrize(
    "output", [None, "Hello", [{"type": "text", "text": "Hello"}], {"content": [{"text": "Hello"}]}]
)
def test_what_a_model_call_has_said_is_not_lost_with_its_end(output: Any) -> None:
    ledger, _, steps = shared()
    frames = steps.feed(step("LLM_START", "m", "model"))
    for token in ("Hel", "lo") if output is None else ():
        frames += steps.feed(step("LLM_NEW_TOKEN", "m", "model", {"chunk": token}))
    frames += steps.feed(step("LLM_END", "m", "model", {"output": output})) + steps.finish() + ledger.finish_run()
    assert "".join(wire(frame).get("delta", "") for frame in frames) == "Hello"


def test_what_a_workflow_gives_is_its_answer_where_nobody_else_said_one() -> None:
    for said in ([], [step("LLM_START", "m", "model"), step("LLM_END", "m", "model", {"output": "Hello"})]):
        steps = StepConverter(options=ConverterOptions(new_id=counted_ids()))
        feed = [step("WORKFLOW_START", "w", "flow"), *said, step("WORKFLOW_END", "w", "flow", {"output": "Hello"})]
        wires = [wire(event) for each in feed for event in steps.feed(each)]
        assert [e["delta"] for e in wires if "delta" in e] == ["Hello"]
        assert wires[-1]["type"] == "RUN_FINISHED"


def test_a_function_whose_start_nobody_saw_belongs_to_the_call_that_asks_for_its_input() -> None:
    ledger, _, steps = shared()
    announce(ledger, ("a", "add", '{"a":1}'), ("b", "add", '{"a":2}'))
    assert results(steps.feed(step("FUNCTION_END", "f", "add", {"input": {"a": 2}, "output": 5}))) == [("b", "5")]
