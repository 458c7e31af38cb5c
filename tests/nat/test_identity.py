"""Who a request comes from: the signed authorization context first, and never somebody else."""

import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from nat.runtime.user_manager import UserManager
from nat_agents import configuration
from nat_events import judged
from nat_scenarios import text
from nat_server import Served, serve, user_says
from starlette.requests import Request

from dragent_stream.nat import identity

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEY = "a key for the tests, long enough"
HEADER = identity.AUTHORIZATION_CONTEXT


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(identity.DEFAULT_KEY_VARIABLE, KEY)
    yield


def token(claims: dict[str, Any] | None = None, key: str = KEY) -> str:
    return jwt.encode({"user": {"id": "u-1"}} if claims is None else claims, key, algorithm="HS256")


UNSIGNED = jwt.encode({"user": {"id": "u-1"}}, None, algorithm="none")


def request(**headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": raw})


def nat_user(**headers: str) -> str | None:
    user = UserManager.extract_user_from_connection(request(**headers))
    return None if user is None else user.get_user_id()


async def test_a_signed_context_is_an_identity_on_our_route(served: Served) -> None:
    served.play(text("Hello"))
    run_input = user_says("hi")
    response = await served.client.post("/agui", json=run_input, headers={HEADER: token()})
    assert response.status_code == 200


@pytest.mark.parametrize(
    "bad",
    [
        token(key="another key, which is long enough"),
        UNSIGNED,
        token({"user": {"id": "u-1"}, "exp": time.time() - 60}),
        token({}),
        token({"user": {"id": ""}}),
        token({"user": "u-1"}),
        "not a token",
        "",
    ],
    ids=["another_key", "unsigned", "expired", "nobody", "empty", "no_object", "no_token", "blank"],
)
async def test_a_context_that_is_not_valid_gets_401_whatever_else_is_sent(served: Served, bad: str) -> None:
    served.play(text("Hello"))
    headers = {HEADER: bad, "x-api-key": "alice", "authorization": "Bearer alice", "cookie": "nat-session=alice"}
    response = await served.client.post("/agui", json=user_says("hi"), headers=headers)
    assert response.status_code == 401
    assert "authorization-context" in response.json()["error"]
    assert served.model.requests == []


async def test_without_a_key_no_context_is_believed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(identity.DEFAULT_KEY_VARIABLE)
    response = await served.client.post("/agui", json=user_says("hi"), headers={HEADER: token()})
    assert response.status_code == 401
    assert identity.DEFAULT_KEY_VARIABLE in response.json()["error"]


async def test_a_per_user_agent_asks_for_an_identity(served: Served) -> None:
    response = await served.client.post("/agui", json=user_says("hi"))
    assert response.status_code == 401
    assert "X-API-Key" in response.json()["error"]


async def test_a_shared_agent_needs_no_identity() -> None:
    async with serve(lambda url: configuration(url, _type="dragent_tool_calling_agent")) as server:
        server.play(text("Hello"))
        run_input = user_says("hi")
        response = await server.client.post("/agui", json=run_input)
        assert response.status_code == 200
        bad = await server.client.post("/agui", json=run_input, headers={HEADER: UNSIGNED})
        assert bad.status_code == 401


async def test_nats_routes_see_the_same_user_as_ours(served: Served) -> None:
    served.play(text("Hello"))
    body = {"messages": [{"role": "user", "content": "hi"}]}
    response = await served.client.post("/generate", json=body, headers={HEADER: token()})
    assert response.status_code == 200


async def test_users_differ_by_their_id_and_nothing_else_gives_it() -> None:
    alice = nat_user(**{HEADER: token({"user": {"id": "alice"}})})
    assert alice == nat_user(**{HEADER: token({"sub": "alice", "exp": time.time() + 60})})
    others = {
        nat_user(**{HEADER: token({"user": {"id": "bob"}})}),
        nat_user(cookie="nat-session=alice"),
        nat_user(x_api_key="alice"),
    }
    assert None not in others
    assert alice not in others


async def test_an_invalid_context_is_no_identity_for_nat() -> None:
    assert nat_user(**{HEADER: UNSIGNED, "x_api_key": "alice"}) is None


async def test_without_the_header_nat_decides() -> None:
    assert nat_user(x_api_key="alice") is not None
    assert nat_user() is None


async def test_a_second_patch_changes_nothing() -> None:
    before = UserManager.__dict__["extract_user_from_connection"]
    identity.patch()
    assert UserManager.__dict__["extract_user_from_connection"] is before


async def test_the_token_is_in_no_error() -> None:
    with pytest.raises(identity.IdentityError) as caught:
        identity.context_user(UNSIGNED)
    assert UNSIGNED not in str(caught.value)


async def test_the_runs_of_two_signed_users_do_not_mix(served: Served) -> None:
    for name in ("alice", "bob"):
        served.play(text(f"Hello {name}"))
        run_input = user_says(f"I am {name}")
        headers = {HEADER: token({"user": {"id": name}})}
        events = await served.run(run_input, **headers)
        assert judged(events, run_input) == [f"text Hello {name}", "finished"]
