"""The sink writes the strict wire, waits for both answers, and closes its socket on every path."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import anyio
import pytest

from dragent_stream.fabric.contract import RECORD_LIMIT, FabricStreamError
from dragent_stream.fabric.sink import OpenAIStreamSink, StreamTransport
from dragent_stream.testing import finish_chunk, text_chunk
from dragent_stream.testing.fabric import FakeSink

Json = dict[str, Any]


def transport(sink: FakeSink) -> StreamTransport:
    return StreamTransport.from_payload(sink.payload())


async def test_chunks_arrive_as_they_were_and_in_order() -> None:
    chunks = [text_chunk("a"), text_chunk("é\u2028\U0001f600"), finish_chunk("stop")]
    with anyio.fail_after(5):
        async with FakeSink() as listener:
            async with await OpenAIStreamSink.connect(transport(listener)) as sink:
                for chunk in chunks:
                    await sink.emit(chunk)
                await sink.finish()
            assert sink.finished
            listener.assert_complete()
    assert listener.chunks == chunks
    assert [record["sequence"] for record in listener.records] == [0, 1, 2, 3]
    assert listener.records[-1] == {"type": "end", "sequence": 3, **listener.ids}


async def test_an_empty_stream_is_one_end_record() -> None:
    with anyio.fail_after(5):
        async with FakeSink() as listener:
            sink = await OpenAIStreamSink.connect(transport(listener))
            await sink.finish()
            await sink.finish()
            listener.assert_complete()
    assert listener.records == [{"type": "end", "sequence": 0, **listener.ids}]


async def test_the_bytes_on_the_wire_are_the_contracts() -> None:
    seen = b""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        seen += await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    where = StreamTransport(port=port, token="tok", runtime_id="r", invocation_id="i", request_id="q")
    with anyio.fail_after(5):
        async with await OpenAIStreamSink.connect(where) as sink:
            await sink.emit(text_chunk("x"))
            await sink.finish()
    server.close()
    record = (
        b'{"type":"chunk","sequence":0,"runtime_id":"r","invocation_id":"i","request_id":"q","chunk":{"id":"chatcmpl-1",'
        b'"object":"chat.completion.chunk","created":0,"model":"test-model",'
        b'"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}}\n'
    )
    end = b'{"type":"end","sequence":1,"runtime_id":"r","invocation_id":"i","request_id":"q"}\n'
    assert seen == (
        b"POST /openai-stream HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer tok\r\n"
        b"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n"
        b"Connection: close\r\n\r\n%X\r\n%b\r\n%X\r\n%b\r\n0\r\n\r\n" % (port, len(record), record, len(end), end)
    )


@pytest.mark.parametrize("status", [400, 401, 404, 409, 503])
async def test_another_answer_than_100_is_an_error_before_anything_is_sent(status: int) -> None:
    with anyio.fail_after(5):
        async with FakeSink(answer=status) as listener:
            with pytest.raises(FabricStreamError, match=str(status)) as caught:
                await OpenAIStreamSink.connect(transport(listener))
    assert caught.value.code == "lifecycle_stream_transport_failed"
    assert listener.records == []


async def test_nobody_listening_is_an_error_without_the_token() -> None:
    async with FakeSink() as listener:
        where = transport(listener)
    with pytest.raises(FabricStreamError) as caught:
        await OpenAIStreamSink.connect(where)
    assert caught.value.code == "lifecycle_stream_transport_failed"
    assert listener.token not in str(caught.value) + repr(where)


async def test_a_silent_listener_is_given_up_and_its_connection_closed() -> None:
    left = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        left.set()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    where = StreamTransport(
        port=server.sockets[0].getsockname()[1], token="t", runtime_id="r", invocation_id="i", request_id="q"
    )
    with anyio.fail_after(5):
        with pytest.raises(FabricStreamError, match="TimeoutError"):
            await OpenAIStreamSink.connect(where, timeout=0.05)
        await left.wait()
    server.close()


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n"])
async def test_a_broken_answer_is_an_error(answer: bytes) -> None:
    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    where = StreamTransport(
        port=server.sockets[0].getsockname()[1], token="t", runtime_id="r", invocation_id="i", request_id="q"
    )
    with anyio.fail_after(5), pytest.raises(FabricStreamError):
        await OpenAIStreamSink.connect(where)
    server.close()


async def test_a_refused_chunk_takes_no_number_and_the_stream_goes_on(chunk: Json) -> None:
    with anyio.fail_after(5):
        async with FakeSink() as listener, await OpenAIStreamSink.connect(transport(listener)) as sink:
            for bad in (
                {**chunk, "id": " "},
                {**chunk, "x": float("nan")},
                {**chunk, "x": "\ud800"},
                {**chunk, "x": {1}},
            ):
                with pytest.raises(FabricStreamError) as caught:
                    await sink.emit(bad)
                assert caught.value.code == "lifecycle_invalid_openai_stream_event"
            with pytest.raises(FabricStreamError) as caught:
                await sink.emit({**chunk, "x": "y" * RECORD_LIMIT})
            assert caught.value.code == "lifecycle_openai_stream_event_too_large"
            await sink.emit(chunk)
            await sink.finish()
            listener.assert_complete()
    assert listener.chunks == [chunk]


async def test_a_record_of_exactly_one_mebibyte_passes(chunk: Json) -> None:
    with anyio.fail_after(10):
        async with FakeSink() as listener, await OpenAIStreamSink.connect(transport(listener)) as sink:
            empty = (
                len(
                    json.dumps(
                        {"type": "chunk", "sequence": 0, **listener.ids, "chunk": {**chunk, "x": ""}},
                        separators=(",", ":"),
                    )
                )
                + 1
            )
            exact = {**chunk, "x": "y" * (RECORD_LIMIT - empty)}
            with pytest.raises(FabricStreamError):
                await sink.emit({**chunk, "x": "y" * (RECORD_LIMIT - empty + 1)})
            await sink.emit(exact)
            await sink.finish()
            listener.assert_complete()
    assert listener.chunks == [exact]


async def test_many_tasks_may_emit_at_once() -> None:
    with anyio.fail_after(5):
        async with FakeSink() as listener, await OpenAIStreamSink.connect(transport(listener)) as sink:
            await asyncio.gather(*(sink.emit(text_chunk(str(number))) for number in range(50)))
            await sink.finish()
            listener.assert_complete()
    assert len(listener.chunks) == 50


async def test_a_consumer_that_does_not_read_holds_the_target_back() -> None:
    sent = 0
    with anyio.fail_after(20):
        async with FakeSink() as listener, await OpenAIStreamSink.connect(transport(listener)) as sink:
            listener.pause()

            async def send() -> None:
                nonlocal sent
                for _ in range(400):
                    await sink.emit(text_chunk("x" * 65_536))
                    sent += 1

            task = asyncio.create_task(send())
            before = -1
            while before != sent:
                before = sent
                await asyncio.wait({task}, timeout=0.2)
            assert sent < 400
            listener.resume()
            await task
            await sink.finish()
            listener.assert_complete()
    assert len(listener.chunks) == 400


async def test_a_cancelled_emit_keeps_the_numbers_in_order() -> None:
    with anyio.fail_after(20):
        async with FakeSink() as listener, await OpenAIStreamSink.connect(transport(listener)) as sink:
            listener.pause()
            sent = 0
            with anyio.move_on_after(0.3):
                for _ in range(1000):
                    sent += 1
                    await sink.emit(text_chunk("x" * 65_536))
            assert sent < 1000
            listener.resume()
            await sink.emit(text_chunk("last"))
            await sink.finish()
            listener.assert_complete()
    assert len(listener.chunks) == sent + 1


@pytest.mark.parametrize("records", [0, 2])
async def test_a_lost_connection_is_an_error_and_nothing_is_sent_again(records: int) -> None:
    with anyio.fail_after(10):
        async with (
            FakeSink(drop_after=records) as listener,
            await OpenAIStreamSink.connect(transport(listener)) as sink,
        ):
            with pytest.raises(FabricStreamError) as caught:
                for _ in range(10_000):
                    await sink.emit(text_chunk("x" * 1000))
                await sink.finish()
            assert caught.value.code == "lifecycle_stream_transport_failed"
    assert len(listener.records) == records
    assert len(listener.statuses) == 1


async def test_a_refused_stream_is_an_error_at_the_end() -> None:
    with anyio.fail_after(5):
        async with FakeSink() as listener, await OpenAIStreamSink.connect(transport(listener)) as sink:
            await sink.emit_encoded(b'{"id":""}')
            with pytest.raises(FabricStreamError):
                await sink.finish()
            await listener.wait_closed()
    assert listener.statuses == [400]


async def test_leaving_without_finish_closes_the_socket_without_an_end() -> None:
    with anyio.fail_after(5):
        async with FakeSink() as listener:
            with pytest.raises(ZeroDivisionError):
                async with await OpenAIStreamSink.connect(transport(listener)) as sink:
                    await sink.emit(text_chunk("x"))
                    raise ZeroDivisionError
            await listener.wait_closed()
            assert listener.error == "the connection broke off before the end"
            with pytest.raises(FabricStreamError, match="after the end"):
                await sink.emit(text_chunk("x"))
    assert not listener.ended


async def test_a_cancelled_connect_closes_its_socket() -> None:
    connected, left = asyncio.Event(), asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        connected.set()
        await reader.read()
        left.set()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    where = StreamTransport(
        port=server.sockets[0].getsockname()[1], token="t", runtime_id="r", invocation_id="i", request_id="q"
    )
    task = asyncio.create_task(OpenAIStreamSink.connect(where))
    with anyio.fail_after(5):
        await connected.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await left.wait()
    server.close()


@pytest.mark.parametrize(
    ("member", "value", "named"),
    [
        ("protocol_version", "fabric.openai_stream/v2", "protocol_version"),
        ("profile", "other", "profile"),
        ("host", "localhost", "host"),
        ("port", 0, "port"),
        ("port", True, "port"),
        ("port", "80", "port"),
        ("token", "", "token"),
        ("token", "a\r\nX: y", "token"),
        ("token", None, "token"),
        ("runtime_id", "another", "runtime_id"),
        ("invocation_id", "", "invocation_id"),
        ("request_id", None, "request_id"),
    ],
)
def test_a_wrong_transport_is_refused_by_name(member: str, value: object, named: str) -> None:
    payload = FakeSink().payload()
    payload["stream"] = {**payload["stream"], "port": 1, member: value}
    with pytest.raises(FabricStreamError, match=named) as caught:
        StreamTransport.from_payload(payload)
    assert caught.value.code == "lifecycle_invalid_stream_sink"


@pytest.mark.parametrize("missing", ["stream", "runtime_context"])
def test_a_payload_without_its_parts_is_refused(missing: str) -> None:
    payload = FakeSink().payload()
    del payload[missing]
    with pytest.raises(FabricStreamError, match="no stream transport"):
        StreamTransport.from_payload(payload)


def test_unknown_members_of_the_transport_are_ignored() -> None:
    payload = FakeSink().payload()
    payload["stream"] = {**payload["stream"], "port": 9, "novelty": 1}
    payload["runtime_context"]["session_ref"] = "x"
    assert StreamTransport.from_payload(payload).port == 9


async def test_the_token_stands_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with anyio.fail_after(5):
        async with FakeSink(drop_after=1) as listener:
            async with await OpenAIStreamSink.connect(transport(listener)) as sink:
                with pytest.raises(FabricStreamError):
                    await sink.emit(text_chunk("x"))
                    await sink.finish()
    assert listener.token not in caplog.text
