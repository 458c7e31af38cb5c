"""DRAgentEventResponse: the batch of AG-UI events that one chunk gave, as the published DRAgent design names it."""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import encode_basestring_ascii as quote
from typing import Annotated, Any

from ag_ui.core import (
    BaseEvent,
    ReasoningMessageContentEvent,
    TextMessageContentEvent,
    ToolCallArgsEvent,
)
from pydantic import BaseModel, ConfigDict, Field, InstanceOf, PlainSerializer

from dragent_stream.unvalidated import unvalidated

__all__ = ["DRAgentEventResponse", "batch_of", "event_json"]


def event_json(event: BaseEvent) -> str:
    """The wire JSON of one event: camelCase, no nulls, ASCII, the same from every ag-ui-protocol version.

    Deltas, which are nearly all events, go through a template; the models' own serializer costs ten times as much.
    """
    if delta_json := _DELTA_JSON.get(type(event)):
        text = delta_json(event)
        if text is not None:
            return text
    text = event.model_dump_json(by_alias=True, exclude_none=True)
    return text if text.isascii() else "".join(c if c < "\x80" else quote(c)[1:-1] for c in text)


def _delta_json(kind: str, id_field: str, id_attribute: str) -> Callable[[Any], str | None]:
    expected = {"type", id_attribute, "delta"}
    head = f'{{"type":"{kind}","{id_field}":'

    def write(event: Any) -> str | None:
        if event.__pydantic_extra__ or not event.__pydantic_fields_set__ <= expected:
            return None
        values = event.__dict__
        return f'{head}{quote(values[id_attribute])},"delta":{quote(values["delta"])}}}'

    return write


_DELTA_JSON: dict[type[BaseEvent], Callable[[Any], str | None]] = {
    TextMessageContentEvent: _delta_json("TEXT_MESSAGE_CONTENT", "messageId", "message_id"),
    ReasoningMessageContentEvent: _delta_json("REASONING_MESSAGE_CONTENT", "messageId", "message_id"),
    ToolCallArgsEvent: _delta_json("TOOL_CALL_ARGS", "toolCallId", "tool_call_id"),
}


def _wire_events(events: list[BaseEvent]) -> list[dict[str, Any]]:
    return [event.model_dump(mode="json", by_alias=True, exclude_none=True) for event in events]


class DRAgentEventResponse(BaseModel):
    """The AG-UI events of one chunk, with what the chunk said about the model and its usage.

    Other fields are ignored: code written for datarobot-genai gives `original_chunk` and `datarobot_moderations`, too.

    Attributes:
        events: AG-UI events, in order.
        model: The model's name, where the upstream gave one.
        usage_metrics: `prompt_tokens`, `completion_tokens`, `total_tokens` of the model call so far, as known.
    """

    model_config = ConfigDict(extra="ignore")

    events: Annotated[list[InstanceOf[BaseEvent]], PlainSerializer(_wire_events, return_type=list[dict[str, Any]])] = (
        Field(default_factory=list[BaseEvent])
    )
    model: str | None = None
    usage_metrics: dict[str, int] | None = None

    def get_stream_data(self) -> str:
        """The batch as SSE: one frame `data: {…}` per event, each ended by a blank line."""
        return "".join([f"data: {event_json(event)}\n\n" for event in self.events])


_NAMES = set(DRAgentEventResponse.model_fields)


def batch_of(
    events: list[BaseEvent], model: str | None = None, usage_metrics: dict[str, int] | None = None
) -> DRAgentEventResponse:
    """The batch of events that the converter itself has made, which need no validation."""
    return unvalidated(
        DRAgentEventResponse, {"events": events, "model": model, "usage_metrics": usage_metrics}, _NAMES, None
    )
