"""Read a frame that differs from an earlier one only in its text, without parsing the rest again.

A model's server sends the same frame for every token but for the string of `delta.content`. With a hole in the place of
that string a frame is a pattern: a later one that begins and ends alike, and has a JSON string in between, is the same
JSON but for this string. Anything else is no match and is parsed.
"""

from __future__ import annotations

import re
from typing import Any, cast

from pydantic_core import from_json

__all__ = ["FramePattern"]

_CONTENT = re.compile(r'(?<!\\)"content": ?"((?:[^"\\]|\\.)*)"')
_PROBE = "probe"
_PATIENCE = 8


class FramePattern:
    """The pattern of the frames of one stream.

    A stream whose frames differ elsewhere too (a time, padding against traffic analysis) is given up after a few tries.
    """

    __slots__ = ("_choice", "_chunk", "_delta", "_head", "_misses", "_tail")

    def __init__(self) -> None:
        self._head = ""
        self._tail = ""
        self._misses = 0
        self._chunk: dict[str, Any] = {}
        self._choice: dict[str, Any] = {}
        self._delta: dict[str, Any] = {}

    def read(self, data: str) -> dict[str, Any] | None:
        """The chunk of a frame that matches, else None."""
        if not (self._head and data.startswith(self._head) and data.endswith(self._tail)):
            return None
        try:
            text = from_json(data[len(self._head) - 1 : len(data) - len(self._tail) + 1])
        except ValueError:
            return None
        if type(text) is not str:
            return None
        self._misses = 0
        delta = {**self._delta, "content": text}
        return {**self._chunk, "choices": [{**self._choice, "delta": delta}]}

    def learn(self, data: str) -> None:
        """Take a frame that was parsed, and did not match, as the pattern of the next ones, if it can be one."""
        if self._misses > _PATIENCE or data.count('"content":') != 1 or not (found := _CONTENT.search(data)):
            return
        self._misses += 1
        head, tail = data[: found.start(1)], data[found.end(1) :]
        try:
            chunk = from_json(head + _PROBE + tail)
            (choice,) = chunk["choices"]
            delta = choice["delta"]
            fits = delta["content"] == _PROBE and not chunk.get("error") and chunk.get("object") != "error"
        except (AttributeError, KeyError, TypeError, ValueError):
            return
        if fits:
            self._head, self._tail = head, tail
            self._chunk, self._choice, self._delta = (cast("dict[str, Any]", part) for part in (chunk, choice, delta))
