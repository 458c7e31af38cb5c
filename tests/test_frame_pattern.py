"""A pattern gives what parsing gives, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragent_stream.frame_pattern import FramePatterns

text = st.text(st.characters(exclude_categories=["Cs"]))
Taken = list[tuple[Any, str]]


class Everything(dict[str | int, Any]):
    """Offers a writer for whatever may go on; each gives what it was offered for, and the text."""

    def __contains__(self, kind: object) -> bool:
        return True

    def __missing__(self, kind: str | int) -> Any:
        return lambda text: (kind, text)


def frame(delta: dict[str, Any], *, separators=(",", ":"), ascii_only=True, **more: Any) -> str:
    chunk = {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **more}
    return f"data: {json.dumps(chunk, separators=separators, ensure_ascii=ascii_only)}\n\n"


def fragment(index: int, arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}


def taken(patterns: FramePatterns, frames: str) -> tuple[Taken, str]:
    """What is taken from the front, and what is left."""
    events: Taken = []
    at = patterns.take(frames, 0, Everything(), events)
    return events, frames[at:]


def learned(*frames: str) -> FramePatterns:
    patterns = FramePatterns()
    for each in frames:
        patterns.learn(each, 0)
    return patterns


@given(st.lists(text, min_size=1), st.sampled_from([(",", ":"), (", ", ": ")]), st.booleans())
def test_frames_of_one_stream_are_read_as_they_are_parsed(texts, separators, ascii_only):
    def of(content):
        return frame({"content": content}, separators=separators, ascii_only=ascii_only)

    patterns = learned(of("first"))
    whole = [*texts, "last"]
    events, rest = taken(patterns, "".join(map(of, whole)))
    until = whole.index("") if "" in whole else len(whole)  # an empty delta needs a decision
    assert events == [("content", content) for content in whole[:until]]
    assert rest == "".join(map(of, whole[until:]))


@given(st.lists(st.sampled_from(['"', "\\", "a", '","x":"', "\n", "\t", "{", "}", "\\u00e9", "\\ud800"])).map("".join))
def test_what_stands_between_head_and_tail_is_read_only_where_it_is_one_json_string(between):
    whole = frame({"content": "first"})
    data = whole.replace("first", between)
    events, rest = taken(learned(whole), data)
    if events:
        assert not rest
        assert events == [("content", json.loads(data[6:])["choices"][0]["delta"]["content"])]
    else:
        assert rest == data


@given(st.lists(st.tuples(st.integers(0, 3), text.filter(bool)), min_size=1))
def test_parallel_calls_have_a_pattern_each_in_whatever_order_they_come(fragments):
    patterns = learned(*(frame(fragment(index, "x")) for index in range(4)))
    for _ in range(2):  # the second time in the order that is expected by then
        events, rest = taken(patterns, "".join(frame(fragment(index, arguments)) for index, arguments in fragments))
        assert events == fragments
        assert not rest


def test_text_thought_and_arguments_take_turns():
    deltas = [{"reasoning_content": "hm"}, {"content": "so"}, fragment(0, "{"), fragment(1, "{"), {"content": "and"}]
    frames = [frame(delta) for delta in deltas]
    events, rest = taken(learned(*frames), "".join(frames))
    assert events == [("reasoning_content", "hm"), ("content", "so"), (0, "{"), (1, "{"), ("content", "and")]
    assert not rest


def test_a_frame_of_another_kind_stops_the_taking():
    stop = frame({}, usage={"prompt_tokens": 1})
    events, rest = taken(learned(frame({"content": "a"})), frame({"content": "b"}) + stop + frame({"content": "c"}))
    assert events == [("content", "b")]
    assert rest.startswith(stop)


def test_what_has_no_writer_is_left():
    patterns, frames = learned(frame({"content": "a"})), frame({"content": "b"})
    assert patterns.take(frames, 0, {}, []) == 0


@pytest.mark.parametrize(
    "data",
    [
        "",
        "[DONE]",
        '{"content":"x"}',
        '{"choices":[{"delta":{"content":null}}]}',
        '{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}',
        '{"choices":[{"index":0,"delta":{"x\\"content":"a"}}]}',
        '{"choices":[{"index":0,"delta":{"\\u0063ontent":"b","content":"a","role":"user"}}]}',
        '{"choices":[{"index":0,"delta":{"content":"a"}}]',
        '{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}',
        '{"choices":[{"index":0,"delta":{"content":"a"}}],"error":"x"}',
        '{"choices":[{"index":1,"delta":{"content":"a"}}]}',
        '{"choices":[{"index":0,"delta":{"content":"a"}}]}\ndata: {}',
    ],
)
def test_a_frame_that_is_no_plain_chunk_is_no_pattern(data):
    whole = f"data: {data}\n\n"
    assert taken(learned(whole), whole) == ([], whole)


@given(st.lists(st.tuples(text.filter(bool), st.text("abcXYZ019", min_size=1)), min_size=1))
def test_padding_may_differ_from_frame_to_frame(frames):
    patterns = learned(frame({"content": "first"}, obfuscation="x7"))
    body = "".join(frame({"content": content}, obfuscation=padding) for content, padding in frames)
    assert taken(patterns, body) == ([("content", content) for content, _ in frames], "")
    assert not patterns.hopeless


@pytest.mark.parametrize("padding", ["", '\\"', '","usage":{"prompt_tokens":1},"x":"', "\n"])
def test_what_is_no_padding_is_left(padding):
    whole = frame({"content": "a"}, obfuscation="PAD")
    other = whole.replace("PAD", padding)
    assert taken(learned(whole), other) == ([], other)


def test_a_stream_whose_frames_differ_elsewhere_is_given_up():
    patterns = FramePatterns()
    for number in range(20):
        whole = frame({"content": "a"}, padding="x" * number)
        assert taken(patterns, whole) == ([], whole)
        patterns.learn(whole, 0)
    assert patterns.hopeless


def test_the_patterns_of_one_choice_are_not_those_of_another():
    patterns = learned(frame({"content": "a"}))
    patterns.learn(frame({"content": "a"}), 1)
    assert taken(patterns, frame({"content": "a"}))[0] == []
