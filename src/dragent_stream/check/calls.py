"""Tool calls and their results: V7, V8, I2 to I7, D5 to D7, D9, D15."""

from __future__ import annotations

import json

from dragent_stream.check.messages import still_its_turn
from dragent_stream.check.stream import Call, Event, Message, Stream, text_of

__all__ = ("call_args", "call_end", "call_result", "call_start")


def call_start(stream: Stream, event: Event) -> None:
    """TOOL_CALL_START: V7, I3 to I5, I7."""
    call_id = text_of(event, "toolCallId")
    if call_id is None:
        return
    known = stream.calls.get(call_id)
    if known is not None and known.open:
        stream.say("V7", f"call {call_id!r} is already open")
        return
    if known is not None:
        stream.say("I4", f"call {call_id!r} was closed before; a client appends to its arguments or shows it twice")
    if call_id in stream.messages:
        stream.say("I3", f"call {call_id!r} has the id of a message")
    parent, owner = text_of(event, "parentMessageId") or None, text_of(event, "subagentRunId")
    if parent is not None:
        holder = stream.messages.get(parent)
        if parent in stream.calls or parent == call_id:
            stream.say("I3", f"parentMessageId {parent!r} of call {call_id!r} is the id of a call")
        if holder is None:
            stream.messages[parent] = Message("assistant", owner, announced=False)
        else:
            stream.owned(event, holder.owner, f"message {parent!r}")
            owner = holder.owner
            still_its_turn(stream, parent)
            if holder.role != "assistant":
                stream.say("I5", f"parentMessageId {parent!r} of call {call_id!r} is a {holder.role} message")
    # one open call of this owner speaks for all: they were compared when they opened
    other_id = next((other_id for other_id, other in stream.run.open_calls.items() if other.owner == owner), None)
    if other_id is not None and (parent is None or stream.run.open_calls[other_id].parent is None):
        stream.say("I7", f"calls {other_id!r} and {call_id!r} are open together, and one has no parentMessageId")
    call = Call(text_of(event, "toolCallName") or "", parent, owner, stream.run.number)
    stream.calls[call_id] = stream.run.calls[call_id] = stream.run.open_calls[call_id] = call


def _open_call(stream: Stream, event: Event) -> Call | None:
    call_id = text_of(event, "toolCallId") or ""
    call = stream.run.open_calls.get(call_id)
    if call is None:
        stream.say("V8", f"no tool call {call_id!r} is open")
        return None
    stream.owned(event, call.owner, f"call {call_id!r}")
    return call


def call_args(stream: Stream, event: Event) -> None:
    """TOOL_CALL_ARGS: V8."""
    call = _open_call(stream, event)
    if call is not None and (delta := text_of(event, "delta")):
        call.arguments.append(delta)


def call_end(stream: Stream, event: Event) -> None:
    """TOOL_CALL_END: V8, D15."""
    call = _open_call(stream, event)
    if call is not None:
        call.open = False
        call_id = text_of(event, "toolCallId") or ""
        del stream.run.open_calls[call_id]
        text, call.arguments = "".join(call.arguments), []
        if text and (problem := _no_json(text)):
            stream.say("D15", f"call {call_id!r} of {call.name!r} ends with arguments that are no JSON: {problem}")


def _no_json(text: str) -> str | None:
    """What JSON.parse of a client would refuse; a call without arguments is one that takes none."""
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
    except ValueError as exc:
        return str(exc)
    except RecursionError:
        return None  # too deep to be judged here
    return None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def call_result(stream: Stream, event: Event) -> None:
    """TOOL_CALL_RESULT: I2, I3, D5 to D7, D9, D11."""
    message_id, call_id = text_of(event, "messageId"), text_of(event, "toolCallId") or ""
    if not isinstance(event.get("content"), str):
        stream.gate("TOOL_CALL_RESULT with content parts")
    if message_id is not None:
        if message_id in stream.calls or message_id == call_id:
            stream.say("I3", f"result message {message_id!r} has the id of a tool call")
        elif message_id in stream.messages or message_id in stream.spans:
            stream.say("I2", f"result message {message_id!r} has the id of an earlier message")
        stream.messages[message_id] = Message("tool", text_of(event, "subagentRunId"))
    call = stream.calls.get(call_id)
    if call is None:
        stream.say("D7", f"a result for call {call_id!r}, which the thread does not have")
        return
    stream.owned(event, call.owner, f"call {call_id!r}")
    if call.open and call.run == stream.run.number:
        stream.say("D5", f"the result of call {call_id!r} comes before its TOOL_CALL_END")
    if call.results:
        stream.say("D6", f"call {call_id!r} has its result already")
    if call.name in stream.frontend and call.run:
        stream.say("D9", f"call {call_id!r} of the client's tool {call.name!r} gets a result from the agent")
    call.results += 1
    if call.parent is not None and call.parent in stream.messages:
        stream.messages[call.parent].answered = True
