"""RunLedger: ids, frontend tools, results, versions, and every way a run may end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agui_case import counted_ids, wire

from dragent_stream import ChunkConverter, ConverterOptions, RunLedger, StepConverter
from dragent_stream.check import check_events
from dragent_stream.chunk_record import ToolCallDelta
from dragent_stream.events import RESULT_PARTS, WireEvents


def ledger(**more: Any) -> RunLedger[bytes]:
    tools = frozenset(more.pop("tools", ()))
    options = ConverterOptions(new_id=counted_ids(), frontend_tools=tools)
    return RunLedger(WireEvents(), options=options, thread_id="t", run_id="r", **more)


def call(name: str, arguments: str = '{"a":1}', call_id: str = "a", index: int = 0) -> ToolCallDelta:
    return ToolCallDelta(index, call_id, name, arguments)


def kinds(frames: list[bytes]) -> list[str]:
    return [wire(frame)["type"] for frame in frames]


def test_a_run_starts_and_ends_once() -> None:
    run = ledger()
    assert kinds(run.start_run() + run.start_run()) == ["RUN_STARTED"]
    assert kinds(run.finish_run() + run.finish_run() + run.fail_run("late") + run.cancel_run()) == ["RUN_FINISHED"]


def test_nothing_is_written_after_the_terminal_event() -> None:
    run = ledger()
    run.fail_run("x")
    run.text("late")
    run.reasoning("late")
    run.tool_call(call("f"))
    run.encrypted("late")
    run.step_started("s")
    run.custom("a.b", {})
    assert run.drain() == []
    assert run.tool_result("a", "late") == []


def test_ids_that_are_not_given_are_fresh() -> None:
    run = RunLedger(WireEvents(), options=ConverterOptions(new_id=counted_ids()))
    started = wire(run.start_run()[0])
    assert (started["threadId"], started["runId"]) == ("id-1", "id-2")


def test_a_call_id_that_the_history_used_is_replaced() -> None:
    run = ledger(used_call_ids=["a"])
    run.tool_call(call("f"))
    started = wire(run.drain()[0])
    assert started["toolCallId"] not in ("", "a")
    assert wire(run.tool_result("a", "4")[-1])["toolCallId"] == started["toolCallId"]


def test_a_frontend_call_is_shown_when_its_arguments_are_complete_and_named_as_pending() -> None:
    run = ledger(tools=["pay"], protocol_version="1.0")
    run.tool_call(call("pay", '{"sum":'))
    assert run.drain() == []
    run.tool_call(ToolCallDelta(0, "", "", "1}"))
    run.end_turn()
    assert kinds(run.drain()) == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
    assert run.tool_result("a", "no") == []
    assert wire(run.finish_run()[-1])["outcome"] == {"type": "success", "pendingToolCallIds": ["a"]}


def test_an_older_client_is_told_nothing_of_pending_calls() -> None:
    run = ledger(tools=["pay"])
    run.tool_call(call("pay"))
    assert wire(run.finish_run()[-1])["outcome"] == {"type": "success"}


def test_a_frontend_call_that_breaks_off_is_never_shown() -> None:
    run = ledger(tools=["pay"])
    run.tool_call(call("pay", '{"sum":'))
    assert kinds(run.fail_run("cut")) == ["RUN_ERROR"]


def test_a_result_waits_for_the_end_of_its_call() -> None:
    run = ledger()
    run.tool_call(call("f", '{"a":'))
    run.drain()
    assert run.tool_result("a", "early") == []
    run.tool_call(ToolCallDelta(0, "", "", "1}"))
    assert kinds(run.drain()) == ["TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"]


def test_a_second_result_is_dropped() -> None:
    run = ledger()
    run.tool_call(call("f"))
    run.drain()
    assert kinds(run.tool_result("a", "1")) == ["TOOL_CALL_END", "TOOL_CALL_RESULT"]
    assert run.tool_result("a", "2") == []


def test_a_call_that_the_run_goes_past_gets_an_empty_result() -> None:
    run = ledger()
    run.tool_call(call("f", "{}", "a", 0))
    run.tool_call(call("g", "{}", "b", 1))
    run.tool_started("a")
    run.tool_result("a", "1")
    run.drain()
    run.text("Done.")
    result = wire(run.drain()[0])
    assert (result["type"], result["toolCallId"], result["content"]) == ("TOOL_CALL_RESULT", "b", "")


def test_without_steps_nobody_here_answers_a_call() -> None:
    run = ledger()
    run.tool_call(call("f"))
    run.text("Done.")
    assert "TOOL_CALL_RESULT" not in kinds(run.finish_run())


@pytest.mark.parametrize(
    ("version", "arguments", "last"),
    [
        ("1.0", "{}", {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": {"type": "cancelled"}}),
        ("1.0", '{"a":', {"type": "RUN_ERROR", "message": "the run was stopped", "code": "abort"}),
        (None, "{}", {"type": "RUN_ERROR", "message": "the run was stopped", "code": "abort"}),
        ("0.9", "{}", {"type": "RUN_ERROR", "message": "the run was stopped", "code": "abort"}),
    ],
)
def test_a_stopped_run_says_so_in_words_the_client_knows(version: str | None, arguments: str, last: Any) -> None:
    run = ledger(protocol_version=version)
    events = run.start_run()
    run.tool_call(call("f", arguments))
    events += run.cancel_run()
    wires = [wire(event) for event in events]
    assert wires[-1] == last
    assert check_events(wires, run_input={"threadId": "t", "runId": "r", "protocolVersion": version or "0.0"}) == []


def test_an_error_message_is_never_empty_and_always_encodable() -> None:
    assert wire(ledger().fail_run("")[0])["message"]
    assert wire(ledger().fail_run("a\ud83d")[0])["message"] == "a\ufffd"


def test_open_steps_are_finished_in_reverse() -> None:
    run = ledger()
    assert run.step_started("a") and run.step_started("b")
    assert not run.step_started("a")
    finished = [wire(frame) for frame in run.finish_run()]
    assert [event.get("stepName") for event in finished] == ["a", "b", "b", "a", None]


def test_two_paths_end_the_run_when_both_have_ended() -> None:
    run = ledger()
    chunks, steps = ChunkConverter(run), StepConverter(run)
    steps.feed({"event_type": "WORKFLOW_START", "UUID": "w", "name": "w"})
    chunks.feed("Hello")
    assert steps.feed({"event_type": "WORKFLOW_END", "UUID": "w", "name": "w"}) == []
    assert kinds(chunks.finish()) == ["TEXT_MESSAGE_END", "RUN_FINISHED"]


def test_a_run_of_steps_alone_ends_with_its_workflow() -> None:
    steps: StepConverter[bytes] = StepConverter(ledger())
    steps.feed({"event_type": "WORKFLOW_START", "UUID": "w", "name": "w"})
    steps.feed({"event_type": "LLM_START", "UUID": "l", "name": "m"})
    steps.feed({"event_type": "LLM_END", "UUID": "l", "name": "m", "data": {"output": "Hello"}})
    frames = steps.feed({"event_type": "WORKFLOW_END", "UUID": "w", "name": "w"})
    assert kinds(frames) == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"]


def test_memory_of_an_open_stream_does_not_grow_with_its_text() -> None:
    import tracemalloc

    converter: ChunkConverter[bytes] = ChunkConverter(ledger())
    chunk = {"choices": [{"index": 0, "delta": {"content": "word "}}]}
    converter.feed(chunk)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(5000):
        converter.feed(chunk)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 2000


def test_two_ids_that_differ_only_in_what_cannot_be_written_stay_two_calls() -> None:
    run = ledger()
    frames = run.start_run()
    run.tool_call(call("f", call_id="x\ud800"))
    run.tool_call(call("f", call_id="x\ud801", index=1))
    frames += run.finish_run()
    assert check_events([wire(frame) for frame in frames]) == []


def test_encrypted_reasoning_belongs_to_the_call_where_the_turn_says_nothing_else() -> None:
    run = ledger()
    run.encrypted("early")
    run.tool_call(call("f", call_id="x"))
    run.encrypted("late")
    run.end_turn()
    values = [wire(frame) for frame in run.drain() if b"ENCRYPTED" in frame]
    assert [(e["subtype"], e["entityId"], e["encryptedValue"]) for e in values] == [
        ("tool-call", "x", "early"),
        ("tool-call", "x", "late"),
    ]


def test_encrypted_reasoning_that_comes_after_its_thought_still_belongs_to_it() -> None:
    run = ledger()
    run.reasoning("hm")
    run.tool_call(call("f"))
    run.encrypted("late")
    events = [wire(frame) for frame in run.drain()]
    (value,) = (event for event in events if event["type"] == "REASONING_ENCRYPTED_VALUE")
    assert value["subtype"] == "message"
    assert value["entityId"] == events[0]["messageId"]


def test_the_signature_of_a_call_may_come_after_its_arguments_and_is_written_once() -> None:
    run = ledger()
    run.tool_call(call("f", call_id="x"))
    for _ in range(2):
        run.tool_call(ToolCallDelta(0, "", "", "", "signed"))
    assert kinds(run.drain()).count("REASONING_ENCRYPTED_VALUE") == 1


def test_a_version_of_thousands_of_digits_is_a_version() -> None:
    assert kinds(ledger(protocol_version="9" * 5000).finish_run()) == ["RUN_FINISHED"]


HALF = '{"text": "Chap'


def test_a_call_whose_arguments_are_no_json_is_never_ended_and_fails_the_run_at_its_end() -> None:
    run = ledger()
    events = run.start_run()
    run.tool_call(call("write", HALF, "a", 0))
    run.end_turn()
    run.text("I have written it.")
    wires = [wire(event) for event in events + run.finish_run()]
    assert [e["type"] for e in wires if e.get("toolCallId") == "a"] == ["TOOL_CALL_START", "TOOL_CALL_ARGS"]
    assert "I have written it." in [e.get("delta") for e in wires]
    assert (wires[-1]["type"], wires[-1]["code"]) == ("RUN_ERROR", "INCOMPLETE_TOOL_CALL")
    assert check_events(wires) == []


def test_a_call_that_is_tried_again_leaves_the_cut_one_open() -> None:
    run = ledger()
    events = run.start_run()
    run.tool_call(call("write", HALF, "a", 0))
    run.tool_call(call("write", '{"text": "Chapter"}', "b", 0))
    wires = [wire(event) for event in events + run.finish_run()]
    assert [e["toolCallId"] for e in wires if e["type"] == "TOOL_CALL_END"] == ["b"]
    assert wires[-1]["code"] == "INCOMPLETE_TOOL_CALL"


def custom_events(run: Any) -> list[Any]:
    return [e["value"] for e in map(wire, run.drain()) if e["type"] == "CUSTOM"]


@pytest.mark.parametrize("late", [True, False])
def test_the_result_of_a_cut_call_is_shown_although_the_call_cannot_have_it(late: bool) -> None:
    run = ledger()
    run.tool_call(call("write", HALF, "a", 0))
    if late:
        run.end_turn()
    run.streamed_result("a", "rain")
    run.end_turn()
    assert custom_events(run) == [{"toolCallId": "a", "content": "rain"}]


def test_a_result_for_an_unknown_call_is_the_one_open_calls_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    run = ledger()
    run.tool_call(call("weather", "{}", "call_1", 0))
    run.streamed_result("call_9", "rain")
    run.text("It rains.")
    wires = [wire(event) for event in run.drain()]
    assert [(e["toolCallId"], e["content"]) for e in wires if e["type"] == "TOOL_CALL_RESULT"] == [("call_1", "rain")]
    assert "'call_9'" in caplog.text and "'call_1'" in caplog.text


def test_a_guessed_result_gives_way_to_the_calls_own() -> None:
    run = ledger()
    run.tool_call(call("weather", "{}", "a", 0))
    run.streamed_result("zz", "wrong")
    run.streamed_result("a", "right")
    wires = [wire(event) for event in run.drain()]
    assert [(e["toolCallId"], e["content"]) for e in wires if e["type"] == "TOOL_CALL_RESULT"] == [("a", "right")]
    assert [e["value"] for e in wires if e["type"] == "CUSTOM"] == [{"toolCallId": "zz", "content": "wrong"}]


def test_a_result_for_a_call_of_the_clients_stands_beside_it() -> None:
    run = ledger(tools=["front"])
    run.tool_call(call("front", "{}", "a", 0))
    run.streamed_result("a", "r")
    assert custom_events(run) == [{"toolCallId": "a", "content": "r"}]


@pytest.mark.parametrize("open_calls", [0, 2])
def test_a_result_for_an_unknown_call_is_shown_beside_the_calls_where_none_or_several_are_open(open_calls: int) -> None:
    run = ledger()
    for at in range(open_calls):
        run.tool_call(call("weather", "{}", f"call_{at}", at))
    run.streamed_result("call_9", "rain")
    assert custom_events(run) == [{"toolCallId": "call_9", "content": "rain"}]


def test_a_result_that_was_told_before_is_told_once() -> None:
    run = ledger()
    run.tool_call(call("weather", "{}", "a", 0))
    run.streamed_result("a", "rain")
    run.drain()
    run.streamed_result("a", "rain")
    assert run.drain() == []


def test_a_result_for_a_call_of_the_history_is_that_calls() -> None:
    run = ledger(used_call_ids=["h1", "h2"], unanswered_call_ids=["h2"])
    run.streamed_result("h2", "yes")
    (event,) = map(wire, run.drain())
    assert (event["type"], event["toolCallId"], event["content"]) == ("TOOL_CALL_RESULT", "h2", "yes")


def test_a_call_that_text_follows_may_still_be_executed() -> None:
    run = ledger()
    run.steps_seen = True
    run.tool_call(call("f", "{}", "a", 0))
    run.text("Let me see.")
    run.drain()
    run.tool_started("a")
    (result,) = map(wire, run.tool_result("a", "1"))
    assert (result["type"], result["content"]) == ("TOOL_CALL_RESULT", "1")


def test_a_tool_that_takes_free_text_gets_it_as_the_one_value_of_an_object() -> None:
    run = ledger()
    for piece in ('say "hi', '"\n', "\ud83d", "\ude00"):
        run.tool_call(ToolCallDelta(0, "a", "shell", piece, custom=True))
    run.finish_answer("calls")
    wires = [wire(event) for event in run.finish_run()]
    arguments = "".join(e["delta"] for e in wires if e["type"] == "TOOL_CALL_ARGS")
    assert json.loads(arguments) == {"input": 'say "hi"\n\U0001f600'}
    assert wires[-1]["type"] == "RUN_FINISHED"


IMAGE = [{"type": "text", "text": "here"}, {"type": "image", "base64": "AAAA", "mime_type": "image/png"}]


@pytest.mark.parametrize(
    ("version", "content"),
    [
        (
            "1.0",
            [
                {"type": "text", "text": "here"},
                {"type": "image", "source": {"type": "data", "value": "AAAA", "mimeType": "image/png"}},
            ],
        ),
        (None, json.dumps(IMAGE, separators=(",", ":"))),
    ],
)
def test_parts_of_a_result_are_parts_for_clients_that_read_them_and_json_for_others(version: Any, content: Any) -> None:
    run = ledger(protocol_version=version)
    converter = ChunkConverter(run)
    converter.feed(
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f"}}]}}]}
    )
    frames = converter.feed({"role": "tool", "tool_call_id": "a", "content": IMAGE})
    (result,) = [e for e in map(wire, frames) if e["type"] == "TOOL_CALL_RESULT"]
    # Objects of ag-ui-protocol before 1.0 hold text alone, and both writers say the same.
    assert result["content"] == (content if RESULT_PARTS else json.dumps(IMAGE, separators=(",", ":")))


def test_another_result_for_an_answered_call_is_shown_beside_it() -> None:
    run = ledger()
    run.tool_call(call("weather", "{}", "a", 0))
    run.streamed_result("a", "rain")
    run.drain()
    run.streamed_result("a", "snow")
    assert custom_events(run) == [{"toolCallId": "a", "content": "snow"}]


@pytest.mark.parametrize(
    ("message", "answered"),
    [
        ({"role": "tool", "toolCallId": "b"}, "b"),
        ({"role": "tool", "name": "g"}, "b"),
        ({"role": "function", "name": "f"}, "a"),
        ({"role": "tool"}, None),
        ({"role": "tool", "name": "h"}, None),
    ],
)
def test_a_result_that_names_no_call_is_the_only_one_it_can_be_or_stands_beside_them(
    message: Any, answered: Any
) -> None:
    run = ledger()
    converter = ChunkConverter(run)
    run.tool_call(call("f", "{}", "a", 0))
    run.tool_call(call("g", "{}", "b", 1))
    run.drain()
    wires = [wire(frame) for frame in converter.feed({**message, "content": "rain"})]
    results = [e["toolCallId"] for e in wires if e["type"] == "TOOL_CALL_RESULT"]
    assert results == ([answered] if answered else [])
    assert [e["type"] for e in wires].count("CUSTOM") == (not answered)


def test_results_that_name_their_calls_may_come_behind_the_text() -> None:
    run = ledger()
    run.tool_call(call("f", "{}", "a", 0))
    run.tool_call(call("f", "{}", "b", 1))
    run.streamed_result("a", "1")
    run.text("Hm.")
    run.streamed_result("b", "2")
    wires = [wire(event) for event in run.finish_run()]
    results = [(e["toolCallId"], e["content"]) for e in wires if e["type"] == "TOOL_CALL_RESULT"]
    assert results == [("a", "1"), ("b", "2")]
