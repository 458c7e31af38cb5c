"""A pattern gives what parsing gives, or nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragent_stream.frame_pattern import FramePattern
from dragent_stream.sse import ChatSSEDecoder

text = st.text(st.characters(exclude_categories=["Cs"]))


def frame(content, *, separators=(",", ":"), ascii_only=True, **more):
    chunk = {"id": "c", "choices": [{"index": 0, "delta": {"content": content}, "finish_reason": None}], **more}
    return json.dumps(chunk, separators=separators, ensure_ascii=ascii_only)


@given(st.lists(text), st.sampled_from([(",", ":"), (", ", ": ")]), st.booleans())
def test_frames_of_one_stream_are_read_as_they_are_parsed(texts, separators, ascii_only):
    pattern = FramePattern()
    pattern.learn(frame("first", separators=separators, ascii_only=ascii_only))
    for content in texts:
        data = frame(content, separators=separators, ascii_only=ascii_only)
        assert pattern.read(data) == json.loads(data)


@given(st.lists(st.sampled_from(['"', "\\", "a", '","x":"', "\n", "\t", "{", "}", "\\u00e9", "\\ud800"])).map("".join))
def test_what_stands_between_head_and_tail_is_read_only_where_it_is_one_json_string(between):
    pattern = FramePattern()
    whole = frame("first")
    pattern.learn(whole)
    data = whole.replace("first", between)
    read = pattern.read(data)
    if read is not None:
        assert read == json.loads(data)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "[DONE]",
        '{"content":"x"}',
        '{"choices":[{"delta":{"content":null}}]}',
        '{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}',
        '{"choices":[{"delta":{"x\\"content":"a"}}]}',
        '{"choices":[{"delta":{"\\u0063ontent":"a"},"content":"a"}]}',
        '{"choices":[{"delta":{"content":"a"}}]',
    ],
)
def test_a_frame_that_is_no_text_chunk_is_no_pattern(data):
    pattern = FramePattern()
    pattern.learn(data)
    assert pattern.read(data) is None


def test_a_stream_whose_frames_differ_elsewhere_is_given_up():
    pattern = FramePattern()
    for number in range(20):
        assert pattern.read(frame("a", padding="x" * number)) is None
        pattern.learn(frame("a", padding="x" * number))
    assert pattern.read(frame("a", padding="x" * 19)) is None


def test_the_chunks_of_a_pattern_share_nothing():
    decoder = ChatSSEDecoder()
    one, two, three = decoder.feed(b"".join(f"data: {frame(t)}\n\n".encode() for t in "abc"))
    two["choices"][0]["delta"]["content"] = "changed"
    assert three == json.loads(frame("c"))
    assert one == json.loads(frame("a"))
