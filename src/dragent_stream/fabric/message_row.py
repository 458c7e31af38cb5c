"""One message at a time: LangChain messages that are open beside each other, put in a row.

A completion stream has no names for messages, so pieces of parallel ones would run into each other on its other side. The
first one goes out as it comes; pieces of the others wait until it is over. A message that ends without a reason to stop
gets one, so that what follows is a message of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from dragent_stream.chunk_record import Chunk
from dragent_stream.turn import Place

__all__ = ["MessageRow"]

Json = dict[str, Any]


class MessageRow:
    """The messages of one stream that are not over; the first one is open, the others wait.

    A message is over with its last piece, as a whole, with a result of one of its calls, when its graph is a step further,
    and once it has said why it stopped, when one begins that cannot run beside it.
    """

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._row: dict[str, _Message] = {}  # by the message's name; chat chunks are the message ""
        self._used: set[str] = set()
        self._chat: Json | None = None  # the last chat chunk that went out past the row
        self._chat_id = ""  # of chat chunks without one, behind a message

    def chat(self, fields: Json) -> Sequence[Json]:
        """What goes out for a completion chunk, or what is close to one."""
        if self._used and not fields.get("id"):
            self._chat_id = fields["id"] = self._chat_id or self._fresh_id()
        if not self._row:
            self._chat = fields
            return (fields,)
        message = self._row.get("") or self._begin("", _CHAT, str(fields.get("id") or ""))
        message.held.append(fields)
        choices = _choices(fields)
        message.speaks = message.speaks or bool(choices)
        message.stopped = message.stopped or any(choice.get("finish_reason") for choice in choices)
        return self._advance()

    def take(self, record: Chunk, fields: Json | None) -> Sequence[Json]:
        """What goes out for a record; `fields` says it as a chunk, None where it says nothing."""
        place = Place(record.message, record.step, record.lane)
        if record.tool_result is not None:
            return self._result(record.tool_result.call_id, place, fields)
        before: list[Json] = []
        message = self._row.get(record.message)
        if fields is not None:
            if message is None:
                before = self._end_chat() if record.message else []
                message = self._begin(record.message, place, record.id)
            fields["id"] = message.id
            message.held.append(fields)
            message.take(record)
        if message is not None and (record.last or record.whole):
            message.end()
        return [*before, *self._advance()]

    def release(self) -> Sequence[Json]:
        """What waits; the stream is over. The last message may have been cut, so it gets no reason to stop."""
        for message in list(self._row.values())[:-1]:
            message.end()
        held = [fields for message in self._row.values() for fields in message.held]
        self._row.clear()
        return held

    def _begin(self, name: str, place: Place, message_id: str) -> _Message:
        for other in self._row.values():
            stopped = other.stopped or not other.place.message
            if place.is_after(other.place) or (stopped and not _beside(place, other.place)):
                other.end()
        if not message_id or message_id in self._used:
            message_id = self._fresh_id()  # the other side takes what has one id for one answer
        if name:
            self._chat_id = ""
        self._used.add(message_id)
        message = self._row[name] = _Message(message_id, place)
        return message

    def _fresh_id(self) -> str:
        return f"chatcmpl-{self._new_id()}"

    def _result(self, call_id: str, place: Place, fields: Json | None) -> Sequence[Json]:
        holder: _Message | None = None
        for message in self._row.values():
            if call_id in message.calls:
                holder = message
            if holder is message or place.is_after(message.place):
                message.end()
        if fields is None:
            return self._advance()
        if holder is None:
            return [*self._advance(), fields]
        holder.held.append(fields)
        return self._advance()

    def _advance(self) -> list[Json]:
        """What waits no longer: the pieces of the open message, and where it is over, those of the next one."""
        out: list[Json] = []
        while self._row:
            name, message = next(iter(self._row.items()))
            out += message.held
            message.held.clear()
            if not message.over:
                break
            del self._row[name]
        return out

    def _end_chat(self) -> list[Json]:
        """The end of the chat chunks that went out, where they have none and a LangChain message follows."""
        fields, self._chat = self._chat, None
        choices = _choices(fields) if fields else []
        if not fields or not choices or any(choice.get("finish_reason") for choice in choices):
            return []
        return [_end(fields, choices[0].get("index", 0), "stop")]


class _Message:
    """A message that is not over, or whose end waits for its turn."""

    __slots__ = ("called", "calls", "held", "id", "over", "place", "speaks", "stopped")

    def __init__(self, message_id: str, place: Place) -> None:
        self.id = message_id
        self.place = place
        self.held: list[Json] = []
        self.calls: set[str] = set()
        self.called = False
        self.speaks = False
        self.stopped = False
        self.over = False

    def take(self, record: Chunk) -> None:
        """Note what a piece of it says."""
        self.speaks = self.speaks or bool(record.text or record.reasoning or record.tool_calls)
        self.stopped = self.stopped or record.finish is not None
        for call in record.tool_calls:
            self.called = True
            self.calls.add(call.id)

    def end(self) -> None:
        """Nothing more comes; a message that said nothing ends without a word, as that is no success."""
        if not self.over and self.speaks and not self.stopped:
            self.held.append(_end({"id": self.id}, 0, "tool_calls" if self.called else "stop"))
        self.over = True


_CHAT = Place()


def _beside(one: Place, other: Place) -> bool:
    """Both may run at the same time, as their places in the graph show."""
    if one.step is None or other.step is None:
        return False
    if one.lane == other.lane:
        return one.step == other.step
    return not (one.lane.startswith(other.lane) or other.lane.startswith(one.lane))


def _end(fields: Json, index: object, reason: str) -> Json:
    named = {name: fields[name] for name in ("id", "model") if name in fields}
    return {**named, "choices": [{"index": index, "delta": {}, "finish_reason": reason}]}


def _choices(fields: Json) -> list[Json]:
    choices = fields.get("choices")
    offered = cast("Iterable[object]", choices) if isinstance(choices, list | tuple) else ()
    return [cast("Json", choice) for choice in offered if isinstance(choice, dict)]
