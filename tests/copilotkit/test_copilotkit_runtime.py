"""CopilotKit's runtime consumes every recording, served over HTTP, as its own AG-UI client does without it."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from dragent_stream.asgi import create_app, trace_source

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TRACES = sorted((ROOT / "tests" / "traces").glob("*.jsonl"))
SAID = [{"id": "m1", "role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """One server with one application per recording."""
    # Error texts are shown, so that both ways end in the same words.
    apps = [Mount(f"/{trace.stem}", create_app(trace_source(trace), expose_errors=True)) for trace in TRACES]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=apps), port=0, log_level="error", lifespan="off"))
    server.capture_signals = nullcontext  # type: ignore[method-assign]
    ready = threading.Event()
    startup = server.startup

    async def told(*args: Any, **more: Any) -> None:
        await startup(*args, **more)
        ready.set()

    server.startup = told  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run)
    thread.start()
    assert ready.wait(10)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def outcomes(served: str) -> dict[str, Any]:
    jobs = [
        {
            "url": f"{served}/{trace.stem}/agui",
            "input": {"threadId": f"thread-{trace.stem}", "runId": f"run-{trace.stem}", "messages": SAID},
        }
        for trace in TRACES
    ]
    done = subprocess.run(
        [ROOT / "scripts" / "node", HERE / "through_runtime.mjs"],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return dict(zip((trace.stem for trace in TRACES), json.loads(done.stdout), strict=True))


def told(messages: list[dict[str, Any]]) -> list[Any]:
    """The messages without the ids that every run makes anew."""
    names: dict[str, str] = {}

    def name(value: str) -> str:
        return names.setdefault(value, f"id-{len(names)}")

    found: list[Any] = []
    for message in messages:
        calls = [(name(call["id"]), call["function"]) for call in message.get("toolCalls") or ()]
        answered = message.get("toolCallId")
        found.append((message["role"], message.get("content"), calls, answered and name(answered)))
    return found


@pytest.mark.parametrize("trace", [trace.stem for trace in TRACES])
def test_the_runtime_gives_the_frontend_what_the_client_gets_directly(outcomes: dict[str, Any], trace: str) -> None:
    direct, runtime = outcomes[trace]["direct"], outcomes[trace]["runtime"]
    assert direct["error"] is None
    assert runtime["error"] is None
    assert runtime["ended"] == direct["ended"]
    assert direct["ended"] is not None
    assert told(runtime["messages"]) == told(direct["messages"])
