"""The lines of a chat server's body: SSE, and what servers write where SSE is due.

* A bare JSON object, on one line or over many, is an event: one completion because `stream` was ignored
  (openclaw/openclaw#96503), an error body of a proxy, JSON Lines, the elements of an array. So is a bare `[DONE]`.
* A `data:` line behind a whole object begins the next event: frames without a blank line (ggml-org/llama.cpp#14268).
* A line of no field inside the object of a `data:` line belongs to it: raw line ends, pretty print.
"""

import re
from typing import Final

from dragent_stream.sse.events import BOM, DEFAULT_LIMIT, ServerSentEvent, SSEDecoder

__all__ = ("ChatLines",)

_MARK: Final = re.compile(rb'["{}\[\]]')
_STRING_END: Final = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_DONE: Final = b"[DONE]"
_FIELDS: Final = (b"data:", b"event:", b"error:")  # no line of a JSON value begins like this
_BEGINNINGS: Final = (b"data", b"event", b"error", b"retry", b"id")
_REMEMBERED: Final = 64


class _Span:
    """How deep the lines of a JSON value have gone into objects, lists and strings.

    Attributes:
        in_string: The next line begins inside a string.
    """

    __slots__ = ("_depth", "in_string")

    def __init__(self) -> None:
        self._depth = 0
        self.in_string = False

    @property
    def whole(self) -> bool:
        """Everything that was opened is closed."""
        return self._depth <= 0 and not self.in_string

    def add(self, line: bytes) -> None:
        """Take the next line."""
        at = 0
        while True:
            if self.in_string:
                end = _STRING_END.match(line, at)
                if end is None:
                    return
                self.in_string = False
                at = end.end()
            mark = _MARK.search(line, at)
            if mark is None:
                return
            at = mark.end()
            if mark[0] == b'"':
                self.in_string = True
            else:
                self._depth += 1 if mark[0] in b"{[" else -1


class ChatLines(SSEDecoder):
    """An `SSEDecoder` for the bodies of chat servers; a bare JSON value is an event like another.

    Attributes:
        stray: The beginning of the first line that was nothing of a chat stream; empty where there was none.
        comments: There was a comment.
    """

    __slots__ = ("_bare", "_scanned", "_span", "comments", "stray")

    def __init__(self, *, max_event_bytes: int = DEFAULT_LIMIT) -> None:
        """Start at the beginning of a body; `max_event_bytes` as for `SSEDecoder`."""
        super().__init__(max_event_bytes=max_event_bytes)
        self.stray = b""
        self.comments = False
        self._bare: list[bytes] = []  # the lines of a bare value that is not whole
        self._span = _Span()  # of the bare value, or of the data lines
        self._scanned = 0  # how many data lines it has seen

    def flush(self) -> list[ServerSentEvent]:
        """End the body, as `SSEDecoder.flush`; a bare value that is not whole is given as far as it has come."""
        events = super().flush()
        if self._bare:
            self._give(events)
            self._dispatch(events)
        return events

    def _field(self, line: bytes, events: list[ServerSentEvent]) -> None:
        if self._bare:
            if not line.startswith(_FIELDS):
                self._go_on(line, events)
                return
            self._give(events)
        elif line.startswith(b":"):
            self.comments = True
        elif self._data and line.startswith((b"data: {", b"data:{", b"data: [DONE]", b"data:[DONE]")):
            if self._data[0].startswith((b"{", _DONE)) and self._data_is_whole():
                self._dispatch(events)
        super()._field(line, events)

    def _stray(self, line: bytes, events: list[ServerSentEvent]) -> None:
        if self._data and not self._data_is_whole():
            self._data.append(line)
            return
        if line.startswith(BOM):  # of the next body in the stream
            self._size -= len(line)
            self._field(line.lstrip(BOM), events)
            return
        value = line.strip()
        if not value.startswith(_DONE):
            value = value.lstrip(b"[], \t")  # of an array around the objects
        if value.startswith(b"{"):
            if self._data and not self._data[0].startswith(_DONE):  # an error goes before the end it came with
                self._dispatch(events)
            self._open = True
            self._span = _Span()
            self._go_on(value, events)
        elif value.startswith(_DONE):
            self._dispatch(events)
            events.append(ServerSentEvent(_DONE.decode(), id=self.last_event_id))
        elif value and not any(name.startswith(value) for name in _BEGINNINGS):  # cut off inside a field's name
            self.stray = self.stray or line[:_REMEMBERED]

    def _go_on(self, line: bytes, events: list[ServerSentEvent]) -> None:
        if line.startswith(b":") and not self._span.in_string:
            self.comments = True
            return
        if self._bare:  # of its first line the size is counted
            if self._size + len(line) > self._limit:
                self._bare.clear()
                self._fail()
                return
            self._size += len(line)
        self._bare.append(line)
        self._span.add(line)
        if self._span.whole:
            self._give(events)

    def _give(self, events: list[ServerSentEvent]) -> None:
        data = b"\n".join(self._bare).decode("utf-8", "replace")
        events.append(ServerSentEvent(data, self._event.decode("utf-8", "replace") or "message", self.last_event_id))
        self._bare.clear()
        self._size = 0
        self._open = bool(self._data or self._errors or self._event)

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        if self._bare:
            return  # a blank line inside the value
        super()._dispatch(events)
        self._scanned = 0

    def _data_is_whole(self) -> bool:
        """No JSON value that the data lines have begun is still open."""
        if not self._data[0].lstrip().startswith((b"{", b"[")):
            return True
        if not self._scanned:
            self._span = _Span()
        for line in self._data[self._scanned :]:
            self._span.add(line)
        self._scanned = len(self._data)
        return self._span.whole
