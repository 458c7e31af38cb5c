"""The runs that one application is streaming now: admit, find, stop, drain.

Plain bookkeeping in one event loop, no locks. A run is known by its thread and its own id, for a run id is unique on its
thread only (spec 1.0, RUN_STARTED).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from dragent_stream.errors import DragentStreamError

__all__ = ["ActiveRuns", "Run", "RunRefusedError"]


class RunRefusedError(DragentStreamError):
    """A run is not admitted.

    Attributes:
        status: The HTTP status that fits.
        code: A word for programs.
    """

    def __init__(self, problem: str, *, status: int, code: str) -> None:
        super().__init__(problem)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run being streamed; `stop` ends it at once and in order."""

    thread_id: str
    run_id: str
    stop: Callable[[], None]
    owner: str | None = None


class ActiveRuns:
    """The runs being streamed.

    Args:
        limit: How many there may be at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._runs: dict[tuple[str, str], Run] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False

    def __len__(self) -> int:
        return len(self._runs)

    def check(self, thread_id: str, run_id: str) -> None:
        """Refuse a run that cannot be admitted now.

        Raises:
            RunRefusedError: 409 if the run is being streamed already, 503 at the limit and while draining.
        """
        if self.draining:
            raise RunRefusedError("the server is shutting down; try again", status=503, code="shutting_down")
        if (thread_id, run_id) in self._runs:
            raise RunRefusedError(
                "runId: this run is being streamed already; give every run a new id", status=409, code="run_active"
            )
        if len(self._runs) >= self._limit:
            raise RunRefusedError(
                f"the server is streaming its limit of {self._limit} runs; try again", status=503, code="too_many_runs"
            )

    @contextmanager
    def streaming(self, run: Run) -> Generator[None]:
        """Count the run as active for the duration of the block."""
        key = (run.thread_id, run.run_id)
        self._runs[key] = run
        self._idle.clear()
        try:
            yield
        finally:
            del self._runs[key]
            if not self._runs:
                self._idle.set()

    def find(self, run_id: str, *, thread_id: str | None = None, owner: str | None = None) -> list[Run]:
        """The owner's active runs with this id: one, unless the same id runs on several threads."""
        return [
            run
            for run in self._runs.values()
            if run.run_id == run_id and run.owner == owner and thread_id in (None, run.thread_id)
        ]

    async def drain(self, grace: float) -> None:
        """Admit no more runs, wait up to `grace` seconds for those that stream, then stop the rest and wait for them."""
        self.draining = True
        try:
            async with asyncio.timeout(grace):
                await self._idle.wait()
        except TimeoutError:
            for run in list(self._runs.values()):
                run.stop()
            await self._idle.wait()
