"""Workflows that are no agents of this package, settings of the steps, and the websocket."""

import json
import uuid
from typing import Any

import anyio
import pytest
from nat_agents import configuration, with_front_end
from nat_events import judged
from nat_scenarios import PROFILER, call, calls, text
from nat_server import Served, events_of, serve, user_says
from websockets.asyncio.client import connect

from dragent_stream.nat.imports import NAT_VERSION
from dragent_stream.testing.chunks import text_chunk
from dragent_stream.testing.model import Cut

pytestmark = pytest.mark.asyncio(loop_scope="session")


def workflow(**fields: Any) -> Any:
    return lambda url: {**configuration(url), "workflow": fields}


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("model", '{"title":"Größe","pages":[1,2]}'),
        ("models", '[{"title":"a","pages":[]}]'),
        ("mapping", '{"a":[1,null],"b":"ü"}'),
        ("list", '[1,"two"]'),
        ("number", "7"),
        ("truth", "true"),
        ("text", "as it is"),
        ("nothing", ""),
    ],
)
async def test_a_result_is_shown_as_json_and_nothing_as_nothing(what: str, shown: str, streams: bool) -> None:
    async with serve(workflow(_type="t_gives", what=what, stream=streams)) as server:
        run_input = user_says("hi")
        lines = judged(await server.run(run_input), run_input)
        times = 2 if streams else 1
        assert lines == ([f"text {shown * times}"] if shown else []) + ["finished"]


@pytest.mark.parametrize("path", ["/agui", "/chat", "/chat/stream", "/v1/chat/completions"])
async def test_a_workflow_that_takes_no_chat_says_what_it_takes(path: str) -> None:
    async with serve(workflow(_type="t_pair")) as server:
        body = user_says("hi") if path == "/agui" else {"messages": [{"role": "user", "content": "hi"}], "stream": True}
        said = (await server.client.post(path, json=body)).text
        assert "this workflow takes left, right" in said
        assert "/generate" in said
        assert (await server.client.post("/generate", json={"left": 1, "right": 2})).json() == {"value": 3}


# Steps.


def steps_and_items(body: bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The frames that are steps, and the events of the run, whatever this NAT wraps them in."""
    bare, events = [], []
    for frame in events_of(body):
        if "value" in frame:
            events += json.loads(frame["value"])["events"]
        else:
            bare.append(frame)
            events.append(frame)
    return bare, events


def run_of(events: list[dict[str, Any]]) -> list[str]:
    run_input = user_says("", threadId=events[0]["threadId"], runId=events[0]["runId"])
    return judged(events, run_input)


PATHS = ["/generate/stream", "/v1/workflow/stream"]
QUESTION = {"messages": [{"role": "user", "content": "1 and 2?"}]}


@pytest.mark.parametrize("path", PATHS)
async def test_a_failed_tools_result_is_what_the_model_is_told(served: Served, path: str) -> None:
    served.play(
        calls(call("c1", "fail", '{"reason":"rain"}'), call("c2", "add", '{"a":1,"b":2}', index=1)), text("Half.")
    )
    answer = await served.client.post(path, json=QUESTION, headers={"x-api-key": "alice"})
    _, events = steps_and_items(answer.content)
    run_of(events)
    results = {e["toolCallId"]: e["content"] for e in events if e["type"] == "TOOL_CALL_RESULT"}
    told = {m["tool_call_id"]: m["content"] for m in served.model.requests[-1].messages if m["role"] == "tool"}
    assert results == told
    assert "failed: rain" in results["c1"]


@pytest.mark.parametrize("path", PATHS)
async def test_results_of_refused_and_unknown_calls_are_exact_too(served: Served, path: str) -> None:
    served.play(
        calls(call("c1", "add", '{"a":"x"}'), call("c2", "nobody", "{}", index=1), call("c3", "now", index=2)),
        text("Done."),
    )
    answer = await served.client.post(path, json=QUESTION, headers={"x-api-key": "alice"})
    _, events = steps_and_items(answer.content)
    run_of(events)
    results = {e["toolCallId"]: e["content"] for e in events if e["type"] == "TOOL_CALL_RESULT"}
    told = {m["tool_call_id"]: m["content"] for m in served.model.requests[-1].messages if m["role"] == "tool"}
    assert results == told


async def test_steps_alone_tell_the_results_of_nats_own_agent() -> None:
    async with serve(lambda url: configuration(url, _type="tool_calling_agent")) as server:
        server.play(calls(call("c1", "add", '{"a":1,"b":2}'), call("c2", "mul", '{"a":3,"b":4}', index=1)), text("So."))
        answer = await server.client.post("/generate/stream", json=QUESTION, headers={"x-api-key": "alice"})
        bare = [json.loads(frame[6:]) for frame in answer.text.split("\n\n") if '"type":"' in frame]
        results = [event["content"] for event in bare if event.get("type") == "TOOL_CALL_RESULT"]
        assert sorted(results) == (["12", "3"] if PROFILER else []), "only the profiler tells of calls"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", ["per_user_tool_calling_agent", "dragent_tool_calling_agent"])
async def test_steps_that_are_off_are_off_and_the_run_is_whole(kind: str, path: str) -> None:
    def configure(url: str) -> dict[str, Any]:
        return with_front_end(configuration(url, _type=kind), step_adaptor={"mode": "off"})

    async with serve(configure) as server:
        server.play(calls(call("c1", "helper", '{"input_message":"hi"}')), text("So."), inner=[text("hello")])
        answer = await server.client.post(path, json=QUESTION, headers={"x-api-key": "alice"})
        _, events = steps_and_items(answer.content)
        assert not [event for event in events if event["type"].startswith(("STEP", "REASONING", "CUSTOM"))]
        assert "intermediate_data" not in answer.text
        assert run_of(events) == [
            "call c1 helper",
            'end c1 {"input_message":"hi"}',
            "result c1 hello",
            "text So.",
            "finished",
        ]


async def test_steps_that_are_off_are_off_for_nats_own_agent() -> None:
    def configure(url: str) -> dict[str, Any]:
        return with_front_end(configuration(url, _type="tool_calling_agent"), step_adaptor={"mode": "off"})

    async with serve(configure) as server:
        server.play(calls(call("c1", "add", '{"a":1,"b":2}')), text("3."))
        answer = await server.client.post("/generate/stream", json=QUESTION, headers={"x-api-key": "alice"})
        frames = [frame for frame in answer.text.split("\n\n") if frame]
        assert "3." in answer.text
        assert all('"value"' in frame or "chat.completion.chunk" in frame or "[DONE]" in frame for frame in frames)
        assert ("[DONE]" in answer.text) is (NAT_VERSION < (1, 8)), "as NAT has it"


# The websocket.


async def spoken(server: Served, schema: str) -> tuple[str, list[dict[str, Any]]]:
    """The text of the answer, and every message that is no step."""
    url = server.url.replace("http", "ws") + "/websocket"
    message = {
        "type": "user_message",
        "schema_type": schema,
        "id": str(uuid.uuid4()),
        "conversation_id": "conversation",
        "content": {"messages": [{"role": "user", "content": [{"type": "text", "text": "1 and 2?"}]}]},
    }
    got: list[dict[str, Any]] = []
    with anyio.fail_after(20):
        async with connect(url, additional_headers={"x-api-key": "alice"}) as socket:
            await socket.send(json.dumps(message))
            while not (got and got[-1].get("status") == "complete"):
                one = json.loads(await socket.recv())
                if one["type"] != "system_intermediate_message":
                    got.append(one)
    return "".join(one["content"].get("text") or "" for one in got if one["type"] == "system_response_message"), got


KINDS = ["per_user_tool_calling_agent", "dragent_tool_calling_agent"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schema", ["generate", "generate_stream", "chat", "chat_stream"])
async def test_the_websocket_gives_the_answers_text_in_every_schema(kind: str, schema: str) -> None:
    async with serve(lambda url: configuration(url, _type=kind)) as server:
        server.play(calls(call("c1", "add", '{"a":1,"b":2}')), text("It is ", "3."))
        said, messages = await spoken(server, schema)
        assert said == "It is 3."
        assert not [one for one in messages if one["type"] == "error_message"]
        pieces = [one for one in messages if one["content"].get("text")]
        assert len(pieces) > 1 if schema.endswith("stream") else len(pieces) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schema", ["generate", "generate_stream", "chat", "chat_stream"])
async def test_the_websocket_tells_a_failure_by_reference(kind: str, schema: str) -> None:
    async with serve(lambda url: configuration(url, _type=kind)) as server:
        server.play([text_chunk("Half"), Cut()])
        _, messages = await spoken(server, schema)
        errors = [one for one in messages if one["type"] == "error_message"]
        assert len(errors) == 1
        assert "The agent failed. Reference: " in errors[0]["content"]["details"]
