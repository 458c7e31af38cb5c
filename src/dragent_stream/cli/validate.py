"""Judge an AG-UI stream, or what a trace converts to: each violation with its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dragent_stream.check import EventChecker, Violation
from dragent_stream.cli.reading import Frame, Problem, Recording, frames, parse_event, timed_events
from dragent_stream.errors import TraceFormatError

__all__ = ("TRANSPORT_RULES", "Finding", "validate_recording")

TRANSPORT_RULES: Mapping[str, str] = {
    "T1": "Lines of SSE end in LF; CRLF and CR are fatal in the client.",
    "T2": "Each frame is one JSON object; `[DONE]`, null or two objects are fatal.",
    "T3": "A frame is not above 10 MB.",
}
_FRAME_LIMIT = 10 * 1000 * 1000


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation and the line, from 1, that it stands on."""

    line: int
    rule: str
    message: str


def validate_recording(
    recording: Recording, *, lifecycle: bool, run_input: Mapping[str, Any] | None, on_problem: Problem
) -> Iterator[Finding | int]:
    """Check a recording.

    Args:
        recording: AG-UI events, or a trace, which is converted first.
        lifecycle: See `EventChecker`.
        run_input: See `EventChecker`.
        on_problem: Called with each line of a trace that cannot be read.

    Yields:
        The findings in order, and at last the number of events.
    """
    checker = EventChecker(lifecycle=lifecycle, run_input=run_input)
    events, last = 0, 0
    if recording.kind == "trace":
        for timed in timed_events(recording, on_problem):
            events, last = events + 1, timed.line
            yield from _findings(timed.line, checker.feed(timed.event))
    else:
        for frame in frames(recording):
            last = frame.line
            yield from _transport(frame)
            try:
                event = parse_event(frame, recording.name)
            except TraceFormatError:
                yield Finding(frame.line, "T2", f"no JSON object: {frame.data[:60]!r}")
                continue
            events += 1
            yield from _findings(frame.line, checker.feed(event))
    yield from _findings(last, checker.finish())
    yield events


def _transport(frame: Frame) -> Iterator[Finding]:
    if frame.carriage_return:
        yield Finding(frame.line, "T1", "the frame's lines end in CR")
    if len(frame.data) > _FRAME_LIMIT:
        yield Finding(frame.line, "T3", f"the frame has {len(frame.data)} characters")


def _findings(line: int, violations: list[Violation]) -> Iterator[Finding]:
    return (Finding(line, violation.rule, violation.message) for violation in violations)
