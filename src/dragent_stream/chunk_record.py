"""The small record that one chunk of any provider is read into."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dragent_stream.errors import UpstreamError
from dragent_stream.finish_reasons import Finish
from dragent_stream.usage import Usage

__all__ = ["Chunk", "ToolCallDelta", "ToolResult"]


@dataclass(slots=True)
class ToolCallDelta:
    """One entry of `delta.tool_calls`; what the provider left out or left blank is None or empty.

    `custom`: the tool takes free text instead of JSON (OpenAI's custom tools), and `arguments` is a piece of it.
    `apart`: it is a call of its own, whatever its index says.
    """

    index: int | None
    id: str
    name: str
    arguments: str
    signature: str = ""
    custom: bool = False
    apart: bool = False


@dataclass(slots=True)
class ToolResult:
    """What a tool gave.

    Attributes:
        call_id: The call's id; empty where the message does not say.
        content: A text, or content parts as they came.
        name: The tool's name, where the message says it.
    """

    call_id: str
    content: Any
    name: str = ""


@dataclass(slots=True)
class Chunk:
    """What one chunk says, in the order in which it is to be acted on.

    Attributes:
        message: The id of the LangChain message that this is a piece of. Each message is a turn of its own, and several
            may be open at once (parallel nodes of a graph). Empty for chat chunks, whose ids say nothing about that.
        step: The step of the graph that the message belongs to, where it is known: a message of an earlier step is over.
        lane: The graph, or the part of one, whose steps are counted together.
        whole: The message is complete. One that was streamed before under the same id is repeated by it.
        last: This was the last piece of the message.
        new_thought: `reasoning` begins another thought than the one before, which is signed and complete.
    """

    id: str = ""
    model: str = ""
    provider: str = ""
    message: str = ""
    step: int | None = None
    lane: str = ""
    whole: bool = False
    last: bool = False
    new_thought: bool = False
    reasoning: str = ""
    encrypted: list[str] = field(default_factory=list[str])
    text: str = ""
    tool_calls: list[ToolCallDelta] = field(default_factory=list[ToolCallDelta])
    tool_result: ToolResult | None = None
    finish: Finish | None = None
    usage: Usage | None = None
    usage_adds: bool = False  # LangChain counts each chunk; everyone else repeats the total so far
    error: UpstreamError | None = None
