"""What is wrong with the run of a stream, if anything is.

Judged: nothing raises; both writers say the same; the same chunks as an SSE body say the same; `dragent_stream.check` and
ag-ui-validate find nothing; nothing comes behind the end; four times the stream takes about four times as long.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from ag_ui_validate.pytest_plugin import validate_agui
from agui_case import Event, counted_ids, wire
from openai.types.chat import ChatCompletionChunk

from dragent_stream import AgentStep, ChunkConverter, ConverterOptions, RunLedger
from dragent_stream.check import check_events
from dragent_stream.events import EventWriter, ModelEvents, WireEvents

# Arguments that are no JSON are the model's doing; the validator counts them as the producer's error.
_MODELS_OWN = {"AGUI204": "off"}
_HANGS_AFTER = 60  # seconds of one stream, which takes milliseconds
_LONG = 400  # items of the shorter of two streams whose times are compared
_GROWTH = 9.0  # four times the stream: 4 if linear, 16 if quadratic
_MEASURABLE = 0.05  # seconds; shorter times say nothing about growth


@dataclass(frozen=True)
class Stream:
    """One input of the fuzz.

    Attributes:
        feed: What arrives.
        think_tags: Whether think tags are read.
        frontend_tools: Tools of the client.
        objects: Whether the chunks arrive as openai's objects, which hold whatever the provider sent.
    """

    feed: list[Any]
    think_tags: bool = False
    objects: bool = False
    frontend_tools: frozenset[str] = frozenset()

    def options(self) -> ConverterOptions:
        return ConverterOptions(new_id=counted_ids(), think_tags=self.think_tags, frontend_tools=self.frontend_tools)

    def items(self) -> list[Any]:
        return [_as_object(item) for item in self.feed] if self.objects else self.feed


@dataclass(frozen=True)
class Fault:
    """What is wrong.

    Attributes:
        kind: Equal for two faults that are probably one.
        detail: For the reader.
    """

    kind: str
    detail: str


def _as_object(item: Any) -> Any:
    try:
        return ChatCompletionChunk.construct(**item)
    except Exception:
        return item  # what openai itself cannot hold never comes from there


class _AfterTheEndError(Exception):
    """Events behind the terminal one."""


class _HangsError(Exception):
    """A stream that does not come to its end."""


def fault_of(stream: Stream, cuts: Random | None = None, *, growth: bool = False) -> Fault | None:
    """The first fault of a stream.

    Args:
        stream: The stream.
        cuts: Where its SSE body is cut; None for one read a frame.
        growth: Also compare the time of a longer stream of the same items.
    """
    try:
        with _bounded(), _hearing() as lost:
            by_wire = _run(stream, WireEvents())
            by_model = _run(stream, ModelEvents())
            by_body = _run(body, WireEvents()) if (body := _as_body(stream, cuts)) else by_wire
            fault = _differing(by_wire, by_model, by_body) or _misjudged(by_wire)
            fault = fault or (lost and _raised(lost[0], "a step was skipped: ")) or None
            return fault or (_growing(stream) if growth else None)
    except Exception as error:
        return _raised(error)


def _run(stream: Stream, writer: EventWriter[Any]) -> list[Event]:
    ledger = RunLedger(writer, options=stream.options(), thread_id="t", run_id="r")
    converter = ChunkConverter(ledger)
    events = ledger.start_run()
    items = stream.items()
    for item in items:
        events += converter.fail(item) if isinstance(item, Exception) else converter.feed(item)
    events += converter.finish() + ledger.finish_run()
    late = converter.finish() + ledger.finish_run() + (converter.feed(items[0]) if items else [])
    if late:
        raise _AfterTheEndError(f"{len(late)} events come after the end, when it is told twice")
    return [wire(event) for event in events]


def _as_body(stream: Stream, cuts: Random | None) -> Stream | None:
    """The same stream as the bytes of one answer; None where JSON cannot say it, or a body may not hold it."""
    if not all(isinstance(chunk, dict) and isinstance(chunk.get("choices"), list) for chunk in stream.feed):
        return None
    try:
        frames = [json.dumps(chunk, allow_nan=False) for chunk in stream.feed]
        if [*map(json.loads, frames)] != stream.feed:
            return None
    except (TypeError, ValueError, RecursionError):
        return None
    if stream.objects:
        return None
    reads = [f"data: {frame}\n\n".encode() for frame in [*frames, "[DONE]"]]
    if cuts is not None:
        body = b"".join(reads)
        places = sorted(cuts.randrange(len(body) + 1) for _ in range(cuts.randrange(8)))
        reads = [body[start:end] for start, end in itertools.pairwise([0, *places, len(body)])]
    return replace(stream, feed=reads)


def _differing(by_wire: list[Event], by_model: list[Event], by_body: list[Event]) -> Fault | None:
    for name, other in (("the writers", by_model), ("chunks and the same chunks as SSE", by_body)):
        if other is by_body:  # what is missing has other words for a body than for chunks
            by_wire, other = ([event for event in run if event["type"] != "RUN_ERROR"] for run in (by_wire, other))
        if by_wire != other:
            pairs = itertools.zip_longest(by_wire, other)
            at, (left, right) = next(found for found in enumerate(pairs) if found[1][0] != found[1][1])
            kinds = " / ".join(str(event and event["type"]) for event in (left, right))
            return Fault(f"{name} differ: {kinds}", f"{name} differ at event {at}:\n  {left}\n  {right}")
    return None


def _misjudged(events: list[Event]) -> Fault | None:
    for violation in check_events(events):
        shape = re.sub(r"'[^']*'|\d+", "…", violation.message.partition(":")[0])
        detail = f"{violation.rule} at event {violation.index}: {violation.message}"
        return Fault(f"check {violation.rule}: {shape}", detail)
    for found in validate_agui(events, severity_overrides=_MODELS_OWN).diagnostics:
        if found.severity == "error":
            return Fault(f"ag-ui-validate {found.rule} at {found.event_type}", f"{found.rule}: {found.message}")
    return None


def _growing(stream: Stream) -> Fault | None:
    """The items over and over: without what ends a run, so that the longer stream is longer."""
    items: list[Any] = []
    for item in stream.items():
        if not isinstance(item, bytes | Exception):
            ended = ChunkConverter(RunLedger(WireEvents(), options=stream.options()))
            ended.feed(item)
            if not ended.done:
                items.append(item)
    if not items:
        return None
    times = (_LONG // len(items)) + 1
    for _ in range(3):  # a busy machine can only make it look worse
        short, long = (_seconds(replace(stream, feed=items * (times * factor), objects=False)) for factor in (1, 4))
        if long < _MEASURABLE or long < _GROWTH * short:
            return None
    return Fault("not linear", f"{times} times the items take {short:.3f} s, four times as many {long:.3f} s")


def _seconds(stream: Stream) -> float:
    started = time.process_time()
    ledger = RunLedger(WireEvents(), options=stream.options())
    converter = ChunkConverter(ledger)
    for item in stream.feed:
        converter.feed(item)
    converter.finish()
    return time.process_time() - started


def _raised(error: BaseException, prefix: str = "") -> Fault:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "dragent_stream" in frame.filename]
    frames = frames or list(traceback.extract_tb(error.__traceback__))
    said = re.sub(r"\s+", " ", str(error))[:200]
    kind = f"{prefix}{type(error).__name__}"
    if not frames:  # logged, never raised
        return Fault(kind, f"{kind}: {said}")
    last = frames[-1]
    place = f"{last.filename.rpartition('/')[2]}:{last.lineno} in {last.name}"
    return Fault(f"{kind} in {last.name}", f"{kind}: {said} ({place}: {last.line})")


class _Heard(logging.Handler):
    """The exceptions that a step raised inside; one without its event type is rightly none."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info and record.exc_info[1]
        if error and "step" in str(record.msg) and repr(error) != "KeyError('event_type')":
            self.errors.append(error)


@contextmanager
def _hearing() -> Iterator[list[BaseException]]:
    """What the converter logs and goes on from; nothing of it reaches the screen."""
    logger = logging.getLogger("dragent_stream")
    heard, propagated = _Heard(), logger.propagate
    logger.addHandler(heard)
    logger.propagate = False
    try:
        yield heard.errors
    finally:
        logger.removeHandler(heard)
        logger.propagate = propagated


@contextmanager
def _bounded() -> Iterator[None]:
    def hangs(*_: Any) -> None:
        raise _HangsError(f"does not end within {_HANGS_AFTER} s")

    if not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(_HANGS_AFTER)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def source_of(stream: Stream, fault: Fault) -> str:
    """A test that fails as the stream does, to be pasted into `tests/test_stream_converter.py`."""
    lines = "".join(f"        {_source(item)},\n" for item in stream.feed)
    options = "".join(
        f", {name}={value!r}"
        for name, value in (("think_tags", stream.think_tags), ("frontend_tools", stream.frontend_tools))
        if value
    )
    test = f"def test_found_by_the_fuzz() -> None:\n    feed: list[Any] = [\n{lines}    ]\n"
    if stream.objects:
        test += "    feed = [ChatCompletionChunk.construct(**chunk) for chunk in feed]\n"
    if "as SSE" in fault.kind:
        other = [
            'body = [f"data: {json.dumps(chunk)}\\n\\n".encode() for chunk in feed] + [b"data: [DONE]\\n\\n"]',
            "by_wire, other = (convert(items, WireEvents(), options()) for items in (feed, body))",
        ]
    else:
        other = ["by_wire, other = (convert(feed, writer, options()) for writer in (WireEvents(), ModelEvents()))"]
    body = [f"options = lambda: ConverterOptions(new_id=counted_ids(){options})", *other, "assert by_wire == other"]
    return test + "".join(f"    {line}\n" for line in [*body, "assert check_events(by_wire) == []"])


def _source(value: Any) -> str:
    if isinstance(value, AgentStep):
        return f"AgentStep({_source(value.step)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_source(key)}: {_source(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_source, value)) + "]"
    if isinstance(value, float) and repr(value) in ("nan", "inf", "-inf"):
        return f'float("{value}")'
    return ascii(value)
