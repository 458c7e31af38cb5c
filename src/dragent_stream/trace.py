"""Recordings of a run, format version 1: record, read, convert, replay.

JSON Lines, UTF-8. The first line is `{"dragent_trace": 1, …free metadata…}`; then one record a line, each with `t`,
the seconds since the start:

```
{"t", "chunk": {chat.completion.chunk}}        {"t", "step": {an intermediate step}}
{"t", "error": {"type", "message", "code"?}}   the upstream raised, or its bytes held no whole answer
{"t", "closed": "GeneratorExit" | "CancelledError"}   the consumer left
{"t", "end": true}
```

A chunk may also be text, null (a heartbeat) or a list (a tuple); `trace_values` says how other values stand in it. With a
header, a recording that has neither of the last three lines was cut, unless the model had ended its answer.

Also read: lines of the same kind without a header, lines that are bare chunks, and the raw body of an answer: an SSE
capture (`data: …`), a completion over several lines, an array of chunks.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, cast

import anyio

from dragent_stream.answer_body import BodyChunks
from dragent_stream.errors import (
    AnswerError,
    ConversionError,
    DragentStreamError,
    RecordedError,
    SSEError,
    TraceFormatError,
    UpstreamError,
)
from dragent_stream.events import WireEvents
from dragent_stream.ledger import RunLedger
from dragent_stream.options import ConverterOptions
from dragent_stream.sse.chat import Json, is_invalid_frame
from dragent_stream.step_adaptor import AgentStep
from dragent_stream.stream_converter import ChunkConverter
from dragent_stream.trace_lines import Problem, TraceRecord, read_lines
from dragent_stream.trace_recording import TRACE_VERSION, record_chunks

__all__ = [
    "TRACE_VERSION",
    "TraceRecord",
    "convert_trace",
    "feed_record",
    "read_trace",
    "record_chunks",
    "replay_trace",
]

E = TypeVar("E")
_SSE_STARTS = (b"data", b":", b"event", b"id", b"retry", b"error")
_JSON_BODY = re.compile(rb"\{[ \t]*[\r\n]|\[\s*\{")  # of an answer; a record of a trace is one line


def read_trace(
    source: str | PathLike[str] | Iterable[str | bytes],
    *,
    name: str | None = None,
    on_problem: Problem | None = None,
) -> Iterator[TraceRecord]:
    """Read the records of a trace, one at a time.

    Args:
        source: A path; or the lines of a trace, as an open text or binary file gives them, or the reads of a socket.
        name: What error messages call the source; the path's name by default.
        on_problem: Called with the error of each line that cannot be read; reading goes on behind it.

    Yields:
        The records, in the order of the file; at last a `cut`, where the recording breaks off.

    Raises:
        TraceFormatError: Without `on_problem`, at the first line that cannot be read. Always, where the whole source is
            no trace, or one of another version.
    """

    def stop(error: TraceFormatError) -> None:
        raise error

    problem = on_problem or stop
    if isinstance(source, str | PathLike):
        path = Path(source)
        try:
            with path.open("rb") as file:
                yield from _read(file, name or path.name, problem)
        except OSError as exc:
            raise TraceFormatError(
                f"cannot be read: {exc.strerror or exc}", source=name or str(path), remedy="check the path"
            ) from exc
    else:
        yield from _read(source, name or getattr(source, "name", None) or "<trace>", problem)


def _read(source: Iterable[str | bytes], name: str, problem: Problem) -> Iterator[TraceRecord]:
    pieces = _bytes(source)
    blank: list[bytes] = []  # pieces before the first word; joined once, however many they are
    head = b""
    for piece in pieces:
        head = (head + piece).removeprefix(b"\xef\xbb\xbf")
        if head.isspace():
            blank.append(head)
            head = b""
        elif len(head.lstrip()) > 5 or b"\n" in head.strip(b" \t\r\n"):
            break
    start = head.lstrip()
    head = b"".join((*blank, head))
    if not start:
        raise TraceFormatError("is empty", source=name, remedy="record a run with: dragent-stream record")
    if start.startswith(_SSE_STARTS) or _JSON_BODY.match(start):
        yield from _read_body(head, pieces, name, problem)
    elif start.startswith(b"{"):
        yield from read_lines(_lines(head, pieces), name, problem)
    else:
        raise TraceFormatError(
            "is no trace: it starts neither with a JSON object nor with an SSE field",
            source=name,
            line=1,
            remedy='a trace is JSON Lines with the header {"dragent_trace": 1}, bare chunk lines, or an SSE capture',
        )


def _bytes(source: Iterable[str | bytes]) -> Iterator[bytes]:
    """The pieces as bytes; a line that came without its end gets one."""
    at_line_start = True
    for piece in source:
        if isinstance(piece, str):
            data = piece.encode("utf-8", "surrogatepass")
            data += b"" if data.endswith((b"\n", b"\r")) else b"\n"
        elif at_line_start and piece.startswith(b"{") and _is_whole(piece):
            data = piece + b"\n"
        else:
            data = piece
        yield data
        at_line_start = data.endswith(b"\n")


def _is_whole(piece: bytes) -> bool:
    """The piece is a whole record: the beginning of a JSON object never is one itself."""
    try:
        json.loads(piece)
    except (ValueError, RecursionError):
        return False
    return not piece.endswith((b"\n", b"\r"))


def _lines(head: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    waiting = [head]
    for piece in pieces:
        if b"\n" in waiting[-1]:
            *whole, rest = b"".join(waiting).split(b"\n")
            yield from whole
            waiting = [rest]
        waiting.append(piece)
    yield from b"".join(waiting).split(b"\n")


def _read_body(head: bytes, pieces: Iterator[bytes], name: str, problem: Problem) -> Iterator[TraceRecord]:
    bodies = BodyChunks()
    number = 0

    def records(chunks: list[Json]) -> Iterator[TraceRecord]:
        nonlocal number
        for chunk in chunks:
            number += 1
            if is_invalid_frame(chunk):
                text = str(chunk["error"]["message"])
                problem(TraceFormatError(text, source=name, remedy="the frame is left out"))
            else:
                yield TraceRecord(number, None, "chunk", chunk)

    try:
        for piece in chain([head], pieces):
            yield from records(bodies.read(piece))
        yield from records(bodies.end())
    except SSEError as exc:
        problem(TraceFormatError(str(exc), source=name, remedy="is it an SSE capture?"))
        yield TraceRecord(number + 1, None, "cut", str(exc))
        return
    if bodies.problem:
        yield TraceRecord(number + 1, None, "cut", bodies.problem)


# Converting and replaying.


def feed_record(converter: ChunkConverter[E], record: TraceRecord) -> list[E]:
    """The events of one record; both paths, the upstream's failure and the consumer's leaving included."""
    match record.kind:
        case "chunk":
            return converter.feed(record.value)
        case "step":
            return converter.steps.feed(record.value)
        case "error":
            return converter.fail(_recorded_error(record.value))
        case "cut":
            return converter.fail(_how_it_broke_off(record.value))
        case "closed":
            return converter.ledger.cancel_run()
        case "end":
            return converter.finish()


def _how_it_broke_off(value: str | AnswerError) -> AnswerError:
    return AnswerError(value) if isinstance(value, str) else value


_OURS = {kind.__name__: kind for kind in (AnswerError, ConversionError, SSEError, UpstreamError)}


def _recorded_error(value: Any) -> DragentStreamError:
    """The exception that the upstream raised; what is not of this library as a `RecordedError`."""
    if not isinstance(value, Mapping):
        return RecordedError(str(value))
    fields = cast("Mapping[str, Any]", value)
    message, name = str(fields.get("message") or ""), str(fields.get("type") or "")
    kind = _OURS.get(name)
    if kind is None:
        return RecordedError(message or name or "the upstream failed")
    if issubclass(kind, UpstreamError):
        return kind(message, str(fields.get("code") or "STREAM_ERROR"))
    return kind(message)


def convert_trace(
    lines: str | PathLike[str] | Iterable[str | bytes],
    *,
    run: bool = True,
    thread_id: str | None = None,
    run_id: str | None = None,
    options: ConverterOptions | None = None,
    name: str | None = None,
    on_problem: Problem | None = None,
) -> Iterator[str]:
    """Convert a trace into AG-UI events; pure, so the same trace gives the same bytes.

    Args:
        lines: See `read_trace`.
        run: Write RUN_STARTED and RUN_FINISHED around the events.
        thread_id: The thread's id.
        run_id: The run's id.
        options: See `ConverterOptions`. Where None, ids are derived from thread and run id, and errors carry the text
            that was recorded.
        name: What error messages call the trace.
        on_problem: Called with the error of each line that cannot be read.

    Yields:
        One event as wire JSON.

    Raises:
        TraceFormatError: See `read_trace`. Without `on_problem`, the first error is raised after everything that could
            be read was converted and yielded.
    """
    thread_id, run_id = thread_id or "trace-thread", run_id or "trace-run"
    if options is None:
        options = ConverterOptions(new_id=_derived_ids(thread_id, run_id), expose_errors=True)
    ledger = RunLedger(WireEvents(), options=options, thread_id=thread_id, run_id=run_id)
    converter = ChunkConverter(ledger)
    problems: list[TraceFormatError] = []
    records = read_trace(lines, name=name, on_problem=on_problem or problems.append)
    first = next(records, None)  # what is no trace at all begins no run
    if run:
        yield from _wire_json(ledger.start_run())
    for record in chain([first] if first else [], records):
        yield from _wire_json(feed_record(converter, record))
        if ledger.finished:
            break
    yield from _wire_json(converter.finish())
    if run:
        yield from _wire_json(ledger.finish_run())
    elif not ledger.finished:
        ledger.close()
        yield from _wire_json(ledger.drain())
    if problems:
        raise problems[0]


def _derived_ids(thread_id: str, run_id: str) -> Callable[[], str]:
    namespace = uuid.uuid5(uuid.NAMESPACE_URL, f"dragent-stream:{thread_id}/{run_id}")
    count = 0

    def new_id() -> str:
        nonlocal count
        count += 1
        return str(uuid.uuid5(namespace, str(count)))

    return new_id


def _wire_json(frames: list[bytes]) -> Iterator[str]:
    return (frame[len(b"data: ") : -2].decode() for frame in frames)


async def replay_trace(
    source: str | PathLike[str] | Iterable[str | bytes], *, speed: float | None = None
) -> AsyncGenerator[Any, None]:
    """Play a trace as the stream it was: a source for `stream_agui_run`, for tests and for demonstrations.

    Args:
        source: See `read_trace`.
        speed: 1.0 keeps the recorded pauses, 2.0 halves them; None plays without pauses.

    Yields:
        The chunks, and the steps as `AgentStep`.

    Raises:
        RecordedError: Where the recorded upstream raised; what this library raised is raised again as itself.
        AnswerError: Where the recording breaks off.
        UpstreamError: Where its consumer left; its code is `abort`.
    """
    before = 0.0
    for record in read_trace(source):
        if speed and record.t is not None:
            await anyio.sleep(max(0.0, record.t - before) / speed)
            before = record.t
        match record.kind:
            case "chunk":
                yield record.value
            case "step":
                yield AgentStep(record.value)
            case "error":
                raise _recorded_error(record.value)
            case "cut":
                raise _how_it_broke_off(record.value)
            case "closed":
                raise UpstreamError("the run was stopped", "abort")
            case "end":
                return
