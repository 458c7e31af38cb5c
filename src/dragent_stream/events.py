"""The two writers of AG-UI events: `ModelEvents` makes ag_ui objects, `WireEvents` makes SSE frames.

Both have the same methods and say the same, key for key; the ledger drives either. Optional fields without a value are
left out, field names are camelCase, no timestamps are written (spec: timestamps are optional). Objects are built with
camelCase keywords and plain dicts, which is what all of ag-ui-protocol 0.1.15 to 1.0 read the same way.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring_ascii as quote
from typing import Any, Generic, Literal, TypeVar

from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    ReasoningEncryptedValueEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StepFinishedEvent,
    StepStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)

from dragent_stream.unvalidated import unvalidated

__all__ = ["PROTOCOL_VERSION", "RESULT_PARTS", "EventWriter", "ModelEvents", "WireEvents"]

PROTOCOL_VERSION = "1.0"
"""The protocol version that RUN_STARTED states: the producer's own, never an echo (spec 1.0, RUN_STARTED)."""

RESULT_PARTS = ToolCallResultEvent.model_fields["content"].annotation is not str
"""Whether results may be content parts: ag-ui-protocol 1.0; before it they are text."""

E = TypeVar("E")
Json = Mapping[str, Any]


class EventWriter(ABC, Generic[E]):
    """Makes one event per call, never None. The `*_writer` methods fix an id once and return what writes its deltas."""

    def run_started(self, thread_id: str, run_id: str) -> E:
        """RUN_STARTED, with the protocol version of this producer."""
        return self._event(
            RunStartedEvent, type="RUN_STARTED", threadId=thread_id, runId=run_id, protocolVersion=PROTOCOL_VERSION
        )

    def run_finished(
        self, thread_id: str, run_id: str, *, outcome: Json | None = None, usage: Sequence[Json] = ()
    ) -> E:
        """RUN_FINISHED; `usage` holds one entry per provider and model."""
        fields: dict[str, Any] = {"threadId": thread_id, "runId": run_id}
        if outcome:
            fields["outcome"] = outcome
        if usage:
            fields["usage"] = list(usage)
        return self._event(RunFinishedEvent, type="RUN_FINISHED", **fields)

    def run_error(self, message: str, code: str, *, usage: Sequence[Json] = ()) -> E:
        """RUN_ERROR; the message is never empty."""
        more: dict[str, Any] = {"usage": list(usage)} if usage else {}
        return self._event(RunErrorEvent, type="RUN_ERROR", message=message, code=code, **more)

    def step_started(self, name: str) -> E:
        """STEP_STARTED."""
        return self._event(StepStartedEvent, type="STEP_STARTED", stepName=name)

    def step_finished(self, name: str) -> E:
        """STEP_FINISHED."""
        return self._event(StepFinishedEvent, type="STEP_FINISHED", stepName=name)

    def text_start(self, message_id: str) -> E:
        """TEXT_MESSAGE_START of an assistant message."""
        return self._event(TextMessageStartEvent, type="TEXT_MESSAGE_START", messageId=message_id, role="assistant")

    @abstractmethod
    def text_writer(self, message_id: str) -> Callable[[str], E]:
        """What writes TEXT_MESSAGE_CONTENT of one message."""

    def text_end(self, message_id: str) -> E:
        """TEXT_MESSAGE_END."""
        return self._event(TextMessageEndEvent, type="TEXT_MESSAGE_END", messageId=message_id)

    def reasoning_start(self, message_id: str) -> tuple[E, E]:
        """REASONING_START and REASONING_MESSAGE_START; the span and its one message share the id."""
        return (
            self._event(ReasoningStartEvent, type="REASONING_START", messageId=message_id),
            self._event(
                ReasoningMessageStartEvent, type="REASONING_MESSAGE_START", messageId=message_id, role="reasoning"
            ),
        )

    @abstractmethod
    def reasoning_writer(self, message_id: str) -> Callable[[str], E]:
        """What writes REASONING_MESSAGE_CONTENT of one message."""

    def reasoning_end(self, message_id: str) -> tuple[E, E]:
        """REASONING_MESSAGE_END and REASONING_END."""
        return (
            self._event(ReasoningMessageEndEvent, type="REASONING_MESSAGE_END", messageId=message_id),
            self._event(ReasoningEndEvent, type="REASONING_END", messageId=message_id),
        )

    def encrypted_value(self, subtype: Literal["message", "tool-call"], entity_id: str, value: str) -> E:
        """REASONING_ENCRYPTED_VALUE of an entity that was started before."""
        return self._event(
            ReasoningEncryptedValueEvent,
            type="REASONING_ENCRYPTED_VALUE",
            subtype=subtype,
            entityId=entity_id,
            encryptedValue=value,
        )

    def call_start(self, call_id: str, name: str, parent_id: str | None) -> E:
        """TOOL_CALL_START; without a parent the field is left out."""
        more: dict[str, Any] = {"parentMessageId": parent_id} if parent_id else {}
        return self._event(ToolCallStartEvent, type="TOOL_CALL_START", toolCallId=call_id, toolCallName=name, **more)

    @abstractmethod
    def arguments_writer(self, call_id: str) -> Callable[[str], E]:
        """What writes TOOL_CALL_ARGS of one call."""

    def call_end(self, call_id: str) -> E:
        """TOOL_CALL_END: the arguments are complete."""
        return self._event(ToolCallEndEvent, type="TOOL_CALL_END", toolCallId=call_id)

    def call_result(self, message_id: str, call_id: str, content: str | list[Any]) -> E:
        """TOOL_CALL_RESULT, its content a text or content parts; `message_id` is the id of the tool message, never that of the call."""
        return self._event(
            ToolCallResultEvent,
            type="TOOL_CALL_RESULT",
            messageId=message_id,
            toolCallId=call_id,
            content=content,
            role="tool",
        )

    def custom(self, name: str, value: Any) -> E:
        """CUSTOM; the value is JSON and never None (old SDKs would drop the required key)."""
        return self._event(CustomEvent, type="CUSTOM", name=name, value=value)

    @abstractmethod
    def _event(self, model: type[BaseEvent], **fields: Any) -> E:
        """One event of this model, from wire fields."""


class ModelEvents(EventWriter[BaseEvent]):
    """Writes validated ag_ui objects."""

    def text_writer(self, message_id: str) -> Callable[[str], BaseEvent]:
        """See `EventWriter.text_writer`."""
        return _DeltaModel(TextMessageContentEvent, messageId=message_id).write

    def reasoning_writer(self, message_id: str) -> Callable[[str], BaseEvent]:
        """See `EventWriter.reasoning_writer`."""
        return _DeltaModel(ReasoningMessageContentEvent, messageId=message_id).write

    def arguments_writer(self, call_id: str) -> Callable[[str], BaseEvent]:
        """See `EventWriter.arguments_writer`."""
        return _DeltaModel(ToolCallArgsEvent, toolCallId=call_id).write

    def _event(self, model: type[BaseEvent], **fields: Any) -> BaseEvent:
        del fields["type"]  # every model has its own
        return model(**fields)


class _DeltaModel:
    """Makes copies of one validated event, each with its own delta: to validate every token costs twice as much."""

    __slots__ = ("_extra", "_model", "_names", "_values")

    def __init__(self, model: type[BaseEvent], **fields: str) -> None:
        first = model(**fields, delta="-")  # pyright: ignore[reportCallIssue]
        self._model = model
        self._values = first.__dict__
        self._names = first.__pydantic_fields_set__
        self._extra = first.__pydantic_extra__

    def write(self, delta: str) -> BaseEvent:
        extra: dict[str, Any] | None = None if self._extra is None else {}
        return unvalidated(self._model, {**self._values, "delta": delta}, self._names, extra)


class WireEvents(EventWriter[bytes]):
    """Writes SSE frames, `data: {…}` and a blank line, in ASCII: whatever a reader splits lines on, a frame stays whole.

    Deltas go into a template made once per message; nothing is validated or serialized by a model.
    """

    def text_writer(self, message_id: str) -> Callable[[str], bytes]:
        """See `EventWriter.text_writer`."""
        return _DeltaFrame("TEXT_MESSAGE_CONTENT", "messageId", message_id).write

    def reasoning_writer(self, message_id: str) -> Callable[[str], bytes]:
        """See `EventWriter.reasoning_writer`."""
        return _DeltaFrame("REASONING_MESSAGE_CONTENT", "messageId", message_id).write

    def arguments_writer(self, call_id: str) -> Callable[[str], bytes]:
        """See `EventWriter.arguments_writer`."""
        return _DeltaFrame("TOOL_CALL_ARGS", "toolCallId", call_id).write

    def _event(self, model: type[BaseEvent], **fields: Any) -> bytes:
        try:
            # Most events hold nothing but strings.
            body = ",".join([f'"{name}":{quote(value)}' for name, value in fields.items()])
        except TypeError:
            return f"data: {_json(fields)}\n\n".encode()
        return f"data: {{{body}}}\n\n".encode()


_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class _DeltaFrame:
    """The frame of a delta event but for its delta."""

    __slots__ = ("_head",)

    def __init__(self, event: str, id_field: str, entity_id: str) -> None:
        self._head = f'data: {{"type":"{event}","{id_field}":{quote(entity_id)},"delta":'

    def write(self, delta: str) -> bytes:
        return f"{self._head}{quote(delta)}}}\n\n".encode()
