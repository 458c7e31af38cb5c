"""The Chat Completions route, through an in-process server."""

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import httpx
import pytest
from asgi_wire import Exchange
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from dragent_stream.asgi.completions import chat_completions_route
from dragent_stream.chat_completions import synthesize_chat_completion_chunks, synthesize_chat_completion_sse
from dragent_stream.errors import ConversionError, UpstreamError

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


SURROGATE = {**ANSWER, "choices": [{"index": 0, "message": {"role": "assistant", "content": "a\ud83d"}}]}


@pytest.mark.parametrize("stream", [True, False])
async def test_half_a_character_is_sent_as_its_escape(stream: bool) -> None:
    async def chunks(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        for chunk in synthesize_chat_completion_chunks(SURROGATE):
            yield chunk

    for complete in (lambda body: SURROGATE, chunks):
        response = await post(complete, {**REQUEST, "stream": stream})
        assert response.status_code == 200
        assert b"a\\ud83d" in response.content


@pytest.mark.parametrize("stream", [True, False])
async def test_a_number_that_json_does_not_have_is_a_failure_in_openais_form(stream: bool) -> None:
    async def chunks(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"id": "1", "choices": [{"index": 0, "delta": {"content": "a", "score": math.nan}}]}

    response = await post(chunks, {**REQUEST, "stream": stream})
    assert response.status_code == 500
    assert error_of(response)["message"].startswith("The completion failed. Reference: ")


@pytest.mark.parametrize(
    "error", [UpstreamError("half \ud83d"), HTTPException(429, "half \ud83d"), RuntimeError("\ud83d")]
)
async def test_an_error_text_with_half_a_character_is_told(error: Exception) -> None:
    response = await post(raiser(error), REQUEST, expose_errors=True)
    assert response.status_code in (429, 500, 502)
    assert error_of(response)["message"].endswith("\ud83d")


async def test_a_request_that_is_nested_too_deeply_is_refused() -> None:
    asked: list[Any] = []
    for depth, status in ((100, 200), (600, 400), (5000, 400)):
        content = json.dumps({**REQUEST, "metadata": "@"}).replace('"@"', "[" * depth + "]" * depth)
        async with client_of(lambda body: asked.append(body) or ANSWER) as client:
            response = await client.post(PATH, content=content, headers={"content-type": "application/json"})
        assert response.status_code == status
        if status == 400:
            assert error_of(response)["type"] == "invalid_request_error"
    assert len(asked) == 1


def test_names_of_fields_are_a_collection_and_no_text() -> None:
    for option in ("extra_fields", "allowed_fields"):
        with pytest.raises(
            ConversionError, match=rf"{option} must be a list or set of names, not a text; write \['top_k'\]"
        ):
            chat_completions_route(answer_later, **{option: "top_k"})


@pytest.mark.parametrize("form", ["async function", "function", "generator", "callable object", "keyword only"])
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"stream": True, "stream_options": {"include_usage": True}}, True),
        ({"stream": True, "stream_options": {"include_usage": False}}, False),
        ({"stream": True}, False),
        ({}, True),
    ],
)
async def test_complete_is_told_whether_usage_is_wanted(form: str, options: dict[str, Any], wanted: bool) -> None:
    told: list[bool] = []

    async def function(body: dict[str, Any], include_usage: bool) -> dict[str, Any]:
        told.append(include_usage)
        return ANSWER

    def plain(body: dict[str, Any], include_usage: bool = False) -> dict[str, Any]:
        told.append(include_usage)
        return ANSWER

    async def generator(body: dict[str, Any], include_usage: bool) -> AsyncIterator[dict[str, Any]]:
        told.append(include_usage)
        for chunk in synthesize_chat_completion_chunks(ANSWER, include_usage):
            yield chunk

    async def keyword(body: dict[str, Any], *, include_usage: bool) -> dict[str, Any]:
        return await function(body, include_usage)

    class Model:
        async def __call__(self, body: dict[str, Any], include_usage: bool) -> dict[str, Any]:
            return await function(body, include_usage)

    forms: dict[str, Any] = {
        "async function": function,
        "function": plain,
        "generator": generator,
        "callable object": Model(),
        "keyword only": keyword,
    }
    response = await post(forms[form], {**REQUEST, **options})
    assert told == [wanted]
    assert ('"usage"' in response.text) is wanted


async def test_usage_reaches_no_client_that_did_not_ask_wherever_the_model_puts_it() -> None:
    async def complete(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"id": "0", "choices": [], "usage": USAGE}
        yield {"id": "1", "choices": [], "prompt_filter_results": [1]}
        yield {"id": "2", "choices": [{"index": 0, "delta": {"content": "a"}}], "usage": None}
        yield {"id": "3", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": USAGE}
        yield {"id": "4", "choices": None, "usage": USAGE}
        yield {"id": "5", "choices": [], "usage": {}}

    response = await post(complete, {**REQUEST, "stream": True})
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in response.text.split("\n\n")[:-2]]
    assert [chunk["id"] for chunk in chunks] == ["1", "2", "3"]
    assert not any("usage" in chunk for chunk in chunks)
    asked = await post(complete, {**REQUEST, "stream": True, "stream_options": {"include_usage": True}})
    assert asked.text.count('"usage"') == 5
    assert (await post(complete, REQUEST)).json()["usage"] == USAGE


@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_body_is_an_error_however_the_model_gives_it(stream: bool) -> None:
    nested: dict[str, Any] = {"error": {"message": "busy", "code": 503}}
    flat: dict[str, Any] = {"object": "error", "message": "busy", "code": 503}

    async def late(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"id": "1", "choices": [{"index": 0, "delta": {"content": "a"}}]}
        yield flat

    body = {**REQUEST, "stream": stream}
    for whole in (nested, flat):
        response = await post(lambda _, whole=whole: whole, body)
        assert response.status_code == 502
        assert (error_of(response)["message"], error_of(response)["code"]) == ("busy", "503")
    response = await post(late, body)
    if stream:
        error = json.loads(response.text.split("\n\n")[1].removeprefix("data: "))["error"]
    else:
        error = error_of(response)
    assert (error["message"], error["type"], error["code"]) == ("busy", "upstream_error", "503")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"hello": "world"},
        {"choices": []},
        {"choices": [{"delta": {"content": "hello"}}]},
        {"model": "m", "message": {"content": "hi"}, "done": True},
    ],
)
async def test_what_is_no_completion_is_an_error_in_both_forms(answer: dict[str, Any], stream: bool) -> None:
    response = await post(lambda _: answer, {**REQUEST, "stream": stream})
    assert (response.status_code, error_of(response)["type"]) == (500, "server_error")


@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_body_of_a_gateway_is_an_upstream_error(stream: bool) -> None:
    response = await post(lambda _: {"detail": "nope"}, {**REQUEST, "stream": stream})
    assert (response.status_code, error_of(response)["message"]) == (502, "nope")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stream_of_foreign_chunks_is_an_error_in_both_forms(stream: bool) -> None:
    async def ollama(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"model": "m", "message": {"content": "hi"}}
        yield {"model": "m", "message": {"content": "ho"}, "done": True}

    response = await post(ollama, {**REQUEST, "stream": stream}, expose_errors=True)
    assert response.status_code == 500
    assert "no chunks of a chat completion" in error_of(response)["message"]


async def test_a_foreign_chunk_before_the_others_is_passed_on_with_them() -> None:
    async def complete(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"event": "begin"}
        yield {"choices": [{"index": 0, "delta": {"content": "a"}}]}

    response = await post(complete, {**REQUEST, "stream": True})
    assert response.text.split("\n\n")[:2] == [
        'data: {"event":"begin"}',
        'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}',
    ]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stream_without_a_choice_is_no_success(stream: bool) -> None:
    async def complete(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"id": "1", "choices": []}

    response = await post(complete, {**REQUEST, "stream": stream}, expose_errors=True)
    assert "has a choice" in response.text and '"error"' in response.text


async def test_a_complete_that_swallows_its_cancellation_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dragent_stream.asgi.completions._CLOSE_SECONDS", 0.01)
    begun, release, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def complete(body: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass
        ended.set()
        return ANSWER

    async with asking(complete) as going:
        with anyio.fail_after(5):
            await begun.wait()
        going.disconnect()
    assert "is left behind" in caplog.text
    release.set()
    with anyio.fail_after(5):
        await ended.wait()


def exits(body: dict[str, Any]) -> Any:
    raise SystemExit(1)


async def exits_later(body: dict[str, Any]) -> Any:
    raise SystemExit(1)


async def is_cancelled(body: dict[str, Any]) -> Any:
    raise asyncio.CancelledError


async def exits_while_it_streams(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    raise KeyboardInterrupt
    yield {}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("complete", [exits, exits_later, is_cancelled, exits_while_it_streams])
async def test_a_complete_that_exits_is_a_failed_completion_and_the_server_lives(complete: Any, stream: bool) -> None:
    response = await post(complete, {**REQUEST, "stream": stream}, expose_errors=True)
    assert response.status_code == 500
    assert error_of(response)["message"].startswith("the agent raised ")


async def test_a_complete_that_exits_in_the_middle_of_its_stream_ends_it_with_an_error_frame() -> None:
    async def complete(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"id": "1", "choices": []}
        raise SystemExit(1)

    response = await post(complete, {**REQUEST, "stream": True}, expose_errors=True)
    assert "the agent raised SystemExit(1)" in response.text.split("\n\n")[1]
    assert response.text.endswith("\n\ndata: [DONE]\n\n")


class Slow:
    """A complete that works until it is let go; knows whether it was cancelled and its stream closed."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.working = asyncio.Event()
        self.go = asyncio.Event()
        self.ended: list[str] = []

    async def __call__(self, body: dict[str, Any]) -> Any:
        self.working.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


STREAMED = {**REQUEST, "stream": True}


def asking(complete: Any, body: dict[str, Any] = STREAMED, **options: Any) -> Exchange:
    app = Starlette(routes=[chat_completions_route(complete, **{"keep_alive": 0.01, **options})])
    return Exchange(app, "POST", PATH, body)


async def test_a_stream_is_kept_alive_while_complete_works() -> None:
    slow = Slow(ANSWER)
    async with asking(slow) as going:
        await going.until(lambda body: body.count(b": ping\n\n") >= 3)
        assert going.headers["content-type"] == "text/event-stream"
        slow.go.set()
    assert going.body.replace(b": ping\n\n", b"").decode() == "".join(synthesize_chat_completion_sse(ANSWER))
    assert slow.ended == []


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (RuntimeError("secret"), "The completion failed. Reference: "),
        (UpstreamError("overloaded", "busy"), "overloaded"),
        (HTTPException(429, "slow down"), "slow down"),
    ],
)
async def test_a_failure_after_the_first_comment_is_an_error_frame(failure: Exception, said: str) -> None:
    slow = Slow(failure)
    async with asking(slow) as going:
        await going.until(lambda body: b": ping" in body)
        slow.go.set()
    error, done, rest = going.body.replace(b": ping\n\n", b"").decode().split("\n\n")
    assert json.loads(error.removeprefix("data: "))["error"]["message"].startswith(said)
    assert (done, rest) == ("data: [DONE]", "")


async def test_a_client_that_goes_while_complete_works_after_a_comment_cancels_it() -> None:
    slow = Slow(ANSWER)
    async with asking(slow) as going:
        await going.until(lambda body: b": ping" in body)
        going.disconnect()
    assert slow.ended == ["cancelled"]


async def test_a_whole_answer_is_waited_for_without_a_comment() -> None:
    slow = Slow(ANSWER)
    async with asking(slow, REQUEST) as going:
        await slow.working.wait()
        for _ in range(200):
            await anyio.lowlevel.checkpoint()
        assert going.sent == []
        slow.go.set()
    assert going.json == ANSWER


async def test_a_stream_without_keep_alive_waits_in_silence_and_can_still_be_refused() -> None:
    slow = Slow(HTTPException(429, "slow down"))
    async with asking(slow, keep_alive=None) as going:
        await slow.working.wait()
        for _ in range(200):
            await anyio.lowlevel.checkpoint()
        slow.go.set()
    assert going.status == 429


async def test_a_late_stream_of_chunks_is_closed_once_when_the_client_goes() -> None:
    closed: list[str] = []

    async def chunks() -> AsyncIterator[dict[str, Any]]:
        try:
            yield {"id": "1", "choices": []}
            await asyncio.Event().wait()
        finally:
            closed.append("closed")

    slow = Slow(chunks())
    async with asking(slow) as going:
        await going.until(lambda body: b": ping" in body)
        slow.go.set()
        await going.until(lambda body: b'"id":"1"' in body)
        going.disconnect()
    assert closed == ["closed"]


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
