"""Merging deltas: nothing is lost, nothing changes its place, and a single delta never waits."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragent_stream.asgi.coalesce import DeltaBuffer
from dragent_stream.events import WireEvents

events = WireEvents()
write = events.text_writer("m1")


def test_the_first_delta_leaves_at_once_and_the_next_ones_wait_together() -> None:
    buffer = DeltaBuffer(20, 1000)
    assert buffer.feed(write("a"), 1.0) == write("a")
    assert buffer.due is None
    assert buffer.feed(write("b"), 1.001) == b""
    assert buffer.due == 1.02
    assert buffer.feed(write("c"), 1.019) == b""
    assert buffer.take(1.02) == write("bc")
    assert buffer.due is None
    assert buffer.take(1.03) == b""


def test_a_slow_stream_is_not_delayed() -> None:
    buffer = DeltaBuffer(20, 1000)
    assert [buffer.feed(write("a"), at) for at in (1.0, 1.03, 1.06)] == [write("a")] * 3


def test_a_delta_that_comes_when_others_are_due_takes_them_along() -> None:
    buffer = DeltaBuffer(20, 1000)
    buffer.feed(write("a"), 1.0)
    buffer.feed(write("b"), 1.01)
    assert buffer.feed(write("c"), 1.5) == write("bc")


def test_enough_text_leaves_before_its_time() -> None:
    buffer = DeltaBuffer(1000, 4)
    buffer.feed(write("a"), 1.0)
    assert buffer.feed(write("bc"), 1.0) == b""
    assert buffer.feed(write("de"), 1.0) == write("bcde")


def test_any_other_frame_leaves_at_once_behind_what_was_held() -> None:
    buffer = DeltaBuffer(20, 1000)
    buffer.feed(write("a"), 1.0)
    buffer.feed(write("b"), 1.0)
    assert buffer.feed(events.text_end("m1"), 1.0) == write("b") + events.text_end("m1")


def test_deltas_of_different_messages_and_kinds_are_never_joined() -> None:
    others = [events.text_writer("m2"), events.reasoning_writer("m1"), events.arguments_writer("m1")]
    for other in others:
        buffer = DeltaBuffer(20, 1000)
        buffer.feed(write("a"), 1.0)
        assert buffer.feed(other("b"), 1.0) == other("b")


def test_several_frames_at_once_are_taken_one_by_one() -> None:
    buffer = DeltaBuffer(20, 1000)
    start, end = events.text_start("m1"), events.text_end("m1")
    assert buffer.feed(start + write("a") + write("b") + write("c"), 1.0) == start + write("a")
    assert buffer.feed(write("d") + end, 1.001) == write("bcd") + end


def test_a_delta_behind_the_start_of_its_message_is_the_first() -> None:
    buffer = DeltaBuffer(20, 1000)
    assert buffer.feed(events.text_start("m1") + write("a"), 1.0) == events.text_start("m1") + write("a")
    assert buffer.feed(write("b"), 1.0) == b""


def test_surrogate_halves_in_two_deltas_become_one_character() -> None:
    buffer = DeltaBuffer(20, 1000)
    buffer.feed(write("a"), 1.0)
    buffer.feed(write("\ud83d"), 1.0)
    buffer.feed(write("\ude00"), 1.0)
    assert json.loads(buffer.take(1.0)[len(b"data: ") :])["delta"] == "\U0001f600"


def test_a_delta_above_the_limit_goes_as_it_came_behind_what_was_held() -> None:
    buffer = DeltaBuffer(20, 100)
    buffer.feed(write("a"), 1.0)
    assert buffer.feed(write("b"), 1.0) == b""
    large = write("x" * 5000)
    assert buffer.feed(large, 1.0) == write("b") + large
    assert buffer.due is None


def seconds(texts: list[str], chars: int = 1024) -> float:
    """CPU time that a stream of these deltas takes."""
    frames = [events.text_start("m1"), *[write(text) for text in texts], events.text_end("m1")]
    buffer = DeltaBuffer(1000, chars)
    started = time.process_time()
    out = [buffer.feed(frame, 1.0) for frame in frames]
    out.append(buffer.take(1.0))
    spent = time.process_time() - started
    assert b"".join(out).count(b"TEXT_MESSAGE_START") == 1
    return spent


@pytest.mark.parametrize("chars", [1024, 10**9])
@pytest.mark.parametrize("letter", ["x", "é", "\\", '"', "\U0001f600", "\ud83d", "\n"])
def test_the_work_of_merging_is_linear_in_the_text_whatever_it_is_made_of(letter: str, chars: int) -> None:
    whole = letter * 2_000_000
    copied = min(seconds_to_copy(whole) for _ in range(3))
    assert seconds([whole], chars) < 100 * copied + 0.02
    pieces = [letter * 20_000] * 100
    assert seconds(pieces, chars) < 100 * copied + 0.02


def seconds_to_copy(text: str) -> float:
    started = time.process_time()
    bytes(bytearray(write(text)))
    return time.process_time() - started


WRITERS = st.sampled_from(
    [write, events.text_writer('m"2\\'), events.reasoning_writer("m1"), events.arguments_writer("call")]
)
ITEMS = st.lists(
    st.one_of(
        st.tuples(WRITERS, st.text(min_size=1)).map(lambda pair: pair[0](pair[1])),
        st.just(events.text_end("m1")),
        st.just(write("x") + events.text_end("m1")),
        st.just(events.text_start("m1") + write("y")),
    )
)


def _text(frames: bytes) -> list[tuple[object, str]]:
    """The deltas joined where they are neighbours of one message; whatever else as it is."""
    joined: list[tuple[object, str]] = []
    for frame in frames.split(b"\n\n")[:-1]:
        event = json.loads(frame[len(b"data: ") :])
        delta = event.pop("delta", None)
        key = (tuple(sorted(event.items())), delta is None)
        if joined and joined[-1][0] == key and delta is not None:
            joined[-1] = (key, joined[-1][1] + delta)
        else:
            joined.append((key, delta or ""))
    return joined


@given(ITEMS, st.lists(st.floats(0, 0.03), min_size=1), st.integers(1, 40))
def test_the_reader_gets_the_same_text_in_the_same_order(items: list[bytes], gaps: list[float], chars: int) -> None:
    buffer = DeltaBuffer(20, chars)
    now, out = 1.0, b""
    for at, item in enumerate(items):
        out += buffer.feed(item, now)
        now += gaps[at % len(gaps)]
        if buffer.due is not None and buffer.due <= now:
            out += buffer.take(now)
    out += buffer.take(now)
    assert buffer.due is None
    assert _text(out) == _text(b"".join(items))
