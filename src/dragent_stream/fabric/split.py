"""Divide a chunk that exceeds one record into several that say the same.

Text, reasoning, refusal and the arguments of calls are cut between characters. The role goes with the first piece, a
call's name with the first piece of its arguments, everything that must be said once (finish reason, usage, log
probabilities, extras) with the last piece. A reader that appends deltas sees the same text and the same arguments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from dragent_stream.fabric.contract import encode_chunk

__all__ = ["split_chunk"]

Json = dict[str, Any]

_FRAME = ("id", "object", "created", "model")
_REASONING = ("reasoning_content", "reasoning")
_REASONING_PARTS = ("reasoning_details", "thinking_blocks")


@dataclass(frozen=True, slots=True)
class _Part:
    """A string that may be cut, and the delta that one piece of it makes (the flag says whether it is the first)."""

    text: str
    delta: Callable[[str, bool], Json]


def split_chunk(chunk: Json, limit: int) -> list[Json]:
    """The pieces of a valid chunk, each of at most `limit` bytes of JSON, in the order in which they are to be sent.

    Raises:
        ValueError: Something that cannot be cut is too large; the text names it, without its value.
    """
    frame = {name: chunk[name] for name in _FRAME}
    pieces: list[Json] = []
    last_choices: list[Json] = []
    for choice in chunk["choices"]:
        rest, parts = _take_apart(choice["delta"])
        role: Json = {"role": rest.pop("role")} if parts and rest.get("role") else {}
        for part in parts:
            for delta in _cut(part, limit - len(encode_chunk(_piece(frame, choice, {**role, **part.delta("", True)})))):
                pieces.append(_piece(frame, choice, {**role, **delta}))
                # A tool's role makes its content a result; the assistant's is said once.
                role = role if role.get("role") == "tool" else {}
        last_choices.append({**choice, "delta": rest})
    last = {**chunk, "choices": last_choices}
    if _says_something(last):
        size = len(encode_chunk(last))
        if size > limit:
            raise ValueError(f"{_largest(last)} takes most of {size} bytes, only {limit} fit, and it cannot be divided")
        pieces.append(last)
    return pieces


def _piece(frame: Json, choice: Json, delta: Json) -> Json:
    return {**frame, "choices": [{"index": choice["index"], "delta": delta}]}


def _cut(part: _Part, room: int) -> Iterator[Json]:
    """The deltas of one string; `room` is what a piece of it may take as JSON without its quotes."""
    if room < 6:  # one character as \u0000
        raise ValueError("what stands beside a text or beside a call's arguments leaves no room for them")
    start, first = 0, True
    while start < len(part.text):
        piece = part.text[start : start + room]
        while (size := len(json.dumps(piece, ensure_ascii=False).encode()) - 2) > room:
            piece = piece[: max(1, len(piece) * room // size)]
        yield part.delta(piece, first)
        start, first = start + len(piece), False


def _take_apart(delta: Json) -> tuple[Json, list[_Part]]:
    """The rest of a delta without the strings that may be cut, and those strings in the order of their reading."""
    rest = dict(delta)
    parts: list[_Part] = []
    spelled = [name for name in _REASONING if isinstance(rest.get(name), str) and rest[name]]
    if spelled:
        text = rest[spelled[0]]
        # The other spelling and the structured form repeat the thought: alone in another piece they would say it twice.
        beside = {name: rest.pop(name) for name in _REASONING_PARTS if name in rest}
        for name in _REASONING:
            rest.pop(name, None)
        parts.append(_Part(text, lambda piece, first: {spelled[0]: piece, **(beside if first else {})}))
    tool_call_id = {"tool_call_id": rest["tool_call_id"]} if "tool_call_id" in rest else {}
    for name in ("content", "refusal"):
        if isinstance(text := rest.get(name), str) and text:
            del rest[name]
            parts.append(_Part(text, lambda piece, first, name=name: {**tool_call_id, name: piece}))
            rest.pop("tool_call_id", None)
    calls = cast("list[Json]", rest.pop("tool_calls", None) or [])
    for call in calls:
        part = _call_part(call)
        if part is None:
            rest.setdefault("tool_calls", []).append(call)
        else:
            parts.append(part)
    old_call = rest.get("function_call")
    if isinstance(old_call, dict) and isinstance(text := cast("Json", old_call).get("arguments"), str) and text:
        del rest["function_call"]
        named = cast("Json", old_call)
        parts.append(
            _Part(text, lambda piece, first: {"function_call": {**(named if first else {}), "arguments": piece}})
        )
    return rest, parts


def _call_part(call: Json) -> _Part | None:
    function = call.get("function")
    text = cast("Json", function).get("arguments") if isinstance(function, dict) else None
    if not isinstance(text, str) or not text:
        return None
    named = cast("Json", function)
    # The index alone continues a call; where the provider sent none, its id has to.
    where = {name: call[name] for name in ("index",) if name in call} or {"id": call.get("id")}

    def delta(piece: str, first: bool) -> Json:
        if first:
            return {"tool_calls": [{**call, "function": {**named, "arguments": piece}}]}
        return {"tool_calls": [{**where, "function": {"arguments": piece}}]}

    return _Part(text, delta)


def _says_something(chunk: Json) -> bool:
    if set(chunk) - {*_FRAME, "choices"} or not chunk["choices"]:
        return True
    return any(
        any(choice["delta"].values()) or any(value for name, value in choice.items() if name not in ("index", "delta"))
        for choice in chunk["choices"]
    )


def _largest(chunk: Json) -> str:
    sizes = {name: len(json.dumps(value)) for name, value in chunk.items() if name != "choices"}
    for choice in chunk["choices"]:
        sizes |= {f"choices[].{name}": len(json.dumps(value)) for name, value in choice.items()}
    return max(sizes, key=lambda name: sizes[name])
