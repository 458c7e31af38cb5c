"""One message of a model behind LangChain: finish words, thoughts, signatures, calls and usage, piece by piece."""

from __future__ import annotations

import itertools
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragent_stream.chunk_record import Chunk
from dragent_stream.langchain_answer import Answer
from dragent_stream.usage import Usage


def message(content: Any = "", **fields: Any) -> dict[str, Any]:
    return {"type": "AIMessageChunk", "id": "m", "content": content, **fields}


def read(*messages: dict[str, Any], whole: bool = False) -> list[Chunk]:
    answer = Answer("m")
    found = [record for each in messages for record in answer.read(each, whole=whole)]
    return [*found, rest] if (rest := answer.rest()) else found


class FinishReason(Enum):
    STOP = 1
    MAX_TOKENS = 2
    MALFORMED_FUNCTION_CALL = 10


@pytest.mark.parametrize(
    ("metadata", "finish"),
    [
        ({"finish_reason": "stop"}, "stop"),
        ({"finish_reason": FinishReason.MAX_TOKENS}, "length"),
        ({"finish_reason": FinishReason.STOP}, "stop"),
        ({"finish_reason": "FinishReason.SAFETY"}, "content_filter"),
        ({"stop_reason": "tool_use"}, "calls"),
        ({"stop_reason": "refusal"}, "content_filter"),
        ({"stop_reason": None}, None),
        ({"stopReason": "max_tokens"}, "length"),
        ({"stopReason": "guardrail_intervened"}, "content_filter"),
        ({"status": "completed"}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ({"status": "incomplete", "incomplete_details": None}, "length"),
        ({"status": "in_progress"}, None),
        ({"status": "queued"}, None),
        ({"status": 200}, None),
        ({"done_reason": "length"}, "length"),
        ({"done_reason": "load", "finish_reason": "stop"}, "stop"),
        ({"native_finish_reason": "MAX_TOKENS"}, "length"),
        ({"finish_reason": "something new", "native_finish_reason": "SAFETY"}, "content_filter"),
        ({"finish_reason": "something new"}, "unknown"),
        ({"model_name": "m"}, None),
    ],
    ids=str,
)
def test_the_word_for_the_end_stands_under_each_providers_name(metadata: dict[str, Any], finish: str | None) -> None:
    (record,) = read(message(response_metadata=metadata))
    assert record.finish == finish
    assert record.error is None


def test_an_answer_that_failed_says_how() -> None:
    failed = {"status": "failed", "error": {"code": "server_error", "message": "overloaded"}}
    assert str(read(message(response_metadata=failed))[0].error) == "overloaded"
    malformed = {"finish_reason": FinishReason.MALFORMED_FUNCTION_CALL}
    assert "MALFORMED_FUNCTION_CALL" in str(read(message(response_metadata=malformed))[0].error)


@pytest.mark.parametrize(
    ("content", "more", "thought"),
    [
        ([{"type": "thinking", "thinking": "hm"}], {}, "hm"),
        ([{"type": "reasoning", "reasoning": "hm"}], {}, "hm"),
        ([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}], {}, "hm"),
        ([{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}], {}, "hm"),
        ([{"type": "reasoning_content", "reasoning_content": {"text": "hm"}}], {}, "hm"),
        ([{"type": "reasoning_content", "reasoning_content": {"reasoning_text": {"text": "hm"}}}], {}, "hm"),
        ([{"type": "text", "text": "hm", "thought": True}], {}, "hm"),
        ("", {"reasoning_content": "hm"}, "hm"),
        ("", {"reasoning": "hm"}, "hm"),
        ("", {"reasoning": {"summary": [{"text": "hm"}, {"text": "so"}]}}, "hm\n\nso"),
        ("", {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}, "hm"),
        ([{"type": "reasoning", "reasoning": "hm"}], {"reasoning_content": "hm"}, "hm"),
    ],
    ids=str,
)
def test_a_thought_is_found_wherever_it_stands(content: Any, more: dict[str, Any], thought: str) -> None:
    (record,) = read(message(content, additional_kwargs=more))
    assert (record.reasoning, record.text) == (thought, "")


def test_another_part_of_a_thought_begins_a_paragraph() -> None:
    def summary(index: int, text: str) -> dict[str, Any]:
        return message([{"type": "reasoning", "index": 0, "summary": [{"index": index, "text": text}]}])

    pieces = read(
        summary(0, ""), summary(0, "One"), summary(0, "."), summary(1, ""), summary(1, "Two"), summary(1, ".")
    )
    assert "".join(record.reasoning for record in pieces) == "One.\n\nTwo."
    between = read(summary(0, "One"), message("text"), summary(1, "Two"))
    assert [record.reasoning for record in between] == ["One", "", "Two"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "thinking", "thinking": "", "signature": "S"},
        {"type": "redacted_thinking", "data": "S"},
        {"type": "reasoning", "reasoning": "", "extras": {"signature": "S"}},
        {"type": "reasoning", "summary": [], "encrypted_content": "S"},
        {"type": "reasoning_content", "reasoning_content": {"signature": "S"}},
        {"type": "reasoning_content", "reasoning_content": {"redactedContent": "S"}},
        {"type": "reasoning", "extras": {"redacted_content": b"\x49"}},
        {"type": "non_standard", "value": {"type": "redacted_thinking", "data": "S"}},
        {"type": "text", "text": "", "extras": {"signature": "S"}},
        {"type": "text", "text": "", "thought_signature": "S"},
        {"type": "reasoning.encrypted", "data": "S"},
    ],
    ids=str,
)
def test_an_encrypted_value_is_found_wherever_it_stands(part: dict[str, Any]) -> None:
    value = "SQ==" if "redacted_content" in str(part) else "S"
    assert [v for record in read(message([part])) for v in record.encrypted] == [value]


@given(st.lists(st.integers(1, 11), max_size=3), st.booleans())
def test_a_signature_in_pieces_or_repeated_is_one_value(cuts: list[int], ends: bool) -> None:
    value = "U0lHTkFUVVJF"
    bounds = sorted({0, *cuts, len(value)})
    pieces = [
        message([{"type": "thinking", "thinking": "", "index": 0, "signature": value[a:b]}])
        for a, b in itertools.pairwise(bounds)
    ]
    whole = message([{"type": "thinking", "thinking": "hm", "index": 0, "signature": value}])
    end = message(chunk_position="last") if ends else message("Hi")
    answer = Answer("m")
    found = [record for each in [*pieces, end] for record in answer.read(each)] + [*answer.read(whole, whole=True)]
    assert [v for record in found for v in record.encrypted] == [value]
    assert [record.reasoning for record in found if record.reasoning] == ["hm"]


def test_values_of_two_parts_are_two() -> None:
    parts = [
        {"type": "thinking", "thinking": "a", "index": 0, "signature": "S"},
        {"type": "redacted_thinking", "index": 1, "data": "R"},
    ]
    assert [v for record in read(message(parts)) for v in record.encrypted] == ["S", "R"]


def test_geminis_signature_belongs_to_its_call() -> None:
    chunk = message(
        tool_call_chunks=[
            {"name": "f", "args": "{}", "id": "a", "index": 0},
            {"name": "f", "args": "{}", "id": "b", "index": 1},
        ],
        additional_kwargs={"__gemini_function_call_thought_signatures__": {"b": "S"}},
    )
    assert [call.signature for call in read(chunk)[0].tool_calls] == ["", "S"]
    part = {"type": "tool_call", "id": "a", "name": "f", "args": {}, "extras": {"signature": "S"}}
    whole = message([part], tool_calls=[{"id": "a", "name": "f", "args": {}}])
    assert [call.signature for call in read(whole, whole=True)[0].tool_calls] == ["S"]


def test_a_call_that_does_not_parse_is_shown_as_it_was_cut() -> None:
    cut = {"id": "c1", "name": "write", "args": '{"text": "Chap', "error": None}
    whole = message(tool_calls=[], invalid_tool_calls=[cut], response_metadata={"finish_reason": "length"})
    (record,) = read(whole, whole=True)
    assert [(call.id, call.name, call.arguments) for call in record.tool_calls] == [("c1", "write", '{"text": "Chap')]
    assert record.finish == "length"
    fragment = {"name": "write", "args": '{"text": "Chap', "id": "c1", "index": 0}
    last = message(invalid_tool_calls=[cut], chunk_position="last")
    streamed = read(message(tool_call_chunks=[fragment]), last)
    assert [len(record.tool_calls) for record in streamed] == [1, 0]
    assert [len(record.tool_calls) for record in read(last)] == [1]


def test_an_old_function_call_is_a_call_where_nothing_newer_says_so() -> None:
    old = {"function_call": {"name": "f", "arguments": "{}"}}
    assert [call.name for call in read(message(additional_kwargs=old))[0].tool_calls] == ["f"]
    both = message(additional_kwargs=old, tool_call_chunks=[{"name": "f", "args": "{}", "id": "a", "index": 0}])
    assert [call.id for call in read(both)[0].tool_calls] == ["a"]


def usage_of(*counts: tuple[int, int], whole: tuple[int, int] | None = None) -> Usage:
    """The sum of what the records say, as LangChain's counts are added up."""
    answer, total = Answer("m"), Usage()
    for at, (given_in, given_out) in enumerate([*counts, *([whole] if whole else [])]):
        counted = {"input_tokens": given_in, "output_tokens": given_out, "total_tokens": given_in + given_out}
        (record,) = answer.read(message(usage_metadata=counted), whole=at == len(counts))
        if record.usage:
            total = total.plus(record.usage) if record.usage_adds else record.usage
    return total


@pytest.mark.parametrize(
    "counts",
    [
        [(25, 40)],
        [(25, 1), (0, 39)],  # Anthropic's counts in two chunks
        [(25, 10), (25, 30), (25, 40)],  # the total so far, with each chunk
        [(25, 40), (25, 40)],
        [(25, 0), (0, 20), (0, 20)],
    ],
    ids=str,
)
def test_usage_is_counted_once(counts: list[tuple[int, int]]) -> None:
    assert usage_of(*counts)[:3] == (25, 40, 65)
    assert usage_of(*counts, whole=(25, 40))[:3] == (25, 40, 65)


def test_usage_has_the_model_that_was_named_before() -> None:
    counted = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    named = message(response_metadata={"model_name": "gpt", "model_provider": "openai"})
    _, record = read(named, message(usage_metadata=counted))
    assert (record.model, record.provider) == ("gpt", "openai")


def test_a_message_so_far_says_what_is_new() -> None:
    answer = Answer("m")
    found = [answer.read(message(text), so_far=True) for text in ("He", "He", "Hello")]
    assert [record.text for (record,) in found] == ["He", "", "llo"]
    assert answer.read(message("something else"), whole=True)[0].text == ""


def test_each_signed_thought_is_one_of_its_own() -> None:
    parts = [
        {"type": "thinking", "thinking": text, "index": at, "signature": f"S{text}"} for at, text in enumerate("ab")
    ]
    for found in (read(message(parts), message("Hi")), read(*(message([part]) for part in parts), message("Hi"))):
        said = [(record.reasoning, record.encrypted, record.new_thought) for record in found if record.reasoning]
        assert [thought for thought, _, _ in said] == ["a", "b"]
        assert [new for _, _, new in said] == [False, True]
        assert [value for record in found for value in record.encrypted] == ["Sa", "Sb"]


def test_the_parts_of_one_item_are_one_thought() -> None:
    parts = [{"type": "reasoning", "reasoning": text, "id": "rs_1", "index": text} for text in "ab"]
    parts[0]["extras"] = {"encrypted_content": "S"}  # type: ignore[assignment]
    (record,) = read(message([*parts, {"type": "text", "text": "Hi"}]), whole=True)
    assert (record.reasoning, record.text, record.encrypted) == ("a\n\nb", "Hi", ["S"])
