import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from dragent_stream.cli.record import endpoint_of, read_headers, record_request
from dragent_stream.errors import ConversionError, UpstreamError
from dragent_stream.testing import finish_chunk, text_chunk
from dragent_stream.trace import read_trace

Cli = Callable[..., Any]
SECRET = "sk-very-secret-key"


def sse(*chunks: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)


ANSWER = sse(text_chunk("Hello"), finish_chunk()) + b"data: [DONE]\n\n"


class Endpoint(BaseHTTPRequestHandler):
    server: "Server"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((self.path, self.headers.get("authorization"), self.headers.get("x-team"), body))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Endpoint)
        self.seen: list[tuple[str, str | None, str | None, Any]] = []
        self.status, self.answer = 200, ANSWER
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"


@pytest.fixture
def endpoint() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def body(tmp_path: Path) -> Path:
    path = tmp_path / "body.json"
    path.write_text(json.dumps({"model": "m", "messages": [{"role": "user", "content": "private question"}]}))
    return path


def test_a_request_becomes_a_trace_that_holds_no_key_and_no_header(
    cli: Cli, endpoint: Server, body: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", SECRET)
    trace = tmp_path / "trace.jsonl"
    url = endpoint.url.replace("http://", f"http://user:{SECRET}@") + f"?key={SECRET}"
    ended = cli("record", url, "--body", body, "-o", trace, "--key-env", "MY_KEY", "--header", f"X-Team: {SECRET}")
    assert (ended.code, ended.out) == (0, "")
    assert "2 chunks" in ended.err
    assert endpoint.seen == [
        (
            f"/v1/chat/completions?key={SECRET}",
            f"Bearer {SECRET}",
            SECRET,
            {"model": "m", "messages": [{"role": "user", "content": "private question"}], "stream": True},
        )
    ]
    assert [(record.kind, record.value) for record in read_trace(trace)] == [
        ("chunk", text_chunk("Hello")),
        ("chunk", finish_chunk()),
        ("end", True),
    ]
    for text in (trace.read_text(), ended.err):
        assert SECRET not in text
        assert "private question" not in text
    assert cli("convert", trace).code == 0


def test_a_header_of_ones_own_goes_before_the_key() -> None:
    assert read_headers(["Authorization: Basic x"], SECRET) == {"authorization": "Basic x"}


def test_a_line_that_is_no_header_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConversionError, match="number 2") as refused:
        read_headers(["A: b", SECRET], None)
    assert SECRET not in str(refused.value)


def test_a_refusal_is_told_with_the_remedy_and_without_the_key_and_leaves_no_file(
    cli: Cli, endpoint: Server, body: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", SECRET)
    endpoint.status, endpoint.answer = 401, b'{"error": "Incorrect API key ' + SECRET.encode() + b'"}'
    ended = cli("record", endpoint.url, "--body", body, "-o", tmp_path / "t.jsonl", "--key-env", "MY_KEY")
    assert ended.code == 2
    assert "answered 401: " in ended.err
    assert "--key-env" in ended.err
    assert SECRET not in ended.err
    assert not (tmp_path / "t.jsonl").exists()


def test_an_endpoint_that_is_not_there_is_named(cli: Cli, endpoint: Server, body: Path, tmp_path: Path) -> None:
    endpoint.server_close()
    ended = cli("record", endpoint.url, "--body", body, "-o", tmp_path / "t.jsonl")
    assert (ended.code, endpoint.url in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["ftp://host/v1", "--body", "BODY"], "no http(s) URL"),
        (["http://h/v1", "--body", "NONE"], "No such file"),
        (["http://h/v1", "--body", "TEXT"], "is not JSON"),
        (["http://h/v1", "--body", "LIST"], "no JSON object"),
        (["http://h/v1", "--body", "BODY", "--key-env", "NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE is not set"),
    ],
)
def test_bad_options_are_told(cli: Cli, body: Path, tmp_path: Path, args: list[str], said: str) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "list").write_text("[]")
    files = {"BODY": body, "NONE": tmp_path / "none", "TEXT": tmp_path / "text", "LIST": tmp_path / "list"}
    ended = cli("record", *[files.get(arg, arg) for arg in args], "-o", tmp_path / "t.jsonl")
    assert (ended.code, said in " ".join(ended.err.split())) == (2, True)


@pytest.mark.parametrize(
    ("url", "endpoint_url"),
    [
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
        ("http://h/openai?api-version=1", "http://h/openai/chat/completions?api-version=1"),
    ],
)
def test_a_base_url_is_completed(url: str, endpoint_url: str) -> None:
    assert endpoint_of(url) == endpoint_url


@pytest.mark.parametrize(
    ("answer", "said", "kinds"),
    [
        (sse(text_chunk("Hel")), "ended without finish_reason", ["chunk", "error"]),
        (sse(text_chunk("Hel")) + b'data: {"choices": [{"ind', "ended without finish_reason", ["chunk", "error"]),
        (b"", "the body of the answer is empty", ["error"]),
        (b"<html>no</html>", "is an HTML page", ["error"]),
        (b"data: [DONE]\n\n", "holds no chunk", ["error"]),
        (ANSWER + b": bye\n\ndata: [DONE]\n\n", "", ["chunk", "chunk", "end"]),
        (ANSWER + sse({"choices": [], "usage": {}}), "", ["chunk", "chunk", "chunk", "end"]),
        (b'{"choices": [{"message": {"content": "Hello"}}]}', "", ["chunk", "end"]),
    ],
)
def test_an_answer_that_is_not_whole_is_told_and_recorded_as_such(
    cli: Cli, endpoint: Server, body: Path, tmp_path: Path, answer: bytes, said: str, kinds: list[str]
) -> None:
    endpoint.answer = answer
    ended = cli("record", endpoint.url, "--body", body, "-o", tmp_path / "t.jsonl")
    assert (ended.code, said in " ".join(ended.err.split())) == (2 if said else 0, True)
    assert "Traceback" not in ended.err
    assert [record.kind for record in read_trace(tmp_path / "t.jsonl")] == kinds
    events = cli("convert", tmp_path / "t.jsonl").out.splitlines()
    assert json.loads(events[-1])["type"] == ("RUN_ERROR" if said else "RUN_FINISHED")


class Broken(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield sse(text_chunk("Hel"))
        raise httpx.ReadError(f"connection lost {SECRET}")


def test_what_came_before_a_break_is_in_the_trace(tmp_path: Path) -> None:
    target = tmp_path / "t.jsonl"
    transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=Broken()))
    sent = record_request("http://h/v1", {}, {"authorization": f"Bearer {SECRET}"}, str(target), transport=transport)
    with pytest.raises(UpstreamError, match="after 1 chunks") as failed:
        asyncio.run(sent)
    assert SECRET not in str(failed.value)
    assert [record.kind for record in read_trace(target)] == ["chunk", "error"]
