"""Write a whole completion as the stream a client would have got, without losing a field.

The order inside a choice and the one delta each are what all five clients' accumulators can put together: a list or
an unknown key may come once only (openai-python raises on the second, npm keeps the last), several tool calls in one
chunk make npm's `.stream()` report a call's end before its delta, and the role may be said once.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Iterator
from inspect import isawaitable
from typing import Any, Final

from dragent_stream.chat_completions.schema import read_chat_completion
from dragent_stream.errors import ConversionError

__all__ = (
    "DONE_FRAME",
    "encode_chunk",
    "stream_chat_completion_sse",
    "synthesize_chat_completion_chunks",
    "synthesize_chat_completion_sse",
)

DONE_FRAME: Final = "data: [DONE]\n\n"
# One delta for all forms of the same thought, as OpenRouter sends them: a reader must not take it for two.
_REASONING: Final = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
_OWN_DELTA: Final = ("content", "refusal", "audio", "annotations")
_TYPED: Final = frozenset({*_REASONING, *_OWN_DELTA, "function_call", "tool_calls"})


def synthesize_chat_completion_chunks(completion: object, include_usage: bool = False) -> Iterator[dict[str, Any]]:
    """Give the chunks of a completion, as JSON objects; `assemble_chat_completion` is the way back.

    For each choice, by its index: the role chunk (with the keys that are null or empty, the message's extras and the
    choice's extras), reasoning in all its spellings, content with its logprobs, refusal with its logprobs, audio,
    annotations, the old `function_call`, each tool call, and the finish reason. Then the usage, if it
    was asked for and is known. The completion's own extras are on every chunk.

    Args:
        completion: As for `read_chat_completion`. It is read while the chunks are taken: do not change it meanwhile.
        include_usage: The client's `stream_options.include_usage`.

    Returns:
        A lazy iterator: one chunk exists at a time. A completion without choices gives its usage chunk.

    Raises:
        pydantic.ValidationError, UpstreamError, ConversionError: At once, not while iterating; as for
            `read_chat_completion`. A ConversionError also where there is no choice and the usage was not asked for.
    """
    whole = read_chat_completion(completion)
    if not whole["choices"] and not include_usage:
        raise ConversionError("the completion has no choice, so there is no answer to stream")
    return _chunks(whole, include_usage)


def synthesize_chat_completion_sse(completion: object, include_usage: bool = False) -> Iterator[str]:
    r"""Give the same as SSE text: one `data: {...}\n\n` for each chunk, then `data: [DONE]\n\n`.

    The JSON is ASCII and valid in every case. Arguments and errors as for `synthesize_chat_completion_chunks`.
    """
    return _frames(synthesize_chat_completion_chunks(completion, include_usage))


async def stream_chat_completion_sse(
    completion: object | Awaitable[object], include_usage: bool = False
) -> AsyncGenerator[str]:
    """Give the same frames from an async generator; the completion may still have to be awaited."""
    whole = await completion if isawaitable(completion) else completion
    for frame in synthesize_chat_completion_sse(whole, include_usage):
        yield frame


def encode_chunk(chunk: object) -> str:
    """One chunk as an SSE frame; `ValueError` for what JSON cannot carry."""
    return f"data: {json.dumps(chunk, separators=(',', ':'), allow_nan=False)}\n\n"


def _frames(chunks: Iterator[dict[str, Any]]) -> Iterator[str]:
    for chunk in chunks:
        yield encode_chunk(chunk)
    yield DONE_FRAME


def _chunks(completion: dict[str, Any], include_usage: bool) -> Iterator[dict[str, Any]]:
    include_usage = include_usage and "usage" in completion
    usage = completion.pop("usage", None)
    choices: list[dict[str, Any]] = completion.pop("choices")
    completion["object"] = "chat.completion.chunk"
    head = {key: completion.pop(key) for key in ("id", "object", "created", "model")}
    # As OpenAI documents: with usage asked for, it is null on all chunks but the last.
    tail: dict[str, Any] = {**completion, "usage": None} if include_usage else completion
    for choice in choices:
        for part in _choice_chunks(choice):
            yield {**head, "choices": [part], **tail}
    if include_usage and usage is not None:
        yield {**head, "choices": [], **completion, "usage": usage}


def _choice_chunks(choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
    index, message, finish = choice.pop("index"), choice.pop("message"), choice.pop("finish_reason")
    has_logprobs = "logprobs" in choice
    logprobs = _place_logprobs(choice.pop("logprobs", None), message)

    def part(delta: dict[str, Any], kind: str = "", finish: str | None = None) -> dict[str, Any]:
        made: dict[str, Any] = {"index": index, "delta": delta}
        if has_logprobs:
            made["logprobs"] = logprobs.get(kind)
        made["finish_reason"] = finish
        return made

    yield {**part(_role_delta(message), "role"), **choice}
    if reasoning := {key: message[key] for key in _REASONING if message.get(key)}:
        yield part(reasoning)
    for key in _OWN_DELTA:
        if message.get(key):
            yield part({key: message[key]}, key)
    if message.get("function_call"):
        yield part({"function_call": message["function_call"]})
    for position, call in enumerate(message.get("tool_calls") or ()):
        yield part({"tool_calls": [{"index": position, **call}]})
    yield part({}, finish=finish)


def _role_delta(message: dict[str, Any]) -> dict[str, Any]:
    """Role and empty content as OpenAI opens a message, with every key that gets no delta of its own."""
    delta: dict[str, Any] = {"role": message["role"]}
    for key, value in message.items():
        if key == "content":
            delta[key] = "" if value else value
        elif key not in _TYPED or not value:
            delta[key] = value
    return delta


def _place_logprobs(logprobs: dict[str, Any] | None, message: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Which delta carries which logprobs: content's go with the content, a refusal's with the refusal."""
    if logprobs is None:
        return {}
    if logprobs.get("content") and logprobs.get("refusal") and message.get("content") and message.get("refusal"):
        return {"content": {**logprobs, "refusal": None}, "refusal": {"content": None, "refusal": logprobs["refusal"]}}
    texts = ("refusal", "content") if logprobs.get("refusal") else ("content", "refusal")
    return {next((key for key in texts if message.get(key)), "role"): logprobs}
