"""Providers that repeat all they have said so far with each delta, or once at the end."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from agui_case import both_writers, calls, delta, splits, texts
from hypothesis import given
from hypothesis import strategies as st

ANSWER = "The quick brown fox jumps over the lazy dog."


def heard(*feed: Any) -> list[str]:
    return list(texts(both_writers({}, list(feed))).values())


def growing(text: str, cuts: list[int]) -> list[str]:
    return list(itertools.accumulate(splits(text, cuts)))


@given(st.lists(st.integers(1, len(ANSWER) - 1), min_size=2, max_size=12))
def test_a_text_that_grows_with_each_delta_is_said_once(cuts: list[int]) -> None:
    snapshots = growing(ANSWER, cuts)
    if len(snapshots) > 2:
        assert heard(*(delta(content=text) for text in snapshots), delta("stop")) == [ANSWER]
        assert heard(*(delta(content=text) for text in [*snapshots, snapshots[-1]]), delta("stop")) == [ANSWER]


_PIECES = [
    "ha",
    "haha",
    "The ",
    "\n",
    "\n\n",
    "\n  ",
    "é",
    "*",
    "**",
    "***",
    "1",
    "12",
    "123",
    "| a",
    "| a | b",
    "Hello",
]


@given(st.lists(st.sampled_from(_PIECES), max_size=30))
def test_short_pieces_that_look_like_snapshots_are_all_kept_in_their_order(pieces: list[str]) -> None:
    if "".join(pieces):
        assert heard(*(delta(content=piece) for piece in pieces), delta("stop")) == ["".join(pieces)]
        thoughts = [delta(reasoning_content=piece) for piece in pieces]
        events = both_writers({}, [*thoughts, delta(content="Hi"), delta("stop")])
        assert list(texts(events, "REASONING_MESSAGE").values()) == ["".join(pieces)]


def test_two_snapshots_are_enough_where_the_first_is_no_chance() -> None:
    assert heard(delta(content=ANSWER[:20]), delta(content=ANSWER), delta("stop")) == [ANSWER]
    assert heard(delta(content="ha"), delta(content="haha"), delta("stop")) == ["hahaha"]


def test_what_was_held_back_comes_before_what_follows() -> None:
    call = delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}])
    assert heard(delta(content="ha"), delta(content="haha"), call, delta("tool_calls")) == ["hahaha"]
    assert heard(delta(content="ha"), delta(content="haha")) == ["hahaha"]
    assert heard(delta(content="ha"), delta(content="haha"), delta("error")) == ["hahaha"]


def test_a_thought_that_grows_is_thought_once() -> None:
    feed = [delta(reasoning_content=text) for text in growing(ANSWER, [4, 10, 30])]
    events = both_writers({}, [*feed, delta(content="Hi"), delta("stop")])
    assert list(texts(events, "REASONING_MESSAGE").values()) == [ANSWER]
    assert list(texts(events).values()) == ["Hi"]


@pytest.mark.parametrize("size", [20, 44, 400])
def test_the_whole_text_again_beside_a_call_or_the_finish_reason_is_not_said_again(size: int) -> None:
    text = (ANSWER * 10)[:size]
    pieces = [delta(content=piece) for piece in splits(text, list(range(3, size, 7)))]
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    assert heard(*pieces, delta("tool_calls", content=text, tool_calls=[call])) == [text]
    assert heard(*pieces, delta("stop", content=text)) == [text]
    assert heard(*pieces, delta("stop", content=" The end.")) == [text + " The end."]


def test_two_answers_may_say_the_same() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    again = {**call, "id": "b"}
    feed = [
        delta(content="Let me look at it."),
        delta(tool_calls=[call]),
        {"role": "tool", "tool_call_id": "a", "content": "1"},
    ]
    feed += [delta(content="Let me look at it.", tool_calls=[again])]
    assert heard(*feed) == ["Let me look at it."] * 2


ARGUMENTS = '{"a": {"city": "Oslo"}, "b": [1, 2]}'


@given(st.lists(st.integers(1, len(ARGUMENTS) - 1), min_size=1, max_size=8))
def test_arguments_that_grow_with_each_fragment_are_sent_once(cuts: list[int]) -> None:
    feed = [
        delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": text}}])
        for text in growing(ARGUMENTS, cuts)
    ]
    events = both_writers({}, [*feed, delta("tool_calls")])
    assert [(call["args"], call["complete"]) for call in calls(events)] == [(ARGUMENTS, True)]


@pytest.mark.parametrize("pieces", [["[", "[1]", "]"], ['{"a":', '{"a":', "1}}"], ["[", "[[", "]]]"]])
def test_fragments_that_only_look_like_snapshots_are_fragments(pieces: list[str]) -> None:
    feed = [
        delta(tool_calls=[{"index": 0, "function": {"arguments": piece}} | ({} if at else {"id": "a"})])
        for at, piece in enumerate(pieces)
    ]
    feed[0]["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] = "f"
    (call,) = calls(both_writers({}, [*feed, delta("tool_calls")]))
    assert call["args"] == "".join(pieces)


def test_the_whole_text_again_with_the_finish_reason_is_known_however_it_came() -> None:
    text = "The quick brown fox jumps over the lazy dog and runs away. "
    assert heard(delta(content=text[:20]), delta(content=text[20:]), delta("stop", content=text)) == [text]


def test_a_snapshot_that_comes_twice_is_one() -> None:
    snapshots = ["The quick", "The quick brown", "The quick brown", "The quick brown fox"]
    assert heard(*(delta(content=text) for text in snapshots), delta("stop")) == ["The quick brown fox"]
