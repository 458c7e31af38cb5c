"""Which of a stream's choices is the answer.

The choice of index 0 is followed, even if another comes first; the others are alternatives and counted. An index that
counts tokens is followed as it grows (microsoft/foundry-local#144). A choice that ends in tool calls but has none, beside
one that has calls and no text, is one answer that was split (HKUDS/nanobot#1481, SWE-agent/mini-swe-agent#805).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from dragent_stream.fields import Fields, fields_of
from dragent_stream.values import index_of

__all__ = ["FollowedChoice"]

_Pair: TypeAlias = tuple[Fields, Fields | None]

_PATIENCE = 8  # chunks of choice 1 that wait for choice 0 to begin


class FollowedChoice:
    """Follows one choice through the chunks of a stream.

    Attributes:
        index: The `index` of the choice that is followed; None before one was read.
        ignored: How many choices beside it were passed over.
        others_spoke: One of them has text.
    """

    __slots__ = ("_calls_of", "_counting", "_waiting", "ignored", "index", "others_spoke")

    def __init__(self) -> None:
        self.index: int | None = None
        self.ignored = 0
        self.others_spoke = False
        self._counting = False
        self._waiting: list[_Pair] = []
        self._calls_of: dict[int, list[Any]] = {}  # the calls of other choices; empty for one with text

    def of(self, chunk: Fields) -> Sequence[_Pair]:
        """What is to be read now: this chunk with its followed choice, those before it that had to wait, or nothing."""
        offered = chunk.get("choices")
        if type(offered) is not list and isinstance(offered, Mapping):
            offered = (cast("Fields", offered),)
        if not isinstance(offered, list | tuple):
            return ((chunk, None),)
        items = cast("Sequence[object]", offered)
        if len(items) == 1 and (only := fields_of(items[0])) and only.get("index") == self.index is not None:
            return ((chunk, only),)
        choices = [found for item in items if (found := fields_of(item))]
        by_index = {index_of(choice.get("index")) or 0: choice for choice in reversed(choices)}
        if not by_index:
            return ((chunk, None),)
        lowest = min(by_index)
        if self.index is None:
            if lowest == 1 and "message" not in by_index[1] and len(self._waiting) < _PATIENCE:
                self._waiting.append((chunk, by_index[1]))
                return ()
            self.index = 1 if self._waiting and lowest > 0 else lowest
            self._counting = lowest > 1
        waited = self._release()
        if self._counting and len(by_index) == 1 and lowest > self.index:
            self.index = lowest
        self._note_others(by_index)
        followed = [choice for choice in choices if (index_of(choice.get("index")) or 0) == self.index]
        # A second entry of the same index brings more of the answer, and nothing of the chunk again.
        return (*waited, (chunk, followed[0] if followed else None), *(({}, more) for more in followed[1:]))

    def calls_of_other(self) -> Sequence[Any]:
        """The calls of the one other choice that made some and said nothing; none where choices are alternatives."""
        others, self._calls_of = list(self._calls_of.values()), {}
        return others[0] if len(others) == 1 else ()

    def finish(self) -> Sequence[_Pair]:
        """What still waits at the end of the stream."""
        if self._waiting:
            self.index = 1
        return self._release()

    def _release(self) -> Sequence[_Pair]:
        waiting, self._waiting = self._waiting, []
        if self.index == 0:
            self.ignored += len(waiting)
            return ()
        return waiting

    def _note_others(self, by_index: dict[int, Fields]) -> None:
        for index, choice in by_index.items():
            if index == self.index:
                continue
            self.ignored += 1
            said = fields_of(choice.get("delta")) or fields_of(choice.get("message")) or {}
            calls = said.get("tool_calls")
            if said.get("content"):
                self.others_spoke = True
                self._calls_of[index] = []
            elif isinstance(calls, list | tuple) and self._calls_of.get(index) != []:
                self._calls_of.setdefault(index, []).extend(cast("Iterable[object]", calls))
