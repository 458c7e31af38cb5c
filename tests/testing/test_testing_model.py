"""The scripted model as the real openai client and a bare HTTP client see it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest

from dragent_stream import ConversionError
from dragent_stream.testing import finish_chunk, text_chunk, tool_call_chunk, usage_chunk
from dragent_stream.testing.model import Cut, Fail, Hold, ModelRequest, Pause, Raw, ScriptedModel, ScriptError, Turn

MESSAGES: Any = [{"role": "user", "content": "?"}]


def client_of(model: ScriptedModel) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=model.base_url, api_key="none", timeout=10)


async def streamed(model: ScriptedModel) -> list[Any]:
    client = client_of(model)
    return [c async for c in await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)]


def said(chunks: list[Any]) -> tuple[str, list[str]]:
    choices = [choice for chunk in chunks for choice in chunk.choices]
    return (
        "".join(choice.delta.content or "" for choice in choices),
        [choice.finish_reason for choice in choices if choice.finish_reason],
    )


@pytest.mark.parametrize(
    ("turn", "text", "reasons"),
    [
        (["hello"], "hello", ["stop"]),
        ("hello", "hello", ["stop"]),
        (["Hel", Pause(0), "lo"], "Hello", ["stop"]),
        (["Hel", text_chunk("lo"), finish_chunk("length")], "Hello", ["length"]),
        (["Look", tool_call_chunk("{}", call_id="c", name="f")], "Look", ["tool_calls"]),
        ([text_chunk("as it is")], "as it is", []),
    ],
)
async def test_text_in_a_turn_is_a_chunk_and_the_turn_is_finished(turn: Turn, text: str, reasons: list[str]) -> None:
    async with ScriptedModel([turn]) as model:
        assert said(await streamed(model)) == (text, reasons)


async def test_usage_stays_behind_the_finish_chunk() -> None:
    async with ScriptedModel([["hello", usage_chunk(1, 2)]]) as model:
        chunks = await streamed(model)
    assert [bool(chunk.usage) for chunk in chunks] == [False, False, True]


async def test_text_is_a_whole_answer_without_stream_too() -> None:
    async with ScriptedModel([["hel", "lo"]]) as model:
        answer = await client_of(model).chat.completions.create(model="m", messages=MESSAGES)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("hello", "stop")


async def test_the_clients_own_chunk_objects_are_chunks() -> None:
    chunk = openai.types.chat.ChatCompletionChunk.model_validate(text_chunk("hello"))
    async with ScriptedModel([[chunk, "!"]]) as model:
        assert said(await streamed(model)) == ("hello!", ["stop"])


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ([["fine"], ["fine", 42]], "turn 2, entry 2 is int 42, which is no chunk"),
        ([[None]], "turn 1, entry 1 is NoneType None"),
        ([[["hello"]]], r"turn 1, entry 1 is list \['hello'\]"),
        ([[b"hello"]], r"turn 1, entry 1 is bytes b'hello'.*Raw\(bytes\)"),
        ([[{"role": "assistant", "content": "hi"}]], "turn 1, entry 1 is dict"),
        ([[{}]], "turn 1, entry 1 is dict"),
        ([["fine", Fail()]], "turn 1, entry 2 is a Fail"),
        ([text_chunk("x")], "turn 1 is dict .*; a turn is a list"),
        ([None], "turn 1 is NoneType None"),
        ("hello", "a script is a list of turns"),
        (text_chunk("x"), "a script is a list of turns"),
        (42, "a script is a list of turns"),
    ],
)
def test_what_is_no_chunk_is_refused_with_its_place(turns: Any, message: str) -> None:
    with pytest.raises(ScriptError, match=message) as refused:
        ScriptedModel(turns)
    assert isinstance(refused.value, ConversionError)
    assert isinstance(refused.value, ValueError)


async def test_a_request_past_the_script_is_told_so_once() -> None:
    async with ScriptedModel([["hello"]]) as model:
        await streamed(model)
        with pytest.raises(openai.InternalServerError, match="the script has 1 turns, and this is request 2"):
            await streamed(model)
        assert len(model.requests) == 2


async def test_a_function_that_gives_no_turn_is_told_with_its_request() -> None:
    def turn(request: ModelRequest) -> Any:
        return [{"hello": "world"}]

    async with ScriptedModel(turn) as model:
        with pytest.raises(openai.InternalServerError, match="turn 1, entry 1 is dict"):
            await streamed(model)


async def test_a_function_answers_with_text_too() -> None:
    async def turn(request: ModelRequest) -> Turn:
        return [f"you said {request.messages[-1]['content']}"]

    async with ScriptedModel(turn) as model:
        assert said(await streamed(model)) == ("you said ?", ["stop"])


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=10) as client:
        yield client


async def test_models_are_listed_without_a_turn() -> None:
    async with ScriptedModel([["hello"]]) as model:
        client = client_of(model)
        assert [entry.id async for entry in client.models.list()] == ["test-model"]
        assert (await client.models.retrieve("mine")).id == "mine"
        assert model.requests == []
        assert said(await streamed(model))[0] == "hello"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/responses", 404),
        ("GET", "/", 404),
        ("POST", "/models", 404),
        ("POST", "/chat/completions/more", 404),
        ("GET", "/chat/completions", 405),
    ],
)
async def test_another_route_is_refused_as_json(http: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    async with ScriptedModel([["hello"]]) as model:
        answer = await http.request(method, model.base_url + path, json={})
        assert answer.status_code == status
        assert answer.json()["error"]["message"]
        assert model.requests == []
        assert said(await streamed(model))[0] == "hello"


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff"])
async def test_a_body_that_is_no_object_is_refused(http: httpx.AsyncClient, body: bytes) -> None:
    async with ScriptedModel([["hello"]]) as model:
        answer = await http.post(f"{model.base_url}/chat/completions", content=body)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "the body is no JSON object")


async def test_raw_bytes_are_written_as_they_are(http: httpx.AsyncClient) -> None:
    async with ScriptedModel([[Raw(b"<html>"), Cut()], [Raw(b": hi\n\n"), "x"]]) as model:
        with pytest.raises(httpx.RemoteProtocolError):
            await http.post(f"{model.base_url}/chat/completions", json={"stream": True})
        answer = await http.post(f"{model.base_url}/chat/completions?key=1", json={"stream": True})
    assert answer.text.startswith(": hi\n\ndata: {")
    assert answer.text.endswith("data: [DONE]\n\n")


async def test_a_held_answer_ends_with_its_client() -> None:
    async with ScriptedModel([["Hel", Hold()]]) as model:
        stream = await client_of(model).chat.completions.create(model="m", messages=MESSAGES, stream=True)
        await anext(aiter(stream))
        await stream.close()
        await model.requests[0].disconnected.wait()
