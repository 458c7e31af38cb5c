"""What a turn of a runtime is asked: the conversation of a run input in the shape that its adapter takes.

An adapter with native streaming is asked with chat messages, as a Chat Completions model is. A harness without it takes
text, and nothing but text (claude, codex), and keeps the conversation itself: it is asked with the last question alone. A
runtime that has not seen what came before it gets the whole conversation, one paragraph a message.
"""

from __future__ import annotations

import json
from typing import Any, cast

from ag_ui.core import RunAgentInput

__all__ = ["turn_input"]

_Json = dict[str, Any]


def turn_input(run_input: RunAgentInput, *, streams: bool, fresh: bool) -> Any:
    """The input of one turn, a JSON value.

    Args:
        run_input: The client's request.
        streams: The adapter streams natively.
        fresh: The runtime has had no turn yet.
    """
    messages = _chat_messages(run_input)
    if streams:
        return messages
    if not fresh and messages and messages[-1]["role"] == "user":
        messages = messages[-1:]
    if len(messages) == 1:
        return _text(messages[0]["content"])
    return "\n\n".join(f"{message['role']}: {_said(message)}" for message in messages)


def _said(message: _Json) -> str:
    calls = [f"{call['function']['name']}({call['function']['arguments']})" for call in message.get("tool_calls", ())]
    return "\n".join([*([_text(message["content"])] if message["content"] else []), *calls])


def _chat_messages(run_input: RunAgentInput) -> list[_Json]:
    """The messages in Chat Completions form; attachments stay as AG-UI has them, reasoning and activity stay behind."""
    wire: list[_Json] = [message.model_dump(by_alias=True, exclude_none=True) for message in run_input.messages]
    results = {message["toolCallId"]: _text(message["content"]) for message in wire if message["role"] == "tool"}
    messages: list[_Json] = []
    for message in wire:
        role, content = message["role"], message.get("content")
        if role in ("developer", "system", "user"):
            messages.append({"role": role, "content": content})
        elif role == "assistant":
            calls = [_call(call) for call in message.get("toolCalls") or ()]
            if calls or content:
                messages.append({"role": role, "content": content} | ({"tool_calls": calls} if calls else {}))
            # A model wants each result right behind its calls, and one for every call.
            for call in calls:
                result = results.get(call["id"], "")
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return messages


def _call(call: _Json) -> _Json:
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    try:
        json.loads(arguments)
    except ValueError:
        arguments = "{}"  # they were cut, and no model takes a part of an object
    return {"id": call["id"], "type": "function", "function": {"name": name, "arguments": arguments}}


def _text(content: Any) -> str:
    """A content as text: attachments as JSON."""
    if isinstance(content, str):
        return content
    parts = cast("list[_Json]", content)
    return "".join(part["text"] if part.get("type") == "text" else json.dumps(part) for part in parts)
