"""The OpenAI routes of a wrapped agent, read by the real clients of the OpenAI API."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest
from ag_ui.core import (
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
    ToolCallArgsEvent,
    ToolCallStartEvent,
)
from langchain_openai import ChatOpenAI
from nat_agents import configuration
from nat_scenarios import call, calls, text
from nat_server import Served, serve
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from dragent_stream.nat.chat_stream import ChatStream, chat_stream
from dragent_stream.nat.converters import batch_to_chunk
from dragent_stream.nat.failures import AgentFailedError
from dragent_stream.response import DRAgentEventResponse
from dragent_stream.testing.chunks import text_chunk
from dragent_stream.testing.model import Cut, Fail, Turn

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = Path(__file__).parent.parent.parent
NODE = ROOT / "scripts" / "node"
SCRIPT = ROOT / "tests" / "clients_chat" / "one_stream.mjs"

ADD = call("c1", "add", '{"a":1,', '"b":2}')
MUL = call("c2", "mul", '{"a":3,', '"b":4}')
MUL_BESIDE = call("c2", "mul", '{"a":3,', '"b":4}', index=1)
C1, C2 = ["c1", "add", '{"a":1,"b":2}'], ["c2", "mul", '{"a":3,"b":4}']

SCENARIOS: dict[str, tuple[list[Turn], list[list[str]], str]] = {
    "text": ([text("Hel", "lo")], [], "Hello"),
    "single": ([calls(ADD), text("It is ", "3.")], [C1], "It is 3."),
    "parallel": ([calls(ADD, MUL_BESIDE), text("3 and 12.")], [C1, C2], "3 and 12."),
    "consecutive": ([calls(ADD), calls(MUL), text("12.")], [C1, C2], "12."),
    "after_text": ([[text_chunk("So: "), *calls(ADD)], calls(MUL), text("12.")], [C1, C2], "So: 12."),
}


async def read_by_openai_python(url: str) -> dict[str, Any]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="alice", max_retries=0) as client:
        stream = await client.chat.completions.create(
            model="agent",
            messages=[{"role": "user", "content": "please"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        state = ChatCompletionStreamState()
        ids: set[str] = set()
        async for chunk in stream:
            ids.add(chunk.id)
            state.handle_chunk(chunk)
    answer = state.get_final_completion()
    (ident,) = ids
    choice = answer.choices[0]
    return {
        "role": choice.message.role,
        "text": choice.message.content,
        "calls": [[c.id, c.function.name, c.function.arguments] for c in choice.message.tool_calls or []],
        "finish": choice.finish_reason,
        "usage": answer.usage and answer.usage.total_tokens,
        "model": answer.model,
        "id": ident,
    }


async def read_by_langchain(url: str) -> dict[str, Any]:
    model = ChatOpenAI(model="agent", base_url=f"{url}/v1", api_key="alice", max_retries=0, stream_usage=True)  # type: ignore[arg-type]
    total: Any = None
    async for chunk in model.astream("please"):
        total = chunk if total is None else total + chunk
    assert not total.invalid_tool_calls
    return {
        "text": total.content,
        "calls": [[c["id"], c["name"], json.dumps(c["args"], separators=(",", ":"))] for c in total.tool_calls],
        "finish": total.response_metadata["finish_reason"],
        "usage": total.usage_metadata["total_tokens"],
        "model": total.response_metadata["model_name"],
        "id": total.id,
    }


async def read_by_node(client: str, url: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(str(NODE), str(SCRIPT), client, f"{url}/v1"),
        stdout=asyncio.subprocess.PIPE,
        cwd=SCRIPT.parent,
        env={**os.environ, "NODE_MAJOR": "22"},
    )
    with anyio.fail_after(60):
        output, _ = await process.communicate()
    return json.loads(output)


async def read_by_openai_node(url: str) -> dict[str, Any]:
    return await read_by_node("openai", url)


async def read_by_ai(url: str) -> dict[str, Any]:
    return await read_by_node("ai", url)


READERS = [read_by_openai_python, read_by_langchain, read_by_openai_node, read_by_ai]


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__.removeprefix("read_by_"))
async def test_a_client_puts_together_what_the_agent_did(served: Served, reader: Any, name: str) -> None:
    turns, made, said = SCENARIOS[name]
    served.play(*turns)
    read = await reader(served.url)
    assert read.get("raised") is None
    assert (read["calls"], read["text"]) == (made, said)
    assert read["finish"] == "stop"
    assert read["usage"] == 10 * len(turns)
    assert read["model"] == "root-model"
    assert read.get("role", "assistant") == "assistant"
    assert read["id"].startswith("chatcmpl-") or reader is read_by_langchain


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__.removeprefix("read_by_"))
@pytest.mark.parametrize(
    "turns",
    [
        [[text_chunk("Half"), Cut()]],
        [[Fail(500, "out of order")]],
        [calls(ADD), [Fail(500, "out of order")]],
        [[*ADD[:2], Cut()]],
    ],
    ids=["in_text", "at_once", "in_the_second_turn", "in_arguments"],
)
async def test_a_run_that_fails_is_an_error_to_the_client(served: Served, reader: Any, turns: list[Turn]) -> None:
    served.play(*turns)
    if reader in (read_by_openai_python, read_by_langchain):
        with pytest.raises(openai.APIError, match=r"The agent failed\. Reference: \w+"):
            await reader(served.url)
    else:
        read = await reader(served.url)
        assert "The agent failed. Reference:" in read["raised"], read


async def frames_of(served: Served, path: str, **more: Any) -> list[str]:
    body = {"messages": [{"role": "user", "content": "please"}], "stream": True, **more}
    response = await served.client.post(path, json=body, headers={"x-api-key": "alice"})
    assert response.status_code == 200
    frames = response.text.split("\n\n")
    assert frames.pop() == ""
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames), frames
    return [frame.removeprefix("data: ") for frame in frames]


CHAT_PATHS = ["/v1/chat/completions", "/chat/stream", "/v1/chat/stream"]


@pytest.mark.parametrize("path", CHAT_PATHS)
async def test_on_every_chat_route_ids_names_and_the_role_come_once(served: Served, path: str) -> None:
    served.play(calls(ADD, MUL_BESIDE), text("Done."))
    *frames, done = await frames_of(served, path)
    assert done == "[DONE]"
    chunks = [json.loads(frame) for frame in frames]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["model"] for chunk in chunks} == {"root-model"}
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert [delta.get("role") for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    parts = [part for delta in deltas for part in delta.get("tool_calls", [])]
    assert [(part["index"], part["id"]) for part in parts if "id" in part] == [(0, "c1"), (1, "c2")]
    assert [part["function"]["name"] for part in parts if "name" in part["function"]] == ["add", "mul"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert all(chunk.get("usage") is None for chunk in chunks), "nobody asked for it"


@pytest.mark.parametrize("path", CHAT_PATHS)
async def test_usage_comes_to_who_asks_for_it(served: Served, path: str) -> None:
    served.play(calls(ADD), text("3."))
    *_, last, done = await frames_of(served, path, stream_options={"include_usage": True})
    assert done == "[DONE]"
    chunk = json.loads(last)
    assert chunk["choices"] == []
    assert chunk["usage"] == {"prompt_tokens": 14, "completion_tokens": 6, "total_tokens": 20}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat", "/v1/chat"])
@pytest.mark.parametrize("kind", ["per_user_tool_calling_agent", "dragent_tool_calling_agent"])
async def test_a_whole_completion_names_the_model_and_what_it_used(kind: str, path: str) -> None:
    async with serve(lambda url: configuration(url, _type=kind)) as server:
        server.play(calls(ADD), text("3."))
        body = {"messages": [{"role": "user", "content": "please"}]}
        answer = (await server.client.post(path, json=body, headers={"x-api-key": "alice"})).json()
        assert answer["choices"][0]["message"]["content"] == "3."
        assert answer["model"] == "root-model"
        assert answer["usage"] == {"prompt_tokens": 14, "completion_tokens": 6, "total_tokens": 20}


@pytest.mark.parametrize("path", CHAT_PATHS)
@pytest.mark.parametrize("kind", ["per_user_tool_calling_agent", "tool_calling_agent", "t_plain_workflow"])
async def test_after_an_error_nothing_comes(path: str, kind: str) -> None:
    def configure(url: str) -> dict[str, Any]:
        config = configuration(url, _type=kind)
        return config if "agent" in kind else {**config, "workflow": {"_type": "t_fail"}}

    async with serve(configure) as server:
        server.play([text_chunk("Half"), Cut()])
        *before, last = await frames_of(server, path)
    chunk = json.loads(last)
    assert chunk["choices"] == []
    assert chunk["error"]["message"].startswith("The agent failed. Reference: ")
    assert not any("error" in json.loads(frame) or "stop" in frame for frame in before)
    assert {json.loads(frame)["id"] for frame in before} <= {chunk["id"]} or kind == "tool_calling_agent"


async def test_nats_own_agent_ends_as_nat_ends_it() -> None:
    async with serve(lambda url: configuration(url, _type="tool_calling_agent")) as server:
        server.play(text("Hello"))
        *_, last, done = await frames_of(server, "/v1/chat/completions")
        assert json.loads(last)["choices"][0]["finish_reason"] == "stop"
        assert done == "[DONE]"


# The conversion alone.


@pytest.fixture
def stream() -> ChatStream:
    fresh = ChatStream()
    chat_stream.set(fresh)
    return fresh


def chunk_of(*events: Any) -> ChatCompletionChunk:
    batch = DRAgentEventResponse(events=list(events))
    return ChatCompletionChunk.model_validate(json.loads(batch_to_chunk(batch).model_dump_json()))


async def test_calls_are_numbered_over_the_run(stream: ChatStream) -> None:
    state = ChatCompletionStreamState()
    for number in range(3):
        start = ToolCallStartEvent(tool_call_id=f"P{number}", tool_call_name="add")
        half = ToolCallArgsEvent(tool_call_id=f"P{number}", delta='{"a":')
        rest = ToolCallArgsEvent(tool_call_id=f"P{number}", delta="1}")
        state.handle_chunk(chunk_of(start, half))
        state.handle_chunk(chunk_of(rest))
    made = state.current_completion_snapshot.choices[0].message.tool_calls or []
    assert [(c.id, c.function.name, c.function.arguments) for c in made] == [
        (f"P{number}", "add", '{"a":1}') for number in range(3)
    ]


async def test_a_new_run_in_the_same_context_begins_at_zero(stream: ChatStream) -> None:
    first = chunk_of(ToolCallStartEvent(tool_call_id="c1", tool_call_name="add"))
    again = chunk_of(ToolCallStartEvent(tool_call_id="c1", tool_call_name="add"))
    started = chunk_of(RunStartedEvent(thread_id="t", run_id="r"))
    assert len({first.id, again.id, started.id}) == 3
    assert [chunk.choices[0].delta.role for chunk in (first, again, started)] == ["assistant"] * 3
    assert [(c.choices[0].delta.tool_calls or [])[0].index for c in (first, again)] == [0, 0]


async def test_a_run_that_waits_for_the_client_ends_with_tool_calls(stream: ChatStream) -> None:
    outcome = {"type": "success", "pendingToolCallIds": ["c1"]}
    chunk = chunk_of(RunFinishedEvent(thread_id="t", run_id="r", outcome=outcome))  # type: ignore[arg-type]
    assert chunk.choices[0].finish_reason == "tool_calls"


async def test_a_failed_run_raises_what_it_says(stream: ChatStream) -> None:
    with pytest.raises(AgentFailedError, match="no luck") as caught:
        batch_to_chunk(
            DRAgentEventResponse(
                events=[TextMessageContentEvent(message_id="m", delta="x"), RunErrorEvent(message="no luck", code="e")]
            )
        )
    assert caught.value.code == "e"
