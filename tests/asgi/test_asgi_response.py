"""The response class: framing, silence, leaving clients, stopping, and closing the upstream once."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any

import anyio
import pytest
from asgi_wire import Exchange, exchange

from dragent_stream.asgi.coalesce import DeltaBuffer
from dragent_stream.asgi_response import EventStreamResponse


class Frames:
    """Frames that wait for the test, and remember how they were closed."""

    def __init__(self, *frames: bytes, hold: bool = False, error: Exception | None = None) -> None:
        self.frames = frames
        self.hold = hold
        self.error = error
        self.go_on = asyncio.Event()
        self.closed: list[str] = []

    async def stream(self) -> AsyncIterator[bytes]:
        try:
            for frame in self.frames:
                yield frame
            if self.hold:
                await self.go_on.wait()
            if self.error:
                raise self.error
        except BaseException as error:
            self.closed.append(type(error).__name__)
            raise
        self.closed.append("end")


async def test_frames_leave_one_by_one_as_an_event_stream_that_no_proxy_may_touch() -> None:
    frames = Frames(b"data: 1\n\n", b"data: 2\n\n")
    done = await exchange(EventStreamResponse(frames.stream()))
    assert done.status == 200
    assert done.headers == {
        "content-type": "text/event-stream",
        "cache-control": "no-cache, no-transform",
        "x-accel-buffering": "no",
    }
    assert [message.get("body") for message in done.sent[1:]] == [b"data: 1\n\n", b"data: 2\n\n", b""]
    assert done.complete
    assert frames.closed == ["end"]


async def test_more_headers_are_added() -> None:
    done = await exchange(EventStreamResponse(Frames().stream(), headers=[(b"x-run", b"1")]))
    assert done.headers["x-run"] == "1"


async def test_silence_is_filled_with_comments_and_the_pending_pull_is_not_cancelled() -> None:
    frames = Frames(b"data: 1\n\n", hold=True)
    async with Exchange(EventStreamResponse(frames.stream(), keep_alive=0.01)) as going:
        await going.until(lambda body: body.count(b": ping\n\n") >= 3)
        assert frames.closed == []
        frames.go_on.set()
    assert frames.closed == ["end"]
    assert going.body.startswith(b"data: 1\n\n: ping\n\n")


async def test_no_comments_when_switched_off() -> None:
    frames = Frames(b"data: 1\n\n", hold=True)
    async with Exchange(EventStreamResponse(frames.stream(), keep_alive=None, send_timeout=None)) as going:
        await going.until(lambda body: body == b"data: 1\n\n")
        frames.go_on.set()
    assert going.body == b"data: 1\n\n"


async def test_a_comment_never_stands_inside_a_frame_that_waits_for_the_client() -> None:
    looked = asyncio.Event()
    looks: list[bool] = []

    class Watched(EventStreamResponse):
        def _tick(self, *args: Any) -> None:
            super()._tick(*args)
            looks.append(True)
            if len(looks) > 5:
                looked.set()

    async def frames() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        going.writable.clear()
        yield b"data: 2\n\n"

    going = Exchange(Watched(frames(), keep_alive=0.005))
    async with going:
        with anyio.fail_after(5):
            await looked.wait()  # several keep-alive periods pass while a frame waits
        going.writable.set()
    assert going.body == b"data: 1\n\ndata: 2\n\n"


async def test_a_leaving_client_cancels_the_pull_without_a_word_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    frames = Frames(b"data: 1\n\n", hold=True)
    before = asyncio.all_tasks()
    async with Exchange(EventStreamResponse(frames.stream())) as going:
        await going.until(lambda body: body == b"data: 1\n\n")
        with anyio.fail_after(1):
            going.disconnect()
            await asyncio.wait((going.task,))
    assert frames.closed == ["CancelledError"]
    assert asyncio.all_tasks() == before
    assert not going.complete
    assert caplog.records == []


async def test_a_client_that_leaves_while_a_frame_waits_closes_the_frames_at_their_yield() -> None:
    frames = Frames(b"data: 1\n\n", b"data: 2\n\n", hold=True)
    going = Exchange(EventStreamResponse(frames.stream()))
    going.writable.clear()
    async with going:
        await asyncio.sleep(0)
        going.disconnect()
    assert frames.closed in ([], ["GeneratorExit"])  # not even begun, or at the first yield
    assert going.sent == []


async def test_a_refused_write_counts_as_a_leaving_client() -> None:
    frames = Frames(b"data: 1\n\n", b"data: 2\n\n")
    going = Exchange(EventStreamResponse(frames.stream()))
    going.broken = True
    async with going:
        pass
    assert going.sent == []


async def test_a_refused_comment_closes_the_upstream() -> None:
    frames = Frames(b"data: 1\n\n", hold=True)
    async with Exchange(EventStreamResponse(frames.stream(), keep_alive=0.01)) as going:
        await going.until(lambda body: body == b"data: 1\n\n")
        going.broken = True
    assert frames.closed == ["CancelledError"]


async def test_a_client_that_stops_reading_counts_as_gone() -> None:
    frames = Frames(b"data: 1\n\n", b"data: 2\n\n", hold=True)
    response = EventStreamResponse(frames.stream(), keep_alive=0.01, send_timeout=0.02)
    async with Exchange(response) as going:
        await going.until(lambda body: b"data: 2" in body)
        going.writable.clear()
        frames.frames = ()
        frames.go_on.set()
    assert not going.complete


async def test_the_servers_cancellation_passes_through_and_closes_the_upstream() -> None:
    frames = Frames(b"data: 1\n\n", hold=True)
    going = Exchange(EventStreamResponse(frames.stream()))
    async with going:
        await going.until(lambda body: body == b"data: 1\n\n")
        going.task.cancel()
    assert going.task.cancelled()
    assert frames.closed == ["CancelledError"]


def farewell(error: BaseException | None) -> Iterable[bytes]:
    return [b"data: farewell\n\n" if error is None else b"data: failed\n\n"]


async def test_stop_closes_the_upstream_and_says_farewell() -> None:
    frames = Frames(b"data: 1\n\n", hold=True)
    response = EventStreamResponse(frames.stream(), farewell=farewell)
    async with Exchange(response) as going:
        await going.until(lambda body: body == b"data: 1\n\n")
        response.stop()
        response.stop()
    assert going.body == b"data: 1\n\ndata: farewell\n\n"
    assert going.complete
    assert frames.closed == ["CancelledError"]


async def test_stop_lets_a_frame_on_its_way_leave_whole() -> None:
    closed = asyncio.Event()

    async def frames() -> AsyncIterator[bytes]:
        try:
            yield b"data: 1\n\n"
            going.writable.clear()
            asyncio.get_running_loop().call_soon(stop_while_the_frame_waits)
            yield b"data: 2\n\n"
            raise AssertionError("pulled again")
        except GeneratorExit:
            closed.set()
            raise

    def stop_while_the_frame_waits() -> None:
        response.stop()
        going.writable.set()

    response = EventStreamResponse(frames(), farewell=farewell)
    going = Exchange(response)
    async with going:
        pass
    assert going.body == b"data: 1\n\ndata: 2\n\ndata: farewell\n\n"
    assert going.complete
    assert closed.is_set()


async def test_stop_before_the_first_frame_says_farewell_alone() -> None:
    frames = Frames(b"data: 1\n\n")
    response = EventStreamResponse(frames.stream(), farewell=farewell)
    response.stop()
    done = await exchange(response)
    assert done.body == b"data: farewell\n\n"
    assert done.complete


async def test_an_upstream_that_swallows_the_stop_is_not_pulled_again() -> None:
    async def stubborn() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            yield b"data: late\n\n"
        raise AssertionError("pulled again")

    response = EventStreamResponse(stubborn(), farewell=farewell)
    async with Exchange(response) as going:
        await going.until(lambda body: body == b"data: 1\n\n")
        response.stop()
    assert going.body == b"data: 1\n\ndata: late\n\ndata: farewell\n\n"


class Stubborn:
    """Frames that swallow every cancellation while they wait; what they yield when let go, they yield too late."""

    def __init__(self, *, late: BaseException | None = None) -> None:
        self.late = late
        self.go_on, self.ended = asyncio.Event(), asyncio.Event()

    async def stream(self) -> AsyncIterator[bytes]:
        try:
            yield delta("a")
            yield delta("b")
            while not self.go_on.is_set():
                try:
                    await self.go_on.wait()
                except asyncio.CancelledError:
                    pass
            if self.late:
                raise self.late
            yield b"data: late\n\n"
            raise AssertionError("pulled again")
        finally:
            self.ended.set()


@pytest.mark.parametrize("late", [None, ValueError("late"), SystemExit(1)])
@pytest.mark.parametrize("held", [False, True])
async def test_a_stop_that_the_upstream_swallows_says_farewell_after_the_close_timeout(
    caplog: pytest.LogCaptureFixture, held: bool, late: BaseException | None
) -> None:
    frames = Stubborn(late=late)
    response = EventStreamResponse(
        frames.stream(),
        close_timeout=0.01,
        farewell=farewell,
        buffer=DeltaBuffer(10_000, 1000) if held else None,
        name="run r",
    )
    async with Exchange(response) as going:
        await going.until(lambda body: body == delta("a") + (b"" if held else delta("b")))
        await asyncio.sleep(0)
        response.stop()
        response.stop()
    assert going.body == delta("a") + delta("b") + b"data: farewell\n\n"
    assert going.complete
    assert [record.getMessage() for record in caplog.records] == [
        "run r: the upstream did not close within 0.01 s and is left behind"
    ]
    sent = len(going.sent)
    frames.go_on.set()
    with anyio.fail_after(5):
        await frames.ended.wait()
    await asyncio.sleep(0)
    assert len(going.sent) == sent
    assert len(caplog.records) == 1


async def test_a_client_that_goes_while_the_upstream_swallows_the_stop_ends_the_response() -> None:
    frames = Stubborn()
    response = EventStreamResponse(frames.stream(), close_timeout=0.01, farewell=farewell)
    async with Exchange(response) as going:
        await going.until(lambda body: body == delta("a") + delta("b"))
        await asyncio.sleep(0)
        response.stop()
        going.disconnect()
    frames.go_on.set()
    with anyio.fail_after(5):
        await frames.ended.wait()


async def test_frames_that_fail_end_in_the_farewell_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    frames = Frames(b"data: 1\n\n", error=ValueError("broken"))
    done = await exchange(EventStreamResponse(frames.stream(), farewell=farewell, name="run r"))
    assert done.body == b"data: 1\n\ndata: failed\n\n"
    assert done.complete
    assert [record.getMessage() for record in caplog.records] == ["run r: the source of its frames failed"]


async def test_frames_that_fail_without_a_farewell_fail_to_the_server() -> None:
    with pytest.raises(ValueError, match="broken"):
        await exchange(EventStreamResponse(Frames(b"data: 1\n\n", error=ValueError("broken")).stream()))


async def test_an_upstream_that_will_not_close_is_left_behind_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()
    done = asyncio.Event()

    async def hanging() -> AsyncIterator[bytes]:
        try:
            yield b"data: 1\n\n"
            await asyncio.Event().wait()
        finally:
            await release.wait()
            done.set()

    response = EventStreamResponse(hanging(), close_timeout=0.01, name="run r")
    async with Exchange(response) as going:
        await going.until(lambda body: body == b"data: 1\n\n")
        going.disconnect()
    assert [record.getMessage() for record in caplog.records] == [
        "run r: the upstream did not close within 0.01 s and is left behind"
    ]
    release.set()
    with anyio.fail_after(1):
        await done.wait()


def delta(text: str, message: str = "m") -> bytes:
    return b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"%b","delta":"%b"}\n\n' % (
        message.encode(),
        text.encode(),
    )


async def test_held_deltas_leave_when_their_time_comes_while_the_pull_is_pending() -> None:
    frames = Frames(delta("a"), delta("b"), delta("c"), hold=True)
    response = EventStreamResponse(frames.stream(), buffer=DeltaBuffer(10, 1000))
    async with Exchange(response) as going:
        await going.until(lambda body: body == delta("a") + delta("bc"))
        assert frames.closed == []
        frames.go_on.set()
    assert going.body == delta("a") + delta("bc")


async def test_held_deltas_leave_before_the_end_and_before_the_farewell() -> None:
    frames = Frames(delta("a"), delta("b"))
    done = await exchange(EventStreamResponse(frames.stream(), buffer=DeltaBuffer(10_000, 1000)))
    assert done.body == delta("a") + delta("b")
    frames = Frames(delta("a"), delta("b"), hold=True)
    response = EventStreamResponse(frames.stream(), buffer=DeltaBuffer(10_000, 1000), farewell=farewell)
    async with Exchange(response) as going:
        await going.until(lambda body: body == delta("a"))
        await asyncio.sleep(0)
        response.stop()
    assert going.body == delta("a") + delta("b") + b"data: farewell\n\n"
