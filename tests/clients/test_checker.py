"""The checker and the real clients agree: what it passes they accept, and what they reject it names."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

_spec = importlib.util.spec_from_file_location("streams_of_test_check", Path(__file__).parent.parent / "test_check.py")
assert _spec is not None
assert _spec.loader is not None
streams = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(streams)

REQUEST: dict[str, Any] = {"threadId": "t", "runId": "r", "messages": []}


def sse(events: list[dict[str, Any]]) -> bytes:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()


def test_the_clients_accept_what_the_checker_passes_and_the_checker_names_what_they_reject(
    bodies: Any, replay_clients: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
) -> None:
    every = [*streams.GOOD.values(), *(events for _, events in streams.BAD)]
    jobs = [{"url": bodies.serve(f"/{n}", sse(events)), "input": REQUEST} for n, events in enumerate(every)]

    outcomes = replay_clients(jobs)

    rejected = {"1.0.0": 0, "0.0.59": 0}
    for events, outcome in zip(every, outcomes, strict=True):
        for version, request in (("1.0.0", REQUEST | {"protocolVersion": "1.0"}), ("0.0.59", REQUEST)):
            if outcome[version]["error"] is not None:
                rejected[version] += 1
                assert streams.check_events(events, run_input=request), (version, events, outcome[version]["error"])
    # a guard of the guard: the clients did judge
    assert rejected["1.0.0"] > 40
    assert rejected["0.0.59"] > 30
