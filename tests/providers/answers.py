"""One answer of each provider in its own protocol: a thought with its signature, text, a call; and what is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from provider_server import Json, aws_event_stream, pieces, sse

SIGNATURE = "U0lHTkFUVVJF"
REDACTED = "UkVEQUNURUQ="
ARGUMENTS = '{"a": 1, "b": 2}'


@dataclass
class Said:
    """What an answer holds.

    Attributes:
        thought: The whole thought.
        sealed: The encrypted values.
        usage: As AG-UI's `usage` entries count it.
        signed_call: The signature of the call.
    """

    thought: str = ""
    sealed: list[str] = field(default_factory=list)
    usage: dict[str, int] = field(default_factory=dict)
    signed_call: str = ""


TEXT = "I will add."
COUNTS = {"inputTokens": 25, "outputTokens": 40, "totalTokens": 65}


def anthropic(*, stop: str = "tool_use", cut: bool = False) -> bytes:
    """Anthropic's Messages."""
    usage = {"input_tokens": 25, "output_tokens": 40, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1},
    }

    def block(index: int, start: Json, deltas: list[Json]) -> Iterator[Json]:
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}

    thoughts: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in pieces("Let me see.")]
    arguments = ARGUMENTS[:7] if cut else ARGUMENTS
    call: Json = {"type": "tool_use", "id": "call_1", "name": "add", "input": {}}
    events: list[Json] = [
        {"type": "message_start", "message": message},
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            [*thoughts, {"type": "signature_delta", "signature": SIGNATURE}],
        ),
        *block(1, {"type": "redacted_thinking", "data": REDACTED}, []),
        *block(2, {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(TEXT)]),
        *block(3, call, [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces(arguments))]),
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return sse(events, named=True)


def openai_chat(*, stop: str = "tool_calls", cut: bool = False) -> bytes:
    """OpenAI's Chat Completions."""

    def chunk(delta: Json, finish: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "gpt",
            "choices": [choice],
        }

    def call(**fields: Any) -> Json:
        return chunk({"tool_calls": [{"index": 0, **fields}]})

    counts = {"prompt_tokens": 25, "completion_tokens": 40, "total_tokens": 65}
    arguments = ARGUMENTS[:7] if cut else ARGUMENTS
    events = [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": piece}) for piece in pieces(TEXT)),
        call(id="call_1", type="function", function={"name": "add", "arguments": ""}),
        *(call(function={"arguments": piece}) for piece in pieces(arguments)),
        chunk({}, stop),
        {**chunk({}), "choices": [], "usage": counts},
    ]
    return sse(events) + b"data: [DONE]\n\n"


def responses(*, stop: str = "completed", cut: bool = False) -> bytes:
    """OpenAI's Responses."""
    arguments = ARGUMENTS[:7] if cut else ARGUMENTS
    response: Json = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
    }
    parts: list[Json] = [{"type": "summary_text", "text": text} for text in ("**One**\n\nQuick.", "**Two**\n\nThen.")]
    thought: Json = {"id": "rs_1", "type": "reasoning", "summary": parts, "encrypted_content": SIGNATURE}
    text: Json = {"type": "output_text", "text": TEXT, "annotations": []}
    message: Json = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [text]}
    call: Json = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "add", "arguments": arguments}
    call["status"] = "incomplete" if cut else "completed"

    def steps() -> Iterator[tuple[str, Json]]:
        yield "response.created", {"response": response}
        at = {"item_id": "rs_1", "output_index": 0}
        yield (
            "response.output_item.added",
            {"output_index": 0, "item": {**thought, "summary": [], "encrypted_content": ""}},
        )
        for number, part in enumerate(parts):
            here = {**at, "summary_index": number}
            yield "response.reasoning_summary_part.added", {**here, "part": {**part, "text": ""}}
            for piece in pieces(part["text"]):
                yield "response.reasoning_summary_text.delta", {**here, "delta": piece}
            yield "response.reasoning_summary_text.done", {**here, "text": part["text"]}
        yield "response.output_item.done", {"output_index": 0, "item": thought}
        at = {"item_id": "msg_1", "output_index": 1, "content_index": 0}
        yield "response.output_item.added", {"output_index": 1, "item": {**message, "content": []}}
        yield "response.content_part.added", {**at, "part": {**text, "text": ""}}
        for piece in pieces(TEXT):
            yield "response.output_text.delta", {**at, "delta": piece, "logprobs": []}
        yield "response.output_text.done", {**at, "text": TEXT, "logprobs": []}
        yield "response.content_part.done", {**at, "part": text}
        yield "response.output_item.done", {"output_index": 1, "item": message}
        at = {"item_id": "fc_1", "output_index": 2}
        yield "response.output_item.added", {"output_index": 2, "item": {**call, "arguments": ""}}
        for piece in pieces(arguments):
            yield "response.function_call_arguments.delta", {**at, "delta": piece}
        yield "response.function_call_arguments.done", {**at, "arguments": arguments, "name": "add"}
        yield "response.output_item.done", {"output_index": 2, "item": call}
        counts = {"input_tokens": 25, "output_tokens": 40, "total_tokens": 65}
        counts |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 7}}  # type: ignore[dict-item]
        ended = {**response, "status": stop, "output": [thought, message, call], "usage": counts}
        if stop == "incomplete":
            ended["incomplete_details"] = {"reason": "max_output_tokens"}
        yield f"response.{stop}", {"response": ended}

    return sse([{"type": kind, "sequence_number": at, **step} for at, (kind, step) in enumerate(steps())], named=True)


def bedrock(*, stop: str = "tool_use", cut: bool = False) -> bytes:
    """Bedrock's ConverseStream."""

    def delta(index: int, **delta: Any) -> tuple[str, Json]:
        return "contentBlockDelta", {"contentBlockIndex": index, "delta": delta}

    def ends(index: int) -> tuple[str, Json]:
        return "contentBlockStop", {"contentBlockIndex": index}

    arguments = ARGUMENTS[:7] if cut else ARGUMENTS
    use = {"toolUse": {"toolUseId": "call_1", "name": "add"}}
    return aws_event_stream(
        [
            ("messageStart", {"role": "assistant"}),
            *(delta(0, reasoningContent={"text": piece}) for piece in pieces("Let me see.")),
            delta(0, reasoningContent={"signature": SIGNATURE}),
            ends(0),
            delta(1, reasoningContent={"redactedContent": REDACTED}),
            ends(1),
            *(delta(2, text=piece) for piece in pieces(TEXT)),
            ends(2),
            ("contentBlockStart", {"contentBlockIndex": 3, "start": use}),
            *(delta(3, toolUse={"input": piece}) for piece in pieces(arguments)),
            ends(3),
            ("messageStop", {"stopReason": stop}),
            (
                "metadata",
                {"usage": {"inputTokens": 25, "outputTokens": 40, "totalTokens": 65}, "metrics": {"latencyMs": 1}},
            ),
        ]
    )


def gemini(*, stop: str = "STOP", cut: bool = False) -> bytes:
    """Gemini's streamGenerateContent; it has whole calls only."""

    def chunk(parts: list[Json], candidates: int, **more: Any) -> Json:
        counts = {"promptTokenCount": 25, "candidatesTokenCount": candidates, "thoughtsTokenCount": 7}
        counts["totalTokenCount"] = 32 + candidates
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **more}
        return {"candidates": [candidate], "modelVersion": "gemini", "responseId": "r", "usageMetadata": counts}

    call: Json = {"functionCall": {"name": "add", "args": {"a": 1, "b": 2}}, "thoughtSignature": SIGNATURE}
    texts = list(pieces(TEXT))
    return sse(
        [
            *(chunk([{"text": piece, "thought": True}], 0) for piece in pieces("Let me see.")),
            *(chunk([{"text": piece}], 10) for piece in texts[:-1]),
            chunk([{"text": texts[-1], "thoughtSignature": REDACTED}], 20),
            *(() if cut else (chunk([call], 20),)),
            chunk([{"text": ""}], 33, finishReason=stop),
        ]
    )


def text_answer(provider: str, number: int = 2) -> bytes:
    """An answer of text alone, which ends a conversation; `number` is in its ids."""
    if provider == "anthropic":
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude", "content": []}
        usage = {"input_tokens": 1, "output_tokens": 1}
        return sse(
            [
                {
                    "type": "message_start",
                    "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage},
                },
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "It is 3."}},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
                {"type": "message_stop"},
            ],
            named=True,
        )
    if provider == "bedrock":
        return aws_event_stream(
            [
                ("messageStart", {"role": "assistant"}),
                ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "It is 3."}}),
                ("contentBlockStop", {"contentBlockIndex": 0}),
                ("messageStop", {"stopReason": "end_turn"}),
            ]
        )
    if provider == "gemini":
        candidate = {"content": {"role": "model", "parts": [{"text": "It is 3."}]}, "finishReason": "STOP", "index": 0}
        return sse([{"candidates": [candidate], "modelVersion": "gemini", "responseId": f"r{number}"}])
    if provider == "openai":
        choice = {"index": 0, "delta": {"role": "assistant", "content": "It is 3."}, "finish_reason": "stop"}
        chunk = {
            "id": f"c{number}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "gpt",
            "choices": [choice],
        }
        return sse([chunk]) + b"data: [DONE]\n\n"
    response: Json = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": "gpt", "output": []}
    response |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "status": "in_progress"}
    part = {"type": "output_text", "text": "It is 3.", "annotations": []}
    item: Json = {
        "id": f"msg_{number}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }
    at = {"item_id": f"msg_{number}", "output_index": 0, "content_index": 0}
    steps: list[tuple[str, Json]] = [
        ("response.created", {"response": response}),
        ("response.output_item.added", {"output_index": 0, "item": {**item, "content": []}}),
        ("response.content_part.added", {**at, "part": {**part, "text": ""}}),
        ("response.output_text.delta", {**at, "delta": "It is 3.", "logprobs": []}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": {**response, "status": "completed", "output": [item]}}),
    ]
    return sse(
        [{"type": kind, "sequence_number": number, **step} for number, (kind, step) in enumerate(steps)], named=True
    )


@dataclass
class Provider:
    """A provider's protocol, and what its answer holds.

    Attributes:
        answer: Its answer; `stop` is its word for the end, `cut` leaves the call's arguments incomplete.
        said: What it holds.
        length: Its word for an answer that reached its limit.
        content_type: Of its stream.
    """

    name: str
    answer: Callable[..., bytes]
    said: Said
    length: str
    content_type: str = "text/event-stream"


_SEALED = Said("Let me see.", [SIGNATURE, REDACTED], COUNTS)
_SUMMARY = Said(
    "**One**\n\nQuick.\n\n**Two**\n\nThen.", [SIGNATURE], {**COUNTS, "reasoningTokens": 7, "cachedInputTokens": 0}
)
PROVIDERS = {
    "anthropic": Provider("anthropic", anthropic, _SEALED, "max_tokens"),
    "bedrock": Provider("bedrock", bedrock, _SEALED, "max_tokens", "application/vnd.amazon.eventstream"),
    "gemini": Provider(
        "gemini", gemini, Said("Let me see.", [REDACTED], {**COUNTS, "reasoningTokens": 7}, SIGNATURE), "MAX_TOKENS"
    ),
    "openai": Provider("openai", openai_chat, Said(usage=COUNTS), "length"),
    "responses": Provider("responses", responses, _SUMMARY, "incomplete"),
}
