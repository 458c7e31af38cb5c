"""Teach NAT's own routes what a batch of AG-UI events is.

NAT converts what a workflow yields to the type that a route speaks. Without these converters the OpenAI routes fail
with `Cannot convert type … No match found` (NAT 1.6 to 1.9).
"""

from ag_ui.core import EventType
from pydantic import BaseModel

from dragent_stream.nat.chat_stream import ChatStream, chat_stream, raise_run_error
from dragent_stream.nat.imports import (
    ChatResponse,
    ChatResponseChunk,
    GlobalTypeConverter,
    ResponseSerializable,
)
from dragent_stream.response import DRAgentEventResponse

__all__ = ["AgentAnswer", "batch_to_chunk", "batch_to_response", "batch_to_str", "register_converters"]


def batch_to_str(batch: DRAgentEventResponse) -> str:
    """The answer's text in a batch.

    Raises:
        AgentFailedError: The batch holds RUN_ERROR; NAT's routes report a failure by an exception.
    """
    parts: list[str] = []
    for event in batch.events:
        raise_run_error(event)
        if event.type == EventType.TEXT_MESSAGE_CONTENT:
            parts.append(str(getattr(event, "delta", "")))
    return "".join(parts)


def batch_to_chunk(batch: DRAgentEventResponse) -> ChatResponseChunk:
    """A batch as the next chunk of the chat completion that the current run is (`chat_stream`).

    Raises:
        AgentFailedError: As in `batch_to_str`.
    """
    stream = chat_stream.get()
    if stream is None or (stream.began and not stream.goes_on_with(batch)):
        stream = ChatStream()
        chat_stream.set(stream)
    return stream.chunk(batch)


def batch_to_response(batch: DRAgentEventResponse) -> ChatResponse:
    """A batch as a whole chat completion.

    Raises:
        AgentFailedError: As in `batch_to_str`.
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
