"""A tool that asks NAT's context whose request it works for is told its own run's."""

import asyncio
from typing import Any

import pytest
from nat_agents import configuration
from nat_scenarios import call, calls, text
from nat_server import Served, serve, user_says

from dragent_stream.testing.model import ModelRequest, Turn

pytestmark = pytest.mark.asyncio(loop_scope="session")

KINDS = ["per_user_tool_calling_agent", "dragent_tool_calling_agent"]
WHO = call("c1", "who", '{"question":"?"}')


def echo(request: ModelRequest) -> Turn:
    """Ask the tool, then say what it said."""
    last = request.messages[-1]
    return text(str(last["content"])) if last["role"] == "tool" else calls(WHO)


def heads(name: str, **more: str) -> dict[str, str]:
    # One user: x-api-key is what NAT finds only where there is no cookie and no Authorization.
    return {"x-api-key": "one user", "x-who": name, **more}


async def told_on_agui(server: Served, name: str) -> str:
    run_input = user_says("who?", threadId=f"thread-{name}")
    events = await server.run(run_input, **heads(name))
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


async def told_on(server: Served, path: str, name: str) -> str:
    body = {"messages": [{"role": "user", "content": "who?"}], "stream": path == "/v1/chat/completions"}
    response = await server.client.post(path, json=body, headers=heads(name, **{"conversation-id": f"thread-{name}"}))
    assert response.status_code == 200
    return response.text


def expected(name: str, path: str) -> str:
    return f"{name} None {{}} {path} thread-{name}"


@pytest.mark.parametrize("kind", KINDS)
async def test_each_run_sees_its_own_request(kind: str) -> None:
    async with serve(lambda url: configuration(url, _type=kind)) as server:
        server.play()
        server.script.chooser = echo
        for name in ("first", "second", "third"):
            assert await told_on_agui(server, name) == expected(name, "/agui")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "path", ["/generate", "/generate/stream", "/v1/workflow/stream", "/chat", "/chat/stream", "/v1/chat/completions"]
)
async def test_each_run_on_nats_routes_sees_its_own_request(kind: str, path: str) -> None:
    async with serve(lambda url: configuration(url, _type=kind)) as server:
        server.play()
        server.script.chooser = echo
        await told_on_agui(server, "other")
        for name in ("first", "second"):
            assert expected(name, path) in await told_on(server, path, name)


@pytest.mark.parametrize("kind", KINDS)
async def test_runs_at_the_same_time_do_not_see_each_other(kind: str) -> None:
    names = [f"user{number}" for number in range(6)]
    together = asyncio.Barrier(len(names))

    async def choose(request: ModelRequest) -> Turn:
        if request.messages[-1]["role"] != "tool":
            await together.wait()
        return echo(request)

    async with serve(lambda url: configuration(url, _type=kind)) as server:
        server.play()
        server.script.chooser = choose
        told = await asyncio.gather(*(told_on_agui(server, name) for name in names))
        assert told == [expected(name, "/agui") for name in names]


async def test_what_the_first_request_named_is_not_the_next_ones(served: Served) -> None:
    served.play()
    served.script.chooser = echo
    first: dict[str, Any] = {"workflow-run-id": "run-of-first", "conversation-id": "conversation-of-first"}
    user = {"x-api-key": "whoever comes first"}
    body = {"messages": [{"role": "user", "content": "who?"}]}
    await served.client.post("/generate", json=body, headers={**user, **first})
    said = (await served.client.post("/generate", json=body, headers=user)).json()["value"]
    assert said == "None None {} /generate None"
