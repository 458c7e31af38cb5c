"""The Chat Completions route, through an in-process server."""

import json
import logging
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import httpx
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from dragent_stream.asgi.completions import chat_completions_route
from dragent_stream.chat_completions import synthesize_chat_completion_chunks, synthesize_chat_completion_sse
from dragent_stream.errors import UpstreamError

USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
ANSWER: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    "usage": USAGE,
}
REQUEST = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
PATH = "/v1/chat/completions"


def client_of(complete: Callable[[dict[str, Any]], object], **options: Any) -> httpx.AsyncClient:
    app = Starlette(routes=[chat_completions_route(complete, **options)])
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


async def post(complete: Callable[[dict[str, Any]], object], body: Any, **options: Any) -> httpx.Response:
    async with client_of(complete, **options) as client:
        return await client.post(PATH, json=body)


def error_of(response: httpx.Response) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    return response.json()["error"]


async def answer_later(body: dict[str, Any]) -> dict[str, Any]:
    return ANSWER


def answer_in_a_thread(body: dict[str, Any]) -> dict[str, Any]:
    return ANSWER


def answer_as_object(body: dict[str, Any]) -> ChatCompletion:
    return ChatCompletion.model_validate(ANSWER)


@pytest.mark.parametrize("complete", [answer_later, answer_in_a_thread, answer_as_object, lambda b: answer_later(b)])
async def test_a_completion_is_sent_as_json_or_as_its_stream(complete: Callable[[dict[str, Any]], object]) -> None:
    assert (await post(complete, REQUEST)).json() == ANSWER
    assert (await post(complete, {**REQUEST, "stream": False})).json() == ANSWER
    response = await post(complete, {**REQUEST, "stream": True})
    assert response.headers["content-type"] == "text/event-stream"
    *frames, end = response.text.split("\n\n")[:-1]
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    assert (chunks, end) == (list(synthesize_chat_completion_chunks(ANSWER)), "data: [DONE]")


@pytest.mark.parametrize("include_usage", [True, False])
async def test_usage_is_streamed_if_the_client_asks_for_it(include_usage: bool) -> None:
    body = {**REQUEST, "stream": True, "stream_options": {"include_usage": include_usage}}
    response = await post(answer_later, body)
    assert response.text == "".join(synthesize_chat_completion_sse(ANSWER, include_usage))


async def test_the_model_is_given_the_sanitized_request() -> None:
    seen: list[dict[str, Any]] = []

    def complete(body: dict[str, Any]) -> dict[str, Any]:
        seen.append(body)
        return ANSWER

    sent = {**REQUEST, "stream": True, "stream_options": None, "verbosity": "low", "top_k": 3, "x": 1}
    await post(complete, sent)
    await post(complete, sent, extra_fields=["top_k"])
    await post(complete, sent, allowed_fields=["model"])
    assert seen == [{**REQUEST, "verbosity": "low"}, {**REQUEST, "verbosity": "low", "top_k": 3}, {"model": "m"}]


async def chunk_stream(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    for chunk in synthesize_chat_completion_chunks(ANSWER, True):
        yield chunk


async def test_a_model_that_streams_is_passed_on_and_assembled_for_clients_that_do_not() -> None:
    async def objects(body: dict[str, Any]) -> AsyncIterator[ChatCompletionChunk]:
        async for chunk in chunk_stream(body):
            yield ChatCompletionChunk.model_validate(chunk)

    for complete in (chunk_stream, objects):
        response = await post(complete, {**REQUEST, "stream": True, "stream_options": {"include_usage": True}})
        chunks = [json.loads(frame.removeprefix("data: ")) for frame in response.text.split("\n\n")[:-2]]
        assert chunks == list(synthesize_chat_completion_chunks(ANSWER, True))
        assert response.text.endswith("\n\ndata: [DONE]\n\n")
        assert (await post(complete, REQUEST)).json() == ANSWER


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (b"{", 400, "The body is not JSON"),
        (b"\xff", 400, "The body is not JSON"),
        (b"[" * 100_000, 400, "The body is not JSON"),
        (b"[]", 400, "The body must be a JSON object"),
        (b'{"stream": "true"}', 422, "'stream' must be true or false"),
        (b'{"stream": 1}', 422, "'stream' must be true or false"),
        (b'{"x": "' + b"x" * 200_000 + b'"}', 413, "The body is larger than 150000 bytes"),
    ],
)
async def test_a_bad_request_is_refused_in_openais_form(content: bytes, status: int, message: str) -> None:
    async with client_of(answer_later, max_body_bytes=150_000) as client:
        response = await client.post(PATH, content=content, headers={"content-type": "application/json"})
    assert response.status_code == status
    error = error_of(response)
    assert error["message"].startswith(message) and error["type"] == "invalid_request_error"


async def test_a_request_that_is_not_declared_as_json_is_refused() -> None:
    async with client_of(answer_later) as client:
        response = await client.post(PATH, content=json.dumps(REQUEST), headers={"content-type": "text/plain"})
    assert response.status_code == 415 and "application/json" in error_of(response)["message"]


def raiser(error: BaseException) -> Callable[[dict[str, Any]], object]:
    async def complete(body: dict[str, Any]) -> object:
        raise error

    return complete


@pytest.mark.parametrize("stream", [True, False])
async def test_a_failure_before_the_first_byte_is_an_http_error(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    body = {**REQUEST, "stream": stream}
    limited = await post(raiser(HTTPException(429, "slow down", {"retry-after": "2"})), body)
    assert (limited.status_code, limited.headers["retry-after"], error_of(limited)) == (
        429,
        "2",
        {"message": "slow down", "type": "invalid_request_error", "param": None, "code": None},
    )
    upstream = await post(raiser(UpstreamError("overloaded", "busy")), body)
    assert upstream.status_code == 502
    assert error_of(upstream) == {"message": "overloaded", "type": "upstream_error", "param": None, "code": "busy"}
    with caplog.at_level(logging.ERROR, "dragent_stream"):
        crashed = await post(raiser(RuntimeError("secret")), body)
    assert crashed.status_code == 500
    reference = error_of(crashed)["message"].removeprefix("The completion failed. Reference: ")
    assert "secret" not in crashed.text and reference in caplog.text and "secret" in caplog.text
    exposed = await post(raiser(RuntimeError("plain")), body, expose_errors=True)
    assert error_of(exposed)["message"] == "plain"


@pytest.mark.parametrize("stream", [True, False])
async def test_an_invalid_completion_is_a_500_before_the_first_byte(stream: bool) -> None:
    bad = {**ANSWER, "choices": [{"message": {"content": "a", "x": math.nan}}]}
    response = await post(lambda body: bad, {**REQUEST, "stream": stream}, expose_errors=True)
    assert response.status_code == 500
    assert "choices.0.message.x" in error_of(response)["message"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stream_that_fails_at_once_is_an_http_error(stream: bool) -> None:
    async def fails(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        raise RuntimeError("at once")
        yield {}

    async def reports(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"error": {"message": "busy", "code": 503}}

    async def nothing(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        return
        yield {}

    body = {**REQUEST, "stream": stream}
    failed = await post(fails, body, expose_errors=True)
    assert (failed.status_code, error_of(failed)["message"]) == (500, "at once")
    reported = await post(reports, body)
    assert (reported.status_code, error_of(reported)["message"], error_of(reported)["code"]) == (502, "busy", "503")
    empty = await post(nothing, body, expose_errors=True)
    assert empty.status_code in (500, 502) and "holds no chunk" in error_of(empty)["message"]


@pytest.mark.parametrize("failure", [RuntimeError("secret"), UpstreamError("overloaded", "busy")])
async def test_a_failure_after_the_first_byte_is_an_error_frame(failure: Exception) -> None:
    closed: list[bool] = []

    async def breaks(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        try:
            yield {"id": "1", "choices": []}
            raise failure
        finally:
            closed.append(True)

    response = await post(breaks, {**REQUEST, "stream": True})
    first, last, done, rest = response.text.split("\n\n")
    assert (response.status_code, first, done, rest) == (200, 'data: {"id":"1","choices":[]}', "data: [DONE]", "")
    error = json.loads(last.removeprefix("data: "))["error"]
    assert set(error) == {"message", "type", "param", "code"} and "secret" not in error["message"]
    assert closed == [True]


async def test_what_is_no_chunk_in_a_stream_is_an_error_frame() -> None:
    async def breaks(body: dict[str, Any]) -> AsyncIterator[object]:
        yield {"id": "1", "choices": []}
        yield "text"

    response = await post(breaks, {**REQUEST, "stream": True}, expose_errors=True)
    assert "the model's stream holds str, not a chunk object" in response.text.split("\n\n")[1]


async def test_a_client_that_goes_cancels_the_computation() -> None:
    started, cancelled = anyio.Event(), anyio.Event()

    async def complete(body: dict[str, Any]) -> object:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    messages = iter([{"type": "http.request", "body": json.dumps(REQUEST).encode(), "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in messages:
            return message
        await started.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        assert message.get("status", 499) == 499

    scope = {
        "type": "http",
        "method": "POST",
        "path": PATH,
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    with anyio.fail_after(5):
        await Starlette(routes=[chat_completions_route(complete)])(scope, receive, send)
        await cancelled.wait()
