"""SIGINT and SIGTERM with open runs: each gets its end, and the server goes."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from nat_agents import configuration, with_front_end
from nat_server import events_of, user_says

from dragent_stream.testing.chunks import text_chunk
from dragent_stream.testing.model import Hold, ScriptedModel

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROGRAM = """
import asyncio, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import nat_agents
from nat.cli.main import run_cli
sys.argv[0] = "nat"
run_cli()
"""


@contextlib.asynccontextmanager
async def started(
    tmp_path: Path, model: ScriptedModel, **settings: Any
) -> AsyncIterator[tuple[asyncio.subprocess.Process, httpx.AsyncClient]]:
    """`nat start dragent_stream`, ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path / "workflow.yaml"
    config = with_front_end(configuration(model.base_url), **settings)
    file.write_text(json.dumps(config))  # JSON is YAML
    command = [sys.executable, "-c", PROGRAM, "start", "dragent_stream", "--config_file", str(file)]
    here = str(Path(__file__).parent)
    process = await asyncio.create_subprocess_exec(
        *command,
        "--port",
        str(port),
        env={**os.environ, "PYTHONPATH": here, "PYTHONWARNINGS": "ignore"},
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    said = b""
    try:
        with anyio.fail_after(120):
            while b"Uvicorn running" not in said:
                line = await process.stdout.readline()
                assert line, said.decode()
                said += line
        output = asyncio.ensure_future(process.stdout.read())
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=60, headers={"x-api-key": "alice"}
        ) as client:
            yield process, client
        await output
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_open_runs_are_given_their_time_and_then_an_end(tmp_path: Path, number: signal.Signals) -> None:
    go_on = asyncio.Event()
    held = [text_chunk("Once "), Hold()]
    quick = [
        text_chunk("Once "),
        Hold(go_on),
        text_chunk(
            "more.",
        ),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]

    def turn(request: Any) -> Any:
        return quick if "quick" in str(request.messages) else held

    async with (
        ScriptedModel(turn) as model,
        started(tmp_path, model, shutdown_grace_seconds=3) as (process, client),
    ):
        asked = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
        waiting = [
            asyncio.create_task(client.post("/agui", json=user_says("quick"))),
            asyncio.create_task(client.post("/agui", json=user_says("hi"))),
            asyncio.create_task(client.post("/agui", json=user_says("hi", protocolVersion="1.0"))),
            asyncio.create_task(client.post("/v1/chat/completions", json=asked)),
            asyncio.create_task(client.post("/generate/stream", json=asked)),
            asyncio.create_task(client.post("/generate", json={"messages": asked["messages"]})),
        ]
        with anyio.fail_after(30):
            for _ in waiting:
                await model.arrivals.get()
            process.send_signal(number)
            go_on.set()
            done, old, new, chat, generated, single = await asyncio.gather(*waiting)
            await process.wait()
        assert events_of(done.content)[-1]["type"] == "RUN_FINISHED"
        assert "more." in done.text
        last = events_of(old.content)[-1]
        assert (last["type"], last["code"]) == ("RUN_ERROR", "abort")
        assert events_of(new.content)[-1]["outcome"] == {"type": "cancelled"}
        assert json.loads(chat.text.split("\n\n")[-2].removeprefix("data: "))["error"]["message"].endswith(
            "because the server is shutting down"
        )
        assert "RUN_ERROR" in generated.text or "shutting down" in generated.text
        assert single.status_code == 422
        assert "shutting down" in single.text
