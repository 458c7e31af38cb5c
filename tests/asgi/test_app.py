"""The application: runs over HTTP, stopping them, limits, errors, health, and what other sites may do."""

import asyncio
import copy
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from asgi_wire import Exchange, exchange, run_input
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Mount

from dragent_stream.asgi import AgentStep, RunInputError, create_app
from dragent_stream.testing.chunks import finish_chunk, text_chunk, tool_call_chunk
from dragent_stream.testing.plugin import AssertAgui


class Agent:
    """Plays chunks, then waits or fails; remembers what it was asked and how it was closed."""

    def __init__(self, *chunks: Any, hold: bool = False, error: Exception | None = None) -> None:
        self.chunks = chunks
        self.hold = hold
        self.error = error
        self.asked: list[Any] = []
        self.closed = asyncio.Event()

    async def __call__(self, run_input: Any) -> AsyncIterator[Any]:
        self.asked.append(run_input)
        try:
            for chunk in self.chunks:
                yield chunk
            if self.hold:
                await asyncio.Event().wait()
            if self.error:
                raise self.error
        finally:
            self.closed.set()


HELLO = (text_chunk("Hel"), text_chunk("lo"), finish_chunk())
CALL = tool_call_chunk(call_id="c", name="f", arguments="{}")


async def test_a_run_streams_as_valid_agui(assert_agui: AssertAgui) -> None:
    agent = Agent(*HELLO)
    done = await exchange(create_app(agent, coalesce_ms=0), body=run_input())
    assert done.status == 200
    assert done.headers["content-type"] == "text/event-stream"
    assert done.types == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert_agui(done.events, run_input=run_input())
    assert done.events[0] == {
        "type": "RUN_STARTED",
        "threadId": "thread",
        "runId": "run",
        "protocolVersion": "1.0",
    }
    assert agent.asked[0].messages[0].content == "hello"


async def test_the_run_starts_before_the_agent_says_anything() -> None:
    agent = Agent(hold=True)
    async with Exchange(create_app(agent), body=run_input()) as going:
        await going.until(lambda body: b"RUN_STARTED" in body)
        going.disconnect()


@pytest.mark.parametrize("target", ["/agui", "/agui/"])
async def test_the_endpoint_answers_with_and_without_slash(target: str) -> None:
    assert (await exchange(create_app(Agent()), "POST", target, run_input())).status == 200


async def test_the_path_is_the_callers_choice() -> None:
    assert (await exchange(create_app(Agent(), path="run"), "POST", "/run", run_input())).status == 200


async def test_an_agent_may_be_a_coroutine_function_that_gives_a_list() -> None:
    async def agent(_: Any) -> list[Any]:
        return list(HELLO)

    done = await exchange(create_app(agent), body=run_input())
    assert "".join(event["delta"] for event in done.events if "delta" in event) == "Hello"


async def test_steps_among_the_chunks_give_results(assert_agui: AssertAgui) -> None:
    step = {"UUID": "s", "name": "f", "function_ancestry": {"function_name": "root"}}
    agent = Agent(
        CALL,
        finish_chunk("tool_calls"),
        AgentStep({**step, "event_type": "TOOL_START", "data": {"input": "{}"}}),
        AgentStep({**step, "event_type": "TOOL_END", "data": {"output": "42"}}),
        *HELLO,
    )
    done = await exchange(create_app(agent), body=run_input())
    assert_agui(done.events)
    assert [event["content"] for event in done.events if event["type"] == "TOOL_CALL_RESULT"] == ["42"]


async def test_pending_frontend_calls_are_named_for_1_0_clients_only() -> None:
    tools = [{"name": "f", "description": "d", "parameters": {}}]
    app = create_app(Agent(CALL, finish_chunk("tool_calls")))
    new = await exchange(app, body=run_input(tools=tools))
    old = await exchange(app, body=run_input(tools=tools, protocolVersion=None))
    assert new.events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c"]}
    assert old.events[-1]["outcome"] == {"type": "success"}


# Leaving and stopping.


async def test_a_leaving_client_closes_the_agent_and_leaves_no_task_and_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    agent = Agent(text_chunk("Hel"), hold=True)
    app = create_app(agent)
    before = asyncio.all_tasks()
    async with Exchange(app, body=run_input()) as going:
        await going.until(lambda body: b"Hel" in body)
        assert len(app.state.runs) == 1
        going.disconnect()
        with anyio.fail_after(1):
            await agent.closed.wait()
    assert len(app.state.runs) == 0
    assert asyncio.all_tasks() == before
    assert caplog.records == []


@pytest.mark.parametrize(
    ("version", "ending"),
    [
        ("1.0", {"type": "RUN_FINISHED", "threadId": "thread", "runId": "run", "outcome": {"type": "cancelled"}}),
        (None, {"type": "RUN_ERROR", "message": "the run was stopped", "code": "abort"}),
    ],
)
async def test_stop_ends_the_run_in_order(version: str | None, ending: Any, assert_agui: AssertAgui) -> None:
    agent = Agent(text_chunk("Hel"), hold=True)
    app = create_app(agent)
    async with Exchange(app, body=run_input(protocolVersion=version)) as going:
        await going.until(lambda body: b"Hel" in body)
        stopped = await exchange(app, "POST", "/agui/run/stop")
    assert stopped.status == 202
    assert stopped.json == {"threadId": "thread", "runId": "run", "stopping": True}
    assert agent.closed.is_set()
    assert going.complete
    assert going.types[-2] == "TEXT_MESSAGE_END"
    assert going.events[-1] == ending
    assert_agui(going.events)


async def test_stop_of_a_run_that_has_said_nothing_is_still_a_whole_run(assert_agui: AssertAgui) -> None:
    app = create_app(Agent(hold=True))
    async with Exchange(app, body=run_input()) as going:
        await going.until(lambda body: b"RUN_STARTED" in body)
        await exchange(app, "POST", "/agui/run/stop/")
    assert going.types == ["RUN_STARTED", "RUN_FINISHED"]
    assert_agui(going.events)


async def test_stop_inside_arguments_does_not_claim_that_the_call_is_complete(assert_agui: AssertAgui) -> None:
    app = create_app(Agent(tool_call_chunk(call_id="c", name="f", arguments='{"a": '), hold=True))
    async with Exchange(app, body=run_input()) as going:
        await going.until(lambda body: b"TOOL_CALL_ARGS" in body)
        await exchange(app, "POST", "/agui/run/stop")
    assert "TOOL_CALL_END" not in going.types
    assert going.events[-1]["code"] == "abort"
    assert_agui(going.events)


@pytest.mark.parametrize("run_id", ["a/b", "/a/", "a%2Fb", "a b", "x/stop", "..", "ü?#&", "a\nb/c", "stop"])
@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_run_is_stopped_whatever_its_id_holds(run_id: str, slash: str) -> None:
    app = create_app(Agent(hold=True))
    async with Exchange(app, body=run_input(runId=run_id)) as going:
        await going.until(lambda body: b"RUN_STARTED" in body)
        stopped = await exchange(app, "POST", f"/agui/{quote(run_id, safe='')}/stop{slash}")
        assert (stopped.status, stopped.json["runId"]) == (202, run_id)
    assert going.types[-1] == "RUN_FINISHED"


async def test_stopping_an_unknown_run_is_404() -> None:
    done = await exchange(create_app(Agent()), "POST", "/agui/nope/stop")
    assert done.status == 404
    assert done.json == {
        "error": {"code": "run_not_found", "message": "no run 'nope' is being streamed", "field": "runId"}
    }


async def test_a_run_id_on_two_threads_needs_the_thread_to_be_stopped() -> None:
    app = create_app(Agent(hold=True))
    async with Exchange(app, body=run_input()) as one, Exchange(app, body=run_input(threadId="t2")) as two:
        await one.until(lambda body: b"RUN_STARTED" in body)
        await two.until(lambda body: b"RUN_STARTED" in body)
        assert (await exchange(app, "POST", "/agui/run/stop")).status == 409
        assert (await exchange(app, "POST", "/agui/run/stop?threadId=t2")).status == 202
        one.disconnect()
    assert two.complete
    assert not one.complete


async def test_the_same_run_twice_at_once_is_409() -> None:
    app = create_app(Agent(hold=True))
    async with Exchange(app, body=run_input()) as going:
        await going.until(lambda body: b"RUN_STARTED" in body)
        again = await exchange(app, body=run_input())
        going.disconnect()
    assert again.status == 409
    assert again.json["error"]["code"] == "run_active"


# Refusing.


@pytest.mark.parametrize(
    ("more", "status", "field"),
    [
        ({"body": b"{"}, 400, None),
        ({"body": {"runId": "r", "messages": []}}, 422, "threadId"),
        ({"body": run_input(messages=[{"role": "user", "content": "x"}])}, 422, "messages[0].id"),
        ({"body": run_input(), "headers": {"content-type": "text/plain"}}, 415, "content-type"),
        ({"body": run_input(), "headers": {"content-type": ""}}, 415, "content-type"),
        ({"body": run_input(), "headers": {"accept": "application/json"}}, 406, "accept"),
        ({"method": "GET"}, 405, None),
        ({"target": "/nowhere"}, 404, None),
    ],
)
async def test_a_bad_request_is_4xx_json_and_never_reaches_the_agent(
    more: dict[str, Any], status: int, field: str | None
) -> None:
    agent = Agent()
    done = await exchange(create_app(agent), **more)
    assert done.status == status
    assert done.headers["content-type"] == "application/json"
    assert done.json["error"]["message"]
    assert done.json["error"].get("field") == field
    assert agent.asked == []


WHOLE = run_input(
    messages=[
        {"id": "1", "role": "user", "content": "hi", "toolCalls": [], "metadata": {"a": [1]}},
        {"id": "2", "role": "user", "content": [{"type": "text", "text": "x"}]},
        {"id": "3", "role": "assistant", "content": "a", "toolCalls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ]},
        {"id": "4", "role": "tool", "toolCallId": "c", "content": "42"},
        {"id": "5", "role": "reasoning", "content": "hm"},
        {"id": "6", "role": "activity", "activityType": "x", "content": {}},
    ],
    tools=[{"name": "f", "description": "d", "parameters": {"type": "object"}}],
    context=[{"description": "d", "value": "v"}],
    parentRunId="before",
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a JSON tree."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield (*path, key)
        yield from places(item, (*path, key))


JSON = st.recursive(
    st.sampled_from([None, True, 0, -1, 10**30, 1.5, "", "x", "\ud800", "user", "tool"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["id", "role", "a"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(
    st.lists(st.tuples(st.sampled_from(list(places(WHOLE))), JSON), min_size=1, max_size=3),
    st.sampled_from([None, 30, 600]),
)
@settings(deadline=None, max_examples=300)
def test_whatever_a_field_holds_the_request_is_served_or_refused_in_json_with_its_field(
    changes: list[tuple[tuple[Any, ...], Any]], depth: int | None
) -> None:
    body = copy.deepcopy(WHOLE)
    for path, value in changes:
        holder: Any = body
        try:
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = value
        except (TypeError, KeyError, IndexError):  # a change before has taken this place away
            continue
    sent = json.dumps(body)
    if depth:
        sent = sent.replace('"x"', "[" * depth + "]" * depth)
    done = asyncio.run(exchange(create_app(Agent(*HELLO)), body=sent.encode()))
    assert done.status in (200, 400, 422)
    if done.status == 200:
        assert done.types[-1] == "RUN_FINISHED"
    elif done.status == 422:
        assert done.json["error"]["field"]
        assert "tagged-union" not in done.json["error"]["field"]


async def test_a_request_that_names_half_a_character_is_answered() -> None:
    app = create_app(Agent(hold=True))
    async with Exchange(app, body=run_input(threadId="\ud800", runId="r")) as going:
        await going.until(lambda body: b"RUN_STARTED" in body)
        stopped = await exchange(app, "POST", "/agui/r/stop")
    assert stopped.json["threadId"] == "\ud800"
    assert going.types == ["RUN_STARTED", "RUN_FINISHED"]


async def test_a_failure_of_the_application_itself_is_json_too() -> None:
    def identify(request: Request) -> str:
        raise LookupError("the user table")

    going = Exchange(create_app(Agent(), identify=identify), body=run_input())
    with pytest.raises(LookupError):
        async with going:
            pass
    assert going.status == 500
    assert going.json == {"error": {"code": "internal_error", "message": "the server failed; its log has the rest"}}


@pytest.mark.parametrize("accept", ["text/event-stream", "*/*", "application/json, text/event-stream", "text/*"])
async def test_clients_that_take_event_streams_are_served(accept: str) -> None:
    assert (await exchange(create_app(Agent()), body=run_input(), headers={"accept": accept})).status == 200


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_above_the_limit_is_413(declared: bool) -> None:
    agent = Agent()
    headers = {"content-length": "200"} if declared else {}
    done = await exchange(create_app(agent, max_body_bytes=100), body=b" " * 200, headers=headers)
    assert done.status == 413
    assert done.json["error"]["message"] == "the body is larger than 100 bytes"
    assert agent.asked == []


async def test_one_run_above_the_limit_is_503_and_may_be_tried_again() -> None:
    app = create_app(Agent(hold=True), max_runs=1)
    async with Exchange(app, body=run_input()) as going:
        await going.until(lambda body: b"RUN_STARTED" in body)
        refused = await exchange(app, body=run_input(runId="other"))
        going.disconnect()
    assert refused.status == 503
    assert refused.headers["retry-after"] == "1"
    assert (await exchange(create_app(Agent(), max_runs=1), body=run_input(runId="other"))).status == 200


async def test_a_client_that_leaves_while_it_sends_is_no_error() -> None:
    agent = Agent()
    going = Exchange(create_app(agent))
    going._body = []
    going.disconnect()
    async with going:
        pass
    assert going.sent == []
    assert agent.asked == []


async def test_an_agent_may_refuse_an_input_before_the_stream() -> None:
    def agent(_: Any) -> AsyncIterator[Any]:
        raise RunInputError("must not be empty", field="messages")

    done = await exchange(create_app(agent), body=run_input())
    assert done.status == 422
    assert done.json["error"]["field"] == "messages"


# Errors of the agent.


def broken(_: Any) -> AsyncIterator[Any]:
    raise ValueError("the secret")


@pytest.mark.parametrize("agent", [broken, Agent(text_chunk("Hel"), error=ValueError("the secret"))])
async def test_clients_get_a_reference_and_the_log_has_the_rest(
    agent: Any, caplog: pytest.LogCaptureFixture, assert_agui: AssertAgui
) -> None:
    done = await exchange(create_app(agent), body=run_input())
    assert done.status == 200
    assert_agui(done.events)
    assert b"secret" not in done.body
    assert done.events[-1]["code"] == "STREAM_ERROR"
    reference = re.fullmatch(r"The agent failed\. Reference: (\w{8})", done.events[-1]["message"])
    assert reference
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.getMessage() == f"run 'run' of thread 'thread' failed (reference {reference[1]})"
    assert record.exc_info and str(record.exc_info[1]) == "the secret"


async def test_an_error_inside_the_stream_is_not_shown_either(caplog: pytest.LogCaptureFixture) -> None:
    done = await exchange(create_app(Agent({"error": {"message": "the secret"}})), body=run_input())
    assert done.types == ["RUN_STARTED", "RUN_ERROR"]
    assert b"secret" not in done.body
    assert "the secret" in caplog.text


async def test_error_texts_are_shown_where_that_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    done = await exchange(create_app(broken, expose_errors=True), body=run_input())
    assert done.events[-1] == {"type": "RUN_ERROR", "message": "the secret", "code": "STREAM_ERROR"}


# Who may.


async def test_a_run_belongs_to_its_user() -> None:
    def identify(request: Request) -> str:
        if "x-user" not in request.headers:
            raise HTTPException(401, "who are you?")
        return request.headers["x-user"]

    app = create_app(Agent(hold=True), identify=identify)
    assert (await exchange(app, body=run_input())).status == 401
    async with Exchange(app, body=run_input(), headers={"x-user": "ann"}) as going:
        await going.until(lambda body: b"RUN_STARTED" in body)
        assert (await exchange(app, "POST", "/agui/run/stop")).status == 401
        assert (await exchange(app, "POST", "/agui/run/stop", headers={"x-user": "bob"})).status == 404
        assert (await exchange(app, "POST", "/agui/run/stop", headers={"x-user": "ann"})).status == 202
    assert going.complete


async def test_identify_may_be_a_coroutine_function() -> None:
    async def identify(request: Request) -> str | None:
        return "ann"

    assert (await exchange(create_app(Agent(), identify=identify), body=run_input())).status == 200


PREFLIGHT = {
    "origin": "http://site",
    "access-control-request-method": "POST",
    "access-control-request-headers": "content-type",
}


async def test_other_sites_may_do_nothing_unless_named() -> None:
    closed = create_app(Agent())
    assert (await exchange(closed, "OPTIONS", "/agui", headers=PREFLIGHT)).status == 405
    done = await exchange(closed, body=run_input(), headers={"origin": "http://site"})
    assert "access-control-allow-origin" not in done.headers
    opened = create_app(Agent(), allow_origins=["http://site"])
    assert (await exchange(opened, "OPTIONS", "/agui", headers=PREFLIGHT)).status == 200
    done = await exchange(opened, body=run_input(), headers={"origin": "http://site"})
    assert done.headers["access-control-allow-origin"] == "http://site"
    other = await exchange(opened, body=run_input(runId="2"), headers={"origin": "http://else"})
    assert "access-control-allow-origin" not in other.headers


# Life of the server.


@pytest.mark.parametrize("target", ["/health", "/health/", "/ping", "/ping/"])
async def test_health_says_how_many_runs_there_are(target: str) -> None:
    app = create_app(Agent(hold=True))
    async with Exchange(app, body=run_input()) as going:
        await going.until(lambda body: b"RUN_STARTED" in body)
        assert (await exchange(app, "GET", target)).json == {"status": "ok", "activeRuns": 1}
        going.disconnect()


async def test_the_end_of_the_lifespan_ends_open_runs_in_order(assert_agui: AssertAgui) -> None:
    app = create_app(Agent(text_chunk("Hel"), hold=True), shutdown_grace=0.01)
    messages: asyncio.Queue[Any] = asyncio.Queue()
    said: asyncio.Queue[Any] = asyncio.Queue()
    life = asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}}, messages.get, said.put))
    await messages.put({"type": "lifespan.startup"})
    async with Exchange(app, body=run_input()) as going:
        await going.until(lambda body: b"Hel" in body)
        await messages.put({"type": "lifespan.shutdown"})
    await life
    assert going.complete
    assert going.events[-1]["outcome"] == {"type": "cancelled"}
    assert_agui(going.events)
    assert (await exchange(app, body=run_input())).status == 503
    assert (await exchange(app, "GET", "/health")).status == 503


async def test_the_app_can_be_mounted_in_another() -> None:
    outer = Starlette(routes=[Mount("/agent", create_app(Agent(*HELLO), page=True))])
    assert (await exchange(outer, "POST", "/agent/agui", run_input())).types[-1] == "RUN_FINISHED"
    assert (await exchange(outer, "GET", "/agent/", headers={"accept": "text/html"})).status == 200


@pytest.mark.parametrize(("ms", "deltas"), [(1000, ["a", "bcdef"]), (0, list("abcdef"))])
async def test_deltas_that_follow_fast_are_merged_unless_that_is_switched_off(ms: float, deltas: list[str]) -> None:
    app = create_app(Agent(*[text_chunk(word) for word in "abcdef"], finish_chunk()), coalesce_ms=ms)
    done = await exchange(app, body=run_input())
    assert [event["delta"] for event in done.events if "delta" in event] == deltas


async def test_the_inspector_is_mounted_where_that_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(Agent(), inspector=True)
    assert (await exchange(app, "GET", "/agui-inspector/")).status == 200
    config = await exchange(app, "GET", "/agui-inspector/config.json")
    assert config.json["agents"] == [{"id": "agent", "url": "/agui", "name": "dragent_stream"}]
    assert (await exchange(create_app(Agent()), "GET", "/agui-inspector/")).status == 404
