"""The pytest plugin: replay a recorded trace in a test, and judge the events that come out.

Installed with the package. pytest imports this module in every session, so it imports nothing but pytest; the
converter is loaded when a fixture is used.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from dragent_stream.options import ConverterOptions

__all__ = ("AguiReplay", "AssertAgui", "agui_replay", "assert_agui")


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

    def __call__(
        self, events: Iterable[Mapping[str, Any]], *, lifecycle: bool = True, run_input: Mapping[str, Any] | None = None
    ) -> None:
        """Fail with each violation and the event it stands at."""
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
        from dragent_stream.options import ConverterOptions
        from dragent_stream.trace import convert_trace

        if options is None:
            count = itertools.count(1)
            options = ConverterOptions(new_id=lambda: f"id-{next(count)}")
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

    The rules are those of `dragent_stream.check`. `lifecycle=False` is for events without RUN_STARTED and a terminal
    event; `run_input` is the request, against which ids, frontend tools and the client's version are judged too.
    """

    def check(
        events: Iterable[Mapping[str, Any]], *, lifecycle: bool = True, run_input: Mapping[str, Any] | None = None
    ) -> None:
        from dragent_stream.check import check_events

        violations = check_events(events, lifecycle=lifecycle, run_input=run_input)
        if violations:
            listed = "\n".join(f"  event {v.index}: {v.rule}: {v.message}" for v in violations)
            raise AssertionError(f"{len(violations)} AG-UI violation(s):\n{listed}")

    return check
