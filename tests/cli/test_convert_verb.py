import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragent_stream.check import check_events
from dragent_stream.cli.convert import Job, convert_file
from dragent_stream.sse import SSEDecoder
from dragent_stream.testing import finish_chunk, text_chunk, tool_call_chunk

Cli = Callable[..., Any]


def chunk_lines(*chunks: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(chunk).encode() + b"\n" for chunk in chunks)


GREETING = chunk_lines(text_chunk("Hello "), text_chunk("you."), finish_chunk())


def types(jsonl: str) -> list[str]:
    return [json.loads(line)["type"] for line in jsonl.splitlines()]


def test_a_trace_becomes_a_valid_run_as_jsonl(cli: Cli, traces: Path) -> None:
    ended = cli("convert", traces / "nat1.9_parallel.jsonl", "--thread-id", "t", "--run-id", "r")
    assert (ended.code, ended.err) == (0, "")
    events = [json.loads(line) for line in ended.out.splitlines()]
    assert check_events(events, run_input={"threadId": "t", "runId": "r"}) == []
    assert [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_RESULT"] == ["call_P0", "call_P1"]


def test_sse_holds_the_same_events(cli: Cli, traces: Path) -> None:
    lines = cli("convert", traces / "nat1.9_parallel.jsonl").out
    framed = cli("convert", traces / "nat1.9_parallel.jsonl", "--to", "sse").out
    assert [event.data for event in SSEDecoder().feed(framed.encode())] == lines.splitlines()


def test_the_same_trace_gives_the_same_bytes(cli: Cli, traces: Path) -> None:
    assert cli("convert", traces / "nat1.9_parallel.jsonl").out == cli("convert", traces / "nat1.9_parallel.jsonl").out


def test_bare_chunks_come_from_standard_input(cli: Cli) -> None:
    ended = cli("convert", "-", stdin=GREETING)
    assert types(ended.out) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]


def test_a_raw_sse_capture_is_read_too(cli: Cli) -> None:
    capture = b"".join(b"data: " + line + b"\r\n\r\n" for line in GREETING.splitlines()) + b"data: [DONE]\r\n\r\n"
    assert cli("convert", "-", stdin=capture).out == cli("convert", "-", stdin=GREETING).out


def test_no_run_leaves_the_lifecycle_out(cli: Cli) -> None:
    assert types(cli("convert", "-", "--no-run", stdin=GREETING).out)[0] == "TEXT_MESSAGE_START"


def test_an_output_file_is_written_whole(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(GREETING)
    ended = cli("convert", tmp_path / "a.jsonl", "-o", tmp_path / "b.jsonl")
    assert (ended.code, ended.out) == (0, "")
    assert types((tmp_path / "b.jsonl").read_text())[-1] == "RUN_FINISHED"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl"]


@pytest.mark.parametrize("verb", ["convert", "assemble", "synthesize"])
@pytest.mark.parametrize("name", ["a.jsonl", "deep/../a.jsonl", "link.jsonl"])
def test_an_output_never_takes_the_place_of_its_input(cli: Cli, tmp_path: Path, verb: str, name: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GREETING)
    (tmp_path / "deep").mkdir()
    (tmp_path / "link.jsonl").symlink_to(path)
    ended = cli(verb, path, "-o", tmp_path / name)
    assert (ended.code, ended.out) == (2, "")
    assert "is the input" in ended.err and "name another file with -o" in ended.err
    assert path.read_bytes() == GREETING


def test_an_unreadable_line_is_named_and_the_rest_is_converted(cli: Cli, tmp_path: Path) -> None:
    first, *rest = GREETING.splitlines(keepends=True)
    path = tmp_path / "bad.jsonl"
    path.write_bytes(first + b'{"choices": [\n' + b"".join(rest))
    ended = cli("convert", path)
    assert ended.code == 2
    assert "bad.jsonl:2: is not JSON" in ended.err
    assert "remove or repair the line" in ended.err
    assert types(ended.out)[-1] == "RUN_FINISHED"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"PK\x03\x04 not a trace", "is no trace"),
        (b'{"dragent_trace": 2}\n', "version 2"),
        (b'{"type": "RUN_STARTED", "threadId": "t", "runId": "r"}\n', "dragent-stream validate"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_a_remedy(cli: Cli, tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "some.file"
    path.write_bytes(content)
    ended = cli("convert", path)
    assert ended.code == 2
    assert "some.file" in ended.err
    assert said in ended.err


def test_a_file_that_is_not_there_is_named(cli: Cli, tmp_path: Path) -> None:
    ended = cli("convert", tmp_path / "none.jsonl")
    assert (ended.code, "none.jsonl: No such file" in ended.err) == (2, True)


@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from([*GREETING.splitlines(), b"data: {", b"{", b"[]", b"\xff"])).map(b"\n".join)
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
def test_any_bytes_end_in_a_code_and_never_in_a_traceback(cli: Cli, content: bytes) -> None:
    for verb in (["convert", "-"], ["validate", "-"], ["show", "-"], ["replay", "-"], ["assemble", "-"]):
        assert cli(*verb, stdin=content).code in (0, 1, 2)


# a directory


@pytest.fixture
def many(tmp_path: Path) -> Path:
    directory = tmp_path / "in"
    (directory / "deep").mkdir(parents=True)
    for n in range(5):
        (directory / f"t{n}.jsonl").write_bytes(chunk_lines(text_chunk(str(n)), finish_chunk()))
    (directory / "deep" / "call.sse").write_bytes(
        b"data: " + json.dumps(tool_call_chunk("{}", call_id="c", name="f")).encode() + b"\n\ndata: [DONE]\n\n"
    )
    (directory / "notes.txt").write_text("not a trace")
    return directory


def made(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".dragent-stream.json"
    }


def test_a_directory_is_converted_and_a_pool_gives_the_same_bytes(cli: Cli, many: Path, tmp_path: Path) -> None:
    alone = cli("convert", many, "-o", tmp_path / "alone")
    pooled = cli("convert", many, "--jobs", "2", "-o", tmp_path / "pooled")
    assert (alone.code, pooled.code, alone.out) == (0, 0, "")
    assert "6 converted" in alone.err
    assert made(tmp_path / "alone") == made(tmp_path / "pooled")
    assert sorted(made(tmp_path / "alone")) == ["deep/call.sse.agui.jsonl", *[f"t{n}.agui.jsonl" for n in range(5)]]
    threads = {json.loads(body.splitlines()[0])["threadId"] for body in made(tmp_path / "alone").values()}
    assert threads == {"deep/call.sse", "t0", "t1", "t2", "t3", "t4"}


def test_a_second_run_does_only_what_is_missing(cli: Cli, many: Path, tmp_path: Path) -> None:
    cli("convert", many, "-o", tmp_path / "out")
    before = made(tmp_path / "out")
    (tmp_path / "out" / "t3.agui.jsonl").unlink()
    again = cli("convert", many, "-o", tmp_path / "out")
    assert "1 converted" in again.err
    assert "5 done before" in again.err
    assert made(tmp_path / "out") == before


def test_the_output_may_lie_inside_the_input(cli: Cli, many: Path) -> None:
    cli("convert", many, "-o", many / "out")
    assert "0 converted" in cli("convert", many, "-o", many / "out").err


def test_a_failure_is_listed_and_tried_again_and_the_others_are_converted(cli: Cli, many: Path, tmp_path: Path) -> None:
    (many / "bad.jsonl").write_bytes(GREETING + b"{ broken\n" + GREETING)
    (many / "none.jsonl").write_bytes(b"")
    ended = cli("convert", many, "--jobs", "2", "-o", tmp_path / "out")
    assert ended.code == 2
    assert "bad.jsonl:4: is not JSON" in ended.err
    assert "none.jsonl: is empty" in ended.err
    assert "6 converted" in ended.err
    assert "2 failed" in ended.err
    assert "bad.agui.jsonl.partial" in made(tmp_path / "out")
    (many / "bad.jsonl").write_bytes(GREETING)
    (many / "none.jsonl").unlink()
    assert cli("convert", many, "-o", tmp_path / "out").code == 0
    assert "bad.agui.jsonl.partial" not in made(tmp_path / "out")


def test_one_directory_is_not_made_with_two_sets_of_options(cli: Cli, many: Path, tmp_path: Path) -> None:
    cli("convert", many, "-o", tmp_path / "out")
    ended = cli("convert", many, "--no-run", "-o", tmp_path / "out")
    assert (ended.code, "other options" in ended.err) == (2, True)


@pytest.mark.parametrize("extra", [[], ["-o", "out", "--thread-id", "t"]])
def test_a_directory_needs_a_directory_to_write_to(cli: Cli, many: Path, extra: list[str]) -> None:
    assert cli("convert", many, *extra).code == 2


def test_an_empty_directory_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ended = cli("convert", tmp_path / "empty", "-o", tmp_path / "out")
    assert (ended.code, "holds no trace" in ended.err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_a_directory_is_not_its_own_output(cli: Cli, many: Path) -> None:
    before = made(many)
    ended = cli("convert", many, "-o", many / "deep" / "..")
    assert (ended.code, "is the directory of the traces; name another one" in ended.err) == (2, True)
    assert made(many) == before


def test_the_output_may_lie_around_the_input(cli: Cli, many: Path) -> None:
    ended = cli("convert", many / "deep", "-o", many)
    assert (ended.code, "1 converted" in ended.err) == (0, True)
    assert (many / "call.sse.agui.jsonl").is_file()


def test_a_link_to_nothing_is_a_failure_with_its_name(cli: Cli, many: Path, tmp_path: Path) -> None:
    cli("convert", many, "-o", tmp_path / "out")
    (many / "gone.jsonl").symlink_to(tmp_path / "nowhere.jsonl")
    (many / "t0.jsonl").unlink()
    (many / "t0.jsonl").symlink_to(tmp_path / "nowhere.jsonl")
    ended = cli("convert", many, "-o", tmp_path / "out")
    assert ended.code == 2
    assert f"{many / 'gone.jsonl'}: " in ended.err and f"{many / 't0.jsonl'}: " in ended.err
    assert "2 failed" in ended.err


def test_a_completion_in_a_directory_is_left_out_by_name(cli: Cli, many: Path, tmp_path: Path) -> None:
    (many / "deep" / "answer.json").write_text("{}")
    ended = cli("convert", many, "-o", many / "out")
    assert ended.code == 0
    assert f"only by its name: {many / 'deep' / 'answer.json'}\n" in ended.err
    only = tmp_path / "only"
    only.mkdir()
    (only / "a.json").write_text("{}")
    ended = cli("convert", only, "-o", tmp_path / "made")
    assert (ended.code, f"convert {only / 'a.json'} by its name" in ended.err) == (2, True)


def test_a_job_reports_a_file_it_cannot_read(tmp_path: Path) -> None:
    outcome = convert_file(Job(str(tmp_path / "no"), str(tmp_path / "out"), "jsonl", True, "no"))
    assert outcome.events == 0
    assert "No such file" in outcome.problems[0]
