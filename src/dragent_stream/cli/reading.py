"""Open what a verb is given: a file or standard input, a trace or AG-UI events, each with its line and its time."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from dragent_stream.errors import TraceFormatError
from dragent_stream.event_shapes import EVENT_SHAPES
from dragent_stream.events import WireEvents
from dragent_stream.ledger import RunLedger
from dragent_stream.options import ConverterOptions
from dragent_stream.stream_converter import ChunkConverter
from dragent_stream.trace import feed_record, read_trace

__all__ = (
    "Frame",
    "Problem",
    "Recording",
    "TimedEvent",
    "frames",
    "not_understood",
    "open_recording",
    "parse_event",
    "timed_events",
)

Problem = Callable[[TraceFormatError], None]
"""Called with each line that cannot be read; reading goes on behind it."""

_NOTHING = ("UNKNOWN_CHUNKS", "EMPTY_ANSWER")
"""Codes of a run in which chunks came and nothing was made of them."""

_PEEK = 50
"""Lines looked at to tell events from a trace; comments and blank lines count."""


@dataclass(frozen=True, slots=True)
class TimedEvent:
    """One AG-UI event of a recording.

    Attributes:
        time: Seconds since the recording's start, or the event's position where the recording has no clock.
        line: The line of the input, from 1, that it stands on or came from.
        event: The event as on the wire.
        clock: Whether `time` is seconds.
    """

    time: float
    line: int
    event: dict[str, Any]
    clock: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of an AG-UI stream, still as text.

    Attributes:
        line: Its first line, from 1.
        data: A line of JSONL, or the data of an SSE frame.
        carriage_return: Whether the SSE frame has a line that ends in CR.
    """

    line: int
    data: str
    carriage_return: bool


@dataclass(frozen=True, slots=True)
class Recording:
    """An opened input.

    Attributes:
        name: What messages call it.
        kind: Whether its lines are AG-UI events already, or a trace of any shape, to convert.
        lines: Its lines, to be read once.
    """

    name: str
    kind: Literal["events", "trace"]
    lines: Iterator[bytes]


@contextmanager
def open_recording(path: str) -> Generator[Recording]:
    """Open a file, or standard input for `-`, and look at its first lines to tell what it is.

    Raises:
        TraceFormatError: The file is a directory or empty.
        OSError: It cannot be opened.
    """
    name = "<stdin>" if path == "-" else path
    if path != "-" and Path(path).is_dir():
        raise TraceFormatError("is a directory", source=name, remedy="name a file; only `convert` takes directories")
    stream = sys.stdin.buffer if path == "-" else Path(path).open("rb")
    try:
        peeked = list(itertools.islice(stream, _PEEK))
        if not any(line.strip() for line in peeked):
            raise TraceFormatError("is empty", source=name, remedy="give a trace, chunk JSONL or an SSE capture")
        kind = "events" if _are_events(peeked) else "trace"
        yield Recording(name, kind, itertools.chain(peeked, stream))
    finally:
        if path != "-":
            stream.close()


def _are_events(lines: Iterable[bytes]) -> bool:
    for line in lines:
        text = line.removeprefix(b"\xef\xbb\xbf").strip()
        if text.startswith(b"data:"):
            text = text[5:].strip()
        if not text.startswith(b"{"):
            continue
        try:
            kind = json.loads(text).get("type")
        except ValueError:
            continue
        return isinstance(kind, str) and (kind in EVENT_SHAPES or re.fullmatch(r"[A-Z]+(_[A-Z]+)+", kind) is not None)
    return False


def frames(recording: Recording) -> Iterator[Frame]:
    """Split an AG-UI stream into frames: lines of JSON, or the data of SSE frames (`data:` lines up to a blank one)."""
    data: list[str] = []
    first, returned = 0, False
    for number, line in enumerate(recording.lines, 1):
        text = line.decode("utf-8", "replace").removesuffix("\n")
        ends_in_cr, text = text.endswith("\r"), text.removesuffix("\r")
        if number == 1:
            text = text.removeprefix("\ufeff")
        if text.startswith("data:"):
            if not data:
                first, returned = number, False
            returned = returned or ends_in_cr
            data.append(text[5:].removeprefix(" "))
        elif not text.strip():
            if data:
                yield Frame(first, "\n".join(data), returned or ends_in_cr)
                data.clear()
        elif not re.match(r":|(event|id|retry):", text):
            yield Frame(number, text, False)
    if data:
        yield Frame(first, "\n".join(data), returned)


def parse_event(frame: Frame, name: str) -> dict[str, Any]:
    """Read the event in a frame.

    Raises:
        TraceFormatError: The frame is no JSON object.
    """
    try:
        event = json.loads(frame.data)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise TraceFormatError(
            f"is not JSON: {reason}", source=name, line=frame.line, remedy="remove or repair the line"
        ) from None
    if not isinstance(event, dict):
        raise TraceFormatError("is no JSON object", source=name, line=frame.line, remedy="remove the line")
    return cast("dict[str, Any]", event)


def timed_events(recording: Recording, on_problem: Problem) -> Iterator[TimedEvent]:
    """Read the AG-UI events of a recording, converting a trace on the way."""
    if recording.kind == "trace":
        yield from _converted(recording, on_problem)
        return
    start: float | None = None
    for position, frame in enumerate(frames(recording)):
        try:
            event = parse_event(frame, recording.name)
        except TraceFormatError as error:
            on_problem(error)
            continue
        stamp = event.get("timestamp")
        if isinstance(stamp, int | float):
            start = float(stamp) if start is None else start
            yield TimedEvent((stamp - start) / 1000, frame.line, event, True)
        else:
            yield TimedEvent(float(position), frame.line, event, False)


def not_understood(event: Mapping[str, Any], name: str) -> TraceFormatError | None:
    """The error of an input that a conversion made nothing of; None for every other event.

    A failure that was recorded is no error of the input: it converts to a run that failed.

    Args:
        event: An event that a conversion gave.
        name: What messages call the input.
    """
    if event.get("type") != "RUN_ERROR" or event.get("code") not in _NOTHING:
        return None
    return TraceFormatError(str(event.get("message")), source=name)


def _converted(recording: Recording, on_problem: Problem) -> Iterator[TimedEvent]:
    """`convert_trace`, with each event beside the record that it came from."""
    ids = itertools.count(1)
    options = ConverterOptions(new_id=lambda: f"id-{next(ids)}", expose_errors=True)
    ledger = RunLedger(WireEvents(), options=options, thread_id="trace-thread", run_id="trace-run")
    converter = ChunkConverter(ledger)
    time, line, clock = 0.0, 1, False
    positions = itertools.count()

    def stamped(batch: list[bytes]) -> Iterator[TimedEvent]:
        for frame in batch:
            position = next(positions)
            event = json.loads(frame[len(b"data: ") :])
            if problem := not_understood(event, recording.name):
                on_problem(problem)
            yield TimedEvent(time if clock else float(position), line, event, clock)

    yield from stamped(ledger.start_run())
    for record in read_trace(recording.lines, name=recording.name, on_problem=on_problem):
        line = record.line
        if record.t is not None:
            time, clock = record.t, True
        yield from stamped(feed_record(converter, record))
        if ledger.finished:
            break
    yield from stamped(converter.finish())
    yield from stamped(ledger.finish_run())
