"""`chat_completions_route`: serve whole completions at `/v1/chat/completions`, streamed for clients that ask for it."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias, cast

from anyio.to_thread import run_sync
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive

from dragent_stream.asgi_response import EventStreamResponse
from dragent_stream.chat_completions import (
    OPENAI_CHAT_FIELDS,
    assemble_chat_completion_async,
    read_chat_completion,
    sanitize_streaming_chat_body,
    synthesize_chat_completion_sse,
)
from dragent_stream.chat_completions.assemble import error_in_chunk
from dragent_stream.chat_completions.objects import json_fields
from dragent_stream.chat_completions.synthesize import DONE_FRAME, encode_chunk
from dragent_stream.errors import ConversionError, UpstreamError

__all__ = ["Complete", "chat_completions_route"]

logger = logging.getLogger("dragent_stream")

Complete: TypeAlias = Callable[[dict[str, Any]], object]
"""Takes the sanitized request; gives a completion (mapping or pydantic object), an awaitable of one, or an async iterable
of chunks for a model that does stream. A plain function is called in a thread."""


def chat_completions_route(
    complete: Complete,
    *,
    path: str = "/v1/chat/completions",
    allowed_fields: Collection[str] = OPENAI_CHAT_FIELDS,
    extra_fields: Collection[str] = (),
    max_body_bytes: int = 32 * 1024 * 1024,
    keep_alive: float | None = 15.0,
    send_timeout: float | None = 60.0,
    expose_errors: bool = False,
) -> Route:
    """Make the route that answers Chat Completions requests with what `complete` gives.

    A request with `"stream": true` gets the completion as the stream of `synthesize_chat_completion_sse`, with usage if
    its `stream_options` ask for it; any other gets it as JSON. Until the first byte every failure is an HTTP error with
    OpenAI's body, `{"error": {"message", "type", "param", "code"}}`; after it, one `data: {"error": ...}` frame, which
    every client raises, and `[DONE]`. A client that goes cancels `complete` and closes its stream.

    Example:
        ```python
        async def complete(body: dict) -> dict:
            return await model.answer(body["messages"])

        app = Starlette(routes=[chat_completions_route(complete)])
        ```

    Args:
        complete: Computes the answer. A `starlette.exceptions.HTTPException` that it raises keeps its status and detail;
            an `UpstreamError` becomes a 502 with its message; anything else a 500 with a reference into the log.
        path: Where requests are posted.
        allowed_fields: The fields `complete` is given, as for `sanitize_streaming_chat_body`; OpenAI's by default.
        extra_fields: Further fields that it is given.
        max_body_bytes: A larger request is refused with 413.
        keep_alive: Seconds of silence in a stream before a comment is sent; None for none.
        send_timeout: Seconds that a client may leave a frame unread; None for no limit.
        expose_errors: Send exception texts to clients in place of the reference.
    """

    async def endpoint(request: Request) -> ASGIApp:
        report = partial(_report, expose=expose_errors)
        try:
            body, stream = await _read_request(request, max_body_bytes)
            cleaned, include_usage = sanitize_streaming_chat_body(
                body, allowed_fields=allowed_fields, extra_fields=extra_fields
            )
            answer = await _while_connected(_answer(complete, cleaned, stream, include_usage), request.receive)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except HTTPException as error:
            kind = "invalid_request_error" if error.status_code < 500 else "server_error"
            return _error_response(error.status_code, _error(str(error.detail), kind), error.headers)
        except _RefusedRequest as error:
            return _error_response(error.status, _error(str(error), "invalid_request_error", error.param))
        except UpstreamError as error:
            return _error_response(502, report(error))
        except Exception as error:
            return _error_response(500, report(error))
        if not isinstance(answer, _Frames):
            return JSONResponse(answer)

        def farewell(error: BaseException | None) -> Iterable[bytes]:
            return () if error is None else (encode_chunk({"error": report(error)}).encode(), DONE_FRAME.encode())

        return EventStreamResponse(
            answer,
            keep_alive=keep_alive,
            send_timeout=send_timeout,
            farewell=farewell,
            name="a chat completion",
        )

    return Route(path, endpoint, methods=["POST"])


class _RefusedRequest(Exception):
    def __init__(self, message: str, *, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param


class _Frames(AsyncIterator[bytes]):
    """The frames of one stream whose first is known; closing it closes the source."""

    def __init__(self, first: str, rest: Iterator[str] | AsyncIterator[object]) -> None:
        self._first: str | None = first
        self._rest = rest
        self._done = False

    async def __anext__(self) -> bytes:
        if self._first is not None:
            frame, self._first = self._first, None
            return frame.encode()
        if isinstance(self._rest, AsyncIterator):
            return await self._next_chunk(self._rest)
        for frame in self._rest:
            return frame.encode()
        raise StopAsyncIteration

    async def _next_chunk(self, chunks: AsyncIterator[object]) -> bytes:
        if self._done:
            raise StopAsyncIteration
        try:
            return encode_chunk(_fields_of(await anext(chunks))).encode()
        except StopAsyncIteration:
            self._done = True
            return DONE_FRAME.encode()

    async def aclose(self) -> None:
        await _close(self._rest)


async def _answer(
    complete: Complete, body: dict[str, Any], stream: bool, include_usage: bool
) -> _Frames | dict[str, Any]:
    """What is sent: frames of which the first exists, or a whole completion; raises before either."""
    is_async = inspect.iscoroutinefunction(complete) or inspect.isasyncgenfunction(complete)
    answer = complete(body) if is_async else await run_sync(complete, body)
    if inspect.isawaitable(answer):
        answer = await answer
    if not hasattr(answer, "__aiter__"):
        if not stream:
            return read_chat_completion(answer)
        frames = synthesize_chat_completion_sse(answer, include_usage)
        return _Frames(next(frames), frames)
    chunks = aiter(cast("AsyncIterator[object]", answer))
    try:
        if not stream:
            return await assemble_chat_completion_async(chunks)
        first = _fields_of(await anext(chunks))
        if (error := error_in_chunk(first)) is not None:
            raise error
        return _Frames(encode_chunk(first), chunks)
    except BaseException as error:
        await _close(chunks)
        if isinstance(error, StopAsyncIteration):
            raise UpstreamError("the model's stream holds no chunk") from None
        raise


def _fields_of(chunk: object) -> dict[str, Any]:
    if isinstance(chunk, BaseModel):
        return json_fields(chunk)
    if isinstance(chunk, Mapping):
        return dict(cast("Mapping[str, Any]", chunk))
    raise ConversionError(f"the model's stream holds {type(chunk).__name__}, not a chunk object")


async def _close(source: object) -> None:
    for name in ("aclose", "close"):
        if (close := getattr(source, name, None)) is not None:
            closing = close()
            if inspect.isawaitable(closing):
                await closing
            return


async def _read_request(request: Request, limit: int) -> tuple[dict[str, Any], bool]:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        # A browser sends other types across sites without asking.
        raise _RefusedRequest(f"The content type must be application/json, not {media_type!r}", status=415)
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > limit:
            raise _RefusedRequest(f"The body is larger than {limit} bytes", status=413)
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _RefusedRequest(f"The body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise _RefusedRequest("The body must be a JSON object")
    fields = cast("dict[str, Any]", body)
    stream = fields.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise _RefusedRequest("'stream' must be true or false", status=422, param="stream")
    return fields, bool(stream)


async def _while_connected(work: Any, receive: Receive) -> Any:
    """Await the work; cancel it and raise `ClientDisconnect` if the client goes."""
    task: asyncio.Task[Any] = asyncio.ensure_future(work)
    listener = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((task, listener), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        listener.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _report(error: BaseException, *, expose: bool) -> dict[str, Any]:
    """What a client may read of a failure; what it may not is logged under a reference."""
    if isinstance(error, UpstreamError):
        return _error(str(error), "upstream_error", code=error.code)
    if expose:
        return _error(str(error) or type(error).__name__, "server_error")
    reference = secrets.token_hex(4)
    logger.error("a chat completion failed (reference %s)", reference, exc_info=error)
    return _error(f"The completion failed. Reference: {reference}", "server_error")


def _error(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"message": message, "type": kind, "param": param, "code": code}


def _error_response(status: int, error: dict[str, Any], headers: Any = None) -> JSONResponse:
    return JSONResponse({"error": error}, status_code=status, headers=headers)
