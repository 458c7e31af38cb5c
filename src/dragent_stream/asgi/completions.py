"""`chat_completions_route`: serve whole completions at `/v1/chat/completions`, streamed for clients that ask for it."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias, cast

from anyio.to_thread import run_sync
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive

from dragent_stream.asgi_exits import as_exception, exits_contained
from dragent_stream.asgi_response import EventStreamResponse, hold_left_behind
from dragent_stream.chat_completions import (
    OPENAI_CHAT_FIELDS,
    assemble_chat_completion_async,
    read_chat_completion,
    sanitize_streaming_chat_body,
    synthesize_chat_completion_sse,
)
from dragent_stream.chat_completions.objects import error_in_chunk, json_fields
from dragent_stream.chat_completions.sanitize import check_field_names
from dragent_stream.chat_completions.synthesize import DONE_FRAME, encode_chunk
from dragent_stream.errors import ConversionError, UpstreamError
from dragent_stream.foreign import describe

__all__ = ["Complete", "chat_completions_route"]

logger = logging.getLogger("dragent_stream")

Complete: TypeAlias = Callable[..., object]
"""Takes the sanitized request; gives a completion (mapping or pydantic object), an awaitable of one, or an async iterable
of chunks for a model that does stream. A plain function is called in a thread. If it has a parameter `include_usage`, it
is told there whether usage is wanted: the client asked for it, or wants no stream, whose answer has it anyway."""

_PING = b": ping\n\n"

# Seconds that `complete` is given to end when its client has gone.
_CLOSE_SECONDS = 5.0


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
    its `stream_options` ask for it, whatever `complete` gives; any other gets it as JSON. Until the first byte every
    failure is an HTTP error with OpenAI's body, `{"error": {"message", "type", "param", "code"}}`; after it, one
    `data: {"error": ...}` frame, which every client raises, and `[DONE]`. If `complete` works for longer than
    `keep_alive`, a stream begins with a comment. A client that goes cancels `complete` and closes its stream.

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
        keep_alive: Seconds of silence before a comment is sent to a client that wants a stream, also while `complete`
            works; None for none.
        send_timeout: Seconds that a client may leave a frame unread; None for no limit.
        expose_errors: Send exception texts to clients in place of the reference.

    Raises:
        ConversionError: `allowed_fields` or `extra_fields` is a text, not a collection of names.
    """
    for name, names in (("allowed_fields", allowed_fields), ("extra_fields", extra_fields)):
        check_field_names(name, names)

    async def endpoint(request: Request) -> ASGIApp:
        report = partial(_report, expose=expose_errors)
        try:
            body, stream = await _read_request(request, max_body_bytes)
            cleaned, include_usage = _sanitized(body, allowed_fields, extra_fields)
            with exits_contained():
                work = asyncio.create_task(_answer(complete, cleaned, stream, include_usage))
            answer = await _while_connected(work, request.receive, keep_alive if stream else None)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except HTTPException as error:
            return _error_response(error.status_code, report(error), error.headers)
        except _RefusedRequest as error:
            return _error_response(error.status, _error(str(error), "invalid_request_error", error.param))
        except UpstreamError as error:
            return _error_response(502, report(error))
        except Exception as error:
            return _error_response(500, report(error))
        if isinstance(answer, bytes):
            return Response(answer, media_type="application/json")

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
    """The frames of one stream; closing them, begun or not, closes what they come from."""

    def __init__(
        self, frames: AsyncGenerator[bytes], close_source: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._frames = frames
        self._close_source = close_source

    async def __anext__(self) -> bytes:
        return await anext(self._frames)

    async def aclose(self) -> None:
        try:
            await self._frames.aclose()
        finally:
            if self._close_source is not None:
                await self._close_source()


async def _answer(complete: Complete, body: dict[str, Any], stream: bool, include_usage: bool) -> _Frames | bytes:
    """What is sent: frames of which the first exists, or the JSON of a whole completion; raises before either."""
    asked = include_usage or not stream
    call = partial(complete, body, include_usage=asked) if _wants_usage(complete) else partial(complete, body)
    answer = call() if _is_async(complete) else await run_sync(call)
    if inspect.isawaitable(answer):
        answer = await answer
    if not hasattr(answer, "__aiter__"):
        if isinstance(answer, BaseModel | Mapping):
            answer = _fields_of(cast("object", answer))
            if (error := error_in_chunk(answer)) is not None:
                raise error
        if not stream:
            return _json(read_chat_completion(answer))
        return _Frames(_synthesized(synthesize_chat_completion_sse(answer, include_usage)))
    chunks = aiter(cast("AsyncIterator[object]", answer))
    try:
        if not stream:
            return _json(await assemble_chat_completion_async(chunks))
        opening = await _opening(chunks, include_usage)
        frames = [encode_chunk(fields).encode() for fields in opening]
        answered = any(map(_says_something, opening))
        return _Frames(_passed_on(frames, chunks, include_usage, answered), partial(_close, chunks))
    except BaseException:
        await _close(chunks)
        raise


def _is_async(complete: Complete) -> bool:
    """Whether a call returns at once; an object with an async `__call__` does, too."""
    return any(
        inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        for function in (complete, getattr(complete, "__call__", None))  # noqa: B004
    )


def _wants_usage(complete: Complete) -> bool:
    try:
        parameter = inspect.signature(complete).parameters.get("include_usage")
    except (TypeError, ValueError):  # some builtins have none
        return False
    return parameter is not None and parameter.kind is not parameter.POSITIONAL_ONLY


async def _synthesized(frames: Iterator[str]) -> AsyncGenerator[bytes]:
    for frame in frames:
        yield frame.encode()


async def _opening(chunks: AsyncIterator[object], include_usage: bool) -> list[dict[str, Any]]:
    """The chunks up to the first that is one of a chat completion."""
    opening: list[dict[str, Any]] = []
    while (fields := await _next_fields(chunks, include_usage)) is not None:
        opening.append(fields)
        if "choices" in fields or "usage" in fields:
            return opening
    if not opening:
        raise UpstreamError("the model's stream holds no chunk")
    raise ConversionError(
        "no chunk of the model's stream has choices or usage, so these are no chunks of a chat completion; "
        f"the first looks like {describe(opening[0])}"
    )


async def _passed_on(
    opening: list[bytes], chunks: AsyncIterator[object], include_usage: bool, answered: bool
) -> AsyncGenerator[bytes]:
    for frame in opening:
        yield frame
    while (fields := await _next_fields(chunks, include_usage)) is not None:
        answered = answered or _says_something(fields)
        yield encode_chunk(fields).encode()
    if not answered:
        raise UpstreamError("no chunk of the model's stream has a choice")
    yield DONE_FRAME.encode()


def _says_something(fields: Mapping[str, Any]) -> bool:
    return bool(fields.get("choices")) or fields.get("usage") is not None


async def _begun_late(work: asyncio.Task[_Frames | bytes]) -> AsyncGenerator[bytes]:
    """A comment while `complete` still works, then its frames."""
    yield _PING
    async for frame in cast("_Frames", await work):
        yield frame


async def _next_fields(chunks: AsyncIterator[object], include_usage: bool) -> dict[str, Any] | None:
    """The next chunk that the client is to have, None at the end; an error that the stream reports is raised."""
    async for chunk in chunks:
        if chunk is None:  # a heartbeat
            continue
        fields = _fields_of(chunk)
        if (error := error_in_chunk(fields)) is not None:
            raise error
        if not include_usage and "usage" in fields:
            had_usage = fields.pop("usage") is not None
            if had_usage and not fields.get("choices"):
                continue
        return fields
    return None


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


def _sanitized(
    body: dict[str, Any], allowed_fields: Collection[str], extra_fields: Collection[str]
) -> tuple[dict[str, Any], bool]:
    try:
        return sanitize_streaming_chat_body(body, allowed_fields=allowed_fields, extra_fields=extra_fields)
    except ConversionError as error:
        raise _RefusedRequest(str(error)) from None


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


async def _while_connected(
    work: asyncio.Task[_Frames | bytes], receive: Receive, patience: float | None
) -> _Frames | bytes:
    """Await the work, for a stream no longer than the patience; give it up and raise `ClientDisconnect` if the client goes."""
    listener = asyncio.create_task(_disconnected(receive))
    kept = False
    try:
        await asyncio.wait((work, listener), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and listener.done():
            raise ClientDisconnect
        kept = True
        return _result(work) if work.done() else _Frames(_begun_late(work), partial(_give_up, work))
    finally:
        listener.cancel()
        if not kept:
            await _give_up(work)


def _result(work: asyncio.Task[_Frames | bytes]) -> _Frames | bytes:
    """What the work gave; what it raised as an exception that ends nothing but this request."""
    try:
        return work.result()
    except Exception:
        raise
    except BaseException as error:
        raise as_exception(error) from error


async def _give_up(work: asyncio.Task[_Frames | bytes]) -> None:
    """Cancel the work, or close what it gave."""
    if not work.done():
        work.cancel()
        await asyncio.wait((work,), timeout=_CLOSE_SECONDS)
    if not work.done():
        logger.warning(
            "a chat completion did not end within %g s of being cancelled and is left behind", _CLOSE_SECONDS
        )
        hold_left_behind(work)
        return
    if not work.cancelled() and work.exception() is None and isinstance(frames := work.result(), _Frames):
        await frames.aclose()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _report(error: BaseException, *, expose: bool) -> dict[str, Any]:
    """What a client may read of a failure; what it may not is logged under a reference."""
    if isinstance(error, UpstreamError):
        return _error(str(error), "upstream_error", code=error.code)
    if isinstance(error, HTTPException):
        return _error(str(error.detail), _kind_of(error))
    if expose:
        return _error(str(error) or type(error).__name__, "server_error")
    reference = secrets.token_hex(4)
    logger.error("a chat completion failed (reference %s)", reference, exc_info=error)
    return _error(f"The completion failed. Reference: {reference}", "server_error")


def _error(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"message": message, "type": kind, "param": param, "code": code}


def _kind_of(error: HTTPException) -> str:
    return "invalid_request_error" if error.status_code < 500 else "server_error"


def _error_response(status: int, error: dict[str, Any], headers: Any = None) -> Response:
    return Response(_json({"error": error}), status_code=status, headers=headers, media_type="application/json")


def _json(content: dict[str, Any]) -> bytes:
    """The content as ASCII JSON: a lone surrogate, which UTF-8 does not have, is escaped. `ValueError` for NaN."""
    return json.dumps(content, allow_nan=False).encode()
