"""What is no chunk is named, with its remedy; its keys are shown, its values never."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from ag_ui.core import EventType, TextMessageContentEvent
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, messages_to_dict
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseTextDeltaEvent

from dragent_stream.foreign import describe

TEXT = "SECRET words of a person"

RESPONSES = {"type": "response.created", "response": {"id": "r", "output": []}}
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}

TABLE: list[tuple[object, str, str]] = [
    # OpenAI's other APIs
    (RESPONSES, "a Responses API event (response.created)", "Chat Completions"),
    ({"type": "response.output_text.delta", "delta": TEXT}, "Responses API event", "langchain-openai"),
    ({"type": "response.mcp_call.in_progress", "item_id": "i"}, "Responses API event", "Chat Completions"),
    ({"object": "response", "output": [{"type": "message"}]}, "a Responses API body", "Chat Completions"),
    ({"type": "response.text.delta", "event_id": "e", "delta": TEXT}, "Realtime API event", "Chat Completions"),
    ({"type": "session.created", "session": {}}, "Realtime API event (session.created)", "Chat Completions"),
    ({"type": "input_audio_buffer.speech_started"}, "Realtime API event", "Chat Completions"),
    ({"event": "thread.message.delta", "data": {}}, "Assistants API event (thread.message.delta)", "Chat"),
    ({"object": "thread.run", "id": "run_1"}, "an Assistants API object (thread.run)", "Chat Completions"),
    ({"object": "list", "data": [{"object": "embedding", "embedding": [0.1]}]}, "(embedding)", "another route"),
    ({"object": "list", "data": [{"object": "model", "id": "m"}]}, "(model)", "another route"),
    ({"object": "list", "data": []}, "list object", "another route"),
    ({"object": "embedding", "embedding": [0.1]}, "an API object (embedding)", "another route"),
    ({"object": "text_completion", "choices": [{"text": ""}]}, "a text completion", "Chat Completions"),
    ({"type": "run_item_stream_event", "name": "n", "item": {}}, "an Agents SDK event", "Chat Completions"),
    # Other providers
    (
        {"type": "message_start", "message": {"id": "m"}},
        "Anthropic Messages event (message_start)",
        "langchain-anthropic",
    ),
    ({"type": "content_block_delta", "index": 0, "delta": {"text": TEXT}}, "Anthropic", "langchain-anthropic"),
    ({"type": "ping"}, "Anthropic Messages event (ping)", "langchain-anthropic"),
    (
        {"type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"},
        "Anthropic Messages body",
        "lang",
    ),
    ({"candidates": [{"content": {"parts": [{"text": TEXT}]}}]}, "Gemini GenerateContentResponse", "/v1beta/openai"),
    ([{"candidates": []}], "a list that begins with a Gemini", "/v1beta/openai"),
    ({"usageMetadata": {"promptTokenCount": 1}}, "Gemini", "langchain-google-genai"),
    ({"event_type": "content.delta", "delta": {}}, "Gemini Interactions event", "OpenAI-compatible"),
    ({"messageStart": {"role": "assistant"}}, "Bedrock Converse event (messageStart)", "langchain-aws"),
    ({"contentBlockDelta": {"delta": {"text": TEXT}}}, "Bedrock Converse event", "langchain-aws"),
    ({"output": {"message": {}}, "stopReason": "end_turn"}, "Bedrock Converse body", "langchain-aws"),
    ({"chunk": {"bytes": b"x"}}, "Bedrock InvokeModel event", "langchain-aws"),
    ({"type": "content-delta", "index": 0, "delta": {}}, "a Cohere event (content-delta)", "/compatibility/v1"),
    ({"type": "message-start", "id": "x"}, "a Cohere event", "langchain-cohere"),
    ({"event_type": "text-generation", "text": TEXT, "is_finished": False}, "a Cohere event", "langchain-cohere"),
    ({"model": "m", "message": {"content": TEXT}, "done": False}, "a line of Ollama's own API (message)", ":11434/v1"),
    ({"model": "m", "response": TEXT, "done": True}, "a line of Ollama's own API (response)", ":11434/v1"),
    ({"type": "message.output.delta", "content": TEXT}, "Mistral Conversations event", "Chat Completions"),
    # Frameworks
    (("messages", (AIMessageChunk(TEXT), {})), "a LangGraph part (mode messages)", 'stream_mode="messages"'),
    (("updates", {"node": {}}), "a LangGraph part (mode updates)", 'stream_mode="messages"'),
    ((("node:1",), "values", {}), "a LangGraph part (mode values)", 'stream_mode="messages"'),
    (((), {"node": {}}), "a LangGraph part of a subgraph", 'stream_mode="messages"'),
    ({"type": "updates", "ns": (), "data": {}}, "a LangGraph part (mode updates)", 'stream_mode="messages"'),
    ({"type": "event", "method": "values", "params": {}, "seq": 1}, "LangGraph stream event (values)", "astream"),
    ({"type": "task", "step": 1, "payload": {}}, "a LangGraph part (task)", "astream"),
    ({"agent": {"messages": []}}, "a LangGraph part (mode updates)", "astream"),
    ({"messages": []}, "a LangGraph part (mode values)", "astream"),
    ({"__interrupt__": ()}, "a LangGraph part (an interrupt)", "astream"),
    (
        {"event": "on_chain_start", "data": {}, "run_id": "r"},
        "LangChain stream event (on_chain_start)",
        "on_chat_model",
    ),
    ({"event": "content-block-delta", "index": 0}, "LangChain content event", "astream"),
    (SimpleNamespace(event="messages/partial", data=[]), "a part of a LangGraph server (messages/partial)", "astream"),
    (messages_to_dict([AIMessage(TEXT)])[0], "a serialized LangChain message (ai)", "messages_from_dict"),
    ({"lc": 1, "type": "constructor", "id": [], "kwargs": {}}, "a serialized LangChain object", "load"),
    (str(AIMessageChunk(TEXT)), "a LangChain message turned into text", "yield the message itself"),
    (repr(AIMessageChunk(TEXT)), "the repr of a AIMessageChunk", "yield the object itself"),
    (AIMessageChunk(""), "a LangChain message without an answer", "look at what the model sent"),
    ({"type": "text-delta", "id": "0", "delta": TEXT}, "an AI SDK stream part (text-delta)", "for a browser"),
    ({"type": "start-step"}, "an AI SDK stream part (start-step)", "for a browser"),
    ({"type": "tool-input-available", "toolCallId": "c"}, "an AI SDK stream part", "for a browser"),
    ({"type": "data-weather", "data": {}}, "an AI SDK stream part", "for a browser"),
    ('0:"Hello"\n', "a line of the AI SDK's data stream", "for a browser"),
    (SimpleNamespace(event_kind="part_delta", delta=TEXT), "a Pydantic AI event (part_delta)", "pydantic_ai.ui"),
    (SimpleNamespace(parent_id="p", function_ancestry=1, payload=1), "a NAT intermediate step", "AgentStep(step)"),
    ({"event_type": "LLM_START", "name": "m"}, "a NAT intermediate step (LLM_START)", "AgentStep(step)"),
    # Agents' protocols
    (
        {"jsonrpc": "2.0", "id": 1, "result": {"kind": "status-update"}},
        "JSON-RPC message of MCP or A2A (status",
        "yield",
    ),
    ({"jsonrpc": "2.0", "method": "notifications/progress"}, "(notifications/progress)", "yield its text"),
    ({"jsonrpc": "2.0", "id": 1, "error": {"code": -32600}}, "(error)", "yield its text"),
    ({"kind": "task", "id": "t", "status": {}}, "an A2A message (task)", "yield its text"),
    ({"content": [{"type": "text", "text": TEXT}], "isError": False}, "an MCP tool result", "yield its text"),
    # AG-UI and our own
    ({"type": "TEXT_MESSAGE_CONTENT", "delta": TEXT}, "an AG-UI event (TEXT_MESSAGE_CONTENT)", "validate"),
    ({"type": "RAW", "event": {}}, "an AG-UI event (RAW)", "pass it on as it is"),
    (
        TextMessageContentEvent(type=EventType.TEXT_MESSAGE_CONTENT, message_id="m", delta=TEXT),
        "an AG-UI event (TEXT_MESSAGE_CONTENT)",
        "pass it on as it is",
    ),
    ({"threadId": "t", "runId": "r", "messages": []}, "a RunAgentInput", "a request, no answer"),
    ({"model": "m", "messages": [], "stream": True}, "a request body", "a request, no answer"),
    ({"dragent_trace": 1}, "a line of a recording", "replay_trace"),
    ({"t": 0.5, "chunk": {}}, "a line of a recording (chunk)", "replay_trace"),
    # Nearly right
    ({**CHUNK, "choises": []}, "an object with a misspelt key (choises is not choices)", "write choices"),
    ({"Choices": []}, "(Choices is not choices)", "write choices"),
    ({**CHUNK, "choices": []}, "a Chat Completions chunk without an answer (choices is empty)", "record"),
    ({**CHUNK, "choices": [{"index": 0, "delta": {"role": "assistant"}}]}, "(delta with the key role)", "record"),
    ({**CHUNK, "choices": {"0": {}}}, "(choices is no list)", "record"),
    ({**CHUNK, "choices": [TEXT]}, "(a choice is no object)", "record"),
    ({"role": "assistant", "content": TEXT}, "a chat message (assistant)", "only tool results come as messages"),
    # Error pages
    ("<!DOCTYPE html><html><title>502</title>", "an HTML or XML page", "base URL"),
    (b"\xef\xbb\xbf\n<html>", "an HTML or XML page", "base URL"),
    ({"detail": "Not Found"}, "an error body (detail)", "base URL"),
    ({"status": 502, "title": TEXT}, "an error body (title)", "base URL"),
    # Texts and bytes
    (json.dumps(RESPONSES), "a Responses API event (response.created), as text", "Chat Completions"),
    (f"event: x\r\ndata: {json.dumps(RESPONSES)}\r\n\r\n".encode(), "(response.created), as an SSE frame", "Chat"),
    (b'{"type": "response.crea', "broken JSON, as bytes", "whole objects"),
    ("data: [DONE]\n\n", "an SSE frame without JSON", "as they come"),
    (b"data: {broken\n\n", "an SSE frame with broken JSON", "as they come"),
    ("", "empty text", "a chunk is"),
    (TEXT, f"{len(TEXT)} characters of text", "a chunk is"),
    (memoryview(b"\x00\xff"), "2 bytes", "a chunk is"),
    ("[1]", "a list that begins with a value of the Python type int, as text", "one by one"),
    # Python
    (None, "nothing (None)", "a chunk is"),
    (3, "a value of the Python type int", "a chunk is"),
    (object(), "a value of the Python type object", "a chunk is"),
    ({}, "an empty object", "a chunk is"),
    ([], "an empty list", "a chunk is"),
    ([[1]], "a list that begins with another one", "one by one"),
    (ValueError(TEXT), "an exception (ValueError)", "raise it"),
    (ValueError, "a class (ValueError)", "give objects of it"),
    (describe, "a function (describe)", "call it"),
    ((one for one in [1]), "a stream inside the stream", "iterate it"),
    ({"hello": TEXT}, "an object with the key hello", "a chunk is"),
    ({f"k{n}": TEXT for n in range(9)}, "the keys k0, k1, k2, k3, k4, k5 and 3 more", "a chunk is"),
    ({1: TEXT, "a\n\x1bb": TEXT, "x" * 99: 1}, "the keys <int>, a??b, " + "x" * 37 + "...", "a chunk is"),
]


@pytest.mark.parametrize(("chunk", "what", "remedy"), TABLE, ids=[what for _, what, _ in TABLE])
def test_it_is_named_with_its_remedy_and_without_its_values(chunk: object, what: str, remedy: str) -> None:
    said, _, advice = describe(chunk).partition("; ")
    assert what in said
    assert remedy in advice
    assert "SECRET" not in said + advice
    assert "\n" not in said + advice


def test_an_object_of_an_sdk_is_named_like_its_json() -> None:
    event = ResponseTextDeltaEvent(
        type="response.output_text.delta",
        item_id="i",
        output_index=0,
        content_index=0,
        sequence_number=1,
        delta=TEXT,
        logprobs=[],
    )
    assert describe(event) == describe(event.model_dump())
    chunk: dict[str, Any] = {**CHUNK, "choices": []}
    assert describe(ChatCompletionChunk.model_validate(chunk)) == describe(chunk)


def test_an_object_of_an_unknown_class_is_named_by_class_and_fields() -> None:
    @dataclass
    class Delta:
        words: str

    assert describe(Delta(TEXT)).startswith("an object of the type Delta with the key words; ")


async def test_what_should_have_been_awaited_or_iterated_is_said() -> None:
    async def answer() -> str:
        return TEXT

    async def chunks() -> Any:
        yield TEXT

    coroutine = answer()
    assert describe(coroutine).startswith("a coroutine or another awaitable; await it")
    await coroutine
    assert describe(chunks()).startswith("a stream inside the stream; ")


def test_an_object_that_fails_when_it_is_looked_at_is_named_by_its_class() -> None:
    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    assert describe(Hostile()).startswith("an object of the type Hostile; ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
)


@given(JSON | st.binary())
def test_whatever_comes_gets_one_short_line(chunk: object) -> None:
    said = describe(chunk)
    assert "; " in said
    assert said.isprintable()
    assert len(said) < 700


@given(st.sampled_from([chunk for chunk, _, _ in TABLE if isinstance(chunk, dict)]))
def test_a_json_text_is_named_like_its_object(chunk: dict[str, Any]) -> None:
    try:
        text = json.dumps(chunk)
    except TypeError:
        return
    what, remedy = describe(json.loads(text)).split("; ", 1)
    assert describe(text) == f"{what}, as text; {remedy}"
