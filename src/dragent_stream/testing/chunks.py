"""Builders of chat completion chunks: the shortest way to script an upstream in a test.

Each builder returns one plain dict in the shape of an OpenAI `chat.completion.chunk`. Keys without a value are left
out, as most providers do; pass `id` and `model` to imitate a certain one.
"""

from __future__ import annotations

from typing import Any

__all__ = (
    "Chunk",
    "error_chunk",
    "finish_chunk",
    "reasoning_chunk",
    "text_chunk",
    "tool_call_chunk",
    "usage_chunk",
)

Chunk = dict[str, Any]


def _chunk(choices: list[dict[str, Any]], id: str, model: str) -> Chunk:
    return {"id": id, "object": "chat.completion.chunk", "created": 0, "model": model, "choices": choices}


def _delta_chunk(delta: dict[str, Any], id: str, model: str, finish_reason: str | None = None) -> Chunk:
    return _chunk([{"index": 0, "delta": delta, "finish_reason": finish_reason}], id, model)


def text_chunk(
    content: str,
    *,
    role: str | None = None,
    finish_reason: str | None = None,
    id: str = "chatcmpl-1",
    model: str = "test-model",
) -> Chunk:
    """Return a chunk with a piece of the answer's text."""
    delta: dict[str, Any] = {"content": content}
    if role is not None:
        delta["role"] = role
    return _delta_chunk(delta, id, model, finish_reason)


def reasoning_chunk(
    content: str, *, key: str = "reasoning_content", id: str = "chatcmpl-1", model: str = "test-model"
) -> Chunk:
    """Return a chunk with a piece of reasoning.

    Args:
        content: The piece.
        key: Where the provider puts it: `reasoning_content` (DeepSeek, vLLM, NIM) or `reasoning` (OpenRouter, Groq).
        id: The chunk's id.
        model: The chunk's model.
    """
    return _delta_chunk({key: content}, id, model)


def tool_call_chunk(
    arguments: str | None = None,
    *,
    call_id: str | None = None,
    name: str | None = None,
    index: int | None = 0,
    id: str = "chatcmpl-1",
    model: str = "test-model",
) -> Chunk:
    """Return a chunk with one tool call delta.

    The first delta of a call has `call_id` and `name`; later ones only `arguments`, a piece of the JSON text.
    `index=None` leaves the index out, as some providers do.
    """
    function: dict[str, Any] = {}
    if name is not None:
        function["name"] = name
    if arguments is not None:
        function["arguments"] = arguments
    call: dict[str, Any] = {}
    if index is not None:
        call["index"] = index
    if call_id is not None:
        call |= {"id": call_id, "type": "function"}
    call["function"] = function
    return _delta_chunk({"tool_calls": [call]}, id, model)


def finish_chunk(
    reason: str = "stop",
    *,
    usage: dict[str, Any] | None = None,
    id: str = "chatcmpl-1",
    model: str = "test-model",
) -> Chunk:
    """Return the chunk that ends a model turn: `stop`, `tool_calls`, `length`, `content_filter`."""
    chunk = _delta_chunk({}, id, model, reason)
    if usage is not None:
        chunk["usage"] = usage
    return chunk


def usage_chunk(
    input_tokens: int,
    output_tokens: int,
    *,
    cached_tokens: int | None = None,
    reasoning_tokens: int | None = None,
    id: str = "chatcmpl-1",
    model: str = "test-model",
) -> Chunk:
    """Return the chunk after the last one, without choices, that `stream_options.include_usage` asks for.

    Args:
        input_tokens: All tokens of the prompt, cached ones included.
        output_tokens: All tokens of the answer, reasoning included.
        cached_tokens: The part of `input_tokens` read from a cache.
        reasoning_tokens: The part of `output_tokens` spent on reasoning.
        id: The chunk's id.
        model: The chunk's model.
    """
    usage: dict[str, Any] = {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
    if cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
    if reasoning_tokens is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning_tokens}
    return _chunk([], id, model) | {"usage": usage}


def error_chunk(message: str, *, code: str | int | None = None, type: str | None = None) -> Chunk:
    """Return what a provider sends in place of a chunk when it fails in the middle of a stream."""
    error: dict[str, Any] = {"message": message}
    if type is not None:
        error["type"] = type
    if code is not None:
        error["code"] = code
    return {"error": error}
