"""Every recording, converted and served over HTTP, is what the real AG-UI clients show.

`expected/<trace>.json` was worked out by hand from the recordings, not from this converter: the terminal event, and the
messages that a client holds at the end. A call id `*` stands for any id that the recording does not have.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dragent_stream.check import check_events
from dragent_stream.trace import convert_trace

HERE = Path(__file__).parent
TRACES = sorted((HERE.parent / "traces").glob("*.jsonl"))
VERSIONS = ("1.0.0", "0.0.59", "0.0.55")
USER = {"id": "the-user", "role": "user", "content": "hello, please do it"}


def shown(messages: list[dict[str, Any]], known_ids: set[str]) -> list[dict[str, Any]]:
    """The part of a client's messages that the expectation speaks of."""
    assert messages[0] == USER
    plain: list[dict[str, Any]] = []
    for message in messages[1:]:
        entry = {key: message[key] for key in ("role", "content", "toolCallId") if message.get(key) is not None}
        if message.get("toolCalls"):
            entry["toolCalls"] = [{"id": call["id"], **call["function"]} for call in message["toolCalls"]]
            if not entry.get("content"):
                entry.pop("content", None)
        plain.append(entry)
    fresh = {call["id"] for entry in plain for call in entry.get("toolCalls", ())} - known_ids
    for entry in plain:
        for call in entry.get("toolCalls", ()):
            call["id"] = "*" if call["id"] in fresh else call["id"]
        if entry.get("toolCallId") in fresh:
            entry["toolCallId"] = "*"
    return plain


def test_every_recording_has_an_expectation_and_every_client_shows_it(
    bodies: Any, replay_clients: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
) -> None:
    expected = {path.stem: json.loads(path.read_text("utf-8")) for path in (HERE / "expected").glob("*.json")}
    assert sorted(expected) == [trace.stem for trace in TRACES]
    jobs: list[dict[str, Any]] = []
    for trace in TRACES:
        thread_id, run_id = f"thread-{trace.stem}", f"run-{trace.stem}"
        with trace.open(encoding="utf-8", newline="\n") as lines:
            wire = list(convert_trace(lines, thread_id=thread_id, run_id=run_id))
        request = {"threadId": thread_id, "runId": run_id, "messages": [USER]}
        assert check_events([json.loads(event) for event in wire], run_input=request) == [], trace.name
        body = "".join(f"data: {event}\n\n" for event in wire).encode()
        jobs.append({"url": bodies.serve(f"/{trace.stem}", body), "input": request, "sent": len(wire)})

    outcomes = replay_clients(jobs)

    differing: list[str] = []  # all of them: a change of the converter shows in many recordings
    for trace, job, outcome in zip(TRACES, jobs, outcomes, strict=True):
        wanted = expected[trace.stem]
        known_ids = {call["id"] for message in wanted["messages"] for call in message.get("toolCalls", ())}
        right = {
            "error": None,
            "warnings": [],
            "events": job["sent"],
            "finished": wanted["terminal"],
            "messages": wanted["messages"],
        }
        for version in VERSIONS:
            seen = {**outcome[version], "messages": shown(outcome[version]["messages"], known_ids)}
            differing += [
                f"{trace.stem} in client {version}, {name}: {seen[name]!r}, not {value!r}"
                for name, value in right.items()
                if seen[name] != value
            ]
    assert not differing, "\n".join(differing)


def test_only_a_1_0_client_names_its_protocol_version(
    bodies: Any, replay_clients: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
) -> None:
    # the version gate of the ledger rests on this (ag-ui docs/spec/1.0)
    run = '{"type":"RUN_STARTED","threadId":"t","runId":"r"}', '{"type":"RUN_FINISHED","threadId":"t","runId":"r"}'
    url = bodies.serve("/gate", "".join(f"data: {event}\n\n" for event in run).encode())

    replay_clients([{"url": url, "input": {"threadId": "t", "runId": "r", "messages": []}}])

    assert [request.get("protocolVersion") for request in bodies.requests["/gate"]] == ["1.0", None, None]
