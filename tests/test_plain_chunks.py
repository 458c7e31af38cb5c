"""The glance and the full read agree: what `Glance` takes, `ChunkReader` reads to the same effect."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel

from dragent_stream.chunk_record import Chunk, ToolCallDelta
from dragent_stream.chunks import ChunkReader
from dragent_stream.plain_chunks import TEXT, THOUGHT, Glance

maybe = st.sampled_from
texts = maybe([None, "", "so", "é\n", 7, ["part"], "stop"])
calls = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "index": maybe([0, 1, "1", None, True]),
            "id": maybe([None, "", "call_1"]),
            "type": maybe([None, "function"]),
            "function": st.fixed_dictionaries(
                {}, optional={"name": maybe([None, "", "add"]), "arguments": maybe([None, "", '{"a":', {"a": 1}])}
            ),
            "extra_content": maybe([None, {"google": {"thought_signature": "s"}}]),
        },
    ),
    max_size=2,
)
deltas = st.fixed_dictionaries(
    {},
    optional={
        "role": maybe([None, "", "assistant", "tool", "user"]),
        "content": texts,
        "refusal": maybe([None, "no"]),
        "reasoning_content": maybe([None, "hm"]),
        "reasoning": maybe([None, "", "so"]),
        "tool_calls": st.none() | calls,
        "function_call": maybe([None, {"name": "add", "arguments": "{}"}]),
    },
)
choices = st.fixed_dictionaries(
    {"delta": deltas}, optional={"index": maybe([0, 1, None]), "finish_reason": maybe([None, "", "stop", "error"])}
)
chunks = st.fixed_dictionaries(
    {"choices": st.lists(choices, max_size=2)},
    optional={
        "id": st.just("c"),
        "usage": maybe([None, {"prompt_tokens": 1}]),
        "error": maybe([None, {"message": "no"}]),
    },
)


class Everything(dict[str | int, Any]):
    """Offers a writer for whatever may go on; each gives what it was offered for, and the text."""

    def __missing__(self, kind: str | int) -> Any:
        if isinstance(kind, str) and kind != TEXT and kind not in THOUGHT:
            raise KeyError(kind)
        return lambda text: (kind, text)


def glance(chunk: Any) -> Any:
    looking = Glance(Everything())
    looking.choice_index = 0
    return looking.event(chunk)


@given(chunks)
def test_what_is_taken_at_a_glance_is_what_the_full_read_finds(chunk):
    plain = glance(chunk)

    if plain is not None:
        reader = ChunkReader()
        reader.read(one_choice({"role": "assistant"}))
        kind, text = plain
        brings = {
            "content": {"text": text},
            "reasoning_content": {"reasoning": text},
            "reasoning": {"reasoning": text},
        }.get(kind) or {"tool_calls": [ToolCallDelta(kind, "", "", text)]}
        assert text
        assert reader.read(chunk) == (Chunk(id=chunk.get("id", ""), **brings),)


def _chunk(delta, **fields):
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **fields}


FRAGMENT = {"tool_calls": [{"index": 3, "function": {"arguments": '{"a":'}}]}
PLAIN = [
    (_chunk({"content": "so"}), ("content", "so")),
    (_chunk({"role": "assistant", "content": "so", "tool_calls": None}), ("content", "so")),
    (_chunk({"content": "so", "reasoning_content": None}, usage=None), ("content", "so")),
    (_chunk({"role": "assistant", "content": "", "reasoning": "hm"}), ("reasoning", "hm")),
    (_chunk({"reasoning_content": "hm"}), ("reasoning_content", "hm")),
    (_chunk(FRAGMENT), (3, '{"a":')),
    (_chunk({"role": "assistant", "content": None, **FRAGMENT}), (3, '{"a":')),
]


@pytest.mark.parametrize(("chunk", "brings"), PLAIN)
def test_the_ordinary_chunk_is_taken_as_mapping_and_as_object(chunk, brings):
    assert glance(chunk) == brings
    assert glance(ChatCompletionChunk.model_validate(chunk)) == brings


@pytest.mark.parametrize(
    "chunk",
    [
        None,
        "text",
        {},
        _chunk({"content": "so"}) | {"choices": []},
        _chunk({"content": "so"}, usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}),
        _chunk({"content": "so"}, error={"message": "no"}),
        _chunk({"content": "so", "reasoning_content": "hm"}),
        _chunk({"content": "", "role": "assistant"}),
        _chunk({"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "add", "arguments": ""}}]}),
    ],
)
def test_the_unusual_chunk_is_left_to_the_full_read(chunk):
    assert glance(chunk) is None
    if isinstance(chunk, dict) and chunk.get("choices"):
        assert glance(ChatCompletionChunk.model_validate(chunk)) is None


def one_choice(delta: Any, **more: Any) -> dict[str, Any]:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, **more}]}


def read_in_full(chunk: Any) -> Any:
    (record,) = ChunkReader().read(chunk)
    return record


class Delta(BaseModel):
    content: str | None = None
    role: str | None = None
    tool_calls: list[Any] | None = None


class Choice(BaseModel):
    finish_reason: str | None = None
    index: int = 0
    delta: Delta


class NatLikeChunk(BaseModel):
    id: str = "c"
    choices: list[Choice]
    usage: Any = None


@pytest.mark.parametrize(
    "chunk",
    [
        one_choice({"content": "Hi"}),
        one_choice({"role": "assistant", "content": "Hi", "tool_calls": None, "refusal": None}),
        NatLikeChunk(choices=[Choice(delta=Delta(content="Hi"))]),
    ],
)
def test_plain_text_is_seen_at_a_glance(chunk: Any) -> None:
    assert glance(chunk) == ("content", read_in_full(chunk).text) == ("content", "Hi")


@pytest.mark.parametrize(
    "chunk",
    [
        one_choice({"content": "Hi"}, finish_reason="stop"),
        one_choice({"content": "Hi", "reasoning": "hm"}),
        one_choice({"content": "Hi", "tool_calls": [{}]}),
        one_choice({"content": "Hi", "role": "user"}),
        one_choice({"content": None}),
        {**one_choice({"content": "Hi"}), "usage": {"total_tokens": 1}},
        {**one_choice({"content": "Hi"}), "error": "x"},
        {"choices": [{"index": 1, "delta": {"content": "Hi"}}]},
        {"choices": []},
        {"choices": None},
        None,
        "Hi",
        SimpleNamespace(choices=[]),
    ],
)
def test_whatever_is_unusual_is_read_in_full(chunk: Any) -> None:
    assert glance(chunk) is None
