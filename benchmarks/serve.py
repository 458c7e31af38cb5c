"""What a token costs a server, and what a thousand streams at once come to: `make bench-serve`.

Each server runs alone on one core, the load on the other; all of this on the loopback address. Figures are the server
process's own CPU time, medians of interleaved rounds, so read the ratios.
"""

import argparse
import asyncio
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from measure import table
from peers import PEERS, Peer, python_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SERVER_CORE, LOAD_CORE = 0, 1
RAMP = 2.0  # seconds in which the many streams begin
OURS = Peer("serve", "serve", ("-e", f"{ROOT}[asgi]"))
DATAROBOT = next(peer for peer in PEERS if peer.name == "datarobot-genai")
TITLES = {
    "bare": "bare ASGI, prebuilt frames",
    "ours": "dragent_stream, coalesce_ms=0",
    "ours+16": "dragent_stream as it comes, coalesce_ms=16",
    "datarobot-encoder": "datarobot-genai 0.31 + EventEncoder",
    "datarobot-data": "datarobot-genai 0.31, get_stream_data()",
    "datarobot-served": "datarobot-genai 0.31, the same through NAT's queue and StreamingResponse",
}
MOMENT = re.compile(rb"([0-9]+[.][0-9]{6}) ")


@contextmanager
def server(kind: str) -> Iterator[int]:
    python = python_of(DATAROBOT if kind.startswith("datarobot") else OURS)
    process = subprocess.Popen(
        [python, HERE / "serve_app.py", kind, str(SERVER_CORE)], stdout=subprocess.PIPE, text=True, cwd=HERE
    )
    try:
        assert process.stdout
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(20)


async def usage(port: int) -> dict[str, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /usage HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    body = (await reader.read()).partition(b"\r\n\r\n")[2]
    writer.close()
    return json.loads(body)


async def run(port: int, number: int, props: dict[str, Any], late: list[float] | None = None) -> tuple[bool, int]:
    """One run: whether it ended as it should, and how many moments came. `late` takes the seconds from each to here."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    body = json.dumps(
        {
            "threadId": f"t{number}",
            "runId": f"r{number}",
            "protocolVersion": "1.0",
            "messages": [{"id": "m", "role": "user", "content": "go"}],
            "forwardedProps": props,
        }
    ).encode()
    head = f"POST /agui HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    parts: list[bytes] = []
    while data := await reader.read(2**16):
        parts.append(data)
        if late is not None:
            now = time.monotonic()
            late.extend(now - float(moment) for moment in MOMENT.findall(data))
    writer.close()
    body = b"".join(parts)
    return body.endswith(b"0\r\n\r\n"), len(MOMENT.findall(body))


async def cost(port: int, streams: int, chunks: int) -> float:
    """CPU microseconds of the server for one token."""
    before = await usage(port)
    done = await asyncio.gather(*(run(port, number, {"chunks": chunks}) for number in range(streams)))
    after = await usage(port)
    assert all(whole for whole, _ in done), "a stream was cut"
    return (after["cpu"] - before["cpu"]) / (streams * chunks) * 1e6


async def costs(kinds: list[str], rounds: int, streams: int, chunks: int) -> dict[str, float]:
    samples: dict[str, list[float]] = {kind: [] for kind in kinds}
    with ExitStack() as stack:
        ports = {kind: stack.enter_context(server(kind)) for kind in kinds}
        for turn in range(rounds + 1):
            for kind, port in ports.items():
                spent = await cost(port, streams, chunks)
                if turn:
                    samples[kind].append(spent)
    return {kind: statistics.median(values) for kind, values in samples.items()}


async def crowd(kind: str, streams: int, chunks: int, interval: float) -> dict[str, Any]:
    """Many streams at once, each at the pace of a model: what is lost, how late a delta is, what it costs."""
    with server(kind) as port:
        await run(port, 0, {"chunks": 10})
        before = await usage(port)
        late: list[float] = []
        peak = 0

        async def client(number: int) -> tuple[bool, int]:
            await asyncio.sleep(RAMP * number / streams)
            return await run(port, number, {"chunks": chunks, "interval": interval}, late)

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, (await usage(port))["kib"])
                await asyncio.sleep(1)

        watching = asyncio.create_task(watch())
        started = time.monotonic()
        done = await asyncio.gather(*(client(number) for number in range(1, streams + 1)))
        seconds = time.monotonic() - started
        watching.cancel()
        after = await usage(port)
    late.sort()
    whole = sum(complete and moments == chunks for complete, moments in done)
    return {
        "streams": streams,
        "lost": streams - whole,
        "tokens": streams * chunks,
        "received": sum(moments for _, moments in done),
        "seconds": round(seconds, 2),
        "cpu_share": round((after["cpu"] - before["cpu"]) / seconds, 3),
        "kib_per_stream": round((peak - before["kib"]) / streams, 1),
        "rss_mib": round(peak / 1024, 1),
        **{
            f"p{name}_ms": round(late[int(len(late) * share) - 1] * 1000, 2)
            for name, share in (("50", 0.5), ("99", 0.99))
        },
        "max_ms": round(late[-1] * 1000, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument(
        "--interval", type=float, default=0.1, help="seconds between the chunks of one of the many streams"
    )
    parser.add_argument("--without-peer", action="store_true", help="leave datarobot-genai out")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    os.sched_setaffinity(0, {LOAD_CORE})
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    kinds = [kind for kind in TITLES if not (given.without_peer and kind.startswith("datarobot"))]
    found = asyncio.run(costs(kinds, given.rounds, 16, 1000))
    floor, peers = found["bare"], {kind: spent for kind, spent in found.items() if kind.startswith("datarobot")}
    print(
        f"\nServer CPU per token, 16 streams of 1,000 chunks, CPython {platform.python_version()}, uvicorn with h11\n"
    )
    rows = [
        (
            TITLES[kind],
            f"{spent:.1f}",
            f"{spent / floor:.2f}",
            f"{1e6 / spent:,.0f}",
            *(f"{peer / spent:.2f}" for peer in peers.values()),
        )
        for kind, spent in found.items()
    ]
    print(table(["", "µs", "of the floor", "tokens/s/core", *(f"x {kind}" for kind in peers)], rows))

    many = {kind: asyncio.run(crowd(kind, given.streams, 200, given.interval)) for kind in ("bare", "ours", "ours+16")}
    print(
        f"\n{given.streams:,} streams of 200 chunks at once on one core, a chunk every {given.interval * 1000:g} ms each\n"
    )
    names = ("lost", "cpu_share", "rss_mib", "kib_per_stream", "p50_ms", "p99_ms", "max_ms")
    print(table(["", *names], [(TITLES[kind], *(result[name] for name in names)) for kind, result in many.items()]))
    added = many["ours"]["p99_ms"] - many["bare"]["p99_ms"]
    print(f"\nadded latency at p99, against the floor: {added:.2f} ms")
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        result = {
            "python": platform.python_version(),
            "us_per_token": found,
            "crowd": many,
            "added_p99_ms": round(added, 2),
        }
        given.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if lost := sum(result["lost"] for result in many.values()):
        sys.exit(f"{lost} streams were not whole")


if __name__ == "__main__":
    main()
