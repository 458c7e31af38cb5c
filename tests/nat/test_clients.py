"""Every scenario's stream through the real JavaScript clients."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from nat_scenarios import SCENARIOS, Scenario
from nat_server import Served, user_says

pytestmark = pytest.mark.asyncio(loop_scope="session")

REPLAY = Path(__file__).parent.parent / "clients" / "replay.mjs"
NODE = Path(__file__).parent.parent.parent / "scripts" / "node"  # the system's, or one kept in this checkout
VERSIONS = ("1.0.0", "0.0.59")


class Streams:
    """Serves recorded responses, each at a path of its own."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            (line.split(":")[1] for line in head.split("\r\n") if line.lower().startswith("content-length:")), "0"
        )
        await reader.readexactly(int(length))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        writer.write(self.bodies[head.split(" ")[1]])
        await writer.drain()
        writer.close()


async def replayed(streams: Streams, inputs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What each client made of each stream: {path: {version: outcome}}."""
    server = await asyncio.start_server(streams.answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    jobs = [{"url": url + path, "input": run_input} for path, run_input in inputs.items()]
    async with server:
        process = await asyncio.create_subprocess_exec(
            str(NODE), str(REPLAY), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=REPLAY.parent
        )
        with anyio.fail_after(120):
            output, _ = await process.communicate(json.dumps(jobs).encode())
    assert process.returncode == 0
    return dict(zip(inputs, json.loads(output), strict=True))


async def test_every_stream_is_accepted_by_the_real_clients(served: Served) -> None:
    streams = Streams()
    inputs: dict[str, dict[str, Any]] = {}
    scenarios: dict[str, Scenario] = {}
    for scenario in SCENARIOS:
        served.play(*scenario.turns, inner=list(scenario.inner))
        path = f"/{scenario.name}"
        # A client before 1.0 states no version, so the stream fits all of them.
        inputs[path], scenarios[path] = user_says("please"), scenario
        streams.bodies[path] = (await served.raw_run(inputs[path])).content
    for path, outcomes in (await replayed(streams, inputs)).items():
        last = scenarios[path].tells[-1]
        for version in VERSIONS:
            outcome = outcomes[version]
            said = (path, version, outcome)
            assert outcome["error"] is None, said
            assert outcome["finished"] == ("RUN_FINISHED" if last == "finished" else f"RUN_ERROR {last[6:]}"), said
            messages = outcome["messages"]
            called = [one["id"] for m in messages for one in m.get("toolCalls") or []]
            answered = [m["toolCallId"] for m in messages if m["role"] == "tool"]
            if last == "finished":
                assert sorted(called) == sorted(answered), said
            text = "".join(m.get("content") or "" for m in messages if m["role"] == "assistant")
            told = "".join(line[5:] for line in scenarios[path].tells if line.startswith("text "))
            assert not told or text == told, said
