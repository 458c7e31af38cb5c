"""Teach NAT's own routes what a batch of AG-UI events is.

NAT converts what a workflow yields to the type that a route speaks. Without these converters the OpenAI routes fail
with `Cannot convert type … No match found` (NAT 1.6 to 1.9).
"""

import datetime
from typing import Any

from ag_ui.core import BaseEvent, EventType
from pydantic import BaseModel

from dragent_stream.errors import UpstreamError
from dragent_stream.nat.imports import (
    ChatResponse,
    ChatResponseChunk,
    ChatResponseChunkChoice,
    ChoiceDelta,
    ChoiceDeltaToolCall,
    ChoiceDeltaToolCallFunction,
    GlobalTypeConverter,
    ResponseSerializable,
)
from dragent_stream.response import DRAgentEventResponse

__all__ = ["AgentAnswer", "batch_to_chunk", "batch_to_response", "batch_to_str", "register_converters"]


def batch_to_str(batch: DRAgentEventResponse) -> str:
    """The answer's text in a batch.

    Raises:
        UpstreamError: The batch holds RUN_ERROR; NAT's routes report a failure by an exception.
    """
    parts: list[str] = []
    for event in batch.events:
        _raise_run_error(event)
        if event.type == EventType.TEXT_MESSAGE_CONTENT:
            parts.append(_field(event, "delta"))
    return "".join(parts)


def batch_to_chunk(batch: DRAgentEventResponse) -> ChatResponseChunk:
    """A batch as one chat completion chunk: the text and the tool calls, as NAT's own agent streams them.

    Raises:
        UpstreamError: As in `batch_to_str`.
    """
    calls: list[ChoiceDeltaToolCall] = []
    for event in batch.events:
        if event.type == EventType.TOOL_CALL_START:
            calls.append(_call(event, name=_field(event, "tool_call_name"), arguments=""))
        elif event.type == EventType.TOOL_CALL_ARGS:
            calls.append(_call(event, name=None, arguments=_field(event, "delta")))
    text = batch_to_str(batch)
    return ChatResponseChunk(
        id="chatcmpl-dragent",
        choices=[
            ChatResponseChunkChoice(
                index=0, delta=ChoiceDelta(content=text or None, tool_calls=calls or None), finish_reason=None
            )
        ],
        created=datetime.datetime.now(datetime.UTC),
        model=batch.model or "unknown-model",
        object="chat.completion.chunk",
    )


def batch_to_response(batch: DRAgentEventResponse) -> ChatResponse:
    """A batch as a whole chat completion.

    Raises:
        UpstreamError: As in `batch_to_str`.
    """
    return GlobalTypeConverter.convert(batch_to_str(batch), ChatResponse)


class AgentAnswer(BaseModel):
    """What `/generate` answers for a per-user agent: the shape that NAT gives a shared agent's text.

    NAT (1.6 to 1.9) builds that shape anew for a per-user function and then knows no way to it from the text.
    """

    value: str


def _answer(text: str) -> AgentAnswer:
    return AgentAnswer(value=text)


def _answer_text(answer: AgentAnswer) -> str:
    return answer.value


def register_converters() -> None:
    """Register the converters, and the batch as something that NAT may stream as it is."""
    ResponseSerializable.register(DRAgentEventResponse)
    for converter in (batch_to_chunk, batch_to_str, batch_to_response, _answer, _answer_text):
        GlobalTypeConverter.register_converter(converter)


def _call(event: BaseEvent, *, name: str | None, arguments: str) -> ChoiceDeltaToolCall:
    # Every delta carries the id: a batch knows no index, and clients of NAT's agent take calls by id or by order.
    call_id = _field(event, "tool_call_id")
    function = ChoiceDeltaToolCallFunction(name=name, arguments=arguments)
    return ChoiceDeltaToolCall(index=0, id=call_id, type="function" if name else None, function=function)


def _raise_run_error(event: BaseEvent) -> None:
    if event.type == EventType.RUN_ERROR:
        code: Any = getattr(event, "code", None)
        raise UpstreamError(_field(event, "message"), str(code or "STREAM_ERROR"))


def _field(event: BaseEvent, name: str) -> str:
    return str(getattr(event, name))
