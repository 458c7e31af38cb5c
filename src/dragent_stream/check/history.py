"""The history that the request and snapshots bring, and activities: I1, I11."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from dragent_stream.check.stream import Call, Event, Message, Stream, mappings, strings, text_of

__all__ = ("activity", "know", "snapshot")


def snapshot(stream: Stream, event: Event) -> None:
    """MESSAGES_SNAPSHOT: I11."""
    ids = set(strings(event.get("messages"), "id"))
    for message_id in stream.run.texts.keys() | stream.run.reasoning.keys():
        if message_id not in ids:
            stream.say("I11", f"the snapshot drops message {message_id!r}, which is still open")
    held = {
        call_id for message in mappings(event.get("messages")) for call_id in strings(message.get("toolCalls"), "id")
    }
    for call_id in stream.run.open_calls:
        if call_id not in held:
            stream.say("I11", f"the snapshot drops call {call_id!r}, which is still open")
    know(stream, event.get("messages"))


def know(stream: Stream, messages: object) -> None:
    """Take messages of the history, so that their ids count as used."""
    for message in mappings(messages):
        message_id, role = text_of(message, "id"), text_of(message, "role") or ""
        if message_id is None:
            continue
        owner = text_of(message, "subagentRunId")
        known = stream.messages.setdefault(message_id, Message(role, owner))
        known.announced = True
        for call in mappings(message.get("toolCalls")):
            call_id, function = text_of(call, "id"), call.get("function")
            if call_id is not None and call_id not in stream.calls:
                name = text_of(cast("Event", function), "name") if isinstance(function, Mapping) else None
                stream.calls[call_id] = Call(name or "", message_id, owner, run=0, open=False)
        answered = stream.calls.get(text_of(message, "toolCallId") or "") if role == "tool" else None
        if answered is not None:
            answered.results = max(answered.results, 1)
            if answered.parent in stream.messages:
                stream.messages[answered.parent].answered = True


def activity(stream: Stream, event: Event) -> None:
    """ACTIVITY_SNAPSHOT: I1."""
    message_id = text_of(event, "messageId")
    if message_id is None:
        return
    known = stream.messages.setdefault(message_id, Message("activity", text_of(event, "subagentRunId")))
    if known.role != "activity":
        stream.say("I1", f"activity {message_id!r} has the id of an earlier {known.role} message")
