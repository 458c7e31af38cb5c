"""Run an agent in a test, and fail a test with the event that is wrong and its neighbours.

The fixtures of `testing.plugin` are these functions; they work without pytest, too.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass
from typing import Any, TypeAlias, cast, overload

from ag_ui.core import RunAgentInput

from dragent_stream.asgi_exits import as_exception, exits_contained
from dragent_stream.check import EventChecker, EventLike, Violation
from dragent_stream.check.wire import EventReader, Unreadable
from dragent_stream.errors import ConversionError
from dragent_stream.events import WireEvents
from dragent_stream.options import ConverterOptions
from dragent_stream.run import ledger_for, run_events
from dragent_stream.stream_converter import Upstream

__all__ = ("AguiRun", "Expected", "RanCall", "assert_agui", "counted_options", "run_agent")

Event: TypeAlias = Mapping[str, Any]

Expected: TypeAlias = bool | str | None
"""How a run may fail: None, in any way that is not for want of an answer; False, not at all; True, it must; a code, so."""

_NOBODY_EXECUTES = frozenset({"D8"})
"""An agent that gives a model's answer and no results leaves its calls to whoever reads the run."""

_NO_ANSWER = frozenset({"EMPTY_ANSWER", "UNKNOWN_CHUNKS"})
_MOST_VIOLATIONS = 10
_LONGEST_EVENT = 200


# A run, as a test looks at it.


@dataclass(frozen=True, slots=True)
class RanCall:
    """One tool call of a run.

    Attributes:
        id: Its id on the wire.
        name: The tool.
        arguments: The arguments as they were streamed, read as JSON; the text where that is none.
        result: The content of its result; None where there is none.
    """

    id: str
    name: str
    arguments: Any
    result: Any = None


class AguiRun(list[dict[str, Any]]):
    """The events of one run, as dicts of the wire.

    Attributes:
        exception: What the agent raised; None where it raised nothing. What is no Exception, such as SystemExit, is the
            cause of an `AgentExitError`.
    """

    exception: Exception | None = None

    @property
    def text(self) -> str:
        """The text of the answer; that of several messages on lines of their own."""
        return "\n".join(self._deltas("TEXT_MESSAGE_CONTENT").values())

    @property
    def reasoning(self) -> str:
        """What the agent thought, in the same way."""
        return "\n".join(self._deltas("REASONING_MESSAGE_CONTENT").values())

    @property
    def tool_calls(self) -> list[RanCall]:
        """The calls in the order in which they began."""
        arguments = self._deltas("TOOL_CALL_ARGS", "toolCallId")
        results = {event["toolCallId"]: event["content"] for event in self if event["type"] == "TOOL_CALL_RESULT"}
        return [
            RanCall(
                event["toolCallId"],
                event["toolCallName"],
                _read(arguments.get(event["toolCallId"], "")),
                results.get(event["toolCallId"]),
            )
            for event in self
            if event["type"] == "TOOL_CALL_START"
        ]

    @property
    def error(self) -> dict[str, Any] | None:
        """The RUN_ERROR, with its `message` and `code`; None for a run that did not fail."""
        return next((event for event in self if event["type"] == "RUN_ERROR"), None)

    def _deltas(self, kind: str, id_field: str = "messageId") -> dict[str, str]:
        joined: dict[str, str] = {}
        for event in self:
            if event["type"] == kind:
                joined[event[id_field]] = joined.get(event[id_field], "") + event["delta"]
        return joined


def _read(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def counted_options() -> ConverterOptions:
    """Options for a test: ids are counted (`id-1`, `id-2`, ...), and an error says what was raised."""
    count = itertools.count(1)
    return ConverterOptions(
        new_id=lambda: f"id-{next(count)}", public_error=lambda error: str(error) or type(error).__name__
    )


async def run_agent(
    agent: Callable[[RunAgentInput], Any],
    question: str | Sequence[Mapping[str, Any]] | Mapping[str, Any] | RunAgentInput = "",
    *,
    tools: Iterable[str | Mapping[str, Any]] = (),
    context: Mapping[str, str] | Iterable[Mapping[str, Any]] = (),
    state: Any = None,
    forwarded_props: Any = None,
    thread_id: str = "thread",
    run_id: str = "run",
    options: ConverterOptions | None = None,
    error: Expected = None,
) -> AguiRun:
    """Run an agent as `create_app` would, and check what comes out.

    Args:
        agent: Takes the run input; gives an async iterable of chunks and steps, an awaitable of one, or an iterable.
        question: What the user says; or the messages of the conversation; or a whole RunAgentInput, or its wire mapping.
        tools: The client's tools, each as its name or as AG-UI's `{"name", "description", "parameters"}`.
        context: Descriptions and values, or AG-UI's list of both.
        state: The client's state.
        forwarded_props: Passed on as they are.
        thread_id: The conversation.
        run_id: The run.
        options: Of the conversion; `counted_options()` where None.
        error: How the run may fail; see `Expected`.

    Returns:
        The events. Where the agent raised, the run ends with a RUN_ERROR and `exception` is what was raised.

    Raises:
        AssertionError: The events are no valid run, or the run failed, or did not, against `error`.
        ConversionError: The question and what stands beside it are no run input.
    """
    __tracebackhide__ = True
    if not callable(agent):
        raise ConversionError(f"an agent is a function of a RunAgentInput, not {type(agent).__name__}")
    if isinstance(question, RunAgentInput):
        run_input = question
    else:
        run_input = _run_input(
            question,
            {
                "threadId": thread_id,
                "runId": run_id,
                "protocolVersion": "1.0",
                "state": {} if state is None else state,
                "tools": _tools(tools),
                "context": _context(context),
                "forwardedProps": {} if forwarded_props is None else forwarded_props,
            },
        )
    run = AguiRun()
    options = options or counted_options()

    async def source() -> AsyncGenerator[Any, None]:
        given = False
        try:
            async with Upstream(agent(run_input), options.close_timeout) as chunks:
                async for chunk in chunks:
                    given = True
                    yield chunk
                    given = False
        except BaseException as raised:
            if (given and isinstance(raised, GeneratorExit)) or _is_cancelled(raised):
                raise
            run.exception = as_exception(raised)
            raise run.exception from run.exception.__cause__

    ledger = ledger_for(run_input, WireEvents(), options)
    with exits_contained():
        async for frame in run_events(source(), ledger):
            run.append(json.loads(frame[len(b"data: ") :]))
    if isinstance(run.exception, ConversionError):
        raise run.exception  # it is the test that is wrong: what the agent gives is no stream
    wire = run_input.model_dump(mode="json", by_alias=True, exclude_none=True)
    problem = _judge(run, True, wire, error, ignore=_NOBODY_EXECUTES)
    if problem:
        raise AssertionError(problem) from run.exception
    return run


def _is_cancelled(error: BaseException) -> bool:
    """Whether the test itself is cancelled, and this is not just what its agent raised."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _run_input(question: str | Sequence[Any] | Mapping[str, Any], fields: dict[str, Any]) -> RunAgentInput:
    if not isinstance(question, str | Mapping | Sequence) or isinstance(question, bytes | bytearray):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConversionError(
            f"the question is a {type(question).__name__}; give a text, the messages of a conversation, or a RunAgentInput"
        )
    if isinstance(question, Mapping) and "role" not in question:
        fields |= question
    else:
        one = {"role": "user", "content": question} if isinstance(question, str) else question
        said: Sequence[Any] = [one] if isinstance(one, Mapping) else one
        messages = enumerate(said, 1)
        fields["messages"] = [
            {"id": f"message-{number}", **message} if isinstance(message, Mapping) else message
            for number, message in messages
        ]
    try:
        return RunAgentInput.model_validate(fields)
    except ValueError as exc:
        raise ConversionError(f"the question is no run input: {exc}") from None


def _tools(tools: Iterable[str | Mapping[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConversionError(
            f"tools is a {type(cast('object', tools)).__name__}; give a list of names or of AG-UI tools"
        )
    return [_tool(tool) for tool in tools]


def _tool(tool: str | Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(tool, str | Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConversionError(f"a tool is a name or AG-UI's mapping, not {type(tool).__name__}")
    return {"description": "", "parameters": {"type": "object"}, **({"name": tool} if isinstance(tool, str) else tool)}


def _context(context: Mapping[str, str] | Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    if isinstance(context, Mapping):
        pairs = cast("Mapping[str, str]", context).items()
        return [{"description": description, "value": value} for description, value in pairs]
    if isinstance(context, str) or not isinstance(context, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConversionError(f"context is a {type(context).__name__}; give descriptions and values, or AG-UI's list")
    return list(context)


# Judging.


@overload
def assert_agui(
    events: Iterable[EventLike] | bytes,
    *,
    lifecycle: bool = True,
    run_input: Event | None = None,
    error: Expected = None,
    content: bool = True,
) -> None: ...
@overload
def assert_agui(
    events: AsyncIterable[EventLike],
    *,
    lifecycle: bool = True,
    run_input: Event | None = None,
    error: Expected = None,
    content: bool = True,
) -> Coroutine[Any, Any, None]: ...
def assert_agui(
    events: Iterable[EventLike] | bytes | AsyncIterable[EventLike],
    *,
    lifecycle: bool = True,
    run_input: Event | None = None,
    error: Expected = None,
    content: bool = True,
) -> Awaitable[None] | None:
    """Fail with each violation of AG-UI and the events around it.

    Args:
        events: A stream in any of the forms of `check_events`; await the assertion where it is an async iterable.
        lifecycle: False for events without RUN_STARTED and a terminal event.
        run_input: The request, against which ids, frontend tools and the client's version are judged too.
        error: How the run may fail; see `Expected`.
        content: A run that succeeds must have shown something.
    """
    __tracebackhide__ = True
    reader = EventReader()
    if isinstance(events, AsyncIterable):
        return _assert_async(events, reader, lifecycle, run_input, error, content)
    items = [events] if isinstance(events, str | bytes | bytearray) else events
    read = [event for item in items for event in reader.read(item)] + reader.end()
    problem = _judge(read, lifecycle, run_input, error, content)
    if problem:
        raise AssertionError(problem)
    return None


async def _assert_async(events: AsyncIterable[EventLike], reader: EventReader, *expected: Any) -> None:
    __tracebackhide__ = True
    read = [event async for item in events for event in reader.read(item)] + reader.end()
    problem = _judge(read, *expected)
    if problem:
        raise AssertionError(problem)


def _judge(
    read: Sequence[Event | Unreadable],
    lifecycle: bool,
    run_input: Event | None,
    error: Expected,
    content: bool = True,
    ignore: Set[str] = frozenset(),
) -> str:
    """What is wrong, for a person to read; empty where nothing is."""
    checker = EventChecker(lifecycle=lifecycle, run_input=run_input, content=content and lifecycle)
    events = [event for event in read if not isinstance(event, Unreadable)]
    found = [violation for event in read for violation in checker.feed(event)] + checker.finish()
    violations = [violation for violation in found if violation.rule not in ignore]
    if violations:
        listed = "\n".join(_placed(events, violation) for violation in violations[:_MOST_VIOLATIONS])
        more = len(violations) - _MOST_VIOLATIONS
        return f"{len(violations)} AG-UI violation(s):\n{listed}" + (f"\n  ... and {more} more" if more > 0 else "")
    failed = next((place for place, event in enumerate(events) if event.get("type") == "RUN_ERROR"), None)
    code = None if failed is None else events[failed].get("code")
    if failed is None:
        expected = error if isinstance(error, str) else "error"
        return f"the run did not fail; a RUN_ERROR was expected ({expected})" if error else ""
    if error is None:
        wrong = code in _NO_ANSWER
    else:
        wrong = error is False or (isinstance(error, str) and code != error)
    meant = f"; {error} was expected" if isinstance(error, str) else ""
    return (
        f"the run failed with {code}{meant}: {events[failed].get('message')}\n{_around(events, failed)}"
        if wrong
        else ""
    )


def _placed(events: Sequence[Event], violation: Violation) -> str:
    head = f"  event {violation.index}: {violation.rule}: {violation.message}"
    return f"{head}\n{_around(events, violation.index)}" if events else head


def _around(events: Sequence[Event], index: int) -> str:
    """An event, which is marked, and its neighbours."""
    width = len(str(index + 1))
    lines: list[str] = []
    for place in range(max(0, index - 1), min(len(events), index + 2)):
        text = json.dumps(events[place], default=str)
        text = text if len(text) <= _LONGEST_EVENT else text[:_LONGEST_EVENT] + "..."
        lines.append(f"    {'>' if place == index else ' '} {place:{width}} {text}")
    if index >= len(events):
        lines.append(f"    > {len(events):{width}} (the end of the stream)")
    return "\n".join(lines)
