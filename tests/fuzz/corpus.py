"""What the fuzz begins with: the streams of `tests/cases` and `tests/traces`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agui_case import feed_of, load_cases

from dragent_stream import AgentStep, UpstreamError, read_trace

TRACES = Path(__file__).parents[1] / "traces"

_LARGEST = 100_000  # characters; the case with the huge arguments only costs time


def corpus() -> list[list[Any]]:
    """Streams as lists of what arrives: chunks, reads of a body, AgentSteps, exceptions. Always in the same order."""
    streams = [feed_of(case) for case in load_cases("chunks", "steps", "feed", "sse") if "repeat" not in case]
    streams += [_items(path) for path in sorted(TRACES.glob("*.jsonl"))]
    return [stream for stream in streams if stream and len(repr(stream)) < _LARGEST]


def _items(trace: Path) -> list[Any]:
    items: list[Any] = []
    for record in read_trace(trace):
        if record.kind == "chunk":
            items.append(record.value)
        elif record.kind == "step":
            items.append(AgentStep(_without_nulls(record.value)))
        elif record.kind == "error":
            items.append(UpstreamError(json.dumps(record.value)))
    return items


def _without_nulls(value: Any) -> Any:
    """Recorded steps are mostly nulls; without them a mutation hits what is read."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
