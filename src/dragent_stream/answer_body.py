"""The bytes of Chat Completions answers, cut anywhere: to chunks, or to events.

A stream holds the body of one answer, or those of several one after the other (an agent that passes on the bodies of its
model calls). For the events, frames that repeat but for their text are taken by their pattern; the others are parsed,
and are fed as chunks.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import Any, Final, Generic, TypeVar, cast

from dragent_stream.answer_end import AnswerEnd, cut_off, holds_content, no_answer, no_chunks
from dragent_stream.errors import AnswerError
from dragent_stream.frame_pattern import FramePatterns
from dragent_stream.plain_chunks import Glance
from dragent_stream.sse.chat import Json, chunks_of_frame, is_invalid_frame, object_begun
from dragent_stream.sse.chat_lines import ChatLines
from dragent_stream.sse.events import ServerSentEvent

__all__ = ["READS", "AnswerBody", "BodyChunks", "chunks_of_bodies", "reads_of_response"]

E = TypeVar("E")

READS: Final = (bytes, bytearray, memoryview)
"""The types of a read of a body."""

_AFTER_DONE: Final = 1.0  # seconds
_DONE_LINE: Final = re.compile(rb"""[\r\n]data: ?"?\[DONE\]""")
_DONE_SIZE: Final = 16


class BodyChunks:
    """The chunks of a stream's bytes, and whether its answers are whole.

    The end of a stream without any read is no end of an answer; an empty read begins one.

    Attributes:
        between_frames: The next byte begins a frame, and nothing that was read waits for it.
        end_of_answer: How far the answers have come.
        frames_read: How many frames were read; whoever takes one past this reader counts it here.
    """

    __slots__ = ("_begun", "_half", "_lines", "_nothing", "between_frames", "end_of_answer", "frames_read")

    def __init__(self) -> None:
        self.between_frames = False
        self.end_of_answer = AnswerEnd()
        self.frames_read = 0
        self._lines = ChatLines()
        self._begun = False  # there was a read
        self._nothing = True  # each was empty
        self._half: tuple[Json, str] | None = None  # the last frame, if it was none, until it is known what follows

    @property
    def problem(self) -> AnswerError | None:
        """Why what has come is no complete answer; None for objects without choices, which their reader tells apart."""
        end, stray = self.end_of_answer, self._lines.stray
        if end.over or not self._begun:
            return None
        if end.known:
            return cut_off(stray)
        if end.begun:
            return None
        if end.dones:
            holds = "says [DONE] and holds no chunk"
        elif self.frames_read:
            holds = "holds events, but no chunk"
        elif self._lines.comments:
            holds = "holds comments and no chunk"
        else:
            holds = "is empty" if self._nothing else "holds no chunk"
        return no_answer(stray, holds)

    def read(self, data: bytes) -> list[Json]:
        """The chunks that the next bytes complete; `SSEError` as for `SSEDecoder.feed`."""
        if self._nothing:
            self._begun, self._nothing = True, not data
        chunks = self._chunks(self._lines.feed(data))
        self.between_frames = self._half is None and self._lines.between_events
        return chunks

    def end(self) -> list[Json]:
        """The chunks of a last frame whose blank line is missing; `SSEError` as for `SSEDecoder.flush`."""
        chunks = self._chunks(self._lines.flush())
        if self._half:
            _, data = self._half
            if "[DONE]".startswith(data):
                self.end_of_answer.take_done()
            elif (begun := object_begun(data)) is not None:
                self.end_of_answer.take_cut(begun)
            else:
                self._give_half(chunks)
            self._half = None
        return chunks

    def _chunks(self, events: list[ServerSentEvent]) -> list[Json]:
        end, chunks = self.end_of_answer, list[Json]()
        for data, event, _, _ in events:
            self.frames_read += 1
            for chunk in chunks_of_frame(data, event, self.frames_read):
                if chunk is None:
                    self._give_half(chunks)
                    end.take_done()
                elif "error" in chunk and is_invalid_frame(chunk):
                    if not end.done or holds_content(object_begun(data) or {}):
                        self._give_half(chunks)
                        self._half = chunk, data
                else:
                    if self._half:
                        if chunk.get("error"):
                            self._half = None  # the error says why the frame before it broke off
                        self._give_half(chunks)
                    end.take(chunk)
                    chunks.append(chunk)
        return chunks

    def _give_half(self, chunks: list[Json]) -> None:
        if self._half:
            chunk, _ = self._half
            self._half = None
            self.end_of_answer.take(chunk)
            chunks.append(chunk)


class AnswerBody(Generic[E]):
    """The bytes of a stream to events, as far as they have come.

    Args:
        glance: Knows the choice that is followed, and the writers of what may go on.
        feed: Takes a chunk and gives its events.
    """

    __slots__ = ("_begun", "_chunks", "_feed", "_glance", "_patterns")

    def __init__(self, glance: Glance[E], feed: Callable[[object], list[E]]) -> None:
        self._glance = glance
        self._feed = feed
        self._begun = b""  # a frame that has no end yet
        self._chunks = BodyChunks()
        self._patterns = FramePatterns()

    @property
    def problem(self) -> AnswerError | None:
        """Why what has come is no complete answer; see `BodyChunks.problem`."""
        return self._chunks.problem

    def read(self, data: bytes, events: list[E]) -> None:
        """Take the next bytes and append the events they give; `SSEError` as for `SSEDecoder.feed`."""
        stop = data.rfind(b"\n\n") + 2
        if stop == 1:
            data, self._begun = self._begun + data, b""
        else:
            data, self._begun = self._begun + data[:stop], data[stop:]
            try:
                frames = data.decode()
            except UnicodeDecodeError:
                pass
            else:
                self._take(data, frames, events)
                return
        self._decode(data, events)

    def end(self, events: list[E]) -> None:
        """Read the last frame, whose blank line may be missing."""
        begun, self._begun = self._begun, b""
        if begun:
            self._decode(begun, events)
        for chunk in self._chunks.end():
            events += self._feed(chunk)

    def _take(self, data: bytes, frames: str, events: list[E]) -> None:
        """Read whole frames, which are the data: as many as match, then one by itself, a pattern of the next maybe."""
        glance, chunks, patterns = self._glance, self._chunks, self._patterns
        at, size = 0, len(frames)
        while at < size:
            if chunks.between_frames and patterns.choice_index == glance.choice_index:
                known = len(events)
                at = patterns.take(frames, at, glance.writers, events)
                if known < len(events):
                    chunks.frames_read += len(events) - known
                    chunks.end_of_answer.take_content()
                if at == size:
                    return
            stop = -1 if patterns.hopeless else frames.find("\n\n", at)
            stop = size if stop < 0 else stop + 2
            frame = frames[at:stop]
            self._decode(frame.encode() if at or stop < size else data, events)
            patterns.learn(frame, glance.choice_index)
            at = stop

    def _decode(self, data: bytes, events: list[E]) -> None:
        for chunk in self._chunks.read(data):
            events += self._feed(chunk)


async def chunks_of_bodies(source: AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
    """What a source brings, the bytes in it as the chunks they hold; `AnswerError` where they are no whole answer."""
    bodies = BodyChunks()
    async for item in source:
        if isinstance(item, READS):
            for chunk in bodies.read(bytes(cast("bytes", item))):
                yield chunk
        else:
            yield item
    for chunk in bodies.end():
        yield chunk
    if bodies.problem:
        raise bodies.problem
    if bodies.end_of_answer.begun and not bodies.end_of_answer.known:
        raise no_chunks()


async def reads_of_response(body: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """The reads of the body of one response, for a source that brings bytes.

    An empty read goes first, so that a body without a byte is an answer as well. Behind `[DONE]` the end of the body, or
    usage, is waited for a second at most, and a connection that breaks off there is no failure.
    """
    import anyio  # costs 40 modules, which a converter without a shell does not need

    yield b""
    reads = aiter(body)
    end, done = b"\n", False
    while True:
        data: bytes | None = None
        try:
            with anyio.move_on_after(_AFTER_DONE if done else None):
                data = await anext(reads, None)
        except Exception:
            if not done:
                raise
        if data is None:
            return
        yield data
        end = end[-_DONE_SIZE:] + data
        done = done or _DONE_LINE.search(end) is not None
