import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dragent_stream.cli import replay
from dragent_stream.cli.reading import TimedEvent, open_recording, timed_events
from dragent_stream.cli.replay import play

Cli = Callable[..., Any]


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(replay, "time", clock)
    return clock


def terminal(height: int = 24) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=60, height=height, markup=False, color_system=None)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def events(*items: tuple[float, dict[str, Any]], clock: bool = True) -> list[TimedEvent]:
    return [TimedEvent(time, 1, event, clock) for time, event in items]


START = {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}
END = {"type": "TEXT_MESSAGE_END", "messageId": "m"}


def delta(text: str) -> dict[str, Any]:
    return {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": text}


def test_what_was_said_stands_there_at_the_end(cli: Cli, traces: Path) -> None:
    ended = cli("replay", traces / "nat1.9-profiler_nested_text.jsonl")
    assert ended.code == 0
    assert [line.rstrip() for line in ended.out.splitlines()] == [
        "● assistant",
        "  Asking inner.",
        '▸ inner_agent {"input_message": "do inner work"}',
        "  ✓ Inner result 42.",
        "● reasoning",
        "  Inner says hi.",
        "● mul done",
        "● reasoning",
        "  Inner result 42.",
        "● assistant",
        "  Outer done.",
        "finished",
    ]


def test_a_failure_is_shown(cli: Cli, traces: Path) -> None:
    assert cli("replay", traces / "nat1.9_llm_500.jsonl").out.splitlines()[-2:] == [
        "  Error code: 500 - boom from llm",
        "failed",
    ]


@pytest.mark.parametrize(("speed", "takes"), [(1.0, 2.0), (4.0, 0.5), (0.0, 0.0)])
def test_a_terminal_plays_at_the_recorded_pace(clock: Clock, speed: float, takes: float) -> None:
    play(events((0.0, START), (0.5, delta("a")), (2.0, END)), terminal(), speed=speed)
    assert clock.now == pytest.approx(takes)


def test_the_elapsed_time_of_the_recording_is_shown(clock: Clock) -> None:
    console = terminal()
    play(events((0.0, START), (0.5, delta("a")), (2.0, END)), console)
    assert "1.50 s of 2.00 s" in said(console)
    assert "3/3 events" in said(console)


def test_a_call_fills_up_while_it_plays(clock: Clock) -> None:
    console = terminal()
    play(
        events(
            (0.0, {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "add"}),
            (1.0, {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": '{"a"'}),
            (2.0, {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": ": 1}"}),
            (3.0, {"type": "TOOL_CALL_END", "toolCallId": "c"}),
            (4.0, {"type": "TOOL_CALL_RESULT", "toolCallId": "c", "messageId": "x", "content": ""}),
        ),
        console,
    )
    drawn = said(console)
    assert drawn.index('▸ add {"a"▌') < drawn.index('▸ add {"a": 1}▌') < drawn.index("at work") < drawn.index("(empty)")


def test_a_recording_without_a_clock_plays_too(clock: Clock) -> None:
    play(events((0, START), (1, delta("a")), (100, END), clock=False), terminal())
    assert clock.now == pytest.approx(2.0)


def test_a_small_screen_shows_the_end(clock: Clock) -> None:
    console = terminal(height=6)
    play(events((0.0, START), (0.0, delta("\n".join(f"line {n}" for n in range(99)))), (1.0, delta("\nlast"))), console)
    picture = said(console).split("of 1.00 s")[0]
    assert "line 98" in picture
    assert "line 50" not in picture


class Pipe(io.StringIO):
    """A file that remembers when what was flushed to it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.flushed: list[tuple[float, str]] = []

    def flush(self) -> None:
        new = self.getvalue()[sum(len(text) for _, text in self.flushed) :]
        if new:
            self.flushed.append((self.clock.now, new))


@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
def test_a_pipe_gets_every_delta_at_the_recorded_pace(clock: Clock, speed: float) -> None:
    pipe = Pipe(clock)
    recording = events((0.5, START), (0.5, delta("Hel")), (2.0, delta("lo\nyou")), (3.0, END))
    play(recording, Console(file=pipe, markup=False), speed=speed)
    assert pipe.getvalue() == "● assistant\n  Hello\n  you\nthe run has no end\n"
    for before, after, text in (
        (0.0, 0.5, ""),
        (0.6, 2.0, "● assistant\n  Hel"),
        (2.1, 3.0, "● assistant\n  Hello\n  you"),
    ):
        for time in (before, after - 0.1):
            assert "".join(text for at, text in pipe.flushed if at * speed <= time) == text


def test_without_pauses_a_pipe_gets_everything_at_once(clock: Clock) -> None:
    play(events((0.5, START), (9.0, delta("Hi"))), Console(file=Pipe(clock), markup=False), speed=0.0)
    assert clock.slept == []


def test_a_pipe_gets_the_same_text_at_every_pace(clock: Clock, traces: Path) -> None:
    for trace in sorted(traces.glob("*.jsonl"))[:20]:
        written: list[str] = []
        for speed in (0.0, 3.0):
            pipe = Pipe(clock)
            with open_recording(str(trace)) as recording:
                play(timed_events(recording, pytest.fail), Console(file=pipe, markup=False), speed=speed)
            written.append(pipe.getvalue())
        assert written[0] == written[1] != ""


def test_a_pipe_is_played_without_pauses_unless_a_speed_is_given(cli: Cli, clock: Clock, traces: Path) -> None:
    whole = cli("replay", traces / "nat1.9_plain.jsonl")
    assert clock.slept == []
    assert cli("replay", traces / "nat1.9_plain.jsonl", "--speed", "1").out == whole.out
    assert clock.now > 0


def test_calls_that_run_at_once_stand_one_below_the_other_in_a_pipe(clock: Clock) -> None:
    def call(kind: str, call_id: str, **more: str) -> dict[str, Any]:
        return {"type": f"TOOL_CALL_{kind}", "toolCallId": call_id, **more}

    pipe = Pipe(clock)
    play(
        events(
            (0.0, call("START", "a", toolCallName="add")),
            (1.0, call("START", "b", toolCallName="sub")),
            (2.0, call("ARGS", "b", delta="{}")),
            (3.0, call("ARGS", "a", delta='{"x": 1}')),
            (4.0, call("END", "a")),
            (5.0, call("END", "b")),
            (6.0, call("RESULT", "b", content="2")),
            (7.0, call("RESULT", "a", content="1")),
        ),
        Console(file=pipe, markup=False),
    )
    assert pipe.getvalue() == '▸ add {"x": 1}\n  ✓ 1\n▸ sub {}\n  ✓ 2\nthe run has no end\n'


def test_foreign_text_cannot_steer_the_terminal(cli: Cli) -> None:
    lines = [START, delta("a\x1b[2Jb\ud83d [bold]c"), END]
    ended = cli("replay", "-", stdin="\n".join(map(json.dumps, lines)).encode())
    assert "\x1b" not in ended.out
    assert "[bold]c" in ended.out


def test_an_unreadable_line_is_named_and_the_rest_is_played(cli: Cli) -> None:
    ended = cli("replay", "-", stdin=json.dumps(START).encode() + b"\n{\n" + json.dumps(delta("hi")).encode())
    assert (ended.code, "<stdin>:2: is not JSON" in ended.err, "hi" in ended.out) == (2, True, True)
