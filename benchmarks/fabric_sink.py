"""Our sink beside the common host's writer: records per second, and the latency of one record, in one run.

Both write the same chunks to the same consumer, one after the other, several rounds in changing order; the best round of
each counts. The consumer is a bare reader in a process of its own, so that neither side pays for it. The host's writer
is private to `nemo-fabric-adapters-common`; it is measured here and used nowhere else.

usage: python benchmarks/fabric_sink.py [--records N] [--rounds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import socket
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nemo_fabric_adapters.common.lifecycle import _OpenAIStreamWriter as HostWriter

from dragent_stream.fabric import ChunkNormalizer, OpenAIStreamSink, StreamTransport
from dragent_stream.fabric.summary import TurnSummary
from dragent_stream.options import ConverterOptions
from dragent_stream.testing import text_chunk
from dragent_stream.testing.fabric import FakeSink

Emit = Callable[[dict[str, Any]], Awaitable[None]]
SIZES = {"token (5 characters)": 5, "1 KiB": 1024, "64 KiB": 65536}


def consume(ports: Connection) -> None:
    """Answer 100, read whole records, answer 200; for each record send one byte back where the head asks for it."""
    listener = socket.create_server(("127.0.0.1", 0))
    ports.send(listener.getsockname()[1])
    while True:
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += peer.recv(1)
        peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        echo = b"Bearer echo" in head
        tail = b""
        while not tail.endswith(b"\r\n0\r\n\r\n"):
            read = peer.recv(1 << 20)
            if not read:
                break
            tail = (tail + read)[-16:]
            if echo and tail.endswith(b"\n\r\n"):
                ports.send_bytes(b"%d" % time.monotonic_ns())
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        peer.close()


def payload(port: int, token: str) -> dict[str, Any]:
    fake = FakeSink()
    fake.port, fake.token = port, token
    return fake.payload()


async def ours(port: int, token: str) -> tuple[Emit, Callable[[], Awaitable[None]]]:
    """The sink alone, which validates what it is given as the host's does."""
    sink = await OpenAIStreamSink.connect(StreamTransport.from_payload(payload(port, token)))
    return sink.emit, sink.finish


async def whole(port: int, token: str) -> tuple[Emit, Callable[[], Awaitable[None]]]:
    """What a turn of `serve_binding` does with a chunk: normalise, gather the result, send."""
    sink = await OpenAIStreamSink.connect(StreamTransport.from_payload(payload(port, token)))
    normalizer = ChunkNormalizer(chunk_limit=sink.chunk_limit)
    summary = TurnSummary(ConverterOptions())

    async def emit(chunk: dict[str, Any]) -> None:
        for ready in normalizer.feed(chunk):
            summary.add(ready.chunk)
            await sink.emit_encoded(ready.encoded)

    return emit, sink.finish


async def host(port: int, token: str) -> tuple[Emit, Callable[[], Awaitable[None]]]:
    writer, _ = await HostWriter.connect(payload(port, token))
    return writer.emit, writer.finish


WRITERS = {"ours, sink": ours, "ours, normalise + gather + sink": whole, "common host": host}


async def throughput(make: Any, port: int, chunk: dict[str, Any], records: int) -> float:
    """Microseconds per record, from the first record to the 200."""
    emit, finish = await make(port, "tok")
    begun = time.perf_counter()
    for _ in range(records):
        await emit(chunk)
    await finish()
    return (time.perf_counter() - begun) / records * 1e6


async def latency(make: Any, port: int, arrivals: Connection, chunk: dict[str, Any], records: int) -> list[float]:
    """Microseconds from the call of emit to the whole record's arrival, one record at a time."""
    emit, finish = await make(port, "echo")
    seen: list[float] = []
    for _ in range(records):
        begun = time.monotonic_ns()
        await emit(chunk)
        seen.append((int(arrivals.recv_bytes()) - begun) / 1000)
    await finish()
    while arrivals.poll(0.05):
        arrivals.recv_bytes()
    return seen


async def measure(port: int, arrivals: Connection, records: int, rounds: int) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for label, size in SIZES.items():
        chunk = text_chunk("x" * size)
        count = max(400, records * 1024 // max(1024, size))
        spent: dict[str, list[float]] = {name: [] for name in WRITERS}
        waits: dict[str, list[float]] = {name: [] for name in WRITERS}
        for number in range(rounds):
            names = list(WRITERS) if number % 2 else list(reversed(WRITERS))
            for name in names:
                spent[name].append(await throughput(WRITERS[name], port, chunk, count))
                waits[name] += await latency(WRITERS[name], port, arrivals, chunk, 200)
        for name in WRITERS:
            results.append(
                {
                    "chunk": label,
                    "writer": name,
                    "us_per_record": round(min(spent[name]), 2),
                    "latency_us_p50": round(statistics.median(waits[name]), 1),
                    "latency_us_p99": round(statistics.quantiles(waits[name], n=100)[98], 1),
                    "time_of_host": round(min(spent[name]) / min(spent["common host"]), 3),
                    "latency_of_host": round(
                        statistics.median(waits[name]) / statistics.median(waits["common host"]), 3
                    ),
                }
            )
    return results


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--records", type=int, default=20_000)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    here, there = multiprocessing.get_context("spawn").Pipe()
    consumer = multiprocessing.get_context("spawn").Process(target=consume, args=(there,), daemon=True)
    consumer.start()
    try:
        results = asyncio.run(measure(here.recv(), here, options.records, options.rounds))
    finally:
        consumer.kill()
        consumer.join()
    host_version = metadata.version("nemo-fabric-adapters-common")
    print(f"Python {sys.version.split()[0]}, nemo-fabric-adapters-common {host_version}")
    print(f"{'chunk':22}{'writer':34}{'us/record':>10}{'of host':>9}{'p50 us':>9}{'p99 us':>9}{'of host':>9}")
    for row in results:
        print(
            f"{row['chunk']:22}{row['writer']:34}{row['us_per_record']:10.2f}{row['time_of_host']:9.2f}"
            f"{row['latency_us_p50']:9.1f}{row['latency_us_p99']:9.1f}{row['latency_of_host']:9.2f}"
        )
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(
            json.dumps({"python": sys.version.split()[0], "host": host_version, "rows": results}, indent=1) + "\n",
            "utf-8",
        )
    slower = [row for row in results if row["writer"] == "ours, sink" and row["time_of_host"] > 1]
    return 1 if slower else 0


if __name__ == "__main__":
    raise SystemExit(main())
