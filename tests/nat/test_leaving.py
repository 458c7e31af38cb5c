"""A client that leaves one of NAT's streaming routes stops its run, as it does on the AG-UI route."""

import time
from typing import Any

import anyio
import pytest
from nat_agents import configuration, slow_states
from nat_scenarios import call, calls, text
from nat_server import Served, serve, user_says

from dragent_stream.testing.chunks import text_chunk
from dragent_stream.testing.model import Hold

pytestmark = pytest.mark.asyncio(loop_scope="session")

STREAMS = [
    "/agui",
    "/generate/stream",
    "/generate/full",
    "/v1/workflow/stream",
    "/v1/workflow/full",
    "/v1/workflow/atif",
    "/chat/stream",
    "/v1/chat/stream",
    "/v1/chat/completions",
]
KINDS = ["per_user_tool_calling_agent", "dragent_tool_calling_agent", "tool_calling_agent"]


def asked(path: str) -> dict[str, Any]:
    if path == "/agui":
        return user_says("hi")
    return {"messages": [{"role": "user", "content": "hi"}], "stream": True}


def forget_slow_tools() -> None:
    while not slow_states.empty():
        slow_states.get_nowait()


async def leave_while(server: Served, path: str, happens: Any) -> float:
    """Ask, wait, leave; the time of leaving."""
    async with server.client.stream("POST", path, json=asked(path), headers={"x-api-key": "alice"}) as response:
        assert response.status_code == 200
        with anyio.fail_after(10):
            await happens()
    return time.monotonic()


@pytest.mark.parametrize("kind", KINDS)
async def test_leaving_during_a_tool_stops_it_and_no_model_is_called_again(kind: str) -> None:
    async with serve(lambda url: configuration(url, _type=kind)) as server:
        for path in STREAMS:
            forget_slow_tools()
            server.play(calls(call("c1", "slow", '{"what":"x"}')), text("never"))

            async def tool_runs() -> None:
                assert await slow_states.get() == "started"

            await leave_while(server, path, tool_runs)
            with anyio.fail_after(1):
                assert await slow_states.get() == "cancelled", path
            # The next run is served, and is the model's next request.
            server.play(text("Hello"))
            assert (
                "Hello" in (await server.client.post("/generate", json=asked(""), headers={"x-api-key": "alice"})).text
            )
            assert len(server.model.requests) == 1, path


@pytest.mark.parametrize("kind", KINDS)
async def test_leaving_during_text_closes_the_models_connection(kind: str) -> None:
    async with serve(lambda url: configuration(url, _type=kind)) as server:
        for path in STREAMS:
            server.play([text_chunk("Once "), Hold(), *text("the end")])

            async def model_answers() -> None:
                await server.model.arrivals.get()

            await leave_while(server, path, model_answers)
            with anyio.fail_after(1):
                await server.model.requests[0].disconnected.wait()


async def test_leaving_a_workflow_that_does_not_stream_stops_it() -> None:
    async with serve(lambda url: {**configuration(url), "workflow": {"_type": "t_held"}}) as server:
        for path in ("/agui", "/generate/stream", "/v1/workflow/stream", "/chat/stream", "/v1/chat/completions"):
            forget_slow_tools()
            body = asked(path) if "chat" in path or path == "/agui" else {"message": "hi"}
            async with server.client.stream("POST", path, json=body):
                with anyio.fail_after(10):
                    assert await slow_states.get() == "started"
            with anyio.fail_after(1):
                assert await slow_states.get() == "cancelled", path
