"""The lines of a trace, or lines of bare chunks, as records; and whether the recording was cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from dragent_stream.answer_end import AnswerEnd
from dragent_stream.errors import TraceFormatError
from dragent_stream.fields import fields_of
from dragent_stream.trace_recording import TRACE_VERSION
from dragent_stream.trace_values import TAG, read_chunk, read_step

__all__ = ["Problem", "TraceRecord", "read_lines"]

Kind: TypeAlias = Literal["chunk", "step", "error", "closed", "end", "cut"]
Problem: TypeAlias = Callable[[TraceFormatError], None]

_KINDS: tuple[Kind, ...] = ("chunk", "step", "error", "closed", "end")
_MAX_SECONDS = 1e9  # what is no time: NaN, infinity, an integer that is no float


class TraceRecord(NamedTuple):
    """One record of a trace.

    Attributes:
        line: Its line number, from 1; the frame's number in an SSE capture.
        t: Seconds since the start, or None where the recording has no times.
        kind: What `value` is; `cut` stands for a recording that breaks off, its value says how: a text or an
            `AnswerError`.
        value: The chunk, the step, the error object, or how it ended.
    """

    line: int
    t: float | None
    kind: Kind
    value: Any


def read_lines(lines: Iterator[bytes], name: str, problem: Problem) -> Iterator[TraceRecord]:
    """The records of a trace's lines; `problem` is told of each that cannot be read."""
    broken: TraceFormatError | None = None
    ending = _Ending()
    number = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if broken is not None:
            problem(broken)
            broken = None
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError) as exc:
            reason = exc.msg if isinstance(exc, json.JSONDecodeError) else type(exc).__name__
            broken = TraceFormatError(
                f"is not JSON: {reason}", source=name, line=number, remedy="remove or repair the line"
            )
            continue
        if not isinstance(value, dict):
            problem(
                TraceFormatError(
                    "is no record: a JSON object is expected", source=name, line=number, remedy="remove the line"
                )
            )
            continue
        record = cast("dict[str, Any]", value)
        if "dragent_trace" in record:
            _check_version(record["dragent_trace"], name, number)
            ending.headed = True
            continue
        t = record.get("t")
        kind: Kind | None = next((kind for kind in _KINDS if kind in record and "choices" not in record), None)
        if kind == "error" and t is None and not _is_recorded_error(record):
            kind = None  # a bare chunk with an error object
        if _is_agui(record):
            problem(
                TraceFormatError(
                    f"is an AG-UI event ({record['type']}), no chunk",
                    source=name,
                    line=number,
                    remedy="it is converted already; check it with: dragent-stream validate",
                )
            )
        elif kind is None:
            ending.note("chunk", record)
            yield TraceRecord(number, None, "chunk", record)
        else:
            if ending.ended and kind in ("chunk", "step"):
                problem(
                    TraceFormatError(
                        "comes behind the end of the recording",
                        source=name,
                        line=number,
                        remedy="one file holds one recording; split it there",
                    )
                )
            seconds = float(t) if isinstance(t, int | float) and abs(t) < _MAX_SECONDS else None
            ending.note(kind, record[kind])
            yield TraceRecord(number, seconds, kind, _value(kind, record[kind], TAG.encode() in line))
    if broken is not None:
        problem(
            TraceFormatError("breaks off here", source=name, line=broken.line, remedy="the recording was cut short")
        )
        yield TraceRecord(broken.line, None, "cut", f"the recording breaks off in line {broken.line}")
    elif ending.is_cut:
        yield TraceRecord(number, None, "cut", "the recording was cut: it has no end, and the answer in it has none")


def _value(kind: Kind, written: Any, tagged: bool) -> Any:
    if kind == "chunk" and (tagged or isinstance(written, list)):
        return read_chunk(written)
    return read_step(written) if kind == "step" and tagged else written


class _Ending:
    """Whether a recording that is over was cut: the recorder writes how the stream ended, if it lives to see it."""

    __slots__ = ("_answered", "ended", "headed", "over")

    def __init__(self) -> None:
        self.headed = False
        self.ended = False
        self.over = False
        self._answered = False

    @property
    def is_cut(self) -> bool:
        """What would have followed is not known, and the model had not ended its answer either."""
        return self.headed and not self.over and not self._answered

    def note(self, kind: Kind, value: Any) -> None:
        """Take a record, its value as it is written."""
        self.ended = self.ended or kind == "end"
        self.over = self.over or kind in ("end", "error", "closed")
        if kind != "chunk" or value is None:
            return
        chunk = fields_of(value) or {}
        if chunk.get("choices") or "usage" not in chunk:  # usage may follow the end
            end = AnswerEnd()
            end.take(chunk)
            self._answered = end.over and not _asks_for_tools(chunk)


def _asks_for_tools(chunk: Mapping[str, Any]) -> bool:
    """The answer has ended, and an agent goes on with its calls."""
    choices = [choice for entry in chunk.get("choices") or () if (choice := fields_of(entry))]
    return any(choice.get("finish_reason") in ("tool_calls", "function_call", "tool_use") for choice in choices)


def _is_recorded_error(record: Mapping[str, Any]) -> bool:
    return record.keys() <= {"error"} and isinstance(record["error"], dict) and "type" in record["error"]


def _is_agui(record: Mapping[str, Any]) -> bool:
    kind = record.get("type")
    return (
        isinstance(kind, str)
        and kind.isupper()
        and ("_" in kind or kind in ("RAW", "CUSTOM"))
        and "choices" not in record
    )


def _check_version(version: object, name: str, line: int) -> None:
    if version != TRACE_VERSION or isinstance(version, bool):
        raise TraceFormatError(
            f"is a trace of version {version!r}; this release reads version {TRACE_VERSION}",
            source=name,
            line=line,
            remedy="upgrade dragent-stream, or record it again",
        )
