"""The wire against the SDK's own listener: our sink, the token's life, and whether the stand-in answers alike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from nemo_fabric.openai_streaming import _OpenAIStreamListener as Listener
from test_fake_sink import bad_bodies, frame, head, line, record, send

from dragent_stream.fabric import FabricStreamError, OpenAIStreamSink, StreamTransport
from dragent_stream.fabric.binding import Binding
from dragent_stream.fabric.turn import StreamTarget
from dragent_stream.testing import text_chunk
from dragent_stream.testing.fabric import FakeSink


@asynccontextmanager
async def listening() -> AsyncGenerator[tuple[Listener, FakeSink], None]:
    """The SDK's listener, and a stand-in (not listening) with the same ids, port and token to make requests with."""
    fake = FakeSink()
    listener = Listener(runtime_id=fake.ids["runtime_id"], request_id=fake.ids["request_id"])
    await listener.start()
    fake.port, fake.token = listener.transport["port"], listener.transport["token"]
    try:
        yield listener, fake
    finally:
        await listener.close()


def transport(fake: FakeSink) -> StreamTransport:
    return StreamTransport.from_payload(fake.payload())


async def test_the_sdk_takes_what_the_sink_sends() -> None:
    with anyio.fail_after(10):
        async with listening() as (listener, fake):
            async with await OpenAIStreamSink.connect(transport(fake)) as sink:
                await sink.emit(text_chunk("é\u2028"))
                await sink.finish()
            assert listener.error is None
            assert await listener.records.get() == text_chunk("é\u2028")


async def test_a_token_is_good_for_one_stream_of_one_turn() -> None:
    with anyio.fail_after(10):
        async with listening() as (_, fake):
            async with await OpenAIStreamSink.connect(transport(fake)) as sink:
                with pytest.raises(FabricStreamError, match="409"):
                    await OpenAIStreamSink.connect(transport(fake))
                await sink.finish()
            with pytest.raises(FabricStreamError, match="409"):
                await OpenAIStreamSink.connect(transport(fake))
        with pytest.raises(FabricStreamError, match="cannot be reached"):
            await OpenAIStreamSink.connect(transport(fake))
        async with listening() as (_, next_turn):
            next_turn.token = fake.token
            with pytest.raises(FabricStreamError, match="401"):
                await OpenAIStreamSink.connect(transport(next_turn))


async def test_a_sink_that_is_left_lets_the_listener_close() -> None:
    # An open socket would hang the SDK's close() for ever on Python 3.12.1 and later.
    with anyio.fail_after(10):
        async with listening() as (listener, fake):
            with pytest.raises(ZeroDivisionError):
                async with await OpenAIStreamSink.connect(transport(fake)) as sink:
                    await sink.emit(text_chunk("x"))
                    raise ZeroDivisionError
            await listener.wait_completed()
            assert listener.error is not None


async def test_a_listener_that_goes_ends_a_silent_turn_of_the_binding() -> None:
    closed = anyio.Event()

    async def source(question: Any) -> AsyncGenerator[Any, None]:
        yield text_chunk("x")
        try:
            await anyio.sleep_forever()
        finally:
            closed.set()

    binding = Binding(StreamTarget(source))
    with anyio.fail_after(10):
        async with listening() as (listener, fake):
            payload = fake.payload()
            await binding.handle(json.dumps({"operation": "start", "payload": {**payload, "config": {}}}))
            request = json.dumps({"operation": "invoke_openai_stream", "payload": payload})
            turn = asyncio.ensure_future(binding.handle(request))
            await listener.records.get()
            for writer in listener._writers:
                writer.close()
            outcome = (await turn)["outcome"]
    assert outcome["error"]["code"] == "lifecycle_stream_transport_failed"
    assert closed.is_set()


HEADS: list[dict[str, str | None]] = [
    {"line": "GET /openai-stream HTTP/1.1"},
    {"line": "POST /other HTTP/1.1"},
    {"line": "nonsense"},
    {"authorization": None},
    {"authorization": "bearer x"},
    {"content_type": "application/json"},
    {"content_type": "application/X-NDJSON"},
    {"content_type": "application/x-ndjson; charset=utf-8"},
    {"transfer_encoding": None},
    {"transfer_encoding": "gzip, chunked"},
    {"transfer_encoding": "chunked, gzip"},
    {"expect": None},
    {"expect": "100-Continue"},
]


@pytest.mark.parametrize("changes", HEADS, ids=str)
async def test_the_stand_in_answers_a_head_as_the_sdk_does(changes: dict[str, str | None]) -> None:
    with anyio.fail_after(10):
        async with listening() as (_, fake), FakeSink() as stand_in:
            answers = [
                await send(sink, head(sink, **changes), frame(line(record(sink, kind="end"))) + b"0\r\n\r\n")
                for sink in (fake, stand_in)
            ]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body, _ in bad_bodies()])
async def test_the_stand_in_answers_records_as_the_sdk_does(body: Callable[[FakeSink], bytes]) -> None:
    with anyio.fail_after(10):
        async with listening() as (_, fake), FakeSink() as stand_in:
            assert await send(fake, head(fake), body(fake)) == await send(stand_in, head(stand_in), body(stand_in))


@pytest.mark.parametrize("beyond", [0, 1])
async def test_both_count_a_record_without_its_line_feed(beyond: int) -> None:
    answers: list[Any] = []
    with anyio.fail_after(10):
        async with listening() as (_, fake), FakeSink() as stand_in:
            for sink in (fake, stand_in):
                empty = len(line(record(sink, chunk={**text_chunk("x"), "y": ""}))) - 1
                long = line(record(sink, chunk={**text_chunk("x"), "y": "z" * (2**20 - empty + beyond)}))
                answers.append(await send(sink, head(sink), frame(long, line(record(sink, 1, "end"))) + b"0\r\n\r\n"))
    assert answers == [[100, 413 if beyond else 200]] * 2
