"""The deadline of one turn: interrupts a waiting target, and never a chunk that is being sent."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self

__all__ = ["TurnDeadline"]

_MARGIN = 10.0  # seconds that Fabric leaves between an adapter's deadline and its own timeout, at most


class TurnDeadline:
    """Cancels the running task at the deadline, and once more if the target hangs in its clean-up.

    Not `asyncio.timeout`: a cancelled `emit` of the common host would use its record's number twice, so while a chunk is
    being sent the deadline only takes note.

    Attributes:
        expired: The deadline has passed.
        sending: A chunk is being sent.
        close_timeout: Seconds that closing the target may take; no more than Fabric leaves for the answer.
    """

    def __init__(self, deadline_millis: int | None, close_timeout: float) -> None:
        """Set the deadline, in Unix milliseconds; None (before Fabric 0.5) never passes."""
        self.expired = False
        self.sending = False
        self._left = None if deadline_millis is None else max(0.0, deadline_millis / 1000 - time.time())
        if self._left is not None:
            # Fabric's margin is half of the timeout, so it is as long as what is left now, up to its limit.
            close_timeout = min(close_timeout, max(0.1, min(_MARGIN, self._left) / 2))
        self.close_timeout = close_timeout
        self._cancelled = 0

    def passed(self) -> bool:
        """Whether the deadline has passed, even if the target never let the event loop find out."""
        if self._left is not None and self._loop.time() >= self._when:
            self.expired = True
        return self.expired

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._handle = None
        if self._left is not None:
            self._when = self._loop.time() + self._left
            self._handle = self._loop.call_at(self._when, self._fire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.cancel()
        for _ in range(self._cancelled):
            if self._task is not None:
                self._task.uncancel()

    def _fire(self) -> None:
        self.expired = True
        if self.sending or self._task is None:
            return
        self._cancelled += 1
        self._task.cancel()
        if self._cancelled == 1:
            self._handle = self._loop.call_later(self.close_timeout, self._fire)
