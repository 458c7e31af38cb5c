"""Content with `<think>…</think>` inside, split into answer text and thoughts."""

from __future__ import annotations

import re

__all__ = ["ThinkTags"]

_NAMES = ("think", "thinking", "thought", "reasoning")
_TAG = re.compile(f"<(/?)(?:{'|'.join(_NAMES)})>")
_MAY_BE_TAG = re.compile(r"<[/a-z]{0,10}$")
_TAGS = tuple(f"<{slash}{name}>" for slash in ("", "/") for name in _NAMES)


class ThinkTags:
    """Splits content at the tags; holds back only what could be the beginning of one.

    Attributes:
        held: What is held back.
    """

    __slots__ = ("_inside", "held")

    def __init__(self) -> None:
        self.held = ""
        self._inside = False

    def feed(self, text: str) -> list[tuple[bool, str]]:
        """(is a thought, text) pieces that are certain by now."""
        text = self.held + text
        pieces: list[tuple[bool, str]] = []
        at = 0
        for tag in _TAG.finditer(text):
            closes = bool(tag[1])
            if closes is self._inside:
                pieces.append((self._inside, text[at : tag.start()]))
                self._inside = not closes
                at = tag.end()
        rest = text[at:]
        beginning = _MAY_BE_TAG.search(rest)
        keep = beginning and any(tag.startswith(beginning[0]) for tag in _TAGS)
        self.held = beginning[0] if beginning and keep else ""
        pieces.append((self._inside, rest[: len(rest) - len(self.held)]))
        return [piece for piece in pieces if piece[1]]

    def flush(self) -> list[tuple[bool, str]]:
        """What was held back was no tag."""
        held, self.held = self.held, ""
        return [(self._inside, held)] if held else []
