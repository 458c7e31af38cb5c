"""The SSE body of one Chat Completions answer: reads of bytes, cut anywhere, to events.

Frames that repeat but for their text are taken by their pattern; the others are parsed, and are fed as chunks.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from typing import Any, Generic, TypeVar, cast

from dragent_stream.errors import UpstreamError
from dragent_stream.frame_pattern import FramePatterns
from dragent_stream.plain_chunks import Glance
from dragent_stream.sse import ChatSSEDecoder

__all__ = ["AnswerBody", "BodyChunks", "chunks_of_bodies", "cut_off", "ends_answer"]

E = TypeVar("E")


def cut_off() -> UpstreamError:
    """The failure of an answer that a proxy or the network ended."""
    return UpstreamError("the answer ended without finish_reason and without [DONE]")


def ends_answer(chunk: Mapping[str, Any]) -> bool:
    """The chunk is an error, or a choice of it says why the model stopped."""
    choices = chunk.get("choices")
    return bool(chunk.get("error")) or (
        isinstance(choices, list)
        and any(
            isinstance(choice, dict) and cast("dict[str, Any]", choice).get("finish_reason")
            for choice in cast("list[object]", choices)
        )
    )


class AnswerBody(Generic[E]):
    """The body of one answer, as far as it has come.

    Args:
        glance: Knows the choice that is followed, and the writers of what may go on.
        feed: Takes a chunk and gives its events.

    Attributes:
        finished: The model has said why it stopped; for the one who reads the chunks to set.
    """

    __slots__ = ("_begun", "_between_frames", "_decoder", "_feed", "_glance", "_patterns", "finished")

    def __init__(self, glance: Glance[E], feed: Callable[[object], list[E]]) -> None:
        self.finished = False
        self._glance = glance
        self._feed = feed
        self._begun = b""  # a frame that has no end yet
        self._decoder = ChatSSEDecoder()
        self._between_frames = self._decoder.between_frames
        self._patterns = FramePatterns()

    @property
    def done(self) -> bool:
        """`[DONE]` was read; what follows it is ignored."""
        return self._decoder.done

    def read(self, data: bytes, events: list[E]) -> None:
        """Take the next bytes and append the events they give; `SSEError` as for `ChatSSEDecoder.feed`."""
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
                self._take(frames, events)
                return
        self._decode(data, events)

    def end(self, events: list[E]) -> None:
        """Read the last frame, whose blank line may be missing."""
        self._decode(self._begun, events)
        for chunk in self._decoder.flush():
            events += self._feed(chunk)

    def _take(self, frames: str, events: list[E]) -> None:
        """Read whole frames: as many as match, then one by itself, which may be the pattern of the next."""
        glance, decoder, patterns = self._glance, self._decoder, self._patterns
        at, size = 0, len(frames)
        while at < size and not decoder.done:
            if self._between_frames and patterns.choice_index == glance.choice_index:
                known = len(events)
                at = patterns.take(frames, at, glance.writers, events)
                decoder.frames_read += len(events) - known
                if at == size:
                    return
            stop = -1 if patterns.hopeless else frames.find("\n\n", at)
            stop = size if stop < 0 else stop + 2
            frame = frames[at:stop]
            self._decode(frame.encode(), events)
            patterns.learn(frame, glance.choice_index)
            at = stop

    def _decode(self, data: bytes, events: list[E]) -> None:
        for chunk in self._decoder.feed(data):
            events += self._feed(chunk)
        self._between_frames = self._decoder.between_frames


class BodyChunks:
    """The chunks of a source's SSE bodies, one answer after the other, for those who do not convert them."""

    __slots__ = ("_decoder", "_finished")

    def __init__(self) -> None:
        self._decoder: ChatSSEDecoder | None = None
        self._finished = False

    @property
    def cut(self) -> bool:
        """The answer that was begun has said neither why it stopped nor `[DONE]`."""
        return self._decoder is not None and not (self._decoder.done or self._finished)

    def read(self, data: bytes) -> list[dict[str, Any]]:
        """The chunks that the next bytes complete; `SSEError` as for `ChatSSEDecoder.feed`."""
        if self._decoder is None or (self._decoder.done and data.strip()):
            self._decoder, self._finished = ChatSSEDecoder(), False
        return self._noted(self._decoder.feed(data))

    def end(self) -> list[dict[str, Any]]:
        """The chunk of a last frame whose blank line is missing."""
        return self._noted(self._decoder.flush()) if self._decoder else []

    def _noted(self, chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self._finished = self._finished or any(map(ends_answer, chunks))
        return chunks


async def chunks_of_bodies(source: AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
    """What a source brings, the bytes in it as the chunks they hold; `UpstreamError` for an answer that is cut off."""
    bodies = BodyChunks()
    async for item in source:
        if isinstance(item, bytes):
            for chunk in bodies.read(item):
                yield chunk
        else:
            yield item
    for chunk in bodies.end():
        yield chunk
    if bodies.cut:
        raise cut_off()
