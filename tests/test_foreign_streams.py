"""Streams of other APIs, and what only looks like chunks: none of them is a success without content.

Hand-written after the references of the APIs; each is tried as objects, as an SSE body, as a body of JSON lines and as
a recording.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from agui_case import convert, counted_ids, wire

from dragent_stream import ConverterOptions, convert_trace, stream_agui_run
from dragent_stream.check import check_events
from dragent_stream.events import ModelEvents, WireEvents

Stream = list[dict[str, Any]]

# name: (what its message calls it, the stream)
STREAMS: dict[str, tuple[str, Stream]] = {
    "responses": (
        "Responses",
        [
            {"type": "response.created", "response": {"id": "r1", "status": "in_progress", "output": []}},
            {"type": "response.output_text.delta", "item_id": "m1", "output_index": 0, "delta": "Hello"},
            {"type": "response.completed", "response": {"id": "r1", "status": "completed", "output": []}},
        ],
    ),
    "responses body": (
        "Responses",
        [{"object": "response", "id": "r", "status": "completed", "output": [{"type": "message"}]}],
    ),
    "anthropic": (
        "Anthropic",
        [
            {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        ],
    ),
    "anthropic body": (
        "Anthropic",
        [
            {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "content": [{"type": "text", "text": "Hello"}],
                "model": "x",
                "stop_reason": "end_turn",
            }
        ],
    ),
    "gemini": (
        "Gemini",
        [
            {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hello"}]}, "index": 0}]},
            {"candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP"}], "usageMetadata": {}},
        ],
    ),
    "ollama": (
        "Ollama",
        [{"model": "m", "created_at": "x", "message": {"role": "assistant", "content": "Hel"}, "done": False}],
    ),
    "ollama generate": ("Ollama", [{"model": "m", "created_at": "x", "response": "Hello", "done": True}]),
    "bedrock": (
        "Bedrock",
        [
            {"messageStart": {"role": "assistant"}},
            {"contentBlockDelta": {"delta": {"text": "Hello"}, "contentBlockIndex": 0}},
        ],
    ),
    "cohere": ("Cohere", [{"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "Hello"}}}}]),
    "ai sdk": ("AI SDK", [{"type": "start"}, {"type": "text-delta", "id": "1", "delta": "Hello"}, {"type": "finish"}]),
    "ag-ui": (
        "AG-UI",
        [
            {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
            {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hello"},
        ],
    ),
    "assistants": ("Assistants", [{"object": "thread.message.delta", "id": "m", "delta": {"content": []}}]),
    "realtime": ("Realtime", [{"type": "response.audio_transcript.delta", "event_id": "e", "delta": "Hello"}]),
    "json-rpc": (
        "JSON-RPC",
        [{"jsonrpc": "2.0", "id": 1, "result": {"kind": "message", "parts": [{"text": "Hello"}]}}],
    ),
    "embeddings": (
        "embedding",
        [{"object": "list", "data": [{"object": "embedding", "embedding": [0.1]}], "model": "m"}],
    ),
    "models": ("list", [{"object": "list", "data": [{"object": "model", "id": "m"}]}]),
    "misspelt": (
        "choises",
        [{"id": "c", "object": "chat.completion.chunk", "choises": [{"delta": {"content": "Hello"}}]}],
    ),
    "wrapped": ("data", [{"data": {"choices": [{"delta": {"content": "Hello"}}]}}]),
    "payload": ("value", [{"value": "Hello"}]),
    "text": ("text", [{"text": "Hello"}]),
    "hello": ("hello", [{"hello": "world"}]),
    "empty objects": ("empty", [{}, {}]),
    "request": ("", [{"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}]),
    "empty choices": ("", [{"id": "c", "object": "chat.completion.chunk", "choices": []}]),
    "empty deltas": ("", [{"choices": [{"index": 0, "delta": {}, "finish_reason": None}]}]),
    "roles alone": ("", [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]),
    "usage alone": ("", [{"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}]),
    "a call without a call": ("", [{"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}]),
    "only of a user": ("", [{"choices": [{"index": 0, "delta": {"role": "user", "content": "Hello"}}]}]),
    "langgraph updates without messages": ("", [{"agent": {"steps": 3}}]),
    "no choice is an object": ("", [{"choices": ["Hello", 5, None]}]),
    "calls without names": (
        "",
        [{"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}}]}],
    ),
}
CODES = ("UNKNOWN_CHUNKS", "EMPTY_ANSWER", "INCOMPLETE_TOOL_CALL")


def sse(stream: Stream) -> bytes:
    return b"".join(b"data: " + json.dumps(item).encode() + b"\n\n" for item in stream)


@pytest.mark.parametrize("name", STREAMS)
def test_a_foreign_stream_is_no_success_and_its_message_says_what_it_is(name: str) -> None:
    word, stream = STREAMS[name]
    lines = b"".join(json.dumps(item).encode() + b"\n" for item in stream)
    for feed in (stream, [sse(stream)], [sse(stream) + b"data: [DONE]\n\n"], [lines]):
        for writer in (ModelEvents(), WireEvents()):
            events = convert(feed, writer, ConverterOptions(new_id=counted_ids()))
            assert [event["type"] for event in events] == ["RUN_STARTED", "RUN_ERROR"]
            cut = not word and isinstance(feed[0], bytes) and b"[DONE]" not in feed[0]
            assert events[-1]["code"] in (("STREAM_ERROR", *CODES) if cut else CODES)
            assert check_events(events) == []
            assert "Hello" not in events[-1]["message"]  # what the stream says is nobody's in an error
    by_objects = convert(stream, WireEvents(), ConverterOptions(new_id=counted_ids()))[-1]
    if word:
        assert by_objects["code"] == "UNKNOWN_CHUNKS"
        assert word.lower() in by_objects["message"].lower()
        assert ";" in by_objects["message"]  # the remedy is behind it


@pytest.mark.parametrize("name", [name for name in STREAMS if name != "ag-ui"])
def test_a_recording_of_a_foreign_stream_is_no_success(name: str) -> None:
    lines = [
        '{"dragent_trace": 1}',
        *(json.dumps({"t": 0, "chunk": item}) for item in STREAMS[name][1]),
        '{"t": 1, "end": true}',
    ]
    events = [json.loads(event) for event in convert_trace(lines)]
    assert (events[-1]["type"], events[-1]["code"] in CODES) == ("RUN_ERROR", True)


@pytest.mark.parametrize(
    "source", [[], [None, None], [""], [object()], [3.5], [b""], [b": ping\n\n"], [b"data: [DONE]\n\n"]]
)
async def test_a_stream_of_nothing_is_no_success(source: list[Any]) -> None:
    events = [wire(event) async for event in stream_agui_run(source)]
    assert [event["type"] for event in events] == ["RUN_STARTED", "RUN_ERROR"]
    assert events[-1]["code"] in CODES


def test_what_is_understood_in_part_is_shown_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    feed = [
        {"hello": 1},
        {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]},
        {"hello": 2},
    ]
    with caplog.at_level(logging.WARNING):
        events = convert(feed, WireEvents(), ConverterOptions(new_id=counted_ids()))
    assert events[-1]["type"] == "RUN_FINISHED"
    assert "2 chunks of the stream were not understood" in caplog.messages[-1]


def test_there_are_thirty_of_them() -> None:
    assert len(STREAMS) >= 30


BODY = 'data: {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("pieces", [BODY.split("\n"), [BODY], [BODY[:30], BODY[30:]], BODY.splitlines(keepends=True)])
def test_strings_that_are_an_sse_body_are_read_as_one(pieces: list[str]) -> None:
    """`aiter_lines()` and `aiter_text()` of httpx give them."""
    events = convert(pieces, WireEvents(), ConverterOptions(new_id=counted_ids()))
    assert [event.get("delta") for event in events if "delta" in event] == ["Hi"]
    assert events[-1]["type"] == "RUN_FINISHED"


@pytest.mark.parametrize(
    "delta_fields",
    [
        {"content": "", "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
        {"content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"audio": {"id": "a", "data": "AAAA"}},
    ],
)
def test_an_answer_of_parts_that_messages_do_not_have_says_so(
    delta_fields: Any, caplog: pytest.LogCaptureFixture
) -> None:
    parts = {"choices": [{"index": 0, "delta": delta_fields, "finish_reason": None}]}
    stop = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    events = convert([parts, stop], WireEvents(), ConverterOptions(new_id=counted_ids()))
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "UNKNOWN_CHUNKS")
    text = {"choices": [{"index": 0, "delta": {"content": "Look: "}}]}
    events = convert([text, parts, stop], WireEvents(), ConverterOptions(new_id=counted_ids()))
    assert events[-1]["type"] == "RUN_FINISHED"
    assert "images" in caplog.messages[-1]


def test_what_is_spoken_is_text_by_its_transcript() -> None:
    spoken = {
        "choices": [{"index": 0, "delta": {"audio": {"id": "a", "transcript": "Hello"}}, "finish_reason": "stop"}]
    }
    events = convert([spoken], WireEvents(), ConverterOptions(new_id=counted_ids()))
    assert [event.get("delta") for event in events if "delta" in event] == ["Hello"]
