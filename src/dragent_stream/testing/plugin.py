"""The pytest plugin: replay a recorded trace or run an agent in a test, and judge the events that come out.

Installed with the package. pytest imports this module in every session, so it imports nothing but pytest; the
converter is loaded when a fixture is used.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, overload

import pytest

if TYPE_CHECKING:
    from ag_ui.core import RunAgentInput

    from dragent_stream.check import EventLike
    from dragent_stream.options import ConverterOptions
    from dragent_stream.testing.runs import AguiRun, Expected

__all__ = ("AguiReplay", "AguiRunAgent", "AssertAgui", "agui_replay", "agui_run", "assert_agui")


class AguiReplay(Protocol):
    """What the fixture `agui_replay` gives: a function from a trace to its AG-UI events."""

    def __call__(
        self,
        trace: str | Path | Iterable[str],
        *,
        run: bool = True,
        thread_id: str = "thread",
        run_id: str = "run",
        options: ConverterOptions | None = None,
    ) -> list[dict[str, Any]]:
        """Convert a trace; the events are dicts as they stand on the wire."""
        ...


class AssertAgui(Protocol):
    """What the fixture `assert_agui` gives: an assertion that events are one valid AG-UI run."""

    @overload
    def __call__(
        self,
        events: Iterable[EventLike] | bytes,
        *,
        lifecycle: bool = True,
        run_input: Mapping[str, Any] | None = None,
        error: Expected = None,
        content: bool = True,
    ) -> None: ...
    @overload
    def __call__(
        self,
        events: AsyncIterable[EventLike],
        *,
        lifecycle: bool = True,
        run_input: Mapping[str, Any] | None = None,
        error: Expected = None,
        content: bool = True,
    ) -> Coroutine[Any, Any, None]: ...
    def __call__(
        self,
        events: Any,
        *,
        lifecycle: bool = True,
        run_input: Mapping[str, Any] | None = None,
        error: Expected = None,
        content: bool = True,
    ) -> Any:
        """Fail with each violation and the events around it."""
        ...


class AguiRunAgent(Protocol):
    """What the fixture `agui_run` gives: a coroutine function from an agent and a question to the run's events."""

    async def __call__(
        self,
        agent: Callable[[RunAgentInput], Any],
        question: str | Sequence[Mapping[str, Any]] | Mapping[str, Any] | RunAgentInput = "",
        *,
        tools: Iterable[str | Mapping[str, Any]] = (),
        context: Mapping[str, str] | Iterable[Mapping[str, Any]] = (),
        state: Any = None,
        forwarded_props: Any = None,
        thread_id: str = "thread",
        run_id: str = "run",
        options: ConverterOptions | None = None,
        error: Expected = None,
    ) -> AguiRun:
        """Run the agent and check what comes out."""
        ...


@pytest.fixture
def agui_replay(request: pytest.FixtureRequest) -> AguiReplay:
    """Give a function that replays a recorded trace.

    `events = agui_replay("trace.jsonl")` is all a test needs.

    A relative path is looked for beside the test's file, then in pytest's root directory. The lines of a trace are taken
    as well. Ids are counted (`id-1`, `id-2`, ...) unless `options` say otherwise, so the events can be compared whole.
    """
    beside, root = request.path.parent, request.config.rootpath

    def replay(
        trace: str | Path | Iterable[str],
        *,
        run: bool = True,
        thread_id: str = "thread",
        run_id: str = "run",
        options: ConverterOptions | None = None,
    ) -> list[dict[str, Any]]:
        from dragent_stream.testing.runs import counted_options
        from dragent_stream.trace import convert_trace

        options = options or counted_options()
        if isinstance(trace, str | Path):
            found = next((path for path in (beside / trace, root / trace) if path.is_file()), None)
            if found is None:
                raise FileNotFoundError(f"no trace {str(trace)!r} in {beside} or {root}")
            trace = found
        return _events(convert_trace(trace, run=run, thread_id=thread_id, run_id=run_id, options=options))

    return replay


def _events(wire: Iterable[str]) -> list[dict[str, Any]]:
    return [json.loads(event) for event in wire]


@pytest.fixture
def assert_agui() -> AssertAgui:
    """Give an assertion that events are valid AG-UI.

    `assert_agui(events)`; `await assert_agui(events)` where they come from an async iterable.

    The events may be dicts, ag_ui objects, batches, SSE frames or lines of JSON. The rules are those of
    `dragent_stream.check`; a run without an answer (RUN_ERROR `UNKNOWN_CHUNKS` or `EMPTY_ANSWER`, a success that shows
    nothing) fails, too. See `dragent_stream.testing.runs.assert_agui` for the arguments.
    """
    from dragent_stream.testing.runs import assert_agui

    return assert_agui


@pytest.fixture
def agui_run() -> AguiRunAgent:
    """Give a function that runs an agent.

    `events = await agui_run(agent, "question")` is all a test needs.

    The agent is one for `create_app`. The events are checked; they are a list of dicts with `.text`, `.reasoning`,
    `.tool_calls`, `.error` and `.exception`. Ids are counted. See `dragent_stream.testing.runs.run_agent` for the arguments.
    """
    from dragent_stream.testing.runs import run_agent

    return run_agent
