"""Read a frame that differs from an earlier one only in its text, without parsing the rest again.

A model's server sends the same frame for every token but for one string: `delta.content`, a thought, or the arguments of
a call. With a hole in the place of that string a frame is a pattern: a later one that begins and ends alike, and has a
JSON string in between, is the same JSON but for this string. Whether the frame is a plain chunk is asked once, of
`Glance` with a probe in the hole. Anything else is no match and is parsed.
"""

from __future__ import annotations

import json.decoder
import re
from collections.abc import Callable
from typing import TypeVar

from pydantic_core import from_json

from dragent_stream.plain_chunks import NO_CHOICE, Glance, UndecidedError, Writers
from dragent_stream.well_formed import well_formed

__all__ = ["FramePatterns"]

E = TypeVar("E")

# (the string, where it ends) of a JSON string that begins behind its opening mark; ValueError where there is none.
_scan: Callable[[str, int], tuple[str, int]] = json.decoder.scanstring  # pyright: ignore

_HOLE = re.compile(r'("(?<!\\")(?:content|reasoning_content|reasoning|arguments)": ?")((?:[^"\\]|\\.)+)"')
# Random text of random length against traffic analysis, in every frame of OpenAI's own API.
_PADDING = re.compile(r'"(?<!\\")obfuscation": ?"([0-9A-Za-z]*)"')
_PROBE = "probe"
_PATIENCE = 8
_LONGEST_HEAD = 4096  # what is looked through in vain for each frame of another kind
_MOST = 256  # patterns of one stream; parallel calls have one each


class _Pattern:
    """One frame with a hole.

    Attributes:
        kind: What fills the hole, by its name in `Writers`.
        next: The pattern of the frame that followed the last one of this pattern; parallel calls take turns.
        on: From the end of the hole to the beginning of the next one, if that pattern follows again.
        tail: From the end of the hole to the end of the frame, or to its padding.
        rest: What follows the padding; empty where there is none.
    """

    __slots__ = ("head", "head_size", "kind", "next", "on", "on_size", "rest", "tail")

    def __init__(self, head: str, kind: str | int, tail: str) -> None:
        self.head, self.head_size = head, len(head)
        self.kind = kind
        padding = _PADDING.search(tail)
        self.tail, self.rest = (tail[: padding.start(1)], tail[padding.end(1) :]) if padding else (tail, "")
        self.lead_to(self)

    def lead_to(self, following: _Pattern) -> None:
        """Expect this pattern next."""
        self.next = following
        self.on = self.tail + following.head if not self.rest else "\n"  # of a padded frame nothing can be expected
        self.on_size = len(self.on)

    def end(self, text: str, at: int) -> int:
        """Where the frame ends whose hole ends here; -1 if it is another frame."""
        if not text.startswith(self.tail, at):
            return -1
        at += len(self.tail)
        if not self.rest:
            return at
        stop = text.find('"', at)
        return stop + len(self.rest) if text[at:stop].isalnum() and text.startswith(self.rest, stop) else -1


class FramePatterns:
    """The patterns of the frames of one stream.

    A stream whose frames differ elsewhere too (a time) is given up after a few tries; padding may differ.

    Attributes:
        choice_index: The `index` of the choice that was followed when the patterns were learned.
    """

    __slots__ = ("_last", "_learned", "_longest", "_marks", "_misses", "_patterns", "choice_index")

    def __init__(self) -> None:
        self._patterns: dict[str, _Pattern] = {}  # by head
        self._last: _Pattern | None = None
        self._marks: tuple[str, ...] = ()  # what the heads end with
        self._longest = 0
        self.choice_index = NO_CHOICE
        self._learned = set[str | int]()
        self._misses = 0

    @property
    def hopeless(self) -> bool:
        """No further frame will be learned."""
        return self._misses > _PATIENCE

    def take(self, text: str, at: int, writers: Writers[E], events: list[E]) -> int:
        """Write the events of the frames that match, up to the first one that does not, or that may not go on.

        Args:
            text: Whole frames.
            at: Where the first one to take begins.
            writers: What writes the events.
            events: Where they go.

        Returns:
            Where the frame that was left begins; the size of the text if none was.
        """
        last = self._last
        if last is None:
            return at
        pattern = self._following(last, text, at)
        if pattern is None:
            return at
        start, size, add = at, len(text), events.append
        begin = at + pattern.head_size
        while pattern is not None:
            try:
                delta, end = _scan(text, begin)
                write = writers[pattern.kind]
            except (KeyError, ValueError):
                break
            end -= 1  # its closing mark belongs to the tail
            expected = text.startswith(pattern.on, end)
            stop = end if expected else pattern.end(text, end)
            if stop < 0 or not delta or not (delta.isascii() or well_formed(delta) is delta):
                break
            try:
                add(write(delta))
            except UndecidedError:
                break
            last = pattern
            if expected:
                begin = end + last.on_size
                pattern = last.next
                continue
            at = stop
            pattern = self._following(last, text, at) if at < size else None
            if pattern is not None:
                begin = at + pattern.head_size
        if pattern is not None:
            at = begin - pattern.head_size
        if at > start:
            self._last = last
            self._misses = 0
        return at

    def _following(self, last: _Pattern, text: str, at: int) -> _Pattern | None:
        """The pattern of the frame that begins here, as far as its head tells."""
        if text.startswith(last.next.head, at):
            return last.next
        for mark in self._marks:
            stop = text.find(mark, at, at + self._longest)
            if stop >= 0 and (found := self._patterns.get(text[at : stop + len(mark)])):
                last.lead_to(found)
                return found
        return None

    def learn(self, frame: str, choice_index: int) -> None:
        """Take a frame that had to be parsed as the pattern of later ones, if it can be one.

        Args:
            frame: `data: {…}`, in one line, and a blank line.
            choice_index: The `index` of the choice that is followed.
        """
        if choice_index != self.choice_index or len(self._patterns) >= _MOST:
            self._patterns.clear()
            self._last = None
            self.choice_index = choice_index
        if self.hopeless or not (frame.startswith("data: {") and frame.endswith("\n\n") and frame.count("\n") == 2):
            return
        holes = list(_HOLE.finditer(frame))
        if len(holes) != 1:
            return
        hole = holes[0]
        head, tail = frame[: hole.start(2)], frame[hole.end(2) :]
        if len(head) > _LONGEST_HEAD:
            return
        if (known := self._patterns.get(head)) and known.end(tail, 0) == len(tail):
            return  # it matched, but something had to be decided
        try:
            chunk = from_json(head.removeprefix("data: ") + _PROBE + tail)
        except ValueError:
            return
        glance = Glance(_Names())
        glance.choice_index = choice_index
        kind = glance.event(chunk)
        if kind is None or kind in self._learned:
            self._misses += 1
        if kind is not None:
            self._learned.add(kind)
            self._last = self._patterns[head] = _Pattern(head, kind, tail)
            self._longest = max(self._longest, len(head))
            if hole[1] not in self._marks:
                self._marks += (hole[1],)


class _Names(Writers[str | int | None]):
    """Offers a writer for everything; each gives its name for the probe, and nothing for other text."""

    def __missing__(self, kind: str | int) -> Callable[[str], str | int | None]:
        return lambda text: kind if text == _PROBE else None
