import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragent_stream.check import RULES

Cli = Callable[..., Any]

GOOD = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"},
    {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "hi"},
    {"type": "TEXT_MESSAGE_END", "messageId": "m"},
    {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
]


def jsonl(events: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def sse(events: list[dict[str, Any]], end: bytes = b"\n") -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + end + end for event in events)


@pytest.mark.parametrize("content", [jsonl(GOOD), sse(GOOD), b"\xef\xbb\xbf: ping\n\nretry: 5\n\n" + sse(GOOD)])
def test_a_good_stream_is_said_to_be_good(cli: Cli, content: bytes) -> None:
    ended = cli("validate", "-", stdin=content)
    assert (ended.code, ended.out) == (0, "<stdin>: 5 events, no violations\n")


def test_each_violation_has_its_line(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "events.sse"
    path.write_bytes(sse([*GOOD[:3], *GOOD[4:]]))
    ended = cli("validate", path)
    assert ended.code == 1
    assert ended.out.splitlines() == [
        f"{path}:7: V12: RUN_FINISHED while text messages are open: m",
        f"{path}: 4 events, 1 violation",
    ]


def test_a_missing_end_stands_at_the_last_line(cli: Cli) -> None:
    ended = cli("validate", "-", stdin=jsonl(GOOD[:4]))
    assert (ended.code, ended.out.splitlines()[0][:13]) == (1, "<stdin>:4: D2")


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (sse(GOOD, b"\r\n"), "T1"),
        (sse(GOOD) + b"data: [DONE]\n\n", "T2"),
        (sse(GOOD) + b"data: null\n\n", "T2"),
        (sse(GOOD[:2]) + b'data: {"type"\n\n' + sse(GOOD[2:]), "T2"),
        (sse([*GOOD[:2], {**GOOD[2], "delta": "x" * 10_000_001}, *GOOD[3:]]), "T3"),
    ],
)
def test_what_the_transport_breaks_is_a_violation(cli: Cli, content: bytes, rule: str) -> None:
    ended = cli("validate", "-", stdin=content)
    assert ended.code == 1
    assert {line.split(": ")[1] for line in ended.out.splitlines()[:-1]} == {rule}


def test_a_trace_is_judged_by_what_it_converts_to(cli: Cli, traces: Path) -> None:
    ended = cli("validate", traces / "nat1.9-profiler_nested_text.jsonl")
    assert (ended.code, "no violations" in ended.out) == (0, True)


def test_an_unreadable_line_of_a_trace_is_bad_input_not_a_violation(cli: Cli) -> None:
    ended = cli("validate", "-", stdin=b'{"choices": []}\n{\n{"choices": []}\n')
    assert (ended.code, "<stdin>:2: is not JSON" in ended.err) == (2, True)


def test_the_request_is_judged_too(cli: Cli, tmp_path: Path) -> None:
    request = tmp_path / "input.json"
    request.write_text(json.dumps({"threadId": "other", "runId": "r", "messages": []}))
    ended = cli("validate", "-", "--request", request, stdin=jsonl(GOOD))
    assert (ended.code, ": I9: " in ended.out) == (1, True)


@pytest.mark.parametrize("content", ["[]", "{"])
def test_a_request_that_is_none_is_refused(cli: Cli, tmp_path: Path, content: str) -> None:
    request = tmp_path / "input.json"
    request.write_text(content)
    ended = cli("validate", "-", "--request", request, stdin=jsonl(GOOD))
    assert (ended.code, "must be a RunAgentInput" in ended.err) == (2, True)


def test_a_stretch_of_events_is_judged_without_the_run(cli: Cli) -> None:
    assert cli("validate", "-", "--no-run", stdin=jsonl(GOOD[1:4])).code == 0
    assert cli("validate", "-", stdin=jsonl(GOOD[1:4])).code == 1


def test_the_rules_can_be_read(cli: Cli) -> None:
    ended = cli("validate", "--rules")
    assert ended.code == 0
    assert {line.split()[0] for line in ended.out.splitlines()} == {*RULES, "T1", "T2", "T3"}


def test_a_file_is_needed(cli: Cli) -> None:
    assert cli("validate").code == 2


def test_foreign_text_cannot_steer_the_terminal(cli: Cli) -> None:
    ended = cli(
        "validate", "-", stdin=jsonl([*GOOD[:4], {"type": "RUN_FINISHED", "threadId": "\x1b[2J", "runId": "r"}])
    )
    assert ended.code == 1
    assert "\x1b" not in ended.out
