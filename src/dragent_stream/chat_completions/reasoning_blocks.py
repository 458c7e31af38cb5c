"""`thinking_blocks` and `reasoning_details` that arrive in fragments, put together into the blocks that they are.

LiteLLM sends a block of Anthropic's a word at a time, each word as a whole block, and the signature in a block of its own
at the end; OpenRouter does the same with `reasoning_details`, which have an index. A provider accepts the blocks back only
whole, with the signature on the text that it signs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

__all__ = ("BLOCK_LISTS", "ReasoningBlocks")

BLOCK_LISTS: Final = frozenset({"thinking_blocks", "reasoning_details"})
_TEXTS: Final = ("thinking", "text", "summary")
_SNAPSHOT_MIN: Final = 12  # a shorter common beginning may be chance: "ha", "ha"


class ReasoningBlocks:
    """One list of blocks while it grows. The entries of one delta are blocks of their own; those of the next go on."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._by_index: dict[tuple[object, object], int] = {}  # the last block of each type and index

    def feed(self, entries: list[object]) -> None:
        """Take the list of one delta."""
        last = len(self._blocks) - 1
        fed: set[int] = set()  # blocks that have their part of this delta
        for entry in entries:
            fields = _fields(entry)
            mark = _mark(fields)
            at = last if mark is None else self._by_index.get(mark, -1)
            if at < 0 or at in fed or not self._blocks[at].continues(fields):
                at = len(self._blocks)
                self._blocks.append(_Block(entry))
                if mark is not None:
                    self._by_index[mark] = at
                last = -1  # behind a new block, what has no index begins another
            else:
                self._blocks[at].feed(fields)
            fed.add(at)

    def finish(self) -> list[object]:
        """The blocks, each whole."""
        return [block.finish() for block in self._blocks]


class _Block:
    """One block while it grows."""

    def __init__(self, entry: object) -> None:
        self._entry = entry
        self._fields = dict(_fields(entry))
        self._texts = {key: [value] for key in _TEXTS if isinstance(value := self._fields.get(key), str)}
        self._lengths = {key: len(text) for key, [text] in self._texts.items()}

    def continues(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry is more of this block, not the next one."""
        ours = self._fields
        if not isinstance(self._entry, Mapping) or not entry or entry.get("type") != ours.get("type"):
            return False
        if any(ours.get(key) and entry.get(key) and ours[key] != entry[key] for key in ("id", "signature", "data")):
            return False
        if any(not isinstance(fields.get(key) or "", str) for key in _TEXTS for fields in (ours, entry)):
            return False
        if ours.get("data") or entry.get("data"):  # encrypted: the same again, or a block of its own
            return ours.get("data") == entry.get("data") and _mark(entry) is not None
        # What is signed is whole; its signature may come again.
        return not ours.get("signature") or _closes(entry)

    def feed(self, entry: Mapping[str, Any]) -> None:
        """Take an entry that goes on with this block."""
        for key, value in entry.items():
            if key in _TEXTS and isinstance(value, str):
                self._add(key, value)
            elif key not in self._fields or (value is not None and not (value == "" and self._fields[key])):
                self._fields[key] = value

    def _add(self, key: str, text: str) -> None:
        parts = self._texts.setdefault(key, [])
        length = self._lengths.get(key, 0)
        # The text so far and more of it: a snapshot, as MiniMax documents them.
        if len(text) >= length >= _SNAPSHOT_MIN and text.startswith("".join(parts)):
            parts.clear()
            length = 0
        parts.append(text)
        self._lengths[key] = length + len(text)

    def finish(self) -> object:
        """The block."""
        if not isinstance(self._entry, Mapping):
            return self._entry
        return {**self._fields, **{key: "".join(parts) for key, parts in self._texts.items()}}


def _fields(entry: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else {}


def _closes(entry: Mapping[str, Any]) -> bool:
    """Whether an entry has a signature and no text."""
    return bool(entry.get("signature")) and not any(entry.get(key) for key in _TEXTS)


def _mark(entry: Mapping[str, Any]) -> tuple[object, object] | None:
    index = entry.get("index")
    return (str(entry.get("type")), index) if isinstance(index, int) else None
