"""The script of a model: its answers, and what happens between their chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from dragent_stream.errors import ConversionError
from dragent_stream.testing.chunks import finish_chunk, text_chunk

__all__ = ("Cut", "Entry", "Fail", "Hold", "Pause", "Raw", "ScriptError", "Turn", "read_script", "read_turn")


class ScriptError(ConversionError, ValueError):
    """A script holds what no model streams; the message names the place."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait some seconds before the next chunk."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait until the test sets the event, or for ever: until the client has gone."""

    until: asyncio.Event | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer with an HTTP error; it must be the first entry of its turn."""

    status: int = 500
    message: str = "the model is down"


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection in the middle of the answer, without its end."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Write bytes into the body as they are: what no model should send, and some do."""

    data: bytes


Turn: TypeAlias = str | Iterable[str | Mapping[str, Any] | Pause | Hold | Fail | Cut | Raw]
"""One answer: chunks as they go over the wire, and what happens between them.

A string is a chunk of text; a turn with strings is finished by a finish chunk of its own where it has none. Every answer
that is not cut ends with `[DONE]`.
"""

Entry: TypeAlias = Mapping[str, Any] | Pause | Hold | Fail | Cut | Raw
"""One entry of a turn that was read: its strings are chunks."""

_CHUNK_KEYS = frozenset({"base_resp", "choices", "code", "detail", "error", "message", "msg", "object", "usage"})


def read_script(turns: object) -> list[list[Entry]]:
    """The turns of a script as lists; `ScriptError` where it holds what no model streams."""
    if isinstance(turns, str | bytes | Mapping) or not isinstance(turns, Iterable):
        raise ScriptError(f'a script is a list of turns, [["Hello"]], not {_shown(cast("object", turns))}')
    return [read_turn(turn, number) for number, turn in enumerate(cast("Iterable[object]", turns), 1)]


def read_turn(given: object, number: int) -> list[Entry]:
    """The entries of a turn, its strings made chunks; `ScriptError` with the turn's number."""
    turn: object = [given] if isinstance(given, str) else given
    if isinstance(turn, bytes | Mapping) or not isinstance(turn, Iterable):
        raise ScriptError(
            f"turn {number} is {_shown(cast('object', turn))}; a turn is a list of chunks: [[chunk, ...], ...]"
        )
    items = list(cast("Iterable[object]", turn))
    entries = [_entry(item, f"turn {number}, entry {place}", place) for place, item in enumerate(items, 1)]
    if any(isinstance(item, str) for item in items) and not any(map(_ends, entries)):
        last = max(
            place for place, entry in enumerate(entries) if _choices(entry)
        )  # usage comes after the finish chunk
        entries.insert(last + 1, finish_chunk("tool_calls" if any(map(_calls, entries)) else "stop"))
    return entries


def _entry(entry: object, where: str, place: int) -> Entry:
    if isinstance(entry, str):
        return text_chunk(entry)
    if isinstance(entry, Fail) and place > 1:
        raise ScriptError(f"{where} is a Fail, which is an answer of its own; Cut breaks off an answer that has begun")
    if isinstance(entry, Pause | Hold | Fail | Cut | Raw):
        return entry
    dump: Any = getattr(entry, "model_dump", None)  # openai's own chunk objects
    chunk: object = dump(mode="json", exclude_unset=True) if callable(dump) else entry
    if isinstance(chunk, Mapping) and _CHUNK_KEYS & chunk.keys():
        return cast("Mapping[str, Any]", chunk)
    raise ScriptError(
        f"{where} is {_shown(entry)}, which is no chunk; give text, a chunk of dragent_stream.testing, or Raw(bytes)"
    )


def _choices(entry: Entry) -> list[Any]:
    return list(entry.get("choices") or ()) if isinstance(entry, Mapping) else []


def _ends(entry: Entry) -> bool:
    """The answer has its end: a finish reason, an error, or what cuts it."""
    if isinstance(entry, Mapping) and entry.get("error"):
        return True
    return isinstance(entry, Cut | Fail) or any(choice.get("finish_reason") for choice in _choices(entry))


def _calls(entry: Entry) -> bool:
    deltas: list[Any] = [choice.get("delta") or {} for choice in _choices(entry)]
    return any(delta.get("tool_calls") for delta in deltas)


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"


_SHOWN = 60
