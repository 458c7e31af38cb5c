"""The application behind the real server: sockets, leaving clients, signals."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import anyio
import pytest
import uvicorn
from asgi_wire import run_input

from dragent_stream.asgi import create_app
from dragent_stream.asgi.serve import run_server
from dragent_stream.errors import ConversionError
from dragent_stream.testing.chunks import finish_chunk, text_chunk


class Held:
    """An agent that says one word and waits; knows when it was closed."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def __call__(self, run_input: Any) -> AsyncIterator[Any]:
        try:
            yield text_chunk("Hel")
            await asyncio.Event().wait()
        finally:
            self.closed.set()


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[int]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="on"))
    server.capture_signals = nullcontext  # type: ignore[method-assign]
    task = asyncio.create_task(server.serve())
    with anyio.fail_after(5):
        while not server.started:
            await anyio.lowlevel.checkpoint()
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def post(
    port: int, body: dict[str, Any], path: str = "/agui"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
    return reader, writer


async def test_a_dropped_socket_closes_the_agent_within_a_second(caplog: pytest.LogCaptureFixture) -> None:
    agent = Held()
    app = create_app(agent)
    async with served(app) as port:
        reader, writer = await post(port, run_input())
        with anyio.fail_after(5):
            await reader.readuntil(b"Hel")
        writer.close()
        with anyio.fail_after(1):
            await agent.closed.wait()
            while len(app.state.runs):
                await anyio.lowlevel.checkpoint()
    assert caplog.records == []


async def test_a_stop_over_http_ends_the_stream_in_order() -> None:
    agent = Held()
    async with served(create_app(agent)) as port:
        reader, writer = await post(port, run_input())
        with anyio.fail_after(5):
            await reader.readuntil(b"Hel")
            stop_reader, stop_writer = await post(port, {}, "/agui/run/stop")
            assert b" 202 " in await stop_reader.readline()
            stop_writer.close()
            rest = await reader.read()
        writer.close()
    assert b'"outcome":{"type":"cancelled"}' in rest
    assert rest.endswith(b"0\r\n\r\n")
    assert agent.closed.is_set()


async def test_a_client_that_reads_slowly_slows_the_agent_instead_of_filling_memory() -> None:
    pulled = 0
    begun = asyncio.Event()

    async def agent(run_input: Any) -> AsyncIterator[Any]:
        nonlocal pulled
        while True:
            pulled += 1
            begun.set()
            yield text_chunk("x" * 100_000)

    async with served(create_app(agent)) as port:
        _, writer = await post(port, run_input())
        with anyio.fail_after(10):
            await begun.wait()
            before = -1
            while before != pulled:  # until the agent stands still: everything between it and the client is full
                before = pulled
                for _ in range(50):
                    await anyio.lowlevel.checkpoint()
        assert pulled < 500
        writer.transport.abort()


SERVER = """
import asyncio, sys
from dragent_stream.asgi import create_app
from dragent_stream.asgi.serve import run_server
from dragent_stream.testing.chunks import text_chunk

async def agent(run_input):
    yield text_chunk("Hel")
    await asyncio.sleep(600)

run_server(create_app(agent, shutdown_grace=float(sys.argv[1])), port=0, announce=lambda url: print(url, flush=True))
print("ended", flush=True)
"""


@pytest.mark.parametrize(("sent", "said"), [(signal.SIGINT, b"ended\n"), (signal.SIGTERM, b"")])
async def test_a_signal_ends_open_runs_in_order_and_then_the_server(sent: signal.Signals, said: bytes) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, "0.05", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONWARNINGS": "error::ResourceWarning"},
    )  # fmt: skip
    assert process.stdout
    with anyio.fail_after(20):
        port = int((await process.stdout.readline()).rpartition(b":")[2])
        reader, writer = await post(port, run_input())
        await reader.readuntil(b"Hel")
        process.send_signal(sent)
        rest = await reader.read()
        out, err = await process.communicate()
    writer.close()
    assert b'"outcome":{"type":"cancelled"}' in rest
    assert rest.endswith(b"0\r\n\r\n")
    assert out == said
    assert err == b""


STUBBORN = """
import asyncio, sys
from dragent_stream.asgi import create_app, serve
from dragent_stream.options import ConverterOptions
from dragent_stream.testing.chunks import text_chunk

serve._LAST_SECONDS = 0.05

async def deaf():
    while True:
        try:
            await asyncio.sleep(600)
        except {swallowed}:
            pass

async def agent(run_input):
    yield text_chunk("Hel")
    await asyncio.wait([asyncio.ensure_future(deaf())]) if sys.argv[1] == "task" else await deaf()

app = create_app(agent, shutdown_grace=0.05, options=ConverterOptions(close_timeout=0.05))
serve.run_server(app, port=0, announce=lambda url: print(url, flush=True))
print("ended", flush=True)
"""


@pytest.mark.parametrize("where", ["task", "agent"])
@pytest.mark.parametrize("swallowed", ["asyncio.CancelledError", "BaseException"])
async def test_an_agent_that_swallows_its_cancellation_does_not_keep_the_server(swallowed: str, where: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STUBBORN.format(swallowed=swallowed), where,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout
    try:
        with anyio.fail_after(20):
            port = int((await process.stdout.readline()).rpartition(b":")[2])
            reader, writer = await post(port, run_input())
            await reader.readuntil(b"Hel")
            process.send_signal(signal.SIGINT)
            rest = await reader.read()
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    writer.close()
    assert b'"outcome":{"type":"cancelled"}' in rest
    assert (out, process.returncode) == (b"ended\n", 0)
    assert b"Traceback" not in err


async def test_a_port_in_use_is_told_with_the_remedy() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(ConversionError, match=f"cannot listen on 127.0.0.1 port {port}: .*; choose another"):
            run_server(create_app(lambda _: []), port=port)


@pytest.mark.parametrize(("host", "port"), [("no.such.host.invalid", 0), ("127.0.0.1", 99999), ("127.0.0.1", -1)])
def test_an_address_that_cannot_be_is_told_with_the_remedy(host: str, port: int) -> None:
    with pytest.raises(ConversionError, match=f"cannot listen on {host} port {port}"):
        run_server(create_app(lambda _: []), host, port)


async def test_many_streams_at_once_are_all_whole() -> None:
    words = [text_chunk(f"w{at} ") for at in range(20)]

    async def agent(run_input: Any) -> AsyncIterator[Any]:
        for word in words:
            await anyio.lowlevel.checkpoint()
            yield word
        yield finish_chunk()

    async with served(create_app(agent, coalesce_ms=0)) as port:

        async def client(number: int) -> bytes:
            reader, writer = await post(port, run_input(runId=str(number)))
            body = await reader.read()
            writer.close()
            return body

        with anyio.fail_after(30):
            bodies = await asyncio.gather(*(client(number) for number in range(100)))
    assert [body.count(b"TEXT_MESSAGE_CONTENT") for body in bodies] == [20] * 100
    assert all(b'"RUN_FINISHED"' in body and body.endswith(b"0\r\n\r\n") for body in bodies)
