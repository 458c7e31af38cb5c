"""Recording, reading, converting and replaying traces, and what a broken file is told."""

from __future__ import annotations

import io
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from ag_ui_validate.pytest_plugin import validate_agui
from agui_case import counted_ids, load_cases, trace_lines
from hypothesis import given, settings
from hypothesis import strategies as st

from dragent_stream import (
    AgentStep,
    ConverterOptions,
    RecordedError,
    TraceFormatError,
    convert_trace,
    read_trace,
    record_chunks,
    replay_trace,
    stream_agui_run,
)
from dragent_stream.check import check_events
from dragent_stream.errors import AnswerError

TRACES = sorted((Path(__file__).parent / "traces").glob("*.jsonl"))
CHUNK = '{"id":"c","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}'


def converted(lines: Any, **more: Any) -> list[dict[str, Any]]:
    return [json.loads(event) for event in convert_trace(lines, **more)]


def test_there_are_recordings() -> None:
    assert len(TRACES) == 28


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_recording_of_nat_is_a_valid_run_each_call_with_one_result(path: Path) -> None:
    events = converted(path)
    assert check_events(events) == []
    report = validate_agui(events)
    assert not [found for found in report.diagnostics if found.severity in ("error", "warning")]
    ended = {event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_END"}
    answered = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert sorted(answered) == sorted(ended)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_conversion_is_the_same_bytes_every_time(path: Path) -> None:
    assert list(convert_trace(path)) == list(convert_trace(path.read_bytes().splitlines(keepends=True)))


def test_ids_differ_between_runs() -> None:
    ids = [{e["messageId"] for e in converted([CHUNK], run_id=run) if "messageId" in e} for run in ("a", "b")]
    assert not ids[0] & ids[1]


@pytest.mark.parametrize(
    "lines",
    [
        ['{"dragent_trace": 1}', f'{{"t": 0, "chunk": {CHUNK}}}', '{"t": 1, "end": true}'],
        [f'{{"chunk": {CHUNK}}}'],
        [CHUNK],
        [CHUNK.encode()],
        [CHUNK + "\r\n", "\n"],
        [f"data: {CHUNK}", "", "data: [DONE]", ""],
        [f": ping\n\ndata: {CHUNK}\n\n".encode(), b"data: [DONE]\n\n"],
        ["\ufeff" + CHUNK],
    ],
    ids=["v1", "records", "bare", "bytes", "crlf", "sse lines", "sse reads", "bom"],
)
def test_every_kind_of_recording_is_read(lines: list[Any]) -> None:
    assert [event.get("delta") for event in converted(lines, run=False)] == [None, "Hi", None]


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_a_recording_may_be_cut_into_reads_anywhere(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(load_cases("sse", "chunks")[:30]))
    whole = b"".join(
        p if isinstance(p, bytes) else p.encode("utf-8", "surrogatepass") + b"\n" for p in trace_lines(case)
    )
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(whole) - 1)), max_size=6)))
    reads = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    options = [ConverterOptions(new_id=counted_ids()) for _ in range(2)]
    assert list(convert_trace(reads, options=options[0])) == list(convert_trace([whole], options=options[1]))


def test_a_broken_line_is_named_and_the_rest_is_converted() -> None:
    events: list[str] = []
    with pytest.raises(TraceFormatError, match=r"run\.jsonl:2: is not JSON.*remove or repair the line"):
        events.extend(convert_trace([CHUNK, '{"broken', CHUNK], name="run.jsonl"))
        pytest.fail("the error must come")
    problems: list[TraceFormatError] = []
    read = converted([CHUNK, '{"broken', CHUNK], on_problem=problems.append)
    assert [event["delta"] for event in read if "delta" in event] == ["Hi", "Hi"]
    assert [problem.line for problem in problems] == [2]


def test_a_recording_that_breaks_off_ends_in_an_error_after_what_was_read() -> None:
    problems: list[TraceFormatError] = []
    events = converted([CHUNK, CHUNK[:20]], on_problem=problems.append)
    assert [event["type"] for event in events][-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
    assert problems[0].line == 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "is empty"),
        (["", "  "], "is empty"),
        (["hello world"], "is no trace"),
        (['{"dragent_trace": 2}'], "version 2; this release reads version 1"),
        (["[1, 2]"], "is no trace"),
        (['{"type":"RUN_STARTED","threadId":"t","runId":"r"}'], "is an AG-UI event"),
        ([CHUNK, "[1]"], "a JSON object is expected"),
    ],
)
def test_what_is_no_trace_is_told_so(lines: list[str], message: str) -> None:
    with pytest.raises(TraceFormatError, match=message):
        list(convert_trace(lines))


def test_what_is_no_trace_begins_no_run() -> None:
    events = convert_trace(["hello world"])
    with pytest.raises(TraceFormatError):
        next(events)


def test_a_missing_file_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match=r"none\.jsonl: cannot be read: No such file"):
        list(convert_trace(tmp_path / "none.jsonl"))


def test_an_answer_cut_off_on_the_wire_is_no_success() -> None:
    (last,) = converted([f"data: {CHUNK}\n\n".encode()])[-1:]
    assert last["type"] == "RUN_ERROR"


def test_an_unreadable_frame_of_a_capture_is_left_out() -> None:
    problems: list[TraceFormatError] = []
    capture = f"data: {CHUNK}\n\ndata: {{broken\n\ndata: {CHUNK}\n\ndata: [DONE]\n\n".encode()
    events = converted([capture], on_problem=problems.append)
    assert [event["delta"] for event in events if "delta" in event] == ["Hi", "Hi"]
    assert "frame 2" in str(problems[0])


async def test_what_is_recorded_is_replayed(tmp_path: Path) -> None:
    items = [
        json.loads(CHUNK),
        AgentStep({"event_type": "FUNCTION_START", "UUID": "f", "name": "plan"}),
        AgentStep({"event_type": "FUNCTION_END", "UUID": "f", "name": "plan"}),
    ]
    path = tmp_path / "run.jsonl"
    passed = [item async for item in record_chunks(items, path, case="mine")]
    assert passed == items
    replayed = [item async for item in replay_trace(path)]
    assert replayed == items
    events = [event.type.value async for event in stream_agui_run(replay_trace(path))]
    assert events == [event["type"] for event in converted(path)]


@pytest.mark.parametrize("whole", [True, False])
async def test_bytes_are_recorded_as_the_chunks_they_hold(tmp_path: Path, whole: bool) -> None:
    end = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    body = f"data: {CHUNK}\n\n".encode() * 3 + (end if whole else b"")
    reads = [body[at : at + 50] for at in range(0, len(body), 50)]
    path = tmp_path / "run.jsonl"
    assert [item async for item in record_chunks(reads, path)] == reads
    chunks = [record.value for record in read_trace(path) if record.kind == "chunk"]
    assert chunks[:3] == [json.loads(CHUNK)] * 3
    live = [event.type.value async for event in stream_agui_run(reads)]
    assert live == [event["type"] for event in converted(path)]
    assert live[-1] == ("RUN_FINISHED" if whole else "RUN_ERROR")


BODY = {"id": "c", "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "Hi"}}]}


@pytest.mark.parametrize(
    "capture",
    [
        json.dumps(BODY, indent=2).encode(),
        json.dumps([json.loads(CHUNK), {"choices": [{"delta": {}, "finish_reason": "stop"}]}]).encode(),
        f"data: {CHUNK}\n\ndata: [DONE]\n\n: bye\n\n".encode(),
        f"data: {CHUNK}\ndata: [DONE]\n".encode(),
    ],
)
def test_the_raw_body_of_an_answer_is_a_recording(capture: bytes) -> None:
    for reads in ([capture], [capture[at : at + 7] for at in range(0, len(capture), 7)]):
        events = converted(reads)
        assert [event["delta"] for event in events if "delta" in event] == ["Hi"]
        assert events[-1]["type"] == "RUN_FINISHED"


async def test_a_body_without_an_answer_fails_with_the_same_code_from_its_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert [read async for read in record_chunks([bytearray(b": ping\n\n")], path)] == [b": ping\n\n"]
    assert converted(path)[-1]["code"] == converted([b": ping\n\n"])[-1]["code"] == "EMPTY_ANSWER"
    with pytest.raises(AnswerError, match="comments and no chunk"):
        async for _ in replay_trace(path):
            pass


async def test_a_recorded_failure_fails_again(tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[Any]:
        yield json.loads(CHUNK)
        raise RuntimeError("boom")

    path = tmp_path / "run.jsonl"
    with pytest.raises(RuntimeError, match="boom"):
        async for _ in record_chunks(chunks(), path):
            pass
    with pytest.raises(RecordedError, match="boom"):
        async for _ in replay_trace(path):
            pass
    assert converted(path)[-1]["message"] == "boom"


async def test_a_consumer_that_leaves_is_recorded_as_such() -> None:
    out = io.StringIO()
    stream = record_chunks([json.loads(CHUNK)] * 3, out)
    await anext(stream)
    await stream.aclose()
    assert json.loads(out.getvalue().splitlines()[-1])["closed"] == "GeneratorExit"


async def test_a_recording_keeps_the_pauses() -> None:
    lines = [f'{{"t": {t}, "chunk": {CHUNK}}}' for t in (0, 0.02)]
    assert len([chunk async for chunk in replay_trace(lines, speed=100)]) == 2


def test_a_large_trace_is_converted_in_constant_memory() -> None:
    def lines() -> Iterator[str]:
        yield '{"dragent_trace": 1}'
        for _ in range(30_000):
            yield f'{{"t": 0, "chunk": {CHUNK}}}'

    tracemalloc.start()
    count = sum(1 for _ in convert_trace(lines()))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count > 30_000
    assert peak < 1_000_000


def test_read_trace_gives_the_line_and_the_time_of_each_record() -> None:
    record, _ = read_trace(['{"dragent_trace": 1}', f'{{"t": 1.5, "chunk": {CHUNK}}}', '{"t": 2, "end": true}'])
    assert (record.line, record.t, record.kind) == (2, 1.5, "chunk")


def test_blank_lines_before_the_first_record_are_counted_in_linear_time() -> None:
    started = time.process_time()
    (record,) = read_trace([b"\n"] * 300_000 + [b'{"t": 0, "chunk": {"choices": []}}\n'])
    assert record.line == 300_001
    assert time.process_time() - started < 5


@pytest.mark.parametrize("t", ["9" * 400, "1e999", "NaN", '"soon"', "true"])
def test_a_time_that_is_none_costs_only_the_time(t: str) -> None:
    (record,) = read_trace([f'{{"t": {t}, "chunk": {{"choices": []}}}}'])
    assert record.kind == "chunk"
    assert record.t in (None, 1.0)


def test_what_stands_behind_the_end_of_a_recording_is_named_with_its_line() -> None:
    lines = [
        '{"dragent_trace": 1}',
        f'{{"t": 0, "chunk": {CHUNK}}}',
        '{"t": 1, "end": true}',
        f'{{"t": 0, "chunk": {CHUNK}}}',
    ]
    with pytest.raises(TraceFormatError, match=":4: comes behind the end of the recording"):
        list(convert_trace(lines))
