"""Messages of text and of reasoning: V5, V6, V10, V11, I1, I3, I6, I8, D4."""

from __future__ import annotations

from dragent_stream.check.stream import Event, Message, Stream, text_of

__all__ = (
    "encrypted_value",
    "reasoning_content",
    "reasoning_end",
    "reasoning_start",
    "span_end",
    "span_start",
    "still_its_turn",
    "text_content",
    "text_end",
    "text_start",
)


def text_start(stream: Stream, event: Event) -> None:
    """TEXT_MESSAGE_START: V5."""
    message_id = text_of(event, "messageId")
    if message_id is None:
        return
    if message_id in stream.run.texts:
        stream.say("V5", f"message {message_id!r} is already open")
        return
    stream.run.texts[message_id] = _open_message(stream, event, message_id, text_of(event, "role") or "assistant")


def _open_message(stream: Stream, event: Event, message_id: str, role: str) -> Message:
    """Open a text or a reasoning message, and judge its id."""
    known = stream.messages.get(message_id)
    if message_id in stream.calls:
        stream.say("I3", f"message {message_id!r} has the id of a tool call")
    if known is not None:
        stream.owned(event, known.owner, f"message {message_id!r}")
    if known is not None and not known.announced and role == "assistant":
        known.announced = True
        still_its_turn(stream, message_id)
        return known
    if known is not None:
        stream.say("I1", f"{role} message {message_id!r} has the id of an earlier {known.role} message")
    elif message_id in stream.spans and role != "reasoning":
        stream.say("I1", f"{role} message {message_id!r} has the id of a reasoning span")
    message = stream.messages[message_id] = Message(role, text_of(event, "subagentRunId"))
    return message


def still_its_turn(stream: Stream, message_id: str) -> None:
    """A message takes more: I6."""
    if stream.messages[message_id].answered:
        stream.say("I6", f"message {message_id!r} goes on after the result of one of its calls")


def text_content(stream: Stream, event: Event) -> None:
    """TEXT_MESSAGE_CONTENT: V6."""
    message_id = text_of(event, "messageId") or ""
    message = stream.run.texts.get(message_id)
    if message is None:
        stream.say("V6", f"no text message {message_id!r} is open")
        return
    stream.owned(event, message.owner, f"message {message_id!r}")
    still_its_turn(stream, message_id)
    message.deltas += bool(event.get("delta"))


def text_end(stream: Stream, event: Event) -> None:
    """TEXT_MESSAGE_END: V6, D4."""
    _end_message(stream, event, stream.run.texts, "V6", "text")


def _end_message(stream: Stream, event: Event, open_ones: dict[str, Message], rule: str, what: str) -> None:
    message_id = text_of(event, "messageId") or ""
    message = open_ones.pop(message_id, None)
    if message is None:
        stream.say(rule, f"no {what} message {message_id!r} is open")
        return
    stream.owned(event, message.owner, f"message {message_id!r}")
    if not message.deltas:
        stream.say("D4", f"{what} message {message_id!r} ends without a delta")


def span_start(stream: Stream, event: Event) -> None:
    """REASONING_START: V10, I1."""
    span_id = text_of(event, "messageId")
    if span_id is None:
        return
    if span_id in stream.run.spans:
        stream.say("V10", f"reasoning span {span_id!r} is already open")
    elif span_id in stream.spans:
        stream.say("I1", f"reasoning span {span_id!r} was used before")
    known = stream.messages.get(span_id)
    if known is not None and known.role != "reasoning":
        stream.say("I1", f"reasoning span {span_id!r} has the id of an earlier {known.role} message")
    stream.spans.add(span_id)
    stream.run.spans[span_id] = text_of(event, "subagentRunId")


def span_end(stream: Stream, event: Event) -> None:
    """REASONING_END: V11."""
    span_id = text_of(event, "messageId") or ""
    if span_id not in stream.run.spans:
        stream.say("V11", f"no reasoning span {span_id!r} is open")
        return
    stream.owned(event, stream.run.spans.pop(span_id), f"reasoning span {span_id!r}")


def reasoning_start(stream: Stream, event: Event) -> None:
    """REASONING_MESSAGE_START: V10."""
    message_id = text_of(event, "messageId")
    if message_id is None:
        return
    if message_id in stream.run.reasoning:
        stream.say("V10", f"reasoning message {message_id!r} is already open")
        return
    stream.run.reasoning[message_id] = _open_message(stream, event, message_id, "reasoning")


def reasoning_content(stream: Stream, event: Event) -> None:
    """REASONING_MESSAGE_CONTENT: V11."""
    message_id = text_of(event, "messageId") or ""
    message = stream.run.reasoning.get(message_id)
    if message is None:
        stream.say("V11", f"no reasoning message {message_id!r} is open")
        return
    stream.owned(event, message.owner, f"message {message_id!r}")
    message.deltas += bool(event.get("delta"))


def reasoning_end(stream: Stream, event: Event) -> None:
    """REASONING_MESSAGE_END: V11, D4."""
    _end_message(stream, event, stream.run.reasoning, "V11", "reasoning")


def encrypted_value(stream: Stream, event: Event) -> None:
    """REASONING_ENCRYPTED_VALUE: I8."""
    entity, kind = text_of(event, "entityId"), event.get("subtype")
    if kind not in ("tool-call", "message"):
        return
    call, message = stream.calls.get(entity or ""), stream.messages.get(entity or "")
    owner = call if kind == "tool-call" else message
    if owner is None:
        stream.say("I8", f"an encrypted value for {entity!r}, which has not begun")
    else:
        stream.owned(event, owner.owner, repr(entity))
