"""The chat completion chunks of one run, of AG-UI events: what clients of the OpenAI API put together to one answer.

Clients find a call by its index and append name, id and arguments; they want one id, a role first and a finish reason.
So calls are numbered over the whole run, in the order in which they start, and say id and name once.
"""

import datetime
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

from ag_ui.core import BaseEvent, EventType
from pydantic import SerializerFunctionWrapHandler, model_serializer

from dragent_stream.nat.failures import AgentFailedError
from dragent_stream.nat.imports import (
    ChatResponseChunk,
    ChatResponseChunkChoice,
    ChatUsage,
    ChoiceDelta,
    ChoiceDeltaToolCall,
    ChoiceDeltaToolCallFunction,
)
from dragent_stream.response import DRAgentEventResponse
from dragent_stream.usage import Usage

__all__ = ["ChatStream", "chat_stream", "raise_run_error"]

UNKNOWN_MODEL = "unknown-model"


class _SaysWhatIsSet:
    """Without null: a client that appends would replace what it has by it."""

    @model_serializer(mode="wrap")
    def _without_null(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in write(self).items() if value is not None}


class _Function(_SaysWhatIsSet, ChoiceDeltaToolCallFunction):
    pass


class _ToolCall(_SaysWhatIsSet, ChoiceDeltaToolCall):
    function: _Function | None = None  # pyright: ignore[reportIncompatibleVariableOverride]


class _Delta(_SaysWhatIsSet, ChoiceDelta):
    tool_calls: list[_ToolCall] | None = None  # pyright: ignore[reportIncompatibleVariableOverride]


class _Choice(ChatResponseChunkChoice):
    delta: _Delta  # pyright: ignore[reportIncompatibleVariableOverride]


class _Chunk(ChatResponseChunk):
    choices: list[_Choice]  # pyright: ignore[reportIncompatibleVariableOverride]


class ChatStream:
    """One run, chunk by chunk.

    Attributes:
        id: The id of every chunk.
        model: The model's name; what the batches say where it is empty.
        began: A chunk was made.
        finished: The chunk with the finish reason was made.
        usage: What the whole run used, once it has ended.
    """

    def __init__(self) -> None:
        self.id = f"chatcmpl-{uuid4().hex}"
        self.model = ""
        self.began = False
        self.finished = False
        self.usage: ChatUsage | None = None
        self._indexes: dict[str, int] = {}

    def chunk(self, batch: DRAgentEventResponse) -> ChatResponseChunk:
        """The chunk of a batch; its delta is empty where the batch says nothing that a chat completion knows.

        Raises:
            AgentFailedError: The batch holds RUN_ERROR.
        """
        text: list[str] = []
        calls: dict[int, _ToolCall] = {}
        finish_reason: str | None = None
        for event in batch.events:
            raise_run_error(event)
            fields: Any = event
            if event.type == EventType.TEXT_MESSAGE_CONTENT:
                text.append(fields.delta)
            elif event.type == EventType.TOOL_CALL_START:
                index = self._indexes.setdefault(fields.tool_call_id, len(self._indexes))
                function = _Function(name=fields.tool_call_name, arguments="")
                calls[index] = _ToolCall(index=index, id=fields.tool_call_id, type="function", function=function)
            elif event.type == EventType.TOOL_CALL_ARGS:
                index = self._indexes.setdefault(fields.tool_call_id, len(self._indexes))
                call = calls.setdefault(index, _ToolCall(index=index, function=_Function(arguments="")))
                if call.function is not None:
                    call.function.arguments = f"{call.function.arguments}{fields.delta}"
            elif event.type == EventType.RUN_FINISHED:
                self.finished = True
                self.usage = _usage(event)
                finish_reason = "tool_calls" if _pending(event) else "stop"
        if not self.model and batch.model:
            self.model = batch.model
        said: dict[str, Any] = {"content": "".join(text) if text else None, "tool_calls": list(calls.values()) or None}
        if not self.began:
            self.began = True
            said["role"] = "assistant"
            said["content"] = said["content"] or (None if calls else "")
        return _Chunk(
            id=self.id,
            choices=[_Choice.model_validate({"index": 0, "delta": _Delta(**said), "finish_reason": finish_reason})],
            created=datetime.datetime.now(datetime.UTC),
            model=self.model or UNKNOWN_MODEL,
            object="chat.completion.chunk",
        )

    def count(self, counts: Usage) -> None:
        """Add what a model call used."""
        before = self.usage or ChatUsage(prompt_tokens=0, completion_tokens=0, total_tokens=0)
        self.usage = ChatUsage(
            prompt_tokens=(before.prompt_tokens or 0) + (counts.input_tokens or 0),
            completion_tokens=(before.completion_tokens or 0) + (counts.output_tokens or 0),
            total_tokens=(before.total_tokens or 0) + (counts.total_tokens or 0),
        )

    def goes_on_with(self, batch: DRAgentEventResponse) -> bool:
        """Whether the batch can be of this run: it starts neither a run, nor a call that has started."""
        return not any(
            event.type == EventType.RUN_STARTED
            or (event.type == EventType.TOOL_CALL_START and getattr(event, "tool_call_id", "") in self._indexes)
            for event in batch.events
        )


chat_stream: ContextVar[ChatStream | None] = ContextVar("dragent_stream_chat_stream", default=None)
"""The chat completion that this run is streamed as."""


def raise_run_error(event: BaseEvent) -> None:
    """Raise what a RUN_ERROR says, as an `AgentFailedError`: NAT's routes report a failure by an exception."""
    if event.type == EventType.RUN_ERROR:
        fields: Any = event
        raise AgentFailedError(str(fields.message), str(fields.code or "STREAM_ERROR"))


def _pending(event: BaseEvent) -> bool:
    outcome: Any = getattr(event, "outcome", None)
    value = outcome if isinstance(outcome, dict) else getattr(outcome, "__dict__", {})
    return bool(value.get("pendingToolCallIds") or value.get("pending_tool_call_ids"))


def _usage(event: BaseEvent) -> ChatUsage:
    entries: Any = event.model_dump(mode="json", by_alias=True).get("usage") or []
    names = {"prompt_tokens": "inputTokens", "completion_tokens": "outputTokens", "total_tokens": "totalTokens"}
    return ChatUsage.model_validate(
        {name: sum(entry.get(counted) or 0 for entry in entries) for name, counted in names.items()}
    )
