"""A real NAT server on a loopback socket, driven by a scripted model."""

import asyncio
import contextlib
import json
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import uvicorn
from nat.data_models.config import Config
from nat.runtime.loader import PluginTypes, discover_and_register_plugins
from nat.utils.data_models.schema_validator import validate_schema

from dragent_stream.nat.worker import DragentStreamWorker
from dragent_stream.testing.model import Fail, ModelRequest, ScriptedModel, Turn

# NAT's worker wants to know the file that its configuration came from.
os.environ.setdefault("NAT_CONFIG_FILE", __file__)
discover_and_register_plugins(PluginTypes.CONFIG_OBJECT)


class Script:
    """What the models answer: turns of the root agent's model, and of the one of the nested agent."""

    def __init__(self) -> None:
        self.root: list[Turn] = []
        self.inner: list[Turn] = []
        self.chooser: Callable[[ModelRequest], Turn | Awaitable[Turn]] | None = None

    def turn(self, request: ModelRequest) -> Turn | Awaitable[Turn]:
        if self.chooser is not None:
            return self.chooser(request)
        turns = self.inner if request.body["model"] == "inner-model" else self.root
        return turns.pop(0) if turns else [Fail(message="the script has no more turns")]


class Served:
    """One running NAT server."""

    def __init__(self, url: str, model: ScriptedModel, script: Script) -> None:
        self.url = url
        self.model = model
        self.script = script
        self.client = httpx.AsyncClient(base_url=url, timeout=20)

    def play(self, *root: Turn, inner: list[Turn] | None = None) -> None:
        self.script.chooser = None
        self.script.root = list(root)
        self.script.inner = list(inner or [])
        self.model.requests.clear()
        while not self.model.arrivals.empty():
            self.model.arrivals.get_nowait()

    async def raw_run(self, run_input: dict[str, Any] | None = None, **headers: str) -> httpx.Response:
        return await self.client.post(
            "/agui", json=run_input or user_says("please"), headers={"x-api-key": "alice", **headers}
        )

    async def run(self, run_input: dict[str, Any] | None = None, **headers: str) -> list[dict[str, Any]]:
        response = await self.raw_run(run_input, **headers)
        assert response.status_code == 200, response.text
        return events_of(response.content)


@contextlib.asynccontextmanager
async def serve(
    configure: Callable[[str], dict[str, Any]],
) -> AsyncIterator[Served]:
    script = Script()
    async with ScriptedModel(script.turn) as model:
        worker = DragentStreamWorker(validate_schema(configure(model.base_url), Config))
        server = uvicorn.Server(uvicorn.Config(worker.build_app(), port=0, log_level="warning", lifespan="on"))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            if serving.done():
                serving.result()
            await asyncio.sleep(0)
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        served = Served(url, model, script)
        try:
            yield served
        finally:
            await served.client.aclose()
            server.should_exit = True
            await serving


def user_says(text: str, **more: Any) -> dict[str, Any]:
    """A run input with one message."""
    return {
        "threadId": f"thread-{uuid.uuid4()}",
        "runId": f"run-{uuid.uuid4()}",
        "messages": [{"id": str(uuid.uuid4()), "role": "user", "content": text}],
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {},
        **more,
    }


def events_of(body: bytes) -> list[dict[str, Any]]:
    """The events of an SSE body; every frame is one `data:` line, comments aside."""
    events: list[dict[str, Any]] = []
    for frame in body.decode().split("\n\n"):
        if frame and not frame.startswith(":"):
            assert frame.startswith("data: "), frame
            events.append(json.loads(frame[6:]))
    return events
