"""NAT's own routes with the agents of this package."""

import json
from importlib import metadata
from typing import Any

import httpx
import pytest
from ag_ui.core import BaseEvent
from nat_agents import configuration
from nat_events import judged
from nat_scenarios import call, calls, text
from nat_server import Served, events_of, serve, user_says

from dragent_stream.ledger import RunLedger
from dragent_stream.nat.workflow import run_ledger
from dragent_stream.testing.chunks import text_chunk
from dragent_stream.testing.model import Cut

pytestmark = pytest.mark.asyncio(loop_scope="session")

NAT = tuple(int(part) for part in metadata.version("nvidia-nat-core").split(".")[:2])
QUESTION = {"messages": [{"role": "user", "content": "1 and 2?"}]}
SUM = call("c1", "add", '{"a":1,', '"b":2}')


async def ask(served: Served, path: str, **more: Any) -> httpx.Response:
    return await served.client.post(path, json={**QUESTION, **more}, headers={"x-api-key": "alice"})


def data_of(body: str) -> list[str]:
    return [frame.removeprefix("data: ") for frame in body.split("\n\n") if frame.startswith("data: ")]


async def test_a_chat_completion_answers_with_the_text(served: Served) -> None:
    served.play(calls(SUM), text("It is ", "3."))
    answer = (await ask(served, "/v1/chat/completions")).json()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["content"] == "It is 3."


async def test_a_streamed_chat_completion_holds_chunks_and_nothing_else(served: Served) -> None:
    served.play(calls(SUM), text("It is ", "3."))
    response = await ask(served, "/v1/chat/completions", stream=True)
    assert [line for line in response.text.split("\n") if line and not line.startswith("data: ")] == []
    *frames, done = data_of(response.text)
    assert done == "[DONE]"
    chunks = [json.loads(frame) for frame in frames]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content") or "" for delta in deltas) == "It is 3."
    parts = [part for delta in deltas for part in delta.get("tool_calls") or []]
    assert "".join(part["function"]["arguments"] for part in parts) == '{"a":1,"b":2}'
    assert [part["function"]["name"] for part in parts if part["function"].get("name")] == ["add"]
    assert "TEXT_MESSAGE" not in response.text


async def test_the_legacy_chat_stream_holds_chunks_too(served: Served) -> None:
    served.play(text("Hel", "lo"))
    response = await ask(served, "/chat/stream")
    *frames, done = data_of(response.text)
    assert done == "[DONE]"
    contents = [json.loads(frame)["choices"][0]["delta"].get("content") or "" for frame in frames]
    assert "".join(contents) == "Hello"


async def test_a_failure_in_a_streamed_chat_completion_is_not_a_success(served: Served) -> None:
    served.play([text_chunk("Half"), Cut()])
    response = await ask(served, "/v1/chat/completions", stream=True)
    assert "[DONE]" not in response.text
    assert "workflow_error" in response.text


async def test_generate_gives_the_text(served: Served) -> None:
    served.play(calls(SUM), text("It is 3."))
    response = await ask(served, "/generate")
    assert response.json() == {"value": "It is 3."}


async def test_the_shared_agent_answers_on_nats_routes_as_well() -> None:
    async with serve(lambda url: configuration(url, _type="dragent_tool_calling_agent")) as server:
        server.play(text("One."), text("Two."), text("Three."))
        assert (await ask(server, "/generate")).json() == {"value": "One."}
        whole = (await ask(server, "/v1/chat/completions")).json()
        assert whole["choices"][0]["message"]["content"] == "Two."
        streamed = await ask(server, "/v1/chat/completions", stream=True)
        assert '"content":"Three."' in streamed.text
        assert "TEXT_MESSAGE" not in streamed.text


async def test_generate_stream_is_one_agui_run(served: Served) -> None:
    served.play(calls(SUM), text("It is ", "3."))
    response = await ask(served, "/generate/stream")
    if NAT < (1, 8):
        events = events_of(response.content)
    else:
        # Since 1.8 the workflow's items are wrapped; the steps are not.
        events = []
        for frame in data_of(response.text):
            item = json.loads(frame)
            events += json.loads(item["value"])["events"] if "value" in item else [item]
    run_input = user_says("", threadId=events[0]["threadId"], runId=events[0]["runId"])
    assert judged(events, run_input) == [
        "call c1 add",
        'end c1 {"a":1,"b":2}',
        "result c1 3",
        "text It is 3.",
        "finished",
    ]


async def test_a_nested_agents_result_is_its_text(served: Served) -> None:
    served.play(calls(call("c1", "helper", '{"input_message":"hi"}')), text("So."), inner=[text("he", "llo")])
    await ask(served, "/generate")
    root = [request for request in served.model.requests if request.body["model"] == "root-model"]
    assert root[-1].messages[-1] | {"content": "hello", "role": "tool"} == root[-1].messages[-1]


@pytest.mark.parametrize("path", ["/", "/ping", "/ping/", "/health", "/health/"])
async def test_a_health_route_answers(served: Served, path: str) -> None:
    response = await served.client.get(path)
    assert (response.status_code, response.json()) == (200, {"status": "healthy"})


async def test_nats_fastapi_front_end_serves_the_worker_too() -> None:
    def configure(url: str) -> dict[str, Any]:
        front_end = {"_type": "fastapi", "runner_class": "dragent_stream.nat.worker.DragentStreamWorker"}
        return {**configuration(url), "general": {"front_end": front_end}}

    async with serve(configure) as server:
        server.play(text("Hello"))
        run_input = user_says("hi")
        assert judged(await server.run(run_input), run_input) == ["text Hello", "finished"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "no JSON"),
        (b"[]", "no object"),
        (b"{}", "messages"),
        (b'{"messages":[]}', "at least one message"),
        (b'{"messages":[{"role":"robot","content":"x"}]}', "messages[0].role"),
        (b'{"messages":[{"role":"user","content":null}]}', "messages[0].content"),
        (b'{"messages":[{"role":"user","content":"x"}],"tools":[{}]}', "tools[0]"),
    ],
)
async def test_what_is_no_run_input_is_refused_before_the_stream(served: Served, body: bytes, says: str) -> None:
    response = await served.client.post("/agui", content=body, headers={"x-api-key": "alice"})
    assert response.status_code == 400
    assert says in response.json()["error"]


@pytest.mark.parametrize("finished", [True, False])
async def test_the_ledger_of_another_run_in_the_context_swallows_nothing(finished: bool) -> None:
    other: RunLedger[BaseEvent] = RunLedger()
    other.start_run()
    if finished:
        other.finish_run()
    run_ledger.set(other)
    async with serve(configuration) as server:
        server.play(text("Hello"), text("Hello"))
        assert '"content":"Hello"' in (await ask(server, "/v1/chat/completions", stream=True)).text
        assert "Hello" in (await ask(server, "/generate/stream")).text
    run_ledger.set(None)
