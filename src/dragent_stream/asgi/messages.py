"""Turn a run input's conversation and tools into what a Chat Completions endpoint takes.

Reasoning and activity messages are not for the model. A call without a result (its run was stopped or failed) gets an
empty one, arguments that were cut or are no object become an empty one, and a result whose call is no longer in the
history is left out: providers refuse a history with any of the three.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ag_ui.core import RunAgentInput

from dragent_stream.asgi.run_input import RunInputError

__all__ = ["chat_messages", "chat_tools", "conversation"]

_Json = dict[str, Any]


def chat_messages(run_input: RunAgentInput) -> list[_Json]:
    """The messages in the order of the conversation, in Chat Completions form.

    Raises:
        RunInputError: A content part has no counterpart in Chat Completions.
    """
    return [message for message, _ in conversation(run_input)]


def conversation(run_input: RunAgentInput) -> Iterator[tuple[_Json, list[_Json]]]:
    """Each message in Chat Completions form, with the client's messages that it is made of.

    The client's messages are the message itself, for an assistant's the reasoning before it as well; none for the result
    of a call that the client has no result of.

    Raises:
        RunInputError: A content part has no counterpart in Chat Completions.
    """
    wire: list[_Json] = [message.model_dump(by_alias=True, exclude_none=True) for message in run_input.messages]
    results = {message["toolCallId"]: at for at, message in enumerate(wire) if message["role"] == "tool"}
    thoughts: list[_Json] = []
    for at, message in enumerate(wire):
        place = f"messages[{at}]"
        role = message["role"]
        if role == "reasoning":
            thoughts.append(message)
        elif role in ("developer", "system", "user"):
            thoughts.clear()
            yield {"role": role, "content": _content(message["content"], place)}, [message]
        elif role == "assistant":
            calls = [_call(call) for call in message.get("toolCalls") or ()]
            if not calls and not message.get("content"):
                continue
            yield (
                {"role": role, "content": message.get("content")} | ({"tool_calls": calls} if calls else {}),
                [*thoughts, message],
            )
            thoughts.clear()
            # A provider wants each result right behind its calls, wherever the client keeps it.
            for call in calls:
                found = results.get(call["id"])
                result = "" if found is None else _text(wire[found]["content"])
                answer = {"role": "tool", "tool_call_id": call["id"], "content": result}
                yield answer, [] if found is None else [wire[found]]


def chat_tools(run_input: RunAgentInput) -> list[_Json]:
    """The client's tools as Chat Completions tools."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters or {"type": "object", "properties": {}},
            },
        }
        for tool in run_input.tools or ()
    ]


def _call(call: _Json) -> _Json:
    function = call["function"]
    return {
        "id": call["id"],
        "type": "function",
        "function": {"name": function["name"], "arguments": _whole(function["arguments"])},
    }


def _whole(arguments: str) -> str:
    try:
        is_object = isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return "{}"
    return arguments if is_object else "{}"


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in cast("list[_Json]", content))


def _content(content: Any, place: str) -> str | list[_Json]:
    if isinstance(content, str):
        return content
    return [_part(part, f"{place}.content[{at}]") for at, part in enumerate(cast("list[_Json]", content))]


def _part(part: _Json, place: str) -> _Json:
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": part["text"]}
    source: Mapping[str, Any] = part.get("source") or {}
    media_type = str(source.get("mimeType") or part.get("mimeType") or "")
    if kind == "binary":  # the one kind of attachment before 0.1.16
        kind = media_type.partition("/")[0]
        source = {"type": "data" if part.get("data") else "url", "value": part.get("data") or part.get("url")}
    value, inline = source.get("value"), source.get("type") == "data"
    if kind == "image" and value:
        return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{value}" if inline else value}}
    if kind == "audio" and value and inline:
        return {"type": "input_audio", "input_audio": {"data": value, "format": media_type.rpartition("/")[2]}}
    if kind in ("document", "application") and value and inline:
        file = {"filename": part.get("filename") or "attachment", "file_data": f"data:{media_type};base64,{value}"}
        return {"type": "file", "file": file}
    raise RunInputError(f"a {kind!r} part like this cannot be sent to a Chat Completions model", field=place)
