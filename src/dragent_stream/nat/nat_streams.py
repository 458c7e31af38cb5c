"""What NAT's own streaming routes write, so that a client of theirs can tell a failure, an end and a usage count.

NAT (1.6 to 1.9) reports the failure of a stream as a line of bare JSON, which SSE clients skip, ends a chat completion
with a chunk of another id, and counts no usage.
"""

import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable
from functools import wraps
from typing import Any

from dragent_stream.nat.chat_stream import UNKNOWN_MODEL, ChatStream, chat_stream
from dragent_stream.nat.imports import ChatRequest, ChatResponseChunk
from dragent_stream.nat.server_imports import HTTPInteractiveRunner, common_utils, generate, v1_chat_completions

__all__ = ["patch"]

Frames = AsyncGenerator[str, None]


def patch() -> None:
    """Write the frames of NAT's streaming routes anew; a second call changes nothing."""
    for module in (common_utils, v1_chat_completions):
        _rewrite(module, "generate_streaming_response_as_str", _chat_payload)
    for form in ("full", "atif"):
        _rewrite(generate, f"generate_streaming_response_{form}_as_str", _no_chat)
    _rewrite(HTTPInteractiveRunner, "streaming_generator", lambda *args: _chat_payload(args[1]))
    _rewrite(HTTPInteractiveRunner, "streaming_generator_raw", _no_chat)


def _chat_payload(payload: Any) -> ChatRequest | None:
    return payload if isinstance(payload, ChatRequest) else None


def _no_chat(*args: Any) -> None:
    return None


def _rewrite(owner: Any, name: str, chat_request_of: Callable[..., ChatRequest | None]) -> None:
    original: Callable[..., Frames] = getattr(owner, name)
    if getattr(original, "writes_failures", False):
        return

    @wraps(original)
    async def rewritten(*args: Any, **kwargs: Any) -> Frames:
        request = chat_request_of(*args)
        frames = original(*args, **kwargs)
        if request is not None and kwargs.get("output_type") is ChatResponseChunk:
            chat_stream.set(ChatStream())
            frames = _chat_frames(frames, request)
        else:
            frames = _stream_frames(frames)
        async with contextlib.aclosing(frames):
            async for frame in frames:
                yield frame

    marked: Any = rewritten
    marked.writes_failures = True
    setattr(owner, name, marked)


async def _stream_frames(frames: Frames) -> Frames:
    async with contextlib.aclosing(frames):
        async for frame in frames:
            failure = _failure(frame)
            yield frame if failure is None else f"event: error\ndata: {json.dumps(failure)}\n\n"


async def _chat_frames(frames: Frames, request: ChatRequest) -> Frames:
    """A chat completion: its chunks, the usage where it was asked for, [DONE]; or an error chunk, and nothing after it."""
    stream = chat_stream.get() or ChatStream()
    async with contextlib.aclosing(frames):
        async for frame in frames:
            failure = _failure(frame)
            if failure is not None:
                error = {"message": failure.get("message"), "type": "server_error", "code": failure.get("code")}
                yield _chunk(stream, error=error)
                return
            if frame.startswith("data: [DONE]"):
                break
            if not stream.finished or stream.id in frame or not frame.startswith("data: "):
                yield frame
    options = request.stream_options or {}
    if stream.usage is not None and options.get("include_usage"):
        yield _chunk(stream, usage=stream.usage.model_dump())
    yield "data: [DONE]\n\n"


def _chunk(stream: ChatStream, **fields: Any) -> str:
    chunk = {
        "id": stream.id,
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": stream.model or UNKNOWN_MODEL,
        "choices": [],
        **fields,
    }
    return f"data: {json.dumps(chunk)}\n\n"


def _failure(frame: str) -> dict[str, Any] | None:
    """The failure that NAT reports in a frame, as a line of bare JSON or as an event of its own."""
    if frame.startswith("{"):
        return json.loads(frame)
    if frame.startswith("event: error\n"):
        return json.loads(frame.partition("data: ")[2])
    return None
