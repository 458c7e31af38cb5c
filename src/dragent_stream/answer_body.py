"""The SSE body of one Chat Completions answer: reads of bytes, cut anywhere, to events.

Frames that repeat but for their text are taken by their pattern; the others are parsed, and are fed as chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from dragent_stream.frame_pattern import FramePatterns
from dragent_stream.plain_chunks import Glance
from dragent_stream.sse import ChatSSEDecoder

__all__ = ["AnswerBody"]

E = TypeVar("E")


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
            if self._between_frames:
                known = len(events)
                at = patterns.take(frames, at, glance.writers, events)
                decoder.frames_read += len(events) - known
                if at == size:
                    return
            stop = size if patterns.hopeless else frames.index("\n\n", at) + 2
            frame = frames[at:stop]
            self._decode(frame.encode(), events)
            patterns.learn(frame, glance.choice_index)
            at = stop

    def _decode(self, data: bytes, events: list[E]) -> None:
        for chunk in self._decoder.feed(data):
            events += self._feed(chunk)
        self._between_frames = self._decoder.between_frames
