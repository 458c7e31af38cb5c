"""When a turn must be over, and how its target is ended then: asked twice, and abandoned if it does not listen."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from dragent_stream.errors import ConversionError

__all__ = ["TurnDeadline", "check_turn_timeout", "has_abandoned_targets"]

logger = logging.getLogger("dragent_stream.fabric")

_MARGIN = 10.0  # seconds that Fabric leaves between an adapter's deadline and its own timeout, at most

# Targets that swallowed their cancellation; held, because nothing else holds a task.
_abandoned: set[asyncio.Task[Any]] = set()


def has_abandoned_targets() -> bool:
    """Whether a target that swallowed its cancellation still runs in this process."""
    return bool(_abandoned)


def check_turn_timeout(seconds: float | None) -> None:
    """Refuse a limit that no turn could keep."""
    if seconds is not None and not seconds > 0:
        raise ConversionError(f"turn_timeout must be a number of seconds above 0, not {seconds!r}")


class TurnDeadline:
    """The earlier of Fabric's deadline for a turn and the adapter's own limit.

    Attributes:
        expired: It has passed.
        sent: Set while no chunk is being sent. A cancelled `emit` of the common host would use its record's number twice,
            so a target is not cancelled before.
        grace: Seconds that a cancelled target has to end in order; no more than Fabric leaves for the answer.
    """

    def __init__(self, deadline_millis: int | None, turn_timeout: float | None, close_timeout: float) -> None:
        """Set the deadline.

        Args:
            deadline_millis: Fabric's, in Unix milliseconds; None before 0.5.
            turn_timeout: The adapter's limit in seconds, or None.
            close_timeout: The grace that the adapter would give.
        """
        self.expired = False
        self.sent = asyncio.Event()
        self.sent.set()
        self.grace = close_timeout
        left = None if deadline_millis is None else max(0.0, deadline_millis / 1000 - time.time())
        if left is not None:
            # Fabric's margin is half of the timeout, so it is as long as what is left now, up to its limit. The target is
            # asked for one grace, and once more for half of it.
            self.grace = min(close_timeout, max(0.1, min(_MARGIN, left) / 3))
        if turn_timeout is not None:
            left = turn_timeout if left is None else min(left, turn_timeout)
        self._left = left
        self._loop = asyncio.get_running_loop()
        self._when = None if left is None else self._loop.time() + left

    def passed(self) -> bool:
        """Whether the deadline has passed, even if the target never let the event loop find out."""
        if self._when is not None and self._loop.time() >= self._when:
            self.expired = True
        return self.expired

    async def keep(self, work: asyncio.Task[Any]) -> None:
        """Wait until the work is done, or was ended or abandoned because the deadline passed or the caller was cancelled.

        Raises:
            asyncio.CancelledError: The caller was cancelled.
        """
        try:
            await asyncio.wait({work}, timeout=self._left)
            if work.done():
                return
            self.expired = True
            if not self.sent.is_set():
                await self.sent.wait()
                await asyncio.wait({work}, timeout=self.grace)  # it looks at the clock now, and closes its source
            await self._end(work)
        except asyncio.CancelledError:
            await self._end(work)
            raise

    async def _end(self, work: asyncio.Task[Any]) -> None:
        for grace in (self.grace, self.grace / 2):
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=grace)
        if not work.done():
            logger.error("the target swallows its cancellation and is abandoned; it still runs in this process")
            _abandoned.add(work)
            work.add_done_callback(_forget)


def _forget(work: asyncio.Task[Any]) -> None:
    _abandoned.discard(work)
    if not work.cancelled() and (error := work.exception()) is not None:
        logger.debug("an abandoned target failed", exc_info=error)
