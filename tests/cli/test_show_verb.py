import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dragent_stream.cli.picture import draw_html, draw_svg, draw_text
from dragent_stream.cli.reading import TimedEvent
from dragent_stream.cli.timeline import Bar, Timeline, timeline_of

Cli = Callable[..., Any]


def timed(*events: tuple[float, dict[str, Any]]) -> list[TimedEvent]:
    return [TimedEvent(time, line, event, True) for line, (time, event) in enumerate(events, 1)]


RUN = timed(
    (0.0, {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}),
    (1.0, {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}),
    (1.0, {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "a<b"}),
    (1.5, {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "\x1b&"}),
    (2.0, {"type": "TEXT_MESSAGE_END", "messageId": "m"}),
    (2.0, {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "add"}),
    (2.5, {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{}"}),
    (3.0, {"type": "TOOL_CALL_END", "toolCallId": "c"}),
    (3.0, {"type": "STEP_STARTED", "stepName": "s"}),
    (4.0, {"type": "TOOL_CALL_RESULT", "toolCallId": "c", "messageId": "x", "content": "3"}),
    (5.0, {"type": "RUN_ERROR", "message": "gone"}),
)


def test_events_become_bars() -> None:
    line = timeline_of(RUN)
    assert line.bars == [
        Bar("text", "assistant", 1.0, 2.0, [1.0, 1.5], "a<b\x1b&", closed=True),
        Bar("call", "add", 2.0, 3.0, [2.5], "{}", closed=True, result="3", result_at=4.0),
        Bar("step", "s", 3.0, 5.0),
    ]
    assert (line.start, line.end, line.terminal, line.error, line.events) == (0.0, 5.0, "RUN_ERROR", "gone", 11)


def test_a_reused_id_is_a_second_bar() -> None:
    line = timeline_of(RUN[1:5] + timed((3.0, RUN[1].event), (4.0, RUN[4].event)))
    assert [(bar.start, bar.end, bar.text) for bar in line.bars] == [(1.0, 2.0, "a<b\x1b&"), (3.0, 4.0, "")]


def test_the_svg_is_xml_whatever_was_said() -> None:
    root = ElementTree.fromstring(draw_svg(timeline_of(RUN), 'title "<&>" \ud800'))
    said = "".join(root.itertext())
    assert "a<b" in said
    assert "RUN_ERROR: gone" in said
    assert "add" in said


def test_the_page_has_everything_that_was_said_in_full() -> None:
    long = "word " * 2000
    line = Timeline([Bar("text", "assistant", 0, 1, [0], long, closed=True)], 0, 1, events=3)
    assert long in draw_html(line, "t")
    assert long not in draw_svg(line, "t")


@pytest.mark.parametrize("line", [Timeline(), timeline_of(RUN), timeline_of(RUN[:1]), timeline_of(RUN, clock=False)])
def test_any_run_can_be_drawn(line: Timeline) -> None:
    ElementTree.fromstring(draw_svg(line, ""))
    assert all(len(cells) == 30 for _, _, cells in draw_text(line, 30))


def test_rows_are_bounded() -> None:
    line = Timeline([Bar("text", "a", 0, 1, [], "", closed=True) for _ in range(5000)], 0, 1)
    picture = draw_svg(line, "t")
    assert "the first 300 of 5000 rows" in picture


def test_bars_in_characters_keep_their_order_in_time() -> None:
    rows = {label: cells for _, label, cells in draw_text(timeline_of(RUN), 50)}
    assert rows["assistant"].index("█") == 10
    assert rows["add"].index("█") == 20
    assert rows["add"].index("◆") == 40


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<svg"), ("html", b"<!doctype html>"), ("png", b"\x89PNG\r\n")])
def test_a_picture_is_written_in_the_form_of_its_name(
    cli: Cli, traces: Path, tmp_path: Path, suffix: str, start: bytes
) -> None:
    target = tmp_path / f"run.{suffix}"
    assert cli("show", traces / "nat1.9_parallel.jsonl", "-o", target).code == 0
    assert target.read_bytes().startswith(start)


def test_another_form_is_refused(cli: Cli, traces: Path, tmp_path: Path) -> None:
    ended = cli("show", traces / "nat1.9_parallel.jsonl", "-o", tmp_path / "run.gif")
    assert (ended.code, ".svg, .png or .html" in ended.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_without_a_file_the_bars_are_printed(cli: Cli, traces: Path) -> None:
    ended = cli("show", traces / "nat1.9_parallel.jsonl")
    lines = ended.out.splitlines()
    assert "2 tool calls" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["add", "mul", "assistant", "RUN_FINISHED"]


def test_events_without_a_clock_are_drawn_by_position(cli: Cli) -> None:
    ended = cli("show", "-", stdin="\n".join(json.dumps(timed.event) for timed in RUN).encode())
    assert (ended.code, "positions of events" in ended.out) == (0, True)


def test_events_with_timestamps_are_drawn_by_them(cli: Cli) -> None:
    lines = [json.dumps(timed.event | {"timestamp": 1_000_000 + int(timed.time * 1000)}) for timed in RUN]
    assert "5.00 s" in cli("show", "-", stdin="\n".join(lines).encode()).out
