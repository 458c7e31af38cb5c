"""A model behind a real target, a real Fabric runtime, our conversion, a socket, and the real AG-UI client of npm."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from fabric_runtime import HERE, runtime
from nemo_fabric import Runtime

from dragent_stream.fabric import convert_fabric_sse
from dragent_stream.testing import finish_chunk, text_chunk, tool_call_chunk, usage_chunk
from dragent_stream.testing.model import Cut, Fail, ScriptedModel

ROOT = HERE.parents[2]
CLIENTS = ROOT / "tests" / "clients"
NAT = ROOT / ".venvs" / "nat-1.9.0" / "bin" / "python"

TEXT = [text_chunk("Hel", role="assistant"), text_chunk("lo \u2028"), finish_chunk(), usage_chunk(7, 3)]
CALL = [
    tool_call_chunk("", call_id="call_1", name="add"),
    tool_call_chunk('{"a":1,'),
    tool_call_chunk('"b":2}'),
    finish_chunk("tool_calls"),
    usage_chunk(5, 5),
]


@asynccontextmanager
async def served(fabric: Runtime) -> AsyncGenerator[str, None]:
    """An AG-UI endpoint over one Fabric runtime."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        run_input = json.loads(await reader.readexactly(length))
        messages = [{"role": message["role"], "content": message["content"]} for message in run_input["messages"]]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        async for frame in convert_fabric_sse(fabric.invoke_openai_stream(input=messages), run_input):
            writer.write(frame)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


async def replay(url: str) -> dict[str, Any]:
    """What each client version makes of one turn."""
    child = await asyncio.create_subprocess_exec(
        str(ROOT / "scripts" / "node"),
        "replay.mjs",
        url,
        cwd=CLIENTS,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    run_input = {"threadId": "t", "runId": "r", "messages": [{"id": "u1", "role": "user", "content": "1 + 2?"}]}
    out, err = await child.communicate(json.dumps(run_input).encode())
    assert child.returncode == 0, err.decode()
    return json.loads(out)


def shown(outcome: dict[str, Any]) -> list[tuple[str, str | None, list[tuple[str, str]]]]:
    """(role, text, calls) of the messages after the user's."""
    assert outcome["warnings"] == []
    return [
        (
            message["role"],
            message.get("content"),
            [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("toolCalls", [])],
        )
        for message in outcome["messages"][1:]
    ]


REFERENCE = "The agent failed (target_failed). Reference: 0"
VERSIONS = ("1.0.0", "0.0.59", "0.0.55")


async def play(tmp_path: Path, turn: list[Any], target: str) -> dict[str, Any]:
    """Three turns, one for each client, of the target with this script."""
    if target == "nat":
        assert NAT.exists(), "make test-fabric sets up NAT 1.9.0"
        descriptor: dict[str, Any] = {"script": HERE / "nat_adapter.py", "python": NAT, "pythonpath": ROOT / "src"}
    else:
        descriptor = {"module": "openai_adapter", "python": sys.executable, "pythonpath": HERE}
    with anyio.fail_after(240):
        async with ScriptedModel(turn * len(VERSIONS)) as model:
            environment = {"MODEL_URL": model.base_url}
            async with runtime(tmp_path, env=environment, **descriptor) as fabric, served(fabric) as url:
                outcomes = await replay(url)
                assert fabric.status.value == "active"
            assert len(model.requests) == len(turn) * len(VERSIONS), "the target ran more or less than once a turn"
    assert tuple(outcomes) == VERSIONS
    return outcomes


async def test_an_openai_stream_reaches_the_clients(tmp_path: Path) -> None:
    for outcome in (await play(tmp_path, [TEXT], "openai")).values():
        assert outcome["error"] is None
        assert outcome["finished"] == "RUN_FINISHED"
        assert shown(outcome) == [("assistant", "Hello \u2028", [])]


async def test_tool_calls_of_an_openai_stream_reach_the_clients(tmp_path: Path) -> None:
    for outcome in (await play(tmp_path, [CALL], "openai")).values():
        assert outcome["error"] is None
        (message,) = [message for message in shown(outcome) if message[0] == "assistant"]
        assert message[2] == [("add", '{"a":1,"b":2}')]


@pytest.mark.parametrize("turn", [[Fail()], [text_chunk("x"), Cut()]], ids=["refused", "cut"])
async def test_a_broken_model_reaches_the_clients_as_an_error_without_its_text(tmp_path: Path, turn: list[Any]) -> None:
    for outcome in (await play(tmp_path, [turn], "openai")).values():
        assert outcome["finished"] == "RUN_ERROR target_failed"
        assert re.fullmatch(r"The agent failed \(target_failed\)\. Reference: \w+", outcome["error"] or REFERENCE)


async def test_a_nat_workflow_reaches_the_clients(tmp_path: Path) -> None:
    for outcome in (await play(tmp_path, [CALL, TEXT], "nat")).values():
        assert outcome["error"] is None
        assert outcome["finished"] == "RUN_FINISHED"
        messages = [message for message in shown(outcome) if message[0] == "assistant"]
        assert [call for message in messages for call in message[2]] == [("add", '{"a":1,"b":2}')]
        assert messages[-1][1] == "Hello \u2028"
