"""From the frames of a chat server's body to chunks.

Nothing is raised for what a server sent, except the size limit: an error of any form is one `{"error": {…}}` chunk,
which clients and the converter know, and reading goes on behind it.

* `event: error`, `error:` fields, bare error lines and flat `{"object": "error"}` bodies become `{"error": body}`.
* Whole objects one after the other in one frame, and lists of objects, are chunks each (openai/openai-python#663).
* Raw control characters in strings are read as they are (earendil-works/pi#4446).
* An error object behind or in what is no JSON, itself cut off or not, is the error: half a frame before it says nothing.
* An event with another name than `message` whose data is no object is none of the chat's: a ping, a heartbeat.
* Any other frame that is no JSON object becomes an `{"error": {"type": "invalid_frame", …}}` with its number.
"""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeAlias, cast

from pydantic_core import from_json

from dragent_stream.sse.chat_lines import ChatLines
from dragent_stream.sse.events import DEFAULT_LIMIT, ServerSentEvent

__all__ = ("ChatSSEDecoder", "Json", "chunks_of_frame", "decode_chat_chunks", "is_invalid_frame", "object_begun")

Json: TypeAlias = dict[str, Any]

_PINGS: Final = frozenset({"heartbeat", "keep-alive", "keep_alive", "keepalive", "ping"})
_FAILURE: Final = re.compile("error|exception|fail", re.IGNORECASE)
_DONE: Final = "[DONE]"
_DONE_MARKS: Final = (_DONE, f'"{_DONE}"')
_INVALID: Final = "invalid_frame"
_GAP: Final = re.compile(r"(?:[\s,\]]|\[(?!DONE\])|data: ?(?=[{\[]))*")  # between two objects, and around them
_TAIL: Final = re.compile(r"[^\n{]*")  # of `[DONE]`, up to what may be the next answer
_ERROR: Final = re.compile(r'\{\s*"error"\s*:')
_MOST_ERRORS: Final = 8  # places in one frame at which an error object is looked for
_LENIENT: Final = json.JSONDecoder(strict=False)


class ChatSSEDecoder:
    """Incremental decoder of a Chat Completions stream: bytes to chunk dicts, up to `[DONE]`.

    Nothing is raised for what the server sent, except the size limit; what becomes of errors and of frames that are no
    chunk is said above. Empty frames are skipped; chunks fused into one frame are taken apart.
    """

    __slots__ = ("_lines", "done", "frames_read")

    def __init__(self, *, max_event_bytes: int = DEFAULT_LIMIT) -> None:
        """Start at the beginning of a stream; `max_event_bytes` as for `SSEDecoder`."""
        self.done = False
        """True once `[DONE]` was read; what follows it is ignored."""
        self.frames_read = 0
        """How many frames of the stream were read."""
        self._lines = ChatLines(max_event_bytes=max_event_bytes)

    def feed(self, data: bytes) -> list[Json]:
        """Take the next bytes and return the chunks they complete; `SSEError` as for `SSEDecoder.feed`."""
        return [] if self.done else self._read(self._lines.feed(data))

    def flush(self) -> list[Json]:
        """End the stream and return the chunk of an unfinished last frame, if there is one."""
        return [] if self.done else self._read(self._lines.flush())

    def _read(self, events: list[ServerSentEvent]) -> list[Json]:
        chunks: list[Json] = []
        for data, event, _, _ in events:
            self.frames_read += 1
            for chunk in chunks_of_frame(data, event, self.frames_read):
                if chunk is None:
                    self.done = True
                    return chunks
                chunks.append(chunk)
        return chunks


def decode_chat_chunks(events: Iterable[ServerSentEvent]) -> Iterator[Json]:
    """Read the chunks of decoded events up to `[DONE]`, with the same rules as `ChatSSEDecoder`."""
    for number, (data, event, _, _) in enumerate(events, 1):
        for chunk in chunks_of_frame(data, event, number):
            if chunk is None:
                return
            yield chunk


def chunks_of_frame(data: str, event: str, number: int) -> list[Json | None]:
    """The chunks of one frame; None stands for `[DONE]`.

    Args:
        data: The frame's data.
        event: Its name; `message` where it has none.
        number: Of the frame in its stream, for the message about one that is none.
    """
    if data.startswith(_DONE_MARKS):
        return _objects(data) or [None]
    try:
        value = from_json(data)
    except ValueError:  # it refuses lone surrogates, too, which split emoji leave, and raw control characters
        return _read_odd_frame(data, event, number)
    if event == "message" and isinstance(value, dict) and value.get("object") != "error":  # pyright: ignore
        return [value]
    return _read_value(cast("object", value), data, event, number)


def _read_odd_frame(data: str, event: str, number: int) -> list[Json | None]:
    """The chunks of a frame that is not strict JSON."""
    if not data.strip():
        return []
    try:
        value = cast("object", _LENIENT.decode(data))
    except (ValueError, RecursionError) as error:
        if found := _objects(data) or _error_in(data):
            return [chunk and _chunk(chunk, event) for chunk in found]
        return _no_chunk(data, event, number, f"is not JSON: {_reason(error)}")
    return _read_value(value, data, event, number)


def _read_value(value: object, data: str, event: str, number: int) -> list[Json | None]:
    """The chunks of a frame that is JSON."""
    if isinstance(value, dict):
        if event in _PINGS and not value.keys() & {"choices", "error"}:
            return []
        return [_chunk(cast("Json", value), event)]
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in cast("list[object]", value)):
        return [_chunk(chunk, event) for chunk in cast("list[Json]", value)]
    return _no_chunk(data, event, number, "is JSON, but not an object")


def _no_chunk(data: str, event: str, number: int, problem: str) -> list[Json | None]:
    if _FAILURE.search(event):
        return [{"error": {"message": data}}]
    if data.strip().lower() in _PINGS or (event != "message" and not data.lstrip().startswith(("{", "["))):
        return []
    # The frame's own text stays out of the message: it may hold user data.
    return [{"error": {"message": f"frame {number} of the stream {problem}", "type": _INVALID}}]


def is_invalid_frame(chunk: Json) -> bool:
    """The chunk stands for a frame that is none."""
    error = chunk.get("error")
    return isinstance(error, dict) and cast("Json", error).get("type") == _INVALID


def object_begun(text: str) -> Json | None:
    """As much of a JSON object as a text that is cut off holds; None where it is no beginning of one."""
    try:
        value = from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return None
    return cast("Json", value) if isinstance(value, dict) else None


def _chunk(body: Json, event: str) -> Json:
    is_error = not body.get("error") and (event == "error" or body.get("object") == "error")
    return {"error": body} if is_error else body


def _objects(text: str) -> list[Json | None]:
    """The objects of a text that holds one after the other; empty where there is anything else."""
    found: list[Json | None] = []
    at = _end_of_gap(text, 0)
    while at < len(text):
        if text.startswith(_DONE, at):
            found.append(None)
            tail = _TAIL.match(text, at)
            at = tail.end() if tail else len(text)
        elif text[at] == "{":
            try:
                value, at = _LENIENT.raw_decode(text, at)
            except (ValueError, RecursionError):
                return []
            found.append(value)
        else:
            return []
        at = _end_of_gap(text, at)
    return found


def _end_of_gap(text: str, at: int) -> int:
    gap = _GAP.match(text, at)
    return gap.end() if gap else at


def _error_in(text: str) -> list[Json]:
    """The error object that follows the beginning of something else, or that is cut off itself."""
    for place in islice(_ERROR.finditer(text), _MOST_ERRORS):
        try:
            body: Json = _LENIENT.raw_decode(text, place.start())[0]
        except (ValueError, RecursionError):
            body = object_begun(text[place.start() :]) or {}
        if body.get("error"):
            return [body]
    body = object_begun(text) or {}
    return [body] if body.get("error") or body.get("object") == "error" else []


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' starting at')} at character {error.pos}"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
