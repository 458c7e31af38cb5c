"""Bytes of an answer give the run that its chunks give, however they are cut."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from agui_case import both_writers, delta, order_of, texts

from dragent_stream import answer_body, stream_agui_sse


def run(*reads: Any) -> list[dict[str, Any]]:
    return both_writers({}, list(reads))


def body(*frames: Any) -> bytes:
    return "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames).encode()


DONE = b"data: [DONE]\n\n"
LONG = [delta(content=word) for word in ["a", "b", "\n", "é", '"', "c"] * 3]


def said(*reads: Any) -> str:
    return "".join("".join(texts(run(*reads)).values()))


def test_bytes_are_the_body_of_an_answer() -> None:
    whole = body(*LONG, delta("stop")) + DONE
    assert run(whole) == run(*LONG, delta("stop"))
    assert run(*(whole[at : at + 1] for at in range(len(whole)))) == run(whole)
    assert run(bytearray(whole)) == run(memoryview(whole)) == run(whole)
    assert run(whole.replace(b"\n", b"\r\n")) == run(whole)


def test_the_next_answer_may_follow_done() -> None:
    one, two = (body(*LONG, delta("stop", chunk_id=name)) + DONE for name in "ab")
    assert said(one, b"\n", two) == said(one + two) == 2 * said(one)


def test_an_answer_that_is_cut_off_is_closed_and_fails() -> None:
    events = run(body(*LONG))
    assert order_of(events)[-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
    assert run(body(*LONG) + DONE)[-1]["type"] == "RUN_FINISHED"
    assert run(body(*LONG, delta("stop")))[-1]["type"] == "RUN_FINISHED"
    assert run(body(*LONG, delta("stop"))[:-1])[-1]["type"] == "RUN_FINISHED"  # only its blank line is missing


@pytest.mark.parametrize("frame", [b"data: {nonsense}\n\n", b"data: \xff\n\n"])
def test_a_frame_that_is_no_chunk_fails_the_run_with_its_number(frame: bytes) -> None:
    events = run(body(*LONG) + frame + body(*LONG))
    assert events[-1]["type"] == "RUN_ERROR"
    assert f"frame {len(LONG) + 1} of the stream" in events[-1]["message"]
    assert "".join(texts(events).values()) == said(body(*LONG))


def test_an_event_beyond_the_limit_fails_the_run_and_keeps_what_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = answer_body.ChatLines
    monkeypatch.setattr(answer_body, "ChatLines", lambda: lines(max_event_bytes=500))
    whole = body(*LONG, {"padding": "x" * 600})
    for reads in ([whole], [whole[at : at + 100] for at in range(0, len(whole), 100)]):
        events = run(*reads)
        assert "larger than 500 bytes" in events[-1]["message"]
        assert "".join(texts(events).values()) == said(body(*LONG))


async def test_the_frames_of_one_read_leave_together() -> None:
    whole = body(*LONG, delta("stop")) + DONE
    frames = [frame async for frame in stream_agui_sse([whole[:900], whole[900:]])]
    assert len(frames) == 5  # RUN_STARTED, the two reads, TEXT_MESSAGE_END, RUN_FINISHED
    assert b"".join(frames).count(b"TEXT_MESSAGE_CONTENT") == len(LONG)


def test_surplus_line_ends_change_nothing_wherever_a_read_ends() -> None:
    for surplus in (b"\n", b": ping\n\n\n", b"\n\n\n", b"\r\n"):
        reads = [body(frame) + surplus for frame in LONG]
        assert (
            said(*reads, body(delta("stop"))) == said(b"".join(reads), body(delta("stop"))) == said(body(*LONG) + DONE)
        )


def test_a_frame_with_a_large_head_does_not_slow_down_the_frames_of_another_kind() -> None:
    large = {"padding": "x" * 1_000_000, **delta(content="a")}

    def cost(count: int) -> float:
        whole = body(delta(content="a"), large) + b": ping\n\n" * count + DONE
        started = time.process_time()
        run(whole)
        return time.process_time() - started

    assert cost(32_000) < 4 * 2 * cost(8_000)  # four times as much; sixteen would be its square


def test_another_choice_between_two_reads_is_not_taken_by_the_patterns_of_the_first() -> None:
    def choice(index: int, text: str) -> dict[str, Any]:
        return {"id": "c", "choices": [{"index": index, "delta": {"content": text}, "finish_reason": None}]}

    first = [choice(2, "a"), choice(2, "b"), choice(2, "c")]
    assert said(body(*first), choice(3, "d"), body(choice(2, "e")) + DONE) == "abcd"


@pytest.mark.parametrize(
    "unit", [b"\xef\xbb\xbf", b"[", b"{", b'{"error":', b"data: {\n", b"{\n", b"[DONE]", b'"', b"\\"]
)
@pytest.mark.parametrize("start", [b"", b"data: ", b'data: {"a'])
def test_repeated_nonsense_is_told_and_neither_raises_nor_takes_long(start: bytes, unit: bytes) -> None:
    def cost(count: int) -> float:
        started = time.process_time()
        assert run(start + unit * count)[-1]["type"] == "RUN_ERROR"
        return time.process_time() - started

    assert cost(16_000) < 4 * 4 * cost(4_000) + 0.05
