"""Whatever a run is held in, as events of the wire: objects, dicts, batches, SSE frames, lines of JSON."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dragent_stream.check.stream import Event

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ("EventLike", "EventReader", "Unreadable")

EventLike: TypeAlias = "Event | BaseModel | str | bytes"
"""An event as a dict of the wire or as an ag_ui object, a batch of them, or text: JSON, or a part of an SSE stream."""

_IGNORED = re.compile(r":|(event|id|retry)(:|$)")
_SHOWN = 60


class Unreadable(str):
    """Stands for what is no event, and says why."""

    __slots__ = ()


class EventReader:
    """Reads the items of one stream in order; what is text may be cut anywhere."""

    __slots__ = ("_data", "_decoder", "_rest", "_returned")

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._rest = ""  # a line that has no end yet
        self._data: list[str] = []  # the data of a frame that has no end yet
        self._returned = False

    def read(self, item: EventLike) -> list[Event | Unreadable]:
        """The events that an item completes, and what in it is none; what was read before stays what it is."""
        if isinstance(item, Mapping | Unreadable):
            return [item]
        if isinstance(item, str):
            return self._read_text(item)
        if isinstance(item, bytes | bytearray | memoryview):
            return self._read_text(self._decoder.decode(item))
        batch: object = getattr(item, "events", None)
        if isinstance(batch, Sequence):
            return [event for held in cast("Sequence[BaseModel]", batch) for event in self.read(held)]
        dump: Any = getattr(item, "model_dump", None)
        if dump is None:
            return [Unreadable(f"an object of the type {type(item).__name__} is no event")]
        try:
            return [dump(mode="json", by_alias=True, exclude_none=True)]
        except ValueError as exc:  # a value that is no JSON, a lone surrogate
            return [Unreadable(f"{type(item).__name__} cannot be written: {exc}")]

    def end(self) -> list[Event | Unreadable]:
        """The last event, whose line or frame may have no end."""
        line, self._rest = self._rest, ""
        return (self._read_line(line) if line else []) + self._end_frame()

    def _read_text(self, text: str) -> list[Event | Unreadable]:
        found: list[Event | Unreadable] = []
        if not text:
            return self._end_frame()  # the blank line of a reader that cuts line ends off
        *lines, rest = (self._rest + text).split("\n")
        for line in lines:
            found += self._read_line(line)
        if _is_whole(rest):
            found += self._read_line(rest)
            rest = ""
        self._rest = rest
        return found

    def _read_line(self, line: str) -> list[Event | Unreadable]:
        returned, line = line.endswith("\r"), line.removesuffix("\r")
        if line.startswith("data:"):
            self._returned = self._returned or returned
            self._data.append(line[5:].removeprefix(" "))
            return []
        if not line.strip():
            self._returned = self._returned or (returned and bool(self._data))
            return self._end_frame()
        return [] if _IGNORED.match(line) else [_event(line)]

    def _end_frame(self) -> list[Event | Unreadable]:
        if not self._data:
            return []
        data, self._data = "\n".join(self._data), []
        returned, self._returned = self._returned, False
        found: list[Event | Unreadable] = [Unreadable("the lines of an SSE frame end in CR")] if returned else []
        return [*found, _event(data)]


def _is_whole(line: str) -> bool:
    """A line that came without its end, as readers of lines give it."""
    text = line.removeprefix("data:").strip()
    return text.startswith("{") and text.endswith("}") and isinstance(_event(text), Mapping)


def _event(text: str) -> Event | Unreadable:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return cast("Event", value) if isinstance(value, dict) else Unreadable(f"no JSON object: {text[:_SHOWN]!r}")
