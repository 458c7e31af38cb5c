"""The stand-in answers as the SDK's listener does, and notes what only the SDK tolerates."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anyio
import pytest

from dragent_stream.testing import text_chunk
from dragent_stream.testing.fabric import FakeSink

Json = dict[str, Any]


def head(sink: FakeSink, **changes: str | None) -> bytes:
    line = changes.pop("line", "POST /openai-stream HTTP/1.1")
    headers = {
        "Host": f"127.0.0.1:{sink.port}",
        "Authorization": f"Bearer {sink.token}",
        "Content-Type": "application/x-ndjson",
        "Transfer-Encoding": "chunked",
        "Expect": "100-continue",
        "Connection": "close",
    }
    for name, value in changes.items():
        headers[name.replace("_", "-").title()] = value or ""
    return "\r\n".join([str(line), *(f"{name}: {value}" for name, value in headers.items() if value), "", ""]).encode()


def record(sink: FakeSink, sequence: object = 0, kind: str = "chunk", **changes: object) -> Json:
    fields: Json = {"type": kind, "sequence": sequence, **sink.ids}
    if kind == "chunk":
        fields["chunk"] = text_chunk("x")
    return {**fields, **changes}


def frame(*lines: bytes) -> bytes:
    return b"".join(b"%X\r\n%b\r\n" % (len(line), line) for line in lines)


def line(fields: Json) -> bytes:
    return json.dumps(fields).encode() + b"\n"


async def send(sink: FakeSink, request: bytes, body: bytes | None = None) -> list[int]:
    """The statuses of one connection; the body goes out after the 100."""
    reader, writer = await asyncio.open_connection("127.0.0.1", sink.port)
    writer.write(request)
    statuses: list[int] = []
    while len(statuses) < 2:
        answer = await reader.readuntil(b"\r\n\r\n")
        statuses.append(int(answer.split()[1]))
        if statuses != [100]:
            break
        if body is not None:
            writer.write(body)
    writer.close()
    await writer.wait_closed()
    return statuses


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"line": "GET /openai-stream HTTP/1.1"}, 404),
        ({"line": "POST /openai-stream/ HTTP/1.1"}, 404),
        ({"authorization": None}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"content_type": "application/json"}, 415),
        ({"content_type": "application/X-NDJSON"}, 415),
        ({"transfer_encoding": None}, 411),
        ({"transfer_encoding": "chunked, gzip"}, 411),
        ({"expect": None}, 417),
        ({"expect": "200-ok"}, 417),
        ({"line": "nonsense"}, 400),
        ({"line": "GET / HTTP/1.1", "authorization": None, "expect": None}, 404),
        ({"authorization": None, "content_type": "x"}, 401),
        ({"content_type": "x", "transfer_encoding": None}, 415),
        ({"transfer_encoding": None, "expect": None}, 411),
    ],
)
async def test_a_wrong_head_gets_its_status_and_spends_nothing(changes: dict[str, str | None], status: int) -> None:
    with anyio.fail_after(5):
        async with FakeSink() as sink:
            assert await send(sink, head(sink, **changes)) == [status]
            assert sink.error is None
            body = frame(line(record(sink, kind="end"))) + b"0\r\n\r\n"
            assert await send(sink, head(sink), body) == [100, 200]


async def test_a_second_connection_gets_409_and_the_old_token_401_on_the_next_turn() -> None:
    with anyio.fail_after(5):
        async with FakeSink() as sink, FakeSink() as next_turn:
            body = frame(line(record(sink, kind="end"))) + b"0\r\n\r\n"
            assert await send(sink, head(sink), body) == [100, 200]
            assert await send(sink, head(sink)) == [409]
            assert await send(next_turn, head(sink)) == [401]


def bad_bodies() -> list[Any]:
    """(name, body of a sink, status)."""

    def records(*changed: dict[str, object], end: bool = True) -> Any:
        def body(sink: FakeSink) -> bytes:
            lines = [line(record(sink, **{"sequence": number, **change})) for number, change in enumerate(changed)]
            if end:
                lines.append(line(record(sink, len(lines), "end")))
            return frame(*lines) + b"0\r\n\r\n"

        return body

    def raw(*lines: bytes) -> Any:
        return lambda sink: frame(*lines) + b"0\r\n\r\n"

    chunk = text_chunk("x")
    choice = chunk["choices"][0]

    def chunked(**changes: object) -> Any:
        return records({"chunk": {**chunk, **changes}})

    def chosen(**changes: object) -> Any:
        return chunked(choices=[{**choice, **changes}])

    return [
        ("no end", records({}, end=False), 400),
        ("no records", raw(), 400),
        ("no JSON", raw(b"{\n"), 400),
        ("SSE framing", raw(b"data: {}\n"), 400),
        ("NaN", raw(b'{"type": NaN}\n'), 400),
        ("no UTF-8", raw(b'{"type": "\xff"}\n'), 400),
        ("no mapping", raw(b"[]\n"), 400),
        ("too deep", raw(b"[" * 100_000 + b"\n"), 400),
        ("other runtime", records({"runtime_id": "x"}), 400),
        ("other request", records({"request_id": "x"}), 400),
        ("other invocation", records({"invocation_id": None}), 400),
        ("sequence true", records({"sequence": False}), 400),
        ("sequence text", records({"sequence": "0"}), 400),
        ("sequence float", records({"sequence": 0.0}), 400),
        ("sequence gap", records({}, {"sequence": 2}), 400),
        ("sequence again", records({}, {"sequence": 0}), 400),
        ("unknown type", records({"type": "ping"}), 400),
        ("extra member", records({"extra": 1}), 400),
        ("no chunk", lambda sink: frame(line(record(sink, kind="end", type="chunk"))) + b"0\r\n\r\n", 400),
        (
            "chunk after end",
            lambda sink: frame(line(record(sink, 0, "end")), line(record(sink, 1))) + b"0\r\n\r\n",
            400,
        ),
        ("second end", lambda sink: frame(*(line(record(sink, n, "end")) for n in (0, 1))) + b"0\r\n\r\n", 400),
        ("end with chunk", lambda sink: frame(line(record(sink, 0, "end", chunk=chunk))) + b"0\r\n\r\n", 400),
        ("too large", lambda sink: frame(line(record(sink, chunk={**chunk, "x": "y" * 2**20}))) + b"0\r\n\r\n", 413),
        ("too large without end", raw(b"y" * (2**20 + 1)), 413),
        ("bad size", lambda sink: b"xyz\r\n", 400),
        ("unclosed chunk", lambda sink: b"1\r\n\n!!", 400),
        ("chunk no mapping", records({"chunk": []}), 400),
        ("object", chunked(object="chat.completion"), 400),
        ("id empty", chunked(id=""), 400),
        ("id blank", chunked(id=" "), 400),
        ("model null", chunked(model=None), 400),
        ("created float", chunked(created=1.0), 400),
        ("created true", chunked(created=True), 400),
        ("created negative", chunked(created=-1), 400),
        ("created above 64 bits", chunked(created=2**64), 400),
        ("choices null", chunked(choices=None), 400),
        ("choices mapping", chunked(choices={}), 400),
        ("choice no mapping", chunked(choices=[1]), 400),
        ("usage list", chunked(usage=[]), 400),
        ("index missing", chunked(choices=[{"delta": {}}]), 400),
        ("index above 32 bits", chosen(index=2**32), 400),
        ("delta missing", chunked(choices=[{"index": 0}]), 400),
        ("delta null", chosen(delta=None), 400),
        ("content number", chosen(delta={"content": 6}), 400),
        ("content parts", chosen(delta={"content": []}), 400),
        ("role number", chosen(delta={"role": 1}), 400),
        ("refusal false", chosen(delta={"refusal": False}), 400),
        ("function_call text", chosen(delta={"function_call": "x"}), 400),
        ("tool_calls mapping", chosen(delta={"tool_calls": {}}), 400),
        ("tool call text", chosen(delta={"tool_calls": ["x"]}), 400),
        ("finish_reason number", chosen(finish_reason=1), 400),
        ("logprobs list", chosen(logprobs=[]), 400),
    ]


@pytest.mark.parametrize(
    ("body", "status"), [pytest.param(body, status, id=name) for name, body, status in bad_bodies()]
)
async def test_wrong_records_get_their_status_and_spoil_the_turn(body: Any, status: int) -> None:
    with anyio.fail_after(5):
        async with FakeSink() as sink:
            assert await send(sink, head(sink), body(sink)) == [100, status]
            assert sink.error
            with pytest.raises(AssertionError):
                sink.assert_complete()


@pytest.mark.parametrize(
    ("body", "noted"),
    [
        (lambda sink: frame(line(record(sink)) + line(record(sink, 1, "end"))) + b"0\r\n\r\n", "more or less than one"),
        (lambda sink: frame(b"\n", line(record(sink, 0, "end"))) + b"0\r\n\r\n", "blank"),
        (lambda sink: frame(line(record(sink, 0, "end"))[:-1]) + b"0\r\n\r\n", "line feed"),
        (lambda sink: frame(line(record(sink, 0, "end"))[:-1] + b"\r\n") + b"0\r\n\r\n", "line feed"),
        (lambda sink: frame(line(record(sink, 0, "end"))) + b"0\r\nX: y\r\n\r\n", "trailers"),
        (
            lambda sink: frame(line(record(sink, 0, "end"))).replace(b"\r\n", b";x=y\r\n", 1) + b"0\r\n\r\n",
            "upper-case",
        ),
    ],
)
async def test_what_only_the_sdk_tolerates_is_let_pass_and_noted(body: Any, noted: str) -> None:
    with anyio.fail_after(5):
        async with FakeSink() as sink:
            assert await send(sink, head(sink), body(sink)) == [100, 200]
            with pytest.raises(AssertionError, match=noted):
                sink.assert_complete()


async def test_a_body_that_does_not_wait_for_the_100_is_noted() -> None:
    with anyio.fail_after(5):
        async with FakeSink() as sink:
            body = frame(line(record(sink, 0, "end"))) + b"0\r\n\r\n"
            assert await send(sink, head(sink) + body) == [100, 200]
            assert sink.violations == ["the body was sent before the 100 Continue"]


async def test_a_record_of_one_mebibyte_without_its_line_feed_passes_and_is_noted() -> None:
    with anyio.fail_after(5):
        async with FakeSink() as sink:
            empty = len(line(record(sink, chunk={**text_chunk("x"), "y": ""}))) - 1
            exact = line(record(sink, chunk={**text_chunk("x"), "y": "z" * (2**20 - empty)}))
            body = frame(exact, line(record(sink, 1, "end"))) + b"0\r\n\r\n"
            assert await send(sink, head(sink), body) == [100, 200]
            assert sink.violations == ["a record exceeds 1 MiB with its line feed, which hosts count"]


async def test_records_split_over_many_small_pieces_are_read_whole() -> None:
    with anyio.fail_after(5):
        async with FakeSink() as sink:
            whole = line(record(sink)) + line(record(sink, 1, "end"))
            body = frame(*(whole[at : at + 1] for at in range(len(whole)))) + b"0\r\n\r\n"
            assert await send(sink, head(sink), body) == [100, 200]
            assert len(sink.chunks) == 1
