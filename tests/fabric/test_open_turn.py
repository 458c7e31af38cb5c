"""A turn is read at its own speed: nobody's pace reaches the runtime, what waits is bounded, nothing is lost silently."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragent_stream.errors import UpstreamError
from dragent_stream.fabric import convert_fabric_stream, drain_fabric_stream, wait_fabric_drains
from dragent_stream.fabric.open_turn import OpenTurn
from dragent_stream.testing import text_chunk

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


SUCCEEDED = {"status": "succeeded"}


class Turn:
    """A stream that notes when it was over; it never waits for its reader."""

    def __init__(self, chunks: list[Any], *, breaks: Exception | None = None) -> None:
        self.chunks = chunks
        self.breaks = breaks
        self.over = asyncio.Event()
        self.closed = 0

    async def __aiter__(self) -> AsyncIterator[Any]:
        for chunk in self.chunks:
            await asyncio.sleep(0)
            yield chunk
        if self.breaks:
            raise self.breaks

    async def result(self) -> Any:
        self.over.set()
        return SUCCEEDED

    async def aclose(self) -> None:
        self.closed += 1
        self.over.set()


async def test_a_turn_is_over_before_anybody_reads_and_nothing_is_lost() -> None:
    chunks = [text_chunk(f"{number} é\u2028\ud800") for number in range(2_000)]
    stream = Turn(chunks)
    with anyio.fail_after(10):
        turn = OpenTurn(stream)
        await stream.over.wait()
        assert [chunk async for chunk in turn] == chunks
        assert await turn.result() == SUCCEEDED


async def test_a_stalled_client_gets_the_whole_run_in_the_end() -> None:
    stream = Turn([text_chunk("x")] * 2_000)
    with anyio.fail_after(10):
        events = convert_fabric_stream(stream)
        await anext(events)
        await stream.over.wait()
        rest = [event async for event in events]
    assert sum(event.type == "TEXT_MESSAGE_CONTENT" for event in rest) == 2_000
    assert rest[-1].type == "RUN_FINISHED"


@settings(deadline=None)
@given(st.lists(json_values), st.lists(st.integers(0, 4)))
def test_chunks_come_in_order_and_unchanged_at_every_pace_of_the_reader(chunks: list[Any], pauses: list[int]) -> None:
    async def read() -> list[Any]:
        turn, got = OpenTurn(Turn(chunks)), list[Any]()
        async for chunk in turn:
            got.append(chunk)
            for _ in range(pauses.pop() if pauses else 0):
                await asyncio.sleep(0)
        assert await turn.result() == SUCCEEDED
        return got

    got = asyncio.run(read())
    assert got == chunks
    assert json.dumps(got) == json.dumps(chunks)  # True is not 1


async def test_what_waits_is_bounded_and_the_reader_is_told() -> None:
    chunk = text_chunk("x" * 100)
    size = len(json.dumps(chunk, separators=(",", ":")))
    stream = Turn([chunk] * 10)
    with anyio.fail_after(5):
        turn = OpenTurn(stream, backlog_limit=3 * size)
        await stream.over.wait()
        assert [await anext(turn) for _ in range(4)] == [chunk] * 4  # one at hand, and three that wait
        with pytest.raises(UpstreamError, match=f"more than {3 * size} bytes") as caught:
            await anext(turn)
        assert caught.value.code == "slow_reader"
        assert "x" * 100 not in str(caught.value)
        assert await turn.result() == SUCCEEDED


async def test_room_comes_back_as_the_reader_takes() -> None:
    chunk = text_chunk("x")
    size = len(json.dumps(chunk, separators=(",", ":")))
    with anyio.fail_after(5):
        turn = OpenTurn(Turn([chunk] * 50), backlog_limit=2 * size)
        assert [item async for item in turn] == [chunk] * 50


async def test_a_run_whose_reader_was_too_slow_says_so_after_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenTurn.__init__, "__kwdefaults__", {"backlog_limit": 300, "left": False, "on_over": None})
    stream = Turn([text_chunk("x")] * 10)
    with anyio.fail_after(5):
        events = convert_fabric_stream(stream)
        await stream.over.wait()
        run: list[Any] = [event async for event in events]
    assert [event.type for event in run] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_ERROR",
    ]
    assert run[-1].code == "slow_reader"
    assert run[-1].message == "the rest of this run is lost: more than 300 bytes of it waited for its reader"


async def test_a_turn_that_was_left_keeps_nothing_and_runs_out() -> None:
    stream = Turn([text_chunk("x")] * 100)
    with anyio.fail_after(5):
        turn = OpenTurn(stream)
        await anext(turn)
        turn.leave()
        await wait_fabric_drains()
        assert stream.over.is_set()
        with pytest.raises(StopAsyncIteration):
            await anext(turn)


async def test_a_stream_that_breaks_off_is_closed_and_its_error_comes_after_its_chunks() -> None:
    stream = Turn([text_chunk("a"), text_chunk("b")], breaks=RuntimeError("broken"))
    with anyio.fail_after(5):
        turn = OpenTurn(stream)
        await stream.over.wait()
        assert [await anext(turn), await anext(turn)] == stream.chunks
        with pytest.raises(RuntimeError, match="broken"):
            await anext(turn)
        with pytest.raises(RuntimeError, match="broken"):
            await turn.result()
    assert stream.closed == 1


async def test_only_turns_that_were_left_are_waited_for() -> None:
    running, left = Turn([text_chunk("x")]), Turn([text_chunk("x")])
    pause = asyncio.Event()

    async def paused() -> Any:
        await pause.wait()
        return SUCCEEDED

    running.result = paused  # type: ignore[method-assign]
    with anyio.fail_after(5):
        turn = OpenTurn(running)
        drain_fabric_stream(left)
        await wait_fabric_drains()
        assert left.over.is_set()
        pause.set()
        assert await turn.result() == SUCCEEDED
