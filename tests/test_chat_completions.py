"""A whole completion to its stream and back."""

import gc
import json
import math
import traceback
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion
from pydantic import BaseModel, ValidationError

from dragent_stream.chat_completions import (
    assemble_chat_completion,
    assemble_chat_completion_async,
    read_chat_completion,
    stream_chat_completion_sse,
    synthesize_chat_completion_chunks,
    synthesize_chat_completion_sse,
)
from dragent_stream.errors import ConversionError, UpstreamError
from dragent_stream.sse import ChatSSEDecoder

# Strategies: every completion that the schema allows, in the form that has OpenAI's required keys.

text = st.text(max_size=8)
number = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
json_value = st.recursive(
    st.none() | st.booleans() | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


def extras(*taken: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(text.filter(lambda key: key not in taken), json_value, max_size=2)


def record(required: dict[str, st.SearchStrategy[Any]], optional: dict[str, st.SearchStrategy[Any]], *stream: str):
    """An object with these keys and extras; `stream` names keys that only a stream may have."""
    known = st.fixed_dictionaries(required, optional=optional)
    return st.tuples(extras(*required, *optional, *stream), known).map(lambda pair: {**pair[0], **pair[1]})


function = record({"name": text, "arguments": text}, {})
tool_call = st.one_of(
    record({"type": st.just("function"), "function": function}, {"id": st.none() | text, "custom": st.none()}, "index"),
    record(
        {"type": st.just("custom"), "custom": record({"name": text, "input": text}, {})},
        {"id": st.none() | text, "function": st.none()},
        "index",
    ),
    record({"type": st.sampled_from(["web", "x"])}, {"id": st.none() | text}, "index", "function", "custom"),
)
alternative = record({}, {"token": text, "logprob": number, "bytes": st.none() | st.lists(st.integers(0, 255))})
token = st.tuples(
    alternative, st.fixed_dictionaries({}, optional={"top_logprobs": st.lists(alternative, max_size=2)})
).map(lambda pair: {**pair[0], **pair[1]})
tokens = st.none() | st.lists(token, max_size=2)
message = record(
    {"role": st.just("assistant") | st.text(min_size=1)},
    {
        "content": st.none() | text,
        "reasoning": st.none() | text,
        "reasoning_content": st.none() | text,
        "reasoning_details": json_value,
        "thinking_blocks": json_value,
        "refusal": st.none() | text,
        "annotations": st.none() | st.lists(json_value, max_size=2),
        "audio": st.none() | st.dictionaries(st.sampled_from(["id", "data", "transcript", "expires_at"]), json_value),
        "function_call": st.none() | function,
        "tool_calls": st.none() | st.lists(tool_call, max_size=3),
    },
)
choice = record(
    {"index": st.integers(0, 5), "message": message, "finish_reason": st.text(min_size=1)},
    {"logprobs": st.none() | record({}, {"content": tokens, "refusal": tokens}), "token_ids": st.lists(st.integers())},
    "delta",
)
usage = record(
    {},
    {
        "prompt_tokens": st.integers(),
        "completion_tokens": st.none() | st.integers(),
        "prompt_tokens_details": st.none() | st.dictionaries(text, json_value, max_size=2),
    },
)
completion = record(
    {
        "id": st.none() | text,
        "object": st.just("chat.completion"),
        "created": st.none() | number,
        "model": st.none() | text,
        "choices": st.lists(choice, min_size=1, max_size=3, unique_by=lambda choice: choice["index"]).map(
            lambda choices: sorted(choices, key=lambda choice: choice["index"])
        ),
    },
    {"usage": st.none() | usage, "service_tier": st.none() | text, "system_fingerprint": st.none() | text},
    "obfuscation",
    "error",
)


def through_sse(whole: object, include_usage: bool = True) -> list[dict[str, Any]]:
    """The chunks as a client reads them from the wire."""
    decoder = ChatSSEDecoder()
    frames = list(synthesize_chat_completion_sse(whole, include_usage))
    assert frames[-1] == "data: [DONE]\n\n"
    assert all(frame.isascii() and "\r" not in frame and frame.count("\n") == 2 for frame in frames)
    chunks = [chunk for frame in frames for chunk in decoder.feed(frame.encode())]
    assert decoder.done
    return chunks


@settings(max_examples=200, deadline=None)
@given(completion)
def test_every_completion_comes_back_from_its_stream(whole: dict[str, Any]) -> None:
    before = json.dumps(whole)
    assert assemble_chat_completion(through_sse(whole)) == whole
    assert json.dumps(whole) == before


@settings(deadline=None)
@given(completion, st.booleans())
def test_every_stream_keeps_the_rules_of_the_clients(whole: dict[str, Any], include_usage: bool) -> None:
    chunks = list(synthesize_chat_completion_chunks(whole, include_usage))
    seen: list[int] = []
    for chunk in chunks:
        assert chunk["object"] == "chat.completion.chunk"
        for key in ("id", "created", "model", "service_tier", "system_fingerprint"):
            assert (key in chunk) == (key in whole) and chunk.get(key) == whole.get(key)
        if chunk["choices"]:
            (choice,) = chunk["choices"]
            assert len(choice["delta"].get("tool_calls") or [0]) == 1
            assert chunk.get("usage") is None
            if choice["index"] not in seen[-1:]:
                assert choice["delta"]["role"]
                seen.append(choice["index"])
            else:
                assert "role" not in choice["delta"]
        else:
            assert chunk is chunks[-1] and include_usage and chunk["usage"] == whole["usage"]
    assert seen == sorted(set(seen)) == [choice["index"] for choice in whole["choices"]]
    for index in seen:
        parts = [c["choices"][0] for c in chunks if c["choices"] and c["choices"][0]["index"] == index]
        assert [bool(part["finish_reason"]) for part in parts] == [False] * (len(parts) - 1) + [True]
        assert parts[-1]["delta"] == {}


def one_choice(message: dict[str, Any], **choice: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop", **choice}],
    }


def deltas(whole: object) -> list[dict[str, Any]]:
    return [choice["delta"] for chunk in synthesize_chat_completion_chunks(whole) for choice in chunk["choices"]]


def test_text_opens_as_openai_opens_it() -> None:
    whole = one_choice({"content": "Hello", "refusal": None})
    assert deltas(whole) == [{"role": "assistant", "content": "", "refusal": None}, {"content": "Hello"}, {}]


@pytest.mark.parametrize("content", ["", None])
def test_empty_content_is_told_apart_from_none(content: str | None) -> None:
    assert deltas(one_choice({"content": content})) == [{"role": "assistant", "content": content}, {}]


def test_both_spellings_of_reasoning_share_one_delta() -> None:
    whole = one_choice({"content": None, "reasoning": "a", "reasoning_content": "a"})
    assert deltas(whole)[1] == {"reasoning": "a", "reasoning_content": "a"}
    assert deltas(one_choice({"reasoning": "a"}))[1] == {"reasoning": "a"}


def test_each_tool_call_has_its_own_chunk_and_keeps_its_extras() -> None:
    calls = [
        {
            "id": "1",
            "type": "function",
            "function": {"name": "f", "arguments": "{}"},
            "extra_content": {"g": {"s": "x"}},
        },
        {"id": "2", "type": "custom", "custom": {"name": "c", "input": "i"}},
    ]
    whole = one_choice({"content": None, "tool_calls": calls}, finish_reason="tool_calls")
    assert deltas(whole)[1:-1] == [{"tool_calls": [{"index": i, **call}]} for i, call in enumerate(calls)]


@pytest.mark.parametrize(("arguments", "text"), [({"a": "é"}, '{"a": "é"}'), (None, ""), ([], "[]"), (0, "0")])
def test_arguments_that_are_no_text_are_encoded(arguments: object, text: str) -> None:
    whole = one_choice({"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": arguments}}]})
    (call,) = deltas(whole)[1]["tool_calls"]
    assert call == {"index": 0, "id": "1", "type": "function", "function": {"name": "f", "arguments": text}}


def test_logprobs_travel_with_their_text() -> None:
    content, refusal = [{"token": "a"}], [{"token": "b"}]
    whole = one_choice({"content": "a", "refusal": "b"}, logprobs={"content": content, "refusal": refusal})
    choices = [chunk["choices"][0] for chunk in synthesize_chat_completion_chunks(whole)]
    assert [choice["logprobs"] for choice in choices] == [
        None,
        {"content": content, "refusal": None},
        {"content": None, "refusal": refusal},
        None,
    ]


def test_choices_are_sent_by_their_own_index() -> None:
    whole = one_choice({"content": "a"})
    whole["choices"] = [{"index": i, "message": {"role": "assistant", "content": str(i)}} for i in (2, 0, 1)]
    answer = assemble_chat_completion(through_sse(whole))
    assert [(c["index"], c["message"]["content"], c["finish_reason"]) for c in answer["choices"]] == [
        (0, "0", "stop"),
        (1, "1", "stop"),
        (2, "2", "stop"),
    ]


@pytest.mark.parametrize(
    ("message", "finish"),
    [
        ({"content": "a"}, "stop"),
        ({"tool_calls": [{"id": "1", "function": {"name": "f"}}]}, "tool_calls"),
        ({"function_call": {"name": "f", "arguments": "{}"}}, "function_call"),
    ],
)
def test_a_missing_finish_reason_is_never_sent_as_null(message: dict[str, Any], finish: str) -> None:
    *_, last = synthesize_chat_completion_chunks(one_choice(message, finish_reason=None))
    assert last["choices"][0]["finish_reason"] == finish


def test_usage_is_sent_once_in_the_last_chunk_and_only_on_request() -> None:
    whole = {**one_choice({"content": "a"}), "usage": {"total_tokens": 3}}
    assert all("usage" not in chunk for chunk in through_sse(whole, include_usage=False))
    *others, last = through_sse(whole)
    assert last["choices"] == [] and last["usage"] == {"total_tokens": 3}
    assert all(chunk["usage"] is None for chunk in others)


@pytest.mark.parametrize("choices", [[], None])
def test_without_choices_only_usage_and_the_end_are_sent(choices: list[Any] | None) -> None:
    whole = {"id": "a", "choices": choices, "usage": {}}
    (chunk,) = through_sse(whole)
    assert chunk == {
        "id": "a",
        "object": "chat.completion.chunk",
        "created": None,
        "model": None,
        "choices": [],
        "usage": {},
    }
    with pytest.raises(ConversionError, match="has no choice"):
        synthesize_chat_completion_sse(whole, include_usage=False)


NO_COMPLETIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, ConversionError, "neither choices nor usage"),
    ({"hello": "world"}, ConversionError, "neither choices nor usage"),
    ({"choices": None}, ConversionError, "neither choices nor usage"),
    ({"choices": []}, ConversionError, "neither choices nor usage"),
    ({"id": "a", "choices": [], "usage": None}, ConversionError, "neither choices nor usage"),
    ({"model": "m", "message": {"role": "assistant", "content": "hi"}, "done": True}, ConversionError, "Ollama"),
    ({"candidates": [{"content": {"parts": [{"text": "hi"}]}}]}, ConversionError, "Gemini"),
    ({"type": "message", "role": "assistant", "content": [{"type": "text", "text": "hi"}]}, ConversionError, "looks"),
    ({"detail": "nope"}, UpstreamError, "nope"),
    ({"code": 500, "msg": "busy"}, UpstreamError, "busy"),
    ({"base_resp": {"status_code": 1002, "status_msg": "slow down"}, "choices": None}, UpstreamError, "slow down"),
    ({"choices": [{}]}, ConversionError, r"choices\[0\] has no message, so"),
    ({"choices": [{"message": None}]}, ConversionError, r"choices\[0\] has no message, so"),
    ({"choices": [{"delta": {"content": "hello"}}]}, ConversionError, "assemble_chat_completion"),
    ({"choices": [{"message": {"content": "a"}}, {"text": "b"}]}, ConversionError, r"choices\[1\] .* Completions API"),
]


@pytest.mark.parametrize(("whole", "kind", "said"), NO_COMPLETIONS)
def test_what_is_no_completion_is_refused_before_the_first_byte(
    whole: dict[str, Any], kind: type[Exception], said: str
) -> None:
    for function in (synthesize_chat_completion_sse, synthesize_chat_completion_chunks, read_chat_completion):
        with pytest.raises(kind, match=said):
            function(whole)


def test_a_message_without_role_is_the_assistants() -> None:
    chunk = next(synthesize_chat_completion_chunks({"choices": [{"message": {"role": None, "content": "a"}}]}))
    assert chunk["choices"][0]["delta"]["role"] == "assistant"


def test_pydantic_objects_are_streamed_as_their_json() -> None:
    class Stamped(BaseModel):
        id: str = "default"
        created_at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
        choices: list[dict[str, Any]] = [{"message": {"content": "a"}}]

    answer = assemble_chat_completion(synthesize_chat_completion_chunks(Stamped()))
    assert (answer["id"], answer["created_at"]) == ("default", "2026-01-01T00:00:00Z")


def test_an_openai_object_is_streamed_as_the_api_sent_it() -> None:
    sent = {**one_choice({"content": "a", "refusal": None}), "service_tier": None, "citations": ["x", None]}
    whole = ChatCompletion.model_validate(sent)
    assert assemble_chat_completion(through_sse(whole)) == sent
    whole.choices[0].message.content = "b"
    assert deltas(whole)[1] == {"content": "b"}


WRONG: list[tuple[object, tuple[str | int, ...]]] = [
    (None, ()),
    ("text", ()),
    ([], ()),
    ({"choices": {}}, ("choices",)),
    ({"choices": [None]}, ("choices", 0)),
    ({"choices": [{"index": "0"}]}, ("choices", 0, "index")),
    ({"choices": [{"index": -1}]}, ("choices", 0, "index")),
    ({"choices": [{}, {"index": 0}]}, ("choices", 1, "index")),
    ({"choices": [{"message": "hi"}]}, ("choices", 0, "message")),
    ({"choices": [{"message": {"content": 7}}]}, ("choices", 0, "message", "content")),
    ({"choices": [{"message": {"content": [{"type": "text"}]}}]}, ("choices", 0, "message", "content")),
    ({"choices": [{"message": {"tool_calls": {}}}]}, ("choices", 0, "message", "tool_calls")),
    ({"choices": [{"message": {"tool_calls": ["f"]}}]}, ("choices", 0, "message", "tool_calls", 0)),
    ({"choices": [{"message": {"tool_calls": [{}]}}]}, ("choices", 0, "message", "tool_calls", 0, "function")),
    (
        {"choices": [{"message": {"tool_calls": [{"function": {"name": None}}]}}]},
        ("choices", 0, "message", "tool_calls", 0, "function", "name"),
    ),
    (
        {"choices": [{"message": {"tool_calls": [{"type": "custom", "function": {"name": "f"}}]}}]},
        ("choices", 0, "message", "tool_calls", 0, "custom"),
    ),
    ({"choices": [{"finish_reason": 1}]}, ("choices", 0, "finish_reason")),
    ({"choices": [{"logprobs": {"content": [{"token": 1}]}}]}, ("choices", 0, "logprobs", "content", 0, "token")),
    ({"usage": {"prompt_tokens": "3"}}, ("usage", "prompt_tokens")),
    ({"object": "list"}, ("object",)),
    ({"error": {"message": "boom"}}, ("error",)),
    ({"error": "boom", "choices": 3}, ("error",)),
    ({"object": "error", "message": "boom", "type": "t"}, ("object",)),
    ({"choices": [{"message": {"content": ["boom"]}}]}, ("choices", 0, "message", "content", 0)),
    (
        {"choices": [{"message": {"content": "boom", "tool_calls": [{"function": {"name": 1}}]}}]},
        ("choices", 0, "message", "tool_calls", 0, "function", "name"),
    ),
    ({"created": True}, ("created",)),
    ({"choices": [{"message": {"x": [{"y": math.nan}]}}]}, ("choices", 0, "message", "x", 0, "y")),
    ({"created": math.inf}, ("created",)),
    ({"x": b"bytes"}, ("x",)),
    ({"x": {1: 2}}, ("x",)),
    ({"x": {"y": datetime(2026, 1, 1, tzinfo=UTC)}}, ("x", "y")),
    ({"x": [10**5000]}, ("x", 0)),
]


@pytest.mark.parametrize(("whole", "path"), WRONG, ids=[str(path) for _, path in WRONG])
def test_a_wrong_value_is_refused_before_the_first_byte_with_its_path(
    whole: object, path: tuple[str | int, ...]
) -> None:
    for function in (synthesize_chat_completion_sse, synthesize_chat_completion_chunks, read_chat_completion):
        with pytest.raises(ValidationError) as caught:
            function(whole)
        assert path in [error["loc"] for error in caught.value.errors()]
        assert "boom" not in str(caught.value)


SECRET = "the answer of a user"


@pytest.mark.parametrize(
    "whole",
    [
        {"choices": SECRET},
        {"choices": [SECRET]},
        {"choices": [{"message": SECRET}]},
        {"choices": [{"message": {"content": [SECRET]}}]},
        {"choices": [{"message": {"content": {"text": SECRET}}}]},
        {"choices": [{"message": {"content": [{"type": "text", "x": SECRET}]}}]},
        {"choices": [{"message": {"tool_calls": [SECRET]}}]},
        {"choices": [{"finish_reason": {"x": SECRET}}]},
        {"choices": [{"message": {"content": "a"}, "logprobs": {"content": [{"token": [SECRET]}]}}]},
        {"object": SECRET},
        {"created": SECRET},
        {"usage": {"prompt_tokens": SECRET}},
        {"error": {"message": SECRET}},
        {"x": [math.nan, SECRET]},
    ],
)
def test_an_error_never_holds_what_it_is_about(whole: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        read_chat_completion(whole)
    assert SECRET not in str(caught.value) + repr(caught.value.errors()) + caught.value.json()
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown.replace(repr(whole), "")
    assert caught.value.__context__ is None


def test_content_in_parts_is_streamed_as_its_text_and_its_thinking() -> None:
    reference = {"type": "reference", "reference_ids": [1]}
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Let me "}, {"type": "text", "text": "see."}]},
        {"type": "text", "text": "Hel"},
        reference,
        {"type": "text", "text": "lo"},
    ]
    whole = one_choice({"content": parts})
    read = read_chat_completion(whole)
    message = {
        "role": "assistant",
        "content": "Hello",
        "reasoning_content": "Let me see.",
        "content_parts": [reference],
    }
    assert read["choices"][0]["message"] == message
    assert whole["choices"][0]["message"]["content"] is parts
    assert assemble_chat_completion(through_sse(whole)) == read
    assert read_chat_completion(one_choice({"content": []}))["choices"][0]["message"]["content"] == ""


def test_what_comes_back_is_what_was_read() -> None:
    bare = {"choices": [{"message": {"content": "a", "tool_calls": [{"function": {"name": "f"}}]}}]}
    answer = assemble_chat_completion(synthesize_chat_completion_chunks(bare, True))
    assert answer == read_chat_completion(bare) != bare
    assert assemble_chat_completion(synthesize_chat_completion_chunks(answer, True)) == answer


def test_a_completion_that_holds_itself_is_refused() -> None:
    knot: dict[str, Any] = {"choices": []}
    knot["x"] = knot
    with pytest.raises(ValidationError, match="nested too deeply"):
        synthesize_chat_completion_sse(knot)


async def test_the_async_form_gives_the_same_frames_and_may_be_given_an_awaitable() -> None:
    async def compute() -> dict[str, Any]:
        return whole

    whole = {**one_choice({"content": "a"}), "usage": {"total_tokens": 3}}
    expected = list(synthesize_chat_completion_sse(whole, True))
    assert [frame async for frame in stream_chat_completion_sse(whole, True)] == expected
    assert [frame async for frame in stream_chat_completion_sse(compute(), include_usage=True)] == expected


async def test_an_async_stream_is_assembled_as_well() -> None:
    async def stream() -> AsyncIterator[dict[str, Any]]:
        for chunk in synthesize_chat_completion_chunks(whole):
            yield chunk

    whole = one_choice({"content": "a"})
    assert await assemble_chat_completion_async(stream()) == whole


MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize("shape", ["one text", "many calls", "logprobs"])
def test_a_completion_of_10_mb_is_streamed_in_bounded_memory(shape: str) -> None:
    if shape == "one text":
        whole = one_choice({"content": "x" * 10 * MEBIBYTE})
    elif shape == "many calls":
        call = {"type": "function", "function": {"name": "f", "arguments": "x" * 100 * 1024}}
        whole = one_choice({"tool_calls": [{**call, "id": str(i)} for i in range(100)]})
    else:
        tokens = [{"token": "x" * 1000, "logprob": -0.5, "bytes": None, "top_logprobs": []} for _ in range(10_000)]
        whole = one_choice({"content": "x"}, logprobs={"content": tokens})
    gc.collect()
    tracemalloc.start()
    size = largest = 0
    try:
        for frame in synthesize_chat_completion_sse(whole):
            size, largest = size + len(frame), max(largest, len(frame))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 10 * 1000 * 1000
    assert peak < 4 * largest  # one frame at a time, and what encoding it takes


def test_a_stream_can_be_left_in_the_middle() -> None:
    frames: Iterator[str] = synthesize_chat_completion_sse(one_choice({"content": "a"}))
    assert next(frames).startswith("data: {")
    del frames
