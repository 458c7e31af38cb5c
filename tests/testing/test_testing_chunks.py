from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk

import dragent_stream.testing as testing
from dragent_stream.stream_converter import ChunkConverter
from dragent_stream.testing import (
    error_chunk,
    finish_chunk,
    reasoning_chunk,
    text_chunk,
    tool_call_chunk,
    usage_chunk,
)


@pytest.mark.parametrize(
    "chunk",
    [
        text_chunk("a", role="assistant", finish_reason="stop", id="i", model="m"),
        reasoning_chunk("a"),
        tool_call_chunk("{", call_id="c", name="f", index=2),
        tool_call_chunk("}"),
        finish_chunk("tool_calls", usage=usage_chunk(1, 2)["usage"]),
        usage_chunk(3, 4, cached_tokens=1, reasoning_tokens=2),
    ],
)
def test_a_chunk_is_what_the_openai_sdk_reads(chunk: dict[str, Any]) -> None:
    assert ChatCompletionChunk.model_validate(chunk).model_dump(exclude_unset=True) == chunk


def test_values_that_were_not_given_are_left_out() -> None:
    assert tool_call_chunk("x", index=None)["choices"][0]["delta"] == {"tool_calls": [{"function": {"arguments": "x"}}]}
    assert text_chunk("x")["choices"][0]["delta"] == {"content": "x"}
    assert error_chunk("x") == {"error": {"message": "x"}}
    assert error_chunk("x", code=500, type="t") == {"error": {"message": "x", "type": "t", "code": 500}}


def test_a_turn_of_builders_converts() -> None:
    converter = ChunkConverter()
    chunks = [
        reasoning_chunk("hm", key="reasoning"),
        text_chunk("hi"),
        tool_call_chunk("{}", call_id="c", name="f"),
        finish_chunk("tool_calls"),
        usage_chunk(1, 2),
    ]
    events = [event for chunk in chunks for event in converter.feed(chunk)] + converter.finish()
    assert [str(event.type.value) for event in events] == [
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
    ]


@pytest.mark.parametrize("name", testing.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(testing, name) is not None


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = testing.no_such_name
