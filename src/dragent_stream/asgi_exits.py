"""What would end a process or a task ends only the run it came from: `sys.exit()`, KeyboardInterrupt, a stray CancelledError.

asyncio lets SystemExit and KeyboardInterrupt of any task out of the event loop, which ends the server. Where they are
raised in the task of the response itself, that task can catch them; where an agent made tasks of its own (LangGraph makes
one for each node, `wait_for` makes one), only the task that raises can. So tasks made inside a run turn them into an
`AgentExitError`, which goes the way of every other exception of the agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from typing import Any, cast

from dragent_stream.errors import DragentStreamError

__all__ = ["AgentExitError", "as_exception", "exits_contained"]

_inside: ContextVar[bool] = ContextVar("dragent_stream_inside_a_run", default=False)


class AgentExitError(DragentStreamError):
    """The agent raised what is no Exception; its cause is what it raised."""


def as_exception(error: BaseException) -> Exception:
    """The error itself where it is an Exception, else an `AgentExitError` with it as the cause."""
    if isinstance(error, Exception):
        return error
    said = repr(error) if error.args else type(error).__name__
    failure = AgentExitError(f"the agent raised {said}")
    failure.__cause__ = error
    return failure


@contextmanager
def exits_contained() -> Generator[None]:
    """Contain the exits of the tasks that are made inside the block, by whomever."""
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if not isinstance(factory, _TaskFactory):
        loop.set_task_factory(cast("Any", _TaskFactory(factory)))
    token = _inside.set(True)
    try:
        yield
    finally:
        with suppress(ValueError):  # the garbage collector closes what waits here in a context of its own
            _inside.reset(token)


class _TaskFactory:
    """The loop's task factory; it stays when the run is over, and does nothing then."""

    def __init__(self, before: Callable[..., Any] | None) -> None:
        self._make: Callable[..., Any] = before or _make_task

    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        context: Context | None = options.get("context")
        inside = _inside.get() if context is None else context.get(_inside, False)
        if inside and asyncio.iscoroutine(coro):
            coro = _Contained(coro)
        return self._make(loop, coro, **options)


def _make_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(coro, loop=loop, **options)


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine that raises nothing that the event loop would not keep; otherwise the same, also to a debugger."""

    def __init__(self, coro: Coroutine[Any, Any, Any]) -> None:
        self._coro = coro

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coro, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coro.__await__()

    def send(self, value: Any, /) -> Any:
        try:
            return self._coro.send(value)
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as ending:
            raise as_exception(ending) from ending

    def throw(self, *error: Any) -> Any:
        try:
            return self._coro.throw(*error)
        except (SystemExit, KeyboardInterrupt) as ending:
            raise as_exception(ending) from ending

    def close(self) -> None:
        self._coro.close()
