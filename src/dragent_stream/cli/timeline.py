"""The shape of a run in time: which message, reasoning, call and step lasted from when to when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from dragent_stream.cli.reading import TimedEvent

__all__ = ("Bar", "Kind", "Timeline", "timeline_of")

Kind = Literal["text", "reasoning", "call", "step", "subagent"]


@dataclass(slots=True)
class Bar:
    """One row.

    Attributes:
        kind: What it shows.
        label: Its name: the tool, the step, or the kind of message.
        start: When it opened.
        end: When it closed; the run's end where it never did.
        marks: When a delta came.
        text: What was said: the text, or the call's arguments.
        closed: Whether its END came.
        result: What the tool gave, where the bar is a call.
        result_at: When the result came.
    """

    kind: Kind
    label: str
    start: float
    end: float = 0.0
    marks: list[float] = field(default_factory=list[float])
    text: str = ""
    closed: bool = False
    result: str | None = None
    result_at: float | None = None


@dataclass(slots=True)
class Timeline:
    """A run as rows.

    Attributes:
        bars: The rows, in the order they opened.
        start: The time of the first event.
        end: The time of the last event.
        unit: What times count: seconds, or events where the recording has no clock.
        terminal: The last event's type, RUN_FINISHED or RUN_ERROR, empty where none came.
        error: The message of RUN_ERROR.
        events: How many events there were.
        thread_id: The run's thread, empty where unknown.
        run_id: The run, empty where unknown.
    """

    bars: list[Bar] = field(default_factory=list[Bar])
    start: float = 0.0
    end: float = 0.0
    unit: Literal["s", "events"] = "s"
    terminal: str = ""
    error: str = ""
    events: int = 0
    thread_id: str = ""
    run_id: str = ""


_OPENS: dict[str, tuple[Kind, str]] = {
    "TEXT_MESSAGE_START": ("text", "messageId"),
    "REASONING_MESSAGE_START": ("reasoning", "messageId"),
    "TOOL_CALL_START": ("call", "toolCallId"),
    "STEP_STARTED": ("step", "stepName"),
    "SUBAGENT_STARTED": ("subagent", "subagentRunId"),
}
_GROWS: dict[str, tuple[Kind, str]] = {
    "TEXT_MESSAGE_CONTENT": ("text", "messageId"),
    "REASONING_MESSAGE_CONTENT": ("reasoning", "messageId"),
    "TOOL_CALL_ARGS": ("call", "toolCallId"),
}
_CLOSES: dict[str, tuple[Kind, str]] = {
    "TEXT_MESSAGE_END": ("text", "messageId"),
    "REASONING_MESSAGE_END": ("reasoning", "messageId"),
    "TOOL_CALL_END": ("call", "toolCallId"),
    "STEP_FINISHED": ("step", "stepName"),
    "SUBAGENT_FINISHED": ("subagent", "subagentRunId"),
    "SUBAGENT_ERROR": ("subagent", "subagentRunId"),
}


def timeline_of(events: Iterable[TimedEvent], *, clock: bool = True) -> Timeline:
    """Lay events out in time.

    Args:
        events: The events of one run or several, in order.
        clock: Whether times are seconds; False where they are positions.
    """
    line = Timeline(unit="s" if clock else "events")
    latest: dict[tuple[str, str], Bar] = {}
    pieces: dict[int, list[str]] = {}
    for timed in events:
        event, kind = timed.event, str(timed.event.get("type", ""))
        if not line.events:
            line.start = timed.time
        line.events += 1
        line.end = max(line.end, timed.time)
        if kind in _OPENS:
            what, key = _OPENS[kind]
            bar = Bar(what, _label(what, event), timed.time)
            latest[what, str(event.get(key, ""))] = bar
            pieces[id(bar)] = []
            line.bars.append(bar)
        elif kind in _GROWS:
            what, key = _GROWS[kind]
            bar = latest.get((what, str(event.get(key, ""))))
            if bar is not None:
                bar.marks.append(timed.time)
                pieces[id(bar)].append(str(event.get("delta", "")))
        elif kind in _CLOSES:
            what, key = _CLOSES[kind]
            bar = latest.get((what, str(event.get(key, ""))))
            if bar is not None:
                bar.end, bar.closed = timed.time, True
        elif kind == "TOOL_CALL_RESULT":
            bar = latest.get(("call", str(event.get("toolCallId", ""))))
            if bar is not None:
                bar.result, bar.result_at = str(event.get("content", "")), timed.time
        elif kind in ("RUN_FINISHED", "RUN_ERROR"):
            line.terminal, line.error = kind, str(event.get("message", ""))
        elif kind == "RUN_STARTED":
            line.thread_id, line.run_id = str(event.get("threadId", "")), str(event.get("runId", ""))
    for bar in line.bars:
        bar.text = "".join(pieces[id(bar)])
        if not bar.closed:
            bar.end = line.end
    return line


def _label(kind: Kind, event: dict[str, object]) -> str:
    if kind == "call":
        return str(event.get("toolCallName", ""))
    if kind == "step":
        return str(event.get("stepName", ""))
    if kind == "subagent":
        return str(event.get("name", ""))
    role = event.get("role")
    return "reasoning" if kind == "reasoning" else str(role) if role else "assistant"
