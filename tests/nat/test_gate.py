"""Who may come in, how much they may bring, and how many at once."""

import asyncio
import gc
import json
import time
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import jwt
import pytest
from nat.data_models.config import Config
from nat.utils.data_models.schema_validator import validate_schema
from nat_agents import configuration, with_front_end
from nat_events import judged
from nat_scenarios import text
from nat_server import Served, events_of, serve, user_says
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from dragent_stream.nat import identity
from dragent_stream.nat.frontend import FrontEndError, check_auth
from dragent_stream.testing.chunks import text_chunk
from dragent_stream.testing.model import Hold, ModelRequest, Turn

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEY = "a key for the tests, long enough"
HEADER = identity.AUTHORIZATION_CONTEXT
SHARED = "dragent_tool_calling_agent"
ROUTES = [
    "/agui",
    "/agui/",
    "/generate",
    "/generate/stream",
    "/generate/full",
    "/v1/workflow",
    "/v1/workflow/stream",
    "/chat",
    "/chat/stream",
    "/v1/chat",
    "/v1/chat/stream",
    "/v1/chat/completions",
]
QUESTION = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(identity.DEFAULT_KEY_VARIABLE, KEY)
    yield


def token(key: str = KEY, **claims: Any) -> str:
    return jwt.encode({"user": {"id": "u-1"}, **claims}, key, algorithm="HS256")


FORGED = token("another key, which is long enough")


async def post(server: Served, path: str, **headers: str) -> int:
    body = user_says("hi") if path.startswith("/agui") else QUESTION
    return (await server.client.post(path, json=body, headers=headers)).status_code


# Identity.


@pytest.mark.parametrize("kind", ["per_user_tool_calling_agent", SHARED])
async def test_a_forged_context_is_401_on_every_route(kind: str) -> None:
    async with serve(lambda url: configuration(url, _type=kind)) as server:
        for path in ROUTES:
            assert await post(server, path, **{HEADER: FORGED, "x-api-key": "alice"}) == 401, path
        for path in ("/openapi.json", "/docs", "/executions/x", "/nowhere"):
            assert (await server.client.get(path, headers={HEADER: FORGED})).status_code == 401, path
        assert server.model.requests == []


@pytest.mark.parametrize("kind", ["per_user_tool_calling_agent", SHARED])
async def test_where_a_context_is_required_nobody_else_comes_in(kind: str) -> None:
    async with serve(lambda url: with_front_end(configuration(url, _type=kind), auth_required=True)) as server:
        for path in ROUTES:
            assert await post(server, path, **{"x-api-key": "alice"}) == 401, path
            server.play(text("Hello"))
            assert await post(server, path, **{HEADER: token()}) == 200, path
        for path in ("/openapi.json", "/docs", "/nowhere"):
            assert (await server.client.get(path)).status_code == 401, path
        assert (await server.client.get("/health")).status_code == 200
        assert (await server.client.options("/agui")).status_code == 405


async def test_a_per_user_workflow_is_401_to_nobody_on_every_route(served: Served) -> None:
    for path in ROUTES:
        assert await post(served, path) == 401, path
        assert await post(served, path, authorization="Bearer a.b.c") == 401, path


@pytest.mark.parametrize(
    "claims", [{"user": {"id": "\ud800"}}, {"user": {"id": "a\udfffb"}}, {"user": 1, "sub": "\ud83d"}]
)
async def test_a_user_id_that_is_no_unicode_is_401(served: Served, claims: dict[str, Any]) -> None:
    for path in ROUTES:
        assert await post(served, path, **{HEADER: token(**claims)}) == 401, path


async def test_a_context_of_another_audience_or_without_an_end_is_refused_where_that_is_asked_for() -> None:
    def configure(url: str) -> dict[str, Any]:
        return with_front_end(configuration(url), auth_audience="agent", auth_require_expiry=True)

    soon = time.time() + 60
    async with serve(configure) as server:
        for claims in ({}, {"exp": soon}, {"aud": "agent"}, {"aud": "other", "exp": soon}):
            assert await post(server, "/agui", **{HEADER: token(**claims)}) == 401, claims
        server.play(text("Hello"))
        assert await post(server, "/agui", **{HEADER: token(aud=["x", "agent"], exp=soon)}) == 200


async def test_a_context_of_any_audience_without_an_end_is_accepted_where_nothing_is_said() -> None:
    async with serve(configuration) as server:
        server.play(text("Hello"))
        assert await post(server, "/agui", **{HEADER: token(aud="whoever")}) == 200


async def test_a_websocket_needs_a_valid_context_too() -> None:
    def configure(url: str) -> dict[str, Any]:
        return with_front_end(configuration(url, _type=SHARED), auth_required=True)

    async with serve(configure) as server:
        url = server.url.replace("http", "ws") + "/websocket"
        for headers in ({}, {HEADER: FORGED}):
            with pytest.raises(InvalidStatus) as caught:
                await connect(url, additional_headers=headers)
            assert caught.value.response.status_code == 401
        async with connect(url, additional_headers={HEADER: token()}):
            pass


async def test_the_server_does_not_start_without_the_key_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(identity.DEFAULT_KEY_VARIABLE)
    config = validate_schema(with_front_end(configuration("http://127.0.0.1:9/v1"), auth_required=True), Config)
    with pytest.raises(FrontEndError, match=f"set it in {identity.DEFAULT_KEY_VARIABLE}"):
        check_auth(config.general.front_end)  # type: ignore[arg-type]


async def test_of_more_users_than_are_kept_the_idle_one_goes() -> None:
    async with serve(lambda url: with_front_end(configuration(url), max_users=2)) as server:
        turns = {name: asyncio.Event() for name in ("alice", "bob")}

        async def choose(request: ModelRequest) -> Turn:
            name = next((name for name in turns if name in str(request.messages)), "")
            return [text_chunk(f"Hello {name}"), Hold(turns[name])] if name in turns else text("Hello")

        server.play()
        server.script.chooser = choose
        waiting = [asyncio.create_task(server.raw_run(user_says(name), **{"x-api-key": name})) for name in turns]
        with anyio.fail_after(20):
            while len(server.model.requests) < 2:
                await server.model.arrivals.get()
            refused = await server.raw_run(user_says("carol"), **{"x-api-key": "carol"})
            assert "limit of 2 users" in events_of(refused.content)[-1]["message"]
            for event in turns.values():
                event.set()
            await asyncio.gather(*waiting)
            run_input = user_says("carol")
            assert judged(await server.run(run_input, **{"x-api-key": "carol"}), run_input)[-1] == "finished"


async def test_all_users_share_the_http_client_of_a_model() -> None:
    def clients() -> int:
        gc.collect()
        return sum(isinstance(thing, httpx.AsyncClient) for thing in gc.get_objects())

    async with serve(lambda url: with_front_end(configuration(url), max_users=3)) as server:
        server.play(*(text("Hello") for _ in range(7)))
        await server.raw_run(user_says("hi"), **{"x-api-key": "user 0"})
        before = clients()
        for number in range(1, 7):
            run_input = user_says("hi")
            events = await server.run(run_input, **{"x-api-key": f"user {number}"})
            assert judged(events, run_input) == ["text Hello", "finished"]
        assert clients() == before


# Bodies.


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_above_the_limit_is_413(path: str, declared: bool) -> None:
    async with serve(lambda url: with_front_end(configuration(url), max_body_bytes=10_000)) as server:
        body = json.dumps({"messages": [{"role": "user", "content": "x" * 20_000}]}).encode()

        async def parts() -> Any:
            for start in range(0, len(body), 1000):
                yield body[start : start + 1000]

        headers = {"x-api-key": "alice", "content-type": "application/json"}
        answer = await server.client.post(path, content=body if declared else parts(), headers=headers)
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "too_large"
        assert "10000 bytes" in answer.json()["error"]["message"]


# Concurrency.


@pytest.mark.parametrize("kind", ["per_user_tool_calling_agent", SHARED])
async def test_fifty_runs_go_on_at_once(kind: str) -> None:
    all_here = asyncio.Event()

    async def choose(request: ModelRequest) -> Turn:
        if len(server.model.requests) == 50:
            all_here.set()
        await all_here.wait()
        return text("Hello")

    async with serve(lambda url: configuration(url, _type=kind)) as server:
        server.play()
        server.script.chooser = choose
        with anyio.fail_after(60):
            answers = await asyncio.gather(*(server.raw_run() for _ in range(50)))
        assert all(events_of(answer.content)[-1]["type"] == "RUN_FINISHED" for answer in answers)


@pytest.mark.parametrize("kind", ["per_user_tool_calling_agent", SHARED])
async def test_beyond_the_limit_a_run_is_503_on_every_route_and_a_place_comes_free(kind: str) -> None:
    go_on = asyncio.Event()

    async with serve(lambda url: with_front_end(configuration(url, _type=kind), max_concurrent_runs=2)) as server:
        server.play([text_chunk("Hel"), Hold(go_on), *text("lo")], [text_chunk("Hel"), Hold(go_on), *text("lo")])
        running = [asyncio.create_task(server.raw_run()) for _ in range(2)]
        with anyio.fail_after(20):
            for _ in range(2):
                await server.model.arrivals.get()
            for path in ROUTES:
                body = user_says("hi") if path.startswith("/agui") else QUESTION
                answer = await server.client.post(path, json=body, headers={"x-api-key": "alice"})
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), path
                assert answer.json()["error"]["code"] == "too_many_runs"
            assert (await server.client.get("/health")).status_code == 200
            go_on.set()
            await asyncio.gather(*running)
            server.play(text("Hello"))
            run_input = user_says("hi")
            assert judged(await server.run(run_input), run_input) == ["text Hello", "finished"]


async def test_a_client_that_leaves_gives_its_place_back() -> None:
    async with serve(lambda url: with_front_end(configuration(url), max_concurrent_runs=1)) as server:
        server.play([text_chunk("Once"), Hold()])
        headers = {"x-api-key": "alice"}
        async with server.client.stream("POST", "/agui", json=user_says("hi"), headers=headers) as response:
            async for line in response.aiter_lines():
                if "Once" in line:
                    break
        with anyio.fail_after(5):
            await server.model.requests[0].disconnected.wait()
            server.play(text("Hello"))
            while (await server.raw_run()).status_code == 503:
                await asyncio.sleep(0)


async def test_a_run_that_waits_for_its_users_agent_says_that_it_has_started(served: Served) -> None:
    served.play([Hold()])
    async with served.client.stream(
        "POST", "/agui", json=user_says("hi"), headers={"x-api-key": "somebody new"}
    ) as response:
        with anyio.fail_after(10):
            async for line in response.aiter_lines():
                assert "RUN_STARTED" in line
                break


async def test_the_route_is_in_the_openapi_page(served: Served) -> None:
    page = (await served.client.get("/openapi.json")).json()
    operation = page["paths"]["/agui"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert {"threadId", "runId", "messages"} <= schema["properties"].keys()
    assert "text/event-stream" in operation["responses"]["200"]["content"]

    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for name, item in value.items():
                if name == "$ref":
                    yield item
                yield from references(item)
        elif isinstance(value, list):
            for item in value:
                yield from references(item)

    for reference in references(schema):
        found: Any = page
        for part in reference.removeprefix("#/").split("/"):
            found = found[part.replace("~1", "/").replace("~0", "~")]
    assert "/agui/" not in page["paths"]
