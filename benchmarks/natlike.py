"""Models of the shape of NAT 1.9's `ChatResponseChunk` (nat.data_models.api_server), for venvs without NAT."""

import datetime
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


class ChoiceDeltaToolCallFunction(BaseModel):
    name: str | None = None
    arguments: str | None = None


class ChoiceDeltaToolCall(BaseModel):
    index: int
    id: str | None = None
    type: str | None = None
    function: ChoiceDeltaToolCallFunction | None = None


class ChoiceDelta(BaseModel):
    content: str | None = None
    role: Role | None = None
    tool_calls: list[ChoiceDeltaToolCall] | None = None


class ChatResponseChunkChoice(BaseModel):
    model_config = ConfigDict(extra="allow")
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter", "function_call"] | None = None
    index: int
    delta: ChoiceDelta


class Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None


class ChatResponseChunk(BaseModel):
    model_config = ConfigDict(extra="allow")
    id: str
    choices: list[ChatResponseChunkChoice]
    created: datetime.datetime
    model: str = "unknown-model"
    object: str = "chat.completion.chunk"
    system_fingerprint: str | None = None
    service_tier: Literal["scale", "default"] | None = None
    usage: Usage | None = None
