"""What is no stream of chunks is an error with exit code 2 that says what it looks like; what is partly one, a warning."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]

CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
HELLO = {**CHUNK, "choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}]}
RESPONSES = [
    {"type": "response.created", "response": {"id": "r", "output": []}},
    {"type": "response.output_text.delta", "delta": "Hello"},
]
FOREIGN = [
    ([{"hello": "world"}], "an object with the key hello; a chunk is"),
    (RESPONSES, "a Responses API event (response.created); ask"),
    ([{"type": "message_delta", "delta": {}, "usage": {"output_tokens": 1}}], "an Anthropic Messages event"),
    ([{"candidates": [{"content": {"parts": [{"text": "Hi"}]}}]}], "a Gemini GenerateContentResponse"),
    ([{**CHUNK, "choises": []}], "choises is not choices"),
    ([{"role": "assistant", "content": "Hi"}], "a chat message (assistant)"),
]


def lines(items: list[Any]) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def sse(items: list[Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(item).encode() + b"\n\n" for item in items) + b"data: [DONE]\n\n"


def trace(items: list[Any]) -> bytes:
    records = [{"t": float(at), "chunk": item} for at, item in enumerate(items)]
    return lines([{"dragent_trace": 1}, *records, {"t": 9.0, "end": True}])


@pytest.mark.parametrize("shape", [lines, sse, trace])
@pytest.mark.parametrize(("items", "said"), FOREIGN)
def test_nothing_is_assembled_from_it(
    cli: Cli, items: list[Any], said: str, shape: Callable[[list[Any]], bytes], tmp_path: Path
) -> None:
    ended = cli("assemble", "-", "-o", tmp_path / "made.json", stdin=shape(items))
    assert (ended.code, ended.out, [*tmp_path.iterdir()]) == (2, "", [])
    assert ended.err.startswith("dragent-stream: <stdin>: holds no chunk with a choice; the first looks like ")
    assert said in ended.err


@pytest.mark.parametrize(("items", "said"), FOREIGN)
def test_nothing_is_synthesized_from_it(cli: Cli, items: list[Any], said: str) -> None:
    ended = cli("synthesize", "-", stdin=json.dumps(items[0]).encode())
    assert (ended.code, ended.out) == (2, "")
    assert "- is no chat.completion; it looks like " in ended.err
    assert said in ended.err


@pytest.mark.parametrize("completion", [{}, {"choices": []}, {"object": "chat.completion", "choices": None}])
def test_a_completion_without_a_choice_is_no_stream(cli: Cli, completion: dict[str, Any]) -> None:
    assert cli("synthesize", "-", stdin=json.dumps(completion).encode()).code == 2


def test_events_are_not_assembled_line_by_line(cli: Cli) -> None:
    events = [{"type": "RUN_STARTED", "threadId": "t", "runId": "r"}] * 9
    ended = cli("assemble", "-", stdin=lines(events))
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "holds AG-UI events, no chunks (check it with: dragent-stream validate)" in ended.err


def test_what_is_left_out_of_a_completion_is_counted(cli: Cli) -> None:
    ended = cli("assemble", "-", stdin=lines([*RESPONSES, HELLO]))
    assert ended.code == 0
    assert json.loads(ended.out)["choices"][0]["message"]["content"] == "Hello"
    assert "2 lines are no chunks and are left out; the first looks like a Responses API event" in ended.err


def test_a_stream_that_failed_is_assembled_as_far_as_it_came(cli: Cli) -> None:
    ended = cli("assemble", "-", stdin=lines([HELLO, {"error": {"message": "overloaded"}}]))
    assert (ended.code, "<stdin>:2: the stream failed: overloaded" in ended.err) == (2, True)
    assert json.loads(ended.out)["choices"][0]["message"]["content"] == "Hello"


def test_a_broken_chunk_is_named_with_its_line(cli: Cli) -> None:
    ended = cli("assemble", "-", stdin=lines([HELLO, {"choices": "none"}]))
    assert (ended.code, ended.out, "<stdin>:2: chunk 2: choices" in ended.err) == (2, "", True)


# A conversion says it with the code of the run's end.


def ending(code: str) -> str:
    return json.dumps(
        {"type": "RUN_ERROR", "message": "looks like tea; ask for chunks", "code": code}, separators=(",", ":")
    )


@pytest.fixture
def ends_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let every conversion end with an error of this code, after a warning of the library."""

    def set_code(code: str) -> None:
        def converted(*args: object, **kwargs: object) -> Iterator[str]:
            logging.getLogger("dragent_stream.chunks").warning("2 chunks were not understood")
            yield '{"type":"RUN_STARTED","threadId":"t","runId":"r"}'
            yield ending(code)

        monkeypatch.setattr("dragent_stream.cli.convert.convert_trace", converted)
        monkeypatch.setattr(
            "dragent_stream.cli.reading.feed_record",
            lambda converter, record: converter.ledger.fail_run("looks like tea; ask for chunks", code),
        )

    return set_code


@pytest.mark.parametrize("code", ["UNKNOWN_CHUNKS", "EMPTY_ANSWER"])
@pytest.mark.parametrize("verb", ["convert", "replay", "validate", "show"])
def test_a_run_that_nothing_was_made_of_is_an_error(
    cli: Cli, ends_with: Callable[[str], None], verb: str, code: str
) -> None:
    ends_with(code)
    ended = cli(verb, "-", stdin=lines([HELLO]))
    assert ended.code == 2
    assert "dragent-stream: <stdin>: looks like tea; ask for chunks\n" in ended.err


@pytest.mark.parametrize("verb", ["convert", "replay", "validate", "show"])
def test_a_recorded_failure_is_a_success(cli: Cli, ends_with: Callable[[str], None], verb: str) -> None:
    ends_with("STREAM_ERROR")
    ended = cli(verb, "-", stdin=lines([HELLO]))
    assert (ended.code, "tea" in ended.err) == (0, False)


def test_a_recorded_run_that_ended_so_is_played(cli: Cli) -> None:
    start = {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"}
    events = lines([start, json.loads(ending("UNKNOWN_CHUNKS"))])
    for verb in ("replay", "show", "validate"):
        assert cli(verb, "-", stdin=events).code == 0


def test_many_conversions_name_the_files_that_nothing_was_made_of(
    cli: Cli, ends_with: Callable[[str], None], tmp_path: Path
) -> None:
    ends_with("UNKNOWN_CHUNKS")
    traces = tmp_path / "traces"
    traces.mkdir()
    (traces / "a.jsonl").write_bytes(lines([HELLO]))
    ended = cli("convert", traces, "-o", tmp_path / "made")
    assert ended.code == 2
    assert f"{traces / 'a.jsonl'}: 2 chunks were not understood\n" in ended.err
    assert f"{traces / 'a.jsonl'}: looks like tea; ask for chunks\n" in ended.err
    assert "0 converted (2 events), 0 done before, 1 failed" in ended.err
    assert not (tmp_path / "made" / "a.agui.jsonl").exists()


def test_a_warning_of_the_library_is_a_line_of_the_command(cli: Cli, ends_with: Callable[[str], None]) -> None:
    ends_with("STREAM_ERROR")
    assert "dragent-stream: 2 chunks were not understood\n" in cli("convert", "-", stdin=lines([HELLO])).err
