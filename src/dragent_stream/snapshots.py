"""Providers that repeat all they have said so far with each delta, and those that repeat it once at the end.

Nothing in the format says so (DashScope without `incremental_output`, QwenLM/qwen-code#3896; BerriAI/litellm#39965), but
the beginning of an answer shows it: every delta begins with the text so far. Deltas that do wait until they have grown to
a length that is no chance, or until one shows that they were meant as they stand.
"""

from __future__ import annotations

__all__ = ["GrowingText"]

_CERTAIN = 12  # characters; what is shorter may be chance: "ha", "haha"
_BEGINNING = 32  # characters of an answer that are looked at


class GrowingText:
    """One text or thought as it comes, told apart from snapshots of it.

    Attributes:
        watching: Whether a snapshot may still begin. A text that has not grown by itself in its first characters is
            made of increments.
    """

    __slots__ = ("_deltas", "_growing", "_held", "_so_far", "watching")

    def __init__(self) -> None:
        self.watching = True
        self._held: tuple[str, ...] = ()  # deltas that each begin with all before them, and may be snapshots
        self._so_far = ""  # all of it while watching or growing, its beginning afterwards
        self._deltas = 0
        self._growing = False

    @property
    def pending(self) -> bool:
        """The next delta must be looked at: one is held, or each is a snapshot."""
        return bool(self._held) or self._growing

    def take(self, delta: str) -> str:
        """What is new in this delta; empty if that is not known yet."""
        if self._growing:
            return self._grow(delta)
        if self._held:
            last = self._held[-1]
            if delta.startswith(last):
                self._held += (delta,)
                self._growing = len(delta) >= _CERTAIN and len(delta) > len(last)
                return self._grow_held() if self._growing else ""
            return self._append_held() + self.take(delta)
        if self.watching and not self.add(delta):
            self._held = (delta,)
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
        """What the held deltas add, as nothing follows them."""
        if not self._held:
            return ""
        return self._grow_held() if len(self._so_far) >= _CERTAIN else self._append_held()

    def is_repeated_by(self, delta: str) -> bool:
        """The delta is the whole text again; of a long one the beginning decides."""
        so_far = self._so_far
        if len(so_far) < _CERTAIN:
            return False
        if self.watching or self._growing:
            return delta == so_far
        return delta.startswith(so_far)

    def is_all(self, text: str) -> bool:
        """All that was said is this text; of a long one the beginning decides."""
        whole = self.watching or self._growing
        return bool(text) and (text == self._so_far if whole else text.startswith(self._so_far))

    def _grow_held(self) -> str:
        last, self._held = self._held[-1], ()
        return self._grow(last)

    def _append_held(self) -> str:
        text, self._held = "".join(self._held), ()
        self._so_far += text
        self.watching = len(self._so_far) < _BEGINNING
        return text

    def _grow(self, delta: str) -> str:
        if not delta.startswith(self._so_far):
            self._so_far += delta
            return delta
        new, self._so_far = delta[len(self._so_far) :], delta
        return new
