"""Providers that repeat all they have said so far with each delta, and those that repeat it once at the end.

Nothing in the format says so (DashScope without `incremental_output`, QwenLM/qwen-code#3896; BerriAI/litellm#39965), but
the beginning of an answer shows it: every delta begins with the text so far. A delta that does waits for the next one,
which either goes on growing or shows that it was meant as it stands.
"""

from __future__ import annotations

__all__ = ["GrowingText"]

_CERTAIN = 12  # characters; a shorter common beginning may be chance: "ha", "haha"
_BEGINNING = 32  # characters of an answer that are looked at


class GrowingText:
    """One text or thought as it comes, told apart from snapshots of it.

    Attributes:
        held: A delta that begins with the text so far and may be a snapshot of it.
        watching: Whether a snapshot may still begin. A text that has not grown by itself in its first characters is
            made of increments.
    """

    __slots__ = ("_deltas", "_growing", "_so_far", "held", "watching")

    def __init__(self) -> None:
        self.held = ""
        self.watching = True
        self._so_far = ""  # all of it while watching or growing, its beginning afterwards
        self._deltas = 0
        self._growing = False

    @property
    def pending(self) -> bool:
        """The next delta must be looked at: one is held, or each is a snapshot."""
        return bool(self.held) or self._growing

    def take(self, delta: str) -> str:
        """What is new in this delta; empty if that is not known yet."""
        if self._growing:
            return self._grow(delta)
        if self.held:
            held, self.held = self.held, ""
            if len(delta) > len(held) and delta.startswith(held):
                self._growing = True
                return self._grow(delta)
            self._note(held)
            self._note(delta)
            return held + delta
        if self.watching and not self.add(delta):
            self.held = delta
            return ""
        return delta

    def add(self, delta: str) -> bool:
        """Note a delta that is written as it is; False, and nothing is noted, where it may be a snapshot."""
        so_far = self._so_far
        if so_far and len(delta) > len(so_far) and delta.startswith(so_far):
            return False
        self._so_far = so_far + delta
        self._deltas += 1
        self.watching = len(self._so_far) < _BEGINNING or self._deltas < 2
        return True

    def release(self) -> str:
        """What the held delta adds, as nothing follows it."""
        held, self.held = self.held, ""
        if len(self._so_far) >= _CERTAIN:
            return self._grow(held) if held else ""
        self._note(held)
        return held

    def is_repeated_by(self, delta: str) -> bool:
        """The delta is the whole text again; of a long one the beginning decides."""
        so_far = self._so_far
        if len(so_far) < _CERTAIN:
            return False
        return (
            delta == so_far if self.watching or self._growing else len(delta) > len(so_far) and delta.startswith(so_far)
        )

    def _grow(self, delta: str) -> str:
        if not delta.startswith(self._so_far):
            self._so_far += delta
            return delta
        new, self._so_far = delta[len(self._so_far) :], delta
        return new

    def _note(self, delta: str) -> None:
        if self.watching:
            self._so_far += delta
            self._deltas += 1
            self.watching = len(self._so_far) < _BEGINNING or self._deltas < 2
