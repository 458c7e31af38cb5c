"""Reading one chunk: every shape of chunk object and every provider's variation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from dragent_stream.chunk_record import ToolCallDelta, ToolResult
from dragent_stream.chunks import ChunkReader
from dragent_stream.usage import Usage
from dragent_stream.values import json_text


def choice(delta: Any, **more: Any) -> dict[str, Any]:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, **more}]}


def read(chunk: Any, reader: ChunkReader | None = None) -> Any:
    records = (reader or ChunkReader()).read(chunk)
    assert len(records) < 2
    return records[0] if records else None


TEXT = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def test_an_openai_object_is_read_with_its_extra_fields() -> None:
    delta = {
        "reasoning_content": "hm",
        "tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}],
    }
    chunk = ChatCompletionChunk.construct(**TEXT, choices=[{"index": 0, "delta": delta, "finish_reason": None}])
    record = read(chunk)
    assert (record.reasoning, record.tool_calls) == ("hm", [ToolCallDelta(0, "a", "f", "{")])


def test_a_complete_completion_is_one_chunk() -> None:
    message = {
        "role": "assistant",
        "content": "Hi",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    whole = {
        **TEXT,
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
    }
    for completion in (whole, ChatCompletion.model_validate(whole)):
        record = read(completion)
        assert (record.text, record.finish) == ("Hi", "calls")
        assert record.tool_calls == [ToolCallDelta(None, "a", "f", "{}")]


def test_a_complete_completion_after_deltas_only_brings_its_usage() -> None:
    reader = ChunkReader()
    read(choice({"content": "Hi"}), reader)
    last = {"choices": [{"index": 0, "message": {"content": "Hi"}}], "usage": {"total_tokens": 3}}
    record = read(last, reader)
    assert record is not None
    assert (record.text, record.usage) == ("", Usage(total_tokens=3))


@pytest.mark.parametrize(
    ("delta", "text", "reasoning"),
    [
        ({"content": 6}, "6", ""),
        ({"content": False}, "", ""),
        ({"content": ["a", {"type": "text", "text": "b"}, {"type": "image"}]}, "ab", ""),
        ({"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "b"}]}, "b", "hm"),
        ({"content": None, "refusal": "No."}, "No.", ""),
        ({"content": "a", "refusal": False}, "a", ""),
        ({"reasoning": "hm", "reasoning_content": "hm"}, "", "hm"),
        ({"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}, "", "hm"),
        ({"thinking_blocks": [{"type": "thinking", "thinking": "hm"}]}, "", "hm"),
        ({"role": "user", "content": "a", "reasoning": "hm"}, "", ""),
        ({"role": "", "content": "a"}, "a", ""),
    ],
)
def test_text_and_thought_are_told_apart(delta: Any, text: str, reasoning: str) -> None:
    record = read(choice(delta))
    assert (record.text, record.reasoning) == (text, reasoning)


def test_reasoning_details_that_grow_are_read_once() -> None:
    reader = ChunkReader()
    said = ""
    for text in ("Let me think", "Let me think about", "Let me think about it."):
        record = read(choice({"reasoning_details": [{"text": text}]}), reader)
        assert record is not None
        said += record.reasoning
    assert said == "Let me think about it."


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"index": "1", "id": 7, "function": {"name": " ", "arguments": None}}, ToolCallDelta(1, "7", "", "")),
        ({"function": {"id": "x", "name": "f", "arguments": {"a": "ä"}}}, ToolCallDelta(None, "x", "f", '{"a": "ä"}')),
        (
            {"index": 0, "type": "custom", "custom": {"name": "f", "input": "raw"}},
            ToolCallDelta(0, "", "f", "raw", custom=True),
        ),
        (
            {"index": 0, "function": {"name": "f"}, "extra_content": {"google": {"thought_signature": "s"}}},
            ToolCallDelta(0, "", "f", "", "s"),
        ),
    ],
)
def test_tool_calls_of_any_spelling(entry: Any, expected: ToolCallDelta) -> None:
    assert read(choice({"tool_calls": [entry, None]})).tool_calls == [expected]


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        ({"error": {"message": "m", "code": 502}}, "m"),
        ({"error": {"code": 502}}, "the upstream reported an error (502)"),
        ({"error": "m"}, "m"),
        ({"object": "error", "message": "m"}, "m"),
        ({"code": "workflow_error", "message": "m"}, "m"),
        (choice({}, error={"message": "m"}), "m"),
        (choice({"content": ""}, finish_reason="error"), "the model's answer ended with finish_reason 'error'"),
    ],
)
def test_errors_of_any_shape(chunk: Any, message: str) -> None:
    assert str(read(chunk).error) == message


@pytest.mark.parametrize("error", [None, "", {}, 0])
def test_an_empty_error_is_none(error: Any) -> None:
    assert read({**choice({"content": "a"}), "error": error}).error is None


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("STOP", "stop"),
        ("tool_calls", "calls"),
        ("length", "length"),
        ("sensitive", "content_filter"),
        ("", None),
        (None, None),
    ],
)
def test_finish_reasons(reason: Any, finish: Any) -> None:
    assert read(choice({}, finish_reason=reason)).finish == finish


@pytest.mark.parametrize(
    ("chunk", "usage"),
    [
        ({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}, Usage(1, 2)),
        ({"choices": [{"delta": {}, "usage": {"total_tokens": 3}}]}, Usage(total_tokens=3)),
        (
            {"choices": [{"delta": {}}], "x_groq": {"usage": {"total_tokens": 3, "queue_time": 0.1}}},
            Usage(total_tokens=3),
        ),
        ({"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}, None),
        ({"choices": [], "usage": {"prompt_tokens": "1", "total_tokens": -1, "completion_tokens": True}}, None),
        (
            {
                "usage": {
                    "prompt_tokens": 5.0,
                    "prompt_tokens_details": {"cached_tokens": 4},
                    "completion_tokens_details": {"reasoning_tokens": 3},
                }
            },
            Usage(5, None, None, 3, 4),
        ),
    ],
)
def test_usage_wherever_it_stands(chunk: Any, usage: Any) -> None:
    assert read(chunk).usage == usage


def test_a_choice_index_that_counts_tokens_is_followed() -> None:
    reader = ChunkReader()
    records = [read({"choices": [{"index": i, "delta": {"content": str(i)}}]}, reader) for i in (197, 198, 199)]
    assert [record.text for record in records if record] == ["197", "198", "199"]


def test_langchain_messages_are_read_alone_and_as_pairs() -> None:
    chunk = AIMessageChunk(
        content=[{"type": "text", "text": "Hi"}],
        tool_call_chunks=[{"name": "f", "args": "{", "id": "a", "index": 0}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"finish_reason": "tool_calls", "model_name": "m"},
        additional_kwargs={"reasoning_content": "hm"},
    )
    for item in (chunk, (chunk, {"langgraph_node": "agent"}), chunk.model_dump()):
        record = read(item)
        assert (record.text, record.reasoning, record.model) == ("Hi", "hm", "m")
        assert record.tool_calls == [ToolCallDelta(0, "a", "f", "{")]
        assert (record.usage, record.finish, record.usage_adds) == (Usage(1, 2, 3), "calls", True)


def test_langchain_messages_that_are_no_deltas() -> None:
    whole = AIMessage(content="Hi", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "a"}])
    assert read(whole).tool_calls == [ToolCallDelta(None, "a", "f", '{"a": 1}')]
    assert read(ToolMessage(content="4", tool_call_id="a")).tool_result == ToolResult("a", "4")
    assert read(HumanMessage(content="question")) is None


@pytest.mark.parametrize("chunk", [5, object(), {}, {"unknown": 1}, [], int])
def test_what_nobody_knows_is_counted(chunk: Any) -> None:
    reader = ChunkReader()
    assert read(chunk, reader) is None
    assert reader.unknown == 1


def test_arguments_that_are_no_string_become_strict_json() -> None:
    circle: dict[str, Any] = {"a": float("nan"), (1, 2): {3}}
    circle["self"] = circle
    for arguments, expected in (({"a": float("nan")}, '{"a":null}'), ({"d": {3}}, '{"d":[3]}')):
        record = read(choice({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": arguments}}]}))
        assert record.tool_calls[0].arguments == expected
    assert json.loads(json_text(circle))


def test_an_index_of_thousands_of_digits_is_no_index() -> None:
    record = read(choice({"tool_calls": [{"index": "9" * 5000, "id": "a", "function": {"name": "f"}}]}))
    assert record.tool_calls == [ToolCallDelta(None, "a", "f", "")]


@pytest.mark.parametrize("place", ["call", "function"])
def test_litellms_place_of_the_thought_signature_is_read(place: str) -> None:
    holder = {"provider_specific_fields": {"thought_signature": "s"}}
    entry = {"index": 0, "id": "a", "function": {"name": "f", **(holder if place == "function" else {})}}
    record = read(choice({"tool_calls": [{**entry, **(holder if place == "call" else {})}]}))
    assert record.tool_calls[0].signature == "s"


def test_two_equal_entries_of_one_list_are_two_calls() -> None:
    entry = {"index": 0, "function": {"name": "roll", "arguments": "{}"}}
    (first, second) = read(choice({"tool_calls": [entry, entry]})).tool_calls
    assert (first.apart, second.apart) == (False, True)


def test_a_thought_in_geminis_tags_ends_with_its_tag_wherever_that_stands() -> None:
    reader = ChunkReader()
    flag = {"extra_content": {"google": {"thought": True}}}
    records = [
        read(choice({"content": "<thought>Plan", **flag}), reader),
        read(choice({"content": " x</thought>Ans"}), reader),
    ]
    assert "".join(record.reasoning for record in records) == "Plan x"
    assert "".join(record.text for record in records) == "Ans"


def test_a_whole_message_beside_an_empty_delta_is_read() -> None:
    whole = {"choices": [{"index": 0, "message": {"content": "a"}, "delta": {}, "finish_reason": "stop"}]}
    assert read(whole).text == "a"
