"""Server-sent events without I/O: bytes to events, and text to frames.

`SSEDecoder` follows the WHATWG rules ("9.2.6 Interpreting an event stream"). Three divergences are intended, each for
servers in the field:

* `flush()` returns the last event even when its blank line is missing (several providers cut it off).
* An `error: {...}` *field* becomes an event named `error` (llama.cpp until September 2025, ggml-org/llama.cpp#16109).
* A bare line that is a JSON object with an `"error"` key becomes the same (proxies that write the error body as it is).
"""

from typing import Final, NamedTuple

from dragent_stream.errors import SSEError

__all__ = ("BOM", "DEFAULT_LIMIT", "SSEDecoder", "ServerSentEvent", "encode_sse_frame")

BOM: Final = b"\xef\xbb\xbf"
DEFAULT_LIMIT: Final = 64 * 1024 * 1024


class ServerSentEvent(NamedTuple):
    """One dispatched event.

    Attributes:
        data: The data lines, joined by LF.
        event: The event type; `message` when the stream named none.
        id: The last event id at this point of the stream (it persists over events); None before the first one.
        retry: Milliseconds from a `retry:` line of this very event, else None.
    """

    data: str
    event: str = "message"
    id: str | None = None
    retry: int | None = None


class SSEDecoder:
    r"""Incremental decoder of an event stream: the same bytes give the same events, however they are cut.

    Lines end at CRLF, LF or CR and nowhere else (not at U+2028 or U+0085). Bytes that are not UTF-8 become U+FFFD.
    The work is linear in the input, also when one event arrives byte by byte.

    Example:
        ```python
        decoder = SSEDecoder()
        decoder.feed(b"data: Hel")  # []
        decoder.feed(b"lo\n\n")  # [ServerSentEvent(data="Hello", ...)]
        decoder.flush()  # what an ended stream left over
        ```
    """

    __slots__ = (
        "_after_cr",
        "_data",
        "_error",
        "_errors",
        "_event",
        "_event_retry",
        "_limit",
        "_line",
        "_line_size",
        "_open",
        "_size",
        "_start",
        "last_event_id",
        "retry",
    )

    def __init__(self, *, max_event_bytes: int = DEFAULT_LIMIT) -> None:
        """Start at the beginning of a stream; `max_event_bytes` bounds the fields of one event, and any one line."""
        self.last_event_id: str | None = None
        """What a reconnecting client sends as `Last-Event-ID`."""
        self.retry: int | None = None
        """The last `retry:` of the stream, in milliseconds."""
        self._limit = max_event_bytes
        self._error: SSEError | None = None
        self._start: bytes | None = b""  # the first bytes, while they may still become a BOM
        self._after_cr = False  # the last byte was CR: an LF that follows belongs to it
        self._line: list[bytes] = []  # pieces of the line that has not ended
        self._line_size = 0
        self._open = False  # the event has at least one field line
        self._size = 0  # bytes of its field lines
        self._data: list[bytes] = []
        self._errors: list[bytes] = []
        self._event = b""
        self._event_retry: int | None = None

    @property
    def between_events(self) -> bool:
        """The next byte begins an event; nothing that was read waits for the rest of its line or event."""
        return not (self._line or self._open or self._after_cr or self._start is not None or self._error)

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Take the next bytes of the stream and return the events they complete.

        Raises:
            SSEError: An event is larger than `max_event_bytes`. Events completed before it are returned first; the
                error is then raised by the next call. The decoder stays failed.
        """
        if self._error is not None:
            raise self._error
        if self._start is not None:
            data = self._start + data
            if len(data) < len(BOM) and BOM.startswith(data):
                self._start = data
                return []
            self._start = None
            data = data.removeprefix(BOM)
        if self._after_cr and data:
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = data.rfind(b"\n") + 1
        events: list[ServerSentEvent] = []
        if end:
            lines = data[:end]
            if self._line:
                lines = b"".join([*self._line, lines])
                self._line.clear()
                self._line_size = 0
            self._read(lines, events)
        if end < len(data) and self._error is None:
            self._line.append(data[end:])
            self._line_size += len(data) - end
            if self._size + self._line_size > self._limit:
                self._fail()
        if self._error is not None and not events:
            raise self._error
        return events

    def flush(self) -> list[ServerSentEvent]:
        """End the stream: return the event whose blank line is missing, if there is one.

        The decoder is then ready for a new stream; `last_event_id` and `retry` stay.

        Raises:
            SSEError: The stream failed and the error has not been raised yet, or was raised before.
        """
        if self._error is not None:
            raise self._error
        events: list[ServerSentEvent] = []
        tail = (self._start or b"") + b"".join(self._line)
        self._line.clear()
        self._line_size = 0
        self._start = b""
        self._after_cr = False
        if tail:
            self._field(tail, events)
        self._dispatch(events)
        return events

    def _read(self, lines: bytes, events: list[ServerSentEvent]) -> None:
        """Read whole lines (LF ends each of them)."""
        start = 0
        while self._open and start < len(lines):
            stop = lines.index(b"\n", start)
            self._take(lines[start:stop], events)
            start = stop + 1
            if self._error is not None:
                return
        block = lines[start:]
        if len(block) > self._limit:
            for line in block.split(b"\n")[:-1]:
                self._take(line, events)
            return
        raw: list[bytes] | None = None
        # Decoded at once: a character that a line end cuts off becomes U+FFFD either way.
        for position, frame in enumerate(block.decode("utf-8", "replace").split("\n\n")):
            # Nearly every frame of a chat stream is one data line, which needs no state.
            if frame.startswith("data: ") and "\n" not in frame and not self._open:
                events.append(ServerSentEvent(frame[6:], "message", self.last_event_id, None))
            elif frame:
                raw = raw or block.split(b"\n\n")
                ended = position + 1 < len(raw)  # behind the last blank line there are whole lines, but no whole event
                for line in raw[position].split(b"\n") if ended else raw[position].split(b"\n")[:-1]:
                    self._take(line, events)
                if ended:
                    self._dispatch(events)

    def _take(self, line: bytes, events: list[ServerSentEvent]) -> None:
        if self._error is not None:
            return
        if line:
            self._field(line, events)
        else:
            self._dispatch(events)

    def _field(self, line: bytes, events: list[ServerSentEvent]) -> None:
        if self._size + len(line) > self._limit:
            self._fail()
            return
        if line.startswith(b":"):
            return  # a comment counts only while it is being read: a stream of keep-alives has no end
        self._open = True
        self._size += len(line)
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value
        elif name == b"id":
            if b"\0" not in value:
                self.last_event_id = value.decode("utf-8", "replace")
        elif name == b"retry":
            if value.isdigit() and len(value) <= 18:
                self.retry = self._event_retry = int(value)
        elif name == b"error":
            if value:
                self._errors.append(value)
        else:
            self._stray(line, events)

    def _stray(self, line: bytes, events: list[ServerSentEvent]) -> None:
        """Take a line of no known field; it counts as a line of its event."""
        if line.startswith(b"{") and b'"error"' in line:
            self._errors.append(line)

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        if not self._open:
            return
        if self._errors:  # first, because readers stop at a `[DONE]` in the same frame
            error = b"\n".join(self._errors).decode("utf-8", "replace")
            events.append(ServerSentEvent(error, "error", self.last_event_id, self._event_retry))
            self._errors.clear()
        if self._data:
            data = b"\n".join(self._data).decode("utf-8", "replace")
            event = self._event.decode("utf-8", "replace") or "message"
            events.append(ServerSentEvent(data, event, self.last_event_id, self._event_retry))
            self._data.clear()
        self._open = False
        self._size = 0
        self._event = b""
        self._event_retry = None

    def _fail(self) -> None:
        self._error = SSEError(
            f"an event of the stream is larger than {self._limit} bytes;"
            " raise max_event_bytes if the source is trusted, else check that the input is an event stream"
        )
        self._line.clear()
        self._data.clear()


def encode_sse_frame(data: str, *, event: str | None = None, id: str | None = None) -> bytes:  # noqa: A002, RUF100
    r"""Write one event as a frame: `b"data: ...\n\n"`, one data line for each line of `data`.

    A lone surrogate, which UTF-8 cannot carry, is written as the JSON escape of the same code unit.

    Args:
        data: The text; for JSON, compact or not.
        event: The event type, left out by default as OpenAI and AG-UI do.
        id: The event id that a reconnecting client will send back.

    Raises:
        SSEError: `event` or `id` holds a line break or NUL.
    """
    head = ""
    for name, value in (("event", event), ("id", id)):
        if value is not None:
            if any(mark in value for mark in "\r\n\0"):
                raise SSEError(f"the {name} of a frame cannot hold a line break or NUL: {value!r}")
            head += f"{name}: {value}\n"
    if "\n" in data or "\r" in data:
        data = data.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\ndata: ")
    return f"{head}data: {data}\n\n".encode("utf-8", "backslashreplace")
