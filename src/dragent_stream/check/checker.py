"""Judge a stream event by event: the shape of each, its place in the run, and the rule of its kind."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from typing import overload

from dragent_stream.check import calls, history, messages, runs, steps
from dragent_stream.check.rules import Violation
from dragent_stream.check.stream import Event, Stream, strings
from dragent_stream.check.wire import EventLike, EventReader, Unreadable
from dragent_stream.event_shapes import shape_problems

__all__ = ("EventChecker", "check_events")

_JUDGES: Mapping[str, Callable[[Stream, Event], None]] = {
    "RUN_STARTED": runs.run_started,
    "RUN_FINISHED": runs.run_finished,
    "RUN_ERROR": runs.run_error,
    "STEP_STARTED": steps.step_started,
    "STEP_FINISHED": steps.step_finished,
    "TEXT_MESSAGE_START": messages.text_start,
    "TEXT_MESSAGE_CONTENT": messages.text_content,
    "TEXT_MESSAGE_END": messages.text_end,
    "TOOL_CALL_START": calls.call_start,
    "TOOL_CALL_ARGS": calls.call_args,
    "TOOL_CALL_END": calls.call_end,
    "TOOL_CALL_RESULT": calls.call_result,
    "REASONING_START": messages.span_start,
    "REASONING_END": messages.span_end,
    "REASONING_MESSAGE_START": messages.reasoning_start,
    "REASONING_MESSAGE_CONTENT": messages.reasoning_content,
    "REASONING_MESSAGE_END": messages.reasoning_end,
    "REASONING_ENCRYPTED_VALUE": messages.encrypted_value,
    "MESSAGES_SNAPSHOT": history.snapshot,
    "ACTIVITY_SNAPSHOT": history.activity,
    "SUBAGENT_STARTED": steps.subagent_started,
    "SUBAGENT_FINISHED": steps.subagent_ended,
    "SUBAGENT_ERROR": steps.subagent_ended,
}


class EventChecker:
    """Check one stream, event by event.

    Args:
        lifecycle: Whether the stream is whole runs; False for a stretch of events without RUN_STARTED and terminal.
        run_input: The RunAgentInput as it came over the wire. With it the ids, the thread's history, the frontend tools
            and the client's protocol version are judged too.
        content: Whether a run that succeeds must have shown something (D16). To clients a run without content is as good
            as any, and a model that stops without a word makes one; where an answer is due it is a fault.
    """

    def __init__(self, *, lifecycle: bool = True, run_input: Event | None = None, content: bool = False) -> None:
        self._stream = Stream(lifecycle, run_input, content, active=not lifecycle)
        self._reader = EventReader()
        if run_input is not None:
            self._stream.frontend = frozenset(strings(run_input.get("tools"), "name"))
            history.know(self._stream, run_input.get("messages"))

    def feed(self, event: EventLike) -> list[Violation]:
        """Take what comes next, an event in any of its forms, and return what is wrong with it."""
        self._take(self._reader.read(event))
        return self._hand_over()

    def finish(self) -> list[Violation]:
        """Say that the stream has ended and return what is missing."""
        stream = self._stream
        self._take(self._reader.end())
        if stream.active and stream.lifecycle:
            stream.say("D2", "the stream ends without RUN_FINISHED or RUN_ERROR")
        elif stream.active:
            runs.say_open(stream, "the events end")
        elif stream.ended is None:
            stream.say("V1", "the stream has no events")
        stream.active = False
        return self._hand_over()

    def _take(self, events: Iterable[Event | Unreadable]) -> None:
        stream = self._stream
        for event in events:
            if isinstance(event, Unreadable):
                stream.say("S7", event)
                continue
            for rule, message in shape_problems(event):
                stream.say(rule, message)
            kind = event.get("type")
            if isinstance(kind, str):
                _judge(stream, kind, event)
            stream.index += 1

    def _hand_over(self) -> list[Violation]:
        found, self._stream.found = self._stream.found, []
        return found


def _says_nothing(kind: str) -> bool:
    return kind == "RAW" or kind.startswith(("RUN_", "STEP_", "SUBAGENT_"))


def _judge(stream: Stream, kind: str, event: Event) -> None:
    if stream.lifecycle and not stream.active and kind != "RUN_STARTED":
        if stream.ended == "RUN_ERROR":
            stream.say("V3", f"{kind} after RUN_ERROR")
            return
        if stream.ended == "RUN_FINISHED":
            rule = "D2" if kind == "RUN_ERROR" else "V4"
            stream.say(rule, f"{kind} after RUN_FINISHED")
            stream.ended = kind if kind == "RUN_ERROR" else stream.ended
            return
        if kind != "RUN_ERROR":
            stream.say("V1", f"the first event is {kind}, not RUN_STARTED")
            stream.active = True
    stream.run.said = stream.run.said or not _says_nothing(kind)
    if kind.endswith("_CHUNK"):
        stream.say("D3", f"{kind} is expanded by guesses in the client; send START, CONTENT or ARGS, END")
    if event.get("delta") == "":
        stream.say("D4", f"{kind} has an empty delta")
    metadata = event.get("metadata")
    if isinstance(metadata, Mapping) and "ag-ui" in metadata:
        stream.say("D13", f"{kind} uses the reserved metadata key 'ag-ui'")
    if kind.startswith("SUBAGENT_"):
        stream.gate(kind)
    judge = _JUDGES.get(kind)
    if judge is not None:
        judge(stream, event)


@overload
def check_events(
    events: Iterable[EventLike] | bytes,
    *,
    lifecycle: bool = True,
    run_input: Event | None = None,
    content: bool = False,
) -> list[Violation]: ...
@overload
def check_events(
    events: AsyncIterable[EventLike], *, lifecycle: bool = True, run_input: Event | None = None, content: bool = False
) -> Awaitable[list[Violation]]: ...
def check_events(
    events: Iterable[EventLike] | bytes | AsyncIterable[EventLike],
    *,
    lifecycle: bool = True,
    run_input: Event | None = None,
    content: bool = False,
) -> list[Violation] | Awaitable[list[Violation]]:
    """Check a whole stream.

    Args:
        events: The stream, in any of the forms of `EventLike`: dicts read from the wire, ag_ui objects, batches, SSE frames
            or lines of JSON, as text or bytes, cut anywhere; or the whole of it as one text. Await the result where it is
            an async iterable.
        lifecycle: See `EventChecker`.
        run_input: See `EventChecker`.
        content: See `EventChecker`.

    Returns:
        The violations in the order of the events; empty for a good stream.
    """
    checker = EventChecker(lifecycle=lifecycle, run_input=run_input, content=content)
    if isinstance(events, AsyncIterable):
        return _check_async(checker, events)
    items = [events] if isinstance(events, str | bytes | bytearray) else events
    found = [violation for event in items for violation in checker.feed(event)]
    return found + checker.finish()


async def _check_async(checker: EventChecker, events: AsyncIterable[EventLike]) -> list[Violation]:
    found = [violation async for event in events for violation in checker.feed(event)]
    return found + checker.finish()
