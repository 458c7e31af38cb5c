"""What is a LangChain message, in each of its spellings: an object, its `model_dump`, its serialised forms.

- `AIMessage(…)` and whatever else has a `type` and a `content`;
- `{"type": "ai", "content": …}` of `model_dump` and of LangGraph's servers;
- `{"type": "ai", "data": {"content": …}}` of `messages_to_dict`;
- `{"lc": 1, "type": "constructor", "id": […, "AIMessage"], "kwargs": {…}}` of `dumpd`;
- `{"role": "assistant", "content": …}` and `("ai", "…")`, which a node may return for its state.
"""

from __future__ import annotations

from typing import cast

from dragent_stream.fields import Fields, fields_of
from dragent_stream.values import text_of

__all__ = ["message_fields", "node_message_fields"]

_KINDS = {
    "AIMessage": "ai",
    "ChatMessage": "chat",
    "FunctionMessage": "function",
    "HumanMessage": "human",
    "RemoveMessage": "remove",
    "SystemMessage": "system",
    "ToolMessage": "tool",
}
_TYPES = frozenset({*_KINDS.values(), *(f"{name}Chunk" for name in _KINDS)})
_ROLES = {
    "ai": "ai",
    "assistant": "ai",
    "developer": "system",
    "function": "function",
    "human": "human",
    "system": "system",
    "tool": "tool",
    "user": "human",
}


def message_fields(value: object) -> Fields | None:
    """The fields of a message, its `type` among them; None for what is no message."""
    fields = fields_of(value)
    if not fields:
        return None
    kind = text_of(fields.get("type"))
    if kind in _TYPES:
        if "content" in fields:
            return fields
        data = fields_of(fields.get("data"))
        return {"type": kind, **data} if data and "content" in data else None
    if kind == "constructor" and fields.get("lc") == 1:
        kwargs, path = fields_of(fields.get("kwargs")), fields.get("id")
        if kwargs is None or not isinstance(path, list | tuple) or not path:
            return None
        name = str(cast("list[object]", path)[-1])
        kind = _KINDS.get(name, name)
        return {"content": "", **kwargs, "type": kind} if kind in _TYPES else None
    return None


def node_message_fields(value: object) -> Fields | None:
    """`message_fields`, and what LangGraph's `add_messages` takes for a message."""
    if isinstance(value, list | tuple):
        pair = cast("tuple[object, ...]", value)
        if len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], str) and pair[0] in _ROLES:
            return {"type": _ROLES[pair[0]], "content": pair[1]}
        return None
    if found := message_fields(value):
        return found
    fields = fields_of(value)
    if not fields or "content" not in fields or "type" in fields or (role := text_of(fields.get("role"))) not in _ROLES:
        return None
    return {**fields, "type": _ROLES[role]}
