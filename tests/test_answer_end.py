"""The one rule for the end of an answer."""

from __future__ import annotations

from typing import Any

import pytest
from agui_case import delta

from dragent_stream.answer_end import AnswerEnd, cut_off, holds_content, no_answer

USAGE = {"id": "c", "choices": [], "usage": {"prompt_tokens": 1}}
DONE = None


def after(*chunks: dict[str, Any] | None) -> AnswerEnd:
    end = AnswerEnd()
    for chunk in chunks:
        if chunk is None:
            end.take_done()
        else:
            end.take(chunk)
    return end


@pytest.mark.parametrize(
    "last",
    [
        delta("stop"),
        delta("stop", content="with its last text"),
        DONE,
        {"error": {"message": "boom"}},
        {"object": "chat.completion", "choices": [{"index": 0, "message": {"content": "a"}}]},
        {"delta": {}, "finish_reason": "stop"},
    ],
)
def test_an_answer_is_over_at_its_last_word(last: dict[str, Any] | None) -> None:
    assert not after(delta(content="a")).over
    assert after(delta(content="a"), last).over


@pytest.mark.parametrize(
    "more",
    [USAGE, DONE, delta(), delta(content="", role="assistant"), {"choices": None}, {"choices": [None]}, {"x": 1}],
)
def test_what_holds_no_content_belongs_to_the_answer_that_is_over(more: dict[str, Any] | None) -> None:
    assert after(delta(content="a"), DONE, more).over
    assert after(delta(content="a"), delta("stop"), more).over


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "b"},
        {"reasoning_content": "b"},
        {"refusal": "b"},
        {"tool_calls": [{"index": 0, "function": {"name": "f"}}]},
    ],
)
def test_content_begins_the_next_answer(fields: dict[str, Any]) -> None:
    assert not after(delta(content="a"), delta("stop"), DONE, delta(**fields)).over
    assert after(delta(content="a"), DONE, delta(**fields), delta("stop")).over


def test_the_message_beside_a_delta_only_repeats() -> None:
    choice = {"index": 0, "delta": {"content": ""}, "message": {"content": "a"}, "finish_reason": None}
    assert not holds_content({"choices": [choice]})
    assert not after({"choices": [choice]}).over


def test_done_without_a_chunk_ends_nothing() -> None:
    assert not after(DONE).over
    assert not after({"hello": "world"}, DONE).over


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"<!DOCTYPE html><html>", "an HTML page"),
        (b"  <HTML>", "an HTML page"),
        (b"<?xml version='1.0'?>", "an XML document"),
        (b"\x1f\x8b\x08\x00secret", "compressed data"),
        (b"\x28\xb5\x2f\xfdsecret", "compressed data"),
        (b"\x00\x01\x02", "binary data"),
        (b"\xff\xfed\x00a\x00", "binary data"),
        (b"sk-secret: no", "text"),
        ("ein Fehler: ä".encode()[:-1], "text"),
    ],
)
def test_a_foreign_body_is_named_and_not_quoted(line: bytes, kind: str) -> None:
    error = no_answer(line, "")
    assert str(error).startswith(f"the body of the answer is {kind}, no stream of chat chunks; ")
    assert error.code == "UNKNOWN_CHUNKS"
    assert "secret" not in str(error)
    assert str(cut_off(line)).endswith(f"without [DONE]; {kind} came instead")


def test_an_empty_body_has_a_code_of_its_own() -> None:
    error = no_answer(b"", "is empty")
    assert (str(error).split(";")[0], error.code) == ("the body of the answer is empty", "EMPTY_ANSWER")
