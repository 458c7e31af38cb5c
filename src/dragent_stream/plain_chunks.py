"""Read at a glance the chunk that nearly every chunk is: one more piece of text, or of one call's arguments.

This is the path of nearly every token, so it only looks: a key that it does not know, with a value, makes the chunk
unusual, and whatever is unusual is left to `ChunkReader.read`, which reads the same chunk to the same effect.
"""

# A membership test and a subscript cost half of what a call of `get` costs. Narrowing to dict leaves its items unknown.
# ruff: noqa: RUF019
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["PlainDelta", "plain_delta"]

PlainDelta: TypeAlias = str | tuple[int, str]
"""Answer text, never empty; or the index of a call and a fragment of its arguments."""


def plain_delta(chunk: Any, choice_index: int | None) -> PlainDelta | None:
    """What a plain chunk brings; None where the chunk must be read in full.

    Args:
        chunk: A mapping or a pydantic object of the shape of a chat.completion.chunk, or anything else.
        choice_index: The `index` of the choice that is followed; None before the first chunk was read.
    """
    try:
        if type(chunk) is dict:
            fields = chunk
            (choice,) = fields["choices"]
            delta = choice["delta"]
        else:
            fields = chunk.__dict__
            (choice,) = fields["choices"]
            choice = choice.__dict__
            delta = choice["delta"]
            if chunk.__pydantic_extra__ or delta.__pydantic_extra__:
                fields, delta = _declared(chunk), _declared(delta)
            else:
                delta = delta.__dict__
        if (
            choice["index"] != choice_index
            or ("finish_reason" in choice and choice["finish_reason"])
            or ("usage" in fields and fields["usage"])
            or ("error" in fields and fields["error"])
        ):
            return None
        text = delta["content"] if "content" in delta else None
        expected = "content" if text else "tool_calls"
        if len(delta) > 1:
            for key, value in delta.items():
                if value and key != expected and (key != "role" or value != "assistant"):
                    return None
        if text:
            return text if type(text) is str else None
        (call,) = delta["tool_calls"]
        return _plain_fragment(call if type(call) is dict else _declared(call))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _plain_fragment(call: dict[str, Any]) -> tuple[int, str] | None:
    """The index and the arguments of a tool-call delta that brings nothing else."""
    function = call["function"]
    if type(function) is not dict:
        function = _declared(function)
    index, arguments = call["index"], function["arguments"]
    if type(index) is not int or type(arguments) is not str or ("name" in function and function["name"]):
        return None
    if len(call) > 2:
        for key, value in call.items():
            if value and key != "index" and key != "function" and key != "type":
                return None
    return index, arguments


def _declared(value: Any) -> dict[str, Any]:
    """The fields that the class of a pydantic object declares; TypeError where others have a value."""
    extra = value.__pydantic_extra__
    if extra and any(extra.values()):
        raise TypeError
    return value.__dict__
