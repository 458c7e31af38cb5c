"""From a RunAgentInput to the ChatRequest that NAT's agents read.

The whole history goes along. NAT 1.9 keeps tool calls and tool results. The messages of older versions know plain text
of user, assistant and system only: there the agents of this package get the messages beside the request (`history`),
and for other agents calls and results are written into the assistant's text.
"""

import json
import mimetypes
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, cast
from uuid import uuid4

from pydantic import BaseModel

from dragent_stream.errors import ConversionError
from dragent_stream.nat.imports import MESSAGES_KEEP_TOOLS, ChatRequest, Message

__all__ = ["chat_request", "history", "openai_messages", "with_history", "with_message_ids"]

Json = Mapping[str, Any]

history: ContextVar[Sequence[Json]] = ContextVar("dragent_stream_history", default=())
"""The messages of this run's request, for an agent of this package on a NAT whose own messages lose their tools."""

# Activity is for the screen alone, and reasoning is the property of the provider that thought it.
NOT_FOR_THE_MODEL = {"activity", "reasoning"}


def openai_messages(run_input: Json) -> list[dict[str, Any]]:
    """The messages of a run input in OpenAI's form, tool calls and results included.

    Raises:
        ConversionError: As in `chat_request`.
    """
    given: Any = run_input.get("messages")
    if not isinstance(given, list):
        raise ConversionError("messages: a list of AG-UI messages is needed")
    messages: list[dict[str, Any]] = []
    for place, message in enumerate(given):
        if not isinstance(message, Mapping):
            raise ConversionError(f"messages[{place}]: an object is needed")
        if message.get("role") not in NOT_FOR_THE_MODEL:
            messages.append(_openai_message(message, f"messages[{place}]"))
    if not messages:
        raise ConversionError("messages: at least one message is needed, and there is none for the model")
    return messages


def chat_request(run_input: Json, *, keep_tools: bool = MESSAGES_KEEP_TOOLS) -> ChatRequest:
    """Convert a run input, given as it stands on the wire (camelCase keys).

    Frontend tools become `tools` in OpenAI's form; state, context and forwarded props go along under `state`, `context`
    and `forwarded_props`, which the request carries as extra fields.

    Args:
        run_input: The decoded body of the request.
        keep_tools: The messages of this NAT version hold tool calls and results.

    Raises:
        ConversionError: There is no message that an agent could answer, or one cannot be read; names its place.
    """
    messages = openai_messages(run_input)
    if not keep_tools:
        messages = _flattened(messages)
    extra: dict[str, Any] = {}
    tools = [_openai_tool(tool, f"tools[{place}]") for place, tool in enumerate(run_input.get("tools") or [])]
    if tools:
        extra["tools"] = tools
    for key, name in (("state", "state"), ("context", "context"), ("forwardedProps", "forwarded_props")):
        if run_input.get(key):
            extra[name] = run_input[key]
    return ChatRequest.model_validate({"messages": messages, "stream": True, **extra})


def with_message_ids(request: ChatRequest) -> ChatRequest:
    """The same request with an id on each message.

    On 1.6, LangGraph takes messages without an id for new ones, and the agent streams the old answers again.
    """
    return _with_messages(request, [{"role": m.role.value, "content": m.content} for m in request.messages])


def with_history(request: ChatRequest, messages: Sequence[Json]) -> ChatRequest:
    """The same request with these messages (OpenAI's form), each with an id, and nothing of them lost.

    NAT 1.8 and older refuse tool calls and tool results in a request, but their agent takes them: it goes by what the
    messages dump.
    """
    return _with_messages(request, messages)


def _with_messages(request: ChatRequest, messages: Sequence[Json]) -> ChatRequest:
    fields = {name: getattr(request, name) for name in request.model_fields_set if name != "messages"}
    kept = [_HistoryMessage(**message, id=str(uuid4())) for message in messages]
    return ChatRequest.model_construct(messages=cast("list[Message]", kept), **fields)


class _HistoryMessage(BaseModel):
    id: str
    role: str
    content: Any
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


def _openai_message(message: Json, place: str) -> dict[str, Any]:
    role: Any = message.get("role")
    content: Any = message.get("content")
    if role == "user":
        return {"role": "user", "content": _content(content, f"{place}.content")}
    if role in ("system", "developer"):
        return {"role": "system", "content": _text(content)}
    if role == "tool":
        result = _text(content) or str(message.get("error") or "")
        return {"role": "tool", "content": result, "tool_call_id": str(message.get("toolCallId") or "")}
    if role == "assistant":
        calls = [_openai_call(call, f"{place}.toolCalls") for call in message.get("toolCalls") or []]
        text = _text(content)
        if calls:
            return {"role": "assistant", "content": text or None, "tool_calls": calls}
        return {"role": "assistant", "content": text}
    raise ConversionError(f"{place}.role: {role!r} is not a role of AG-UI")


def _openai_call(call: Any, place: str) -> dict[str, Any]:
    function: Any = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise ConversionError(f"{place}: a call needs a function with name and arguments")
    return {
        "id": str(call.get("id") or ""),
        "type": "function",
        "function": {"name": str(function.get("name") or ""), "arguments": str(function.get("arguments") or "{}")},
    }


def _openai_tool(tool: Any, place: str) -> dict[str, Any]:
    if not isinstance(tool, Mapping) or not tool.get("name"):
        raise ConversionError(f"{place}: a tool needs a name")
    given: dict[str, Any] = dict(tool)
    parameters = given.get("parameters") or {"type": "object", "properties": {}}
    description = str(given.get("description") or "")
    return {
        "type": "function",
        "function": {"name": given["name"], "description": description, "parameters": parameters},
    }


def _text(content: Any) -> str:
    """The text of a message's content; parts that are not text are left out."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return ""


def _content(content: Any, place: str) -> str | list[dict[str, Any]]:
    """What a user sent: text, or the parts that NAT knows (text, images, audio)."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ConversionError(f"{place}: text or a list of parts is needed")
    parts: list[dict[str, Any]] = []
    for number, part in enumerate(content):
        if not isinstance(part, Mapping):
            raise ConversionError(f"{place}[{number}]: an object is needed")
        parts.append(_part(part))
    return parts


def _part(part: Json) -> dict[str, Any]:
    kind = str(part.get("type"))
    if kind == "text":
        return {"type": "text", "text": str(part.get("text") or "")}
    # Before 1.0 a part was {type: binary, mimeType, data | url}; since then {type: image, source: {type, value, mimeType}}.
    source: Any = part.get("source")
    given: Json = source if isinstance(source, Mapping) else part
    mime = str(given.get("mimeType") or mimetypes.guess_type(str(part.get("filename") or ""))[0] or f"{kind}/*")
    is_url = given.get("type") == "url" or "url" in given
    value = str(given.get("value") or given.get("url") or given.get("data") or "")
    if mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": value if is_url else f"data:{mime};base64,{value}"}}
    if mime.startswith("audio/") and not is_url:
        return {"type": "input_audio", "input_audio": {"data": value, "format": mime.partition("/")[2]}}
    return {"type": "text", "text": f"[{mime} attachment, which this agent cannot read]"}


def _flattened(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same conversation in plain messages: each call with its result in the text of the assistant that made it.

    A result that the conversation ends with is what the model shall go on from, so it becomes the user's turn.
    """
    results = {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}
    last_answered = len(messages)
    while last_answered and messages[last_answered - 1]["role"] == "tool":
        last_answered -= 1
    waiting = {m["tool_call_id"] for m in messages[last_answered:]}
    names: dict[str, str] = {}
    flat: list[dict[str, Any]] = []
    for message in messages[:last_answered]:
        if message["role"] == "tool":
            continue
        lines = [message["content"]] if isinstance(message["content"], str) and message["content"] else []
        for call in message.get("tool_calls", []):
            function = call["function"]
            names[call["id"]] = function["name"]
            line = f"[called the tool {function['name']} with {function['arguments']}"
            if call["id"] in results and call["id"] not in waiting:
                line += f"; it returned {json.dumps(results[call['id']], ensure_ascii=False)}"
            lines.append(line + "]")
        content = message["content"] if isinstance(message["content"], list) else "\n".join(lines)
        flat.append({"role": message["role"], "content": content})
    for message in messages[last_answered:]:
        name = names.get(message["tool_call_id"], "a tool")
        flat.append({"role": "user", "content": f"[the tool {name} returned {message['content']}]"})
    return flat
