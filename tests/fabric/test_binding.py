"""The process without the common host: one answer per request, the envelope read leniently, stdout kept clean."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from dragent_stream.fabric.binding import Binding
from dragent_stream.fabric.turn import StreamTarget
from dragent_stream.testing import text_chunk
from dragent_stream.testing.fabric import FakeSink

Json = dict[str, Any]
START: Json = {"operation": "start", "payload": {"runtime_context": {"runtime_id": "runtime-fake"}, "config": {"a": 1}}}
STOP: Json = {"operation": "stop", "payload": {"runtime_id": "runtime-fake"}}


def request(sink: FakeSink, operation: str = "invoke_openai_stream", **payload: Any) -> Json:
    return {"operation": operation, "payload": {**sink.payload("hi"), **payload}}


async def ask(binding: Binding, message: object) -> Json:
    with anyio.fail_after(10):
        answer = await binding.handle(json.dumps(message))
    assert set(answer) == {"operation", "outcome"}
    return answer["outcome"]


def echo(question: Any) -> list[Json]:
    return [text_chunk(str(question))]


async def started(source: Any = echo) -> Binding:
    binding = Binding(StreamTarget(source))
    assert await ask(binding, START) == {"status": "succeeded", "output": None}
    return binding


async def test_a_streamed_turn_is_accepted_before_its_result_is_told() -> None:
    binding = await started()
    async with FakeSink() as sink:
        outcome = await ask(binding, request(sink))
        sink.assert_complete()
    assert outcome == {"status": "succeeded", "output": {"status": "succeeded", "output": {"response": "hi"}}}
    assert sink.chunks == [text_chunk("hi")]
    assert await ask(binding, STOP) == {"status": "succeeded", "output": None}
    assert binding.stopped


async def test_several_turns_and_a_plain_invoke_share_one_runtime() -> None:
    binding = await started()
    for _ in range(2):
        async with FakeSink() as sink:
            await ask(binding, request(sink))
            sink.assert_complete()
    outcome = await ask(binding, request(FakeSink(), "invoke"))
    assert outcome["output"] == {"status": "succeeded", "output": {"response": "hi"}}


async def test_unknown_members_of_the_envelope_are_ignored() -> None:
    seen: list[Any] = []

    def prepare(turn: Any, context: Any) -> Any:
        seen.append((turn.input, turn.context, turn.extensions, context.deadline_millis, context.fields["novelty"]))
        return turn.input

    binding = Binding(StreamTarget(echo, prepare=prepare))
    await ask(binding, {**START, "novelty": 1})
    async with FakeSink() as sink:
        message = request(sink)
        message["payload"]["runtime_context"] |= {"novelty": 1, "deadline_millis": 4_000_000_000_000}
        message["payload"]["request"] |= {"novelty": 1, "context": {"a": 1}, "extensions": {"b": 2}}
        assert (await ask(binding, message))["status"] == "succeeded"
        sink.assert_complete()
    assert seen == [("hi", {"a": 1}, {"b": 2}, 4_000_000_000_000, 1)]


async def test_a_failing_target_fails_the_result_and_keeps_the_runtime() -> None:
    def source(_: Any) -> Any:
        raise RuntimeError("boom")

    binding = await started(source)
    for _ in range(2):
        async with FakeSink() as sink:
            outcome = await ask(binding, request(sink))
            sink.assert_complete()
        assert outcome["status"] == "succeeded"
        message = "the target failed with RuntimeError; the traceback is on the adapter's stderr"
        assert outcome["output"]["error"] == {"code": "target_failed", "message": message}


@pytest.mark.parametrize("answer", [401, 409, 503])
async def test_a_refused_connection_runs_no_target(answer: int) -> None:
    runs: list[Any] = []
    binding = await started(lambda question: runs.append(question) or [])
    async with FakeSink(answer=answer) as sink:
        outcome = await ask(binding, request(sink))
    assert outcome["error"]["code"] == "lifecycle_stream_transport_failed"
    assert outcome["error"]["stage"] == "invoke"
    assert sink.token not in json.dumps(outcome)
    assert runs == []


async def test_a_lost_connection_fails_the_turn_and_nothing_is_replayed() -> None:
    runs: list[Any] = []

    async def source(question: Any) -> AsyncIterator[Json]:
        runs.append(question)
        while True:
            yield text_chunk("x" * 1000)

    binding = await started(source)
    async with FakeSink(drop_after=1) as sink:
        outcome = await ask(binding, request(sink))
    assert outcome["error"]["code"] == "lifecycle_stream_transport_failed"
    async with FakeSink() as sink:
        outcome = await ask(binding, request(sink))
    assert outcome["error"]["code"] == "lifecycle_runtime_failed"
    assert runs == ["hi"]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ([], "lifecycle_invalid_request"),
        ({"operation": "invoke_stream", "payload": {}}, "lifecycle_invalid_operation"),
        ({"operation": "invoke"}, "lifecycle_invalid_payload"),
        ({"operation": "invoke", "payload": {}}, "lifecycle_invalid_runtime"),
        (START, "lifecycle_already_started"),
        ({"operation": "stop", "payload": {"runtime_id": "another"}}, "lifecycle_runtime_mismatch"),
        (request(FakeSink(), request={}), "lifecycle_invalid_sink"),
        (request(FakeSink(), "invoke", request={}), "lifecycle_invalid_request"),
        (request(FakeSink(), stream=None), "lifecycle_invalid_stream_sink"),
    ],
)
async def test_a_wrong_request_is_answered_with_its_code(message: object, code: str) -> None:
    binding = await started()
    outcome = await ask(binding, message)
    assert outcome["status"] == "failed"
    assert outcome["error"]["code"] == code or code == "lifecycle_invalid_sink"
    assert not outcome["error"]["retryable"]


@pytest.mark.parametrize(
    ("operation", "named"),
    [("invoke_stream", "invoke_stream"), ("", ""), (7, "start"), (None, "start"), (["start"], "start")],
)
async def test_an_unknown_operation_is_answered_under_its_own_name(operation: Any, named: str) -> None:
    binding = await started()
    answer = await binding.handle(json.dumps({"operation": operation, "payload": {}}))
    assert answer["operation"] == named
    assert answer["outcome"]["error"]["code"] == "lifecycle_invalid_operation"
    assert not binding.stopped


@pytest.mark.parametrize("end", ["closed", "refused"])
async def test_a_consumer_that_goes_is_noticed_while_the_target_is_silent(end: str) -> None:
    closed = asyncio.Event()

    async def source(_: Any) -> AsyncIterator[Json]:
        yield text_chunk("x")
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def listener(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await reader.readuntil(b"\n\r\n")  # one record
        if end == "refused":
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            await reader.read()
        writer.close()

    binding, sink = await started(source), FakeSink()
    server = await asyncio.start_server(listener, "127.0.0.1", 0)
    sink.port = server.sockets[0].getsockname()[1]
    async with server:
        outcome = await ask(binding, request(sink))
    assert outcome["error"]["code"] == "lifecycle_stream_transport_failed"
    assert closed.is_set()


async def test_a_line_that_is_no_json_is_answered() -> None:
    binding = await started()
    assert (await binding.handle(b"{\xff\n"))["outcome"]["error"]["code"] == "lifecycle_invalid_request"


async def test_a_turn_before_the_start_is_refused() -> None:
    outcome = await ask(Binding(StreamTarget(echo)), request(FakeSink(), "invoke"))
    assert outcome["error"]["code"] == "lifecycle_not_started"


@pytest.mark.parametrize("error", [KeyError("secret"), SystemExit("secret")])
async def test_a_start_that_fails_names_the_exceptions_type_and_ends_the_process(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def lifespan(payload: Any) -> AsyncIterator[Any]:
        raise error
        yield

    binding = Binding(StreamTarget(lifespan=lifespan))
    outcome = await ask(binding, START)
    assert outcome["error"] == {
        "stage": "start",
        "code": "lifecycle_adapter_start_failed",
        "message": f"the start failed with {type(error).__name__}; the traceback is on the adapter's stderr",
        "retryable": False,
    }
    assert binding.stopped
    assert caplog.records[0].exc_info and caplog.records[0].exc_info[1] is error


async def test_telemetry_variables_hold_for_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGENT_A", "before")
    monkeypatch.delenv("DRAGENT_B", raising=False)
    binding = await started(lambda _: [text_chunk(os.environ["DRAGENT_A"] + os.environ["DRAGENT_B"])])
    async with FakeSink() as sink:
        message = request(sink)
        message["payload"]["runtime_context"]["telemetry"] = {"env": {"DRAGENT_A": "1", "DRAGENT_B": "2"}}
        outcome = await ask(binding, message)
    assert outcome["output"]["output"]["response"] == "12"
    assert os.environ["DRAGENT_A"] == "before"
    assert "DRAGENT_B" not in os.environ


SCRIPT = """
import asyncio, os, sys
from contextlib import asynccontextmanager
from dragent_stream.fabric import serve_binding
from dragent_stream.options import ConverterOptions
from dragent_stream.testing import text_chunk

@asynccontextmanager
async def lifespan(payload):
    print("started", file=sys.stderr)
    yield source
    print("stopped", file=sys.stderr)

async def source(question):
    print("a print of the target")
    os.write(1, b"raw bytes on descriptor 1\\n")
    yield text_chunk(question)
    if question == "wait":
        await asyncio.Event().wait()
    while question == "swallow":
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

serve_binding(lifespan=lifespan, options=ConverterOptions(close_timeout=0.05))
"""


@asynccontextmanager
async def process(tmp_path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    script = tmp_path / "adapter.py"
    script.write_text(SCRIPT, "utf-8")
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, str(script), stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def tell(child: asyncio.subprocess.Process, message: Json) -> None:
    assert child.stdin is not None
    child.stdin.write(json.dumps(message).encode() + b"\n")
    await child.stdin.drain()


async def told(child: asyncio.subprocess.Process) -> Json:
    assert child.stdout is not None
    return json.loads(await child.stdout.readline())


async def test_a_process_answers_on_stdout_alone_and_ends_with_stop(tmp_path: Path) -> None:
    with anyio.fail_after(30):
        async with process(tmp_path) as child, FakeSink() as sink:
            await tell(child, START)
            assert (await told(child))["outcome"]["status"] == "succeeded"
            await tell(child, request(sink))
            assert (await told(child))["outcome"]["output"]["output"] == {"response": "hi"}
            sink.assert_complete()
            await tell(child, STOP)
            assert (await told(child))["operation"] == "stop"
            out, err = await child.communicate()
    assert out == b""
    assert child.returncode == 0
    assert err.decode().split("\n") == ["started", "a print of the target", "raw bytes on descriptor 1", "stopped", ""]


async def test_the_end_of_stdin_stops_even_a_silent_turn(tmp_path: Path) -> None:
    with anyio.fail_after(30):
        async with process(tmp_path) as child, FakeSink() as sink:
            await tell(child, START)
            await told(child)
            await tell(child, {"operation": "invoke_openai_stream", "payload": sink.payload("wait")})
            await sink.wait_records(1)
            out, err = await child.communicate(b"")
            await sink.wait_closed()
    assert out == b""
    assert err.endswith(b"stopped\n")
    assert sink.error == "the connection broke off before the end"


async def test_a_target_that_swallows_its_end_does_not_keep_the_process(tmp_path: Path) -> None:
    with anyio.fail_after(30):
        async with process(tmp_path) as child, FakeSink() as sink:
            await tell(child, START)
            await told(child)
            await tell(child, {"operation": "invoke_openai_stream", "payload": sink.payload("swallow")})
            await sink.wait_records(1)
            out, err = await child.communicate(b"")
    assert (out, child.returncode) == (b"", 0)
    assert err.split(b"\n")[-3:] == [
        b"the target swallows its cancellation and is abandoned; it still runs in this process",
        b"stopped",
        b"",
    ]


async def test_requests_that_came_before_the_end_of_stdin_are_still_answered(tmp_path: Path) -> None:
    with anyio.fail_after(30):
        async with process(tmp_path) as child, FakeSink() as sink:
            lines = [json.dumps(message).encode() + b"\n" for message in (START, request(sink), STOP)]
            out, _ = await child.communicate(b"".join(lines))
            sink.assert_complete()
    assert [json.loads(line)["operation"] for line in out.splitlines()] == ["start", "invoke_openai_stream", "stop"]
