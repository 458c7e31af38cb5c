"""Events of `astream_events`: v1 and v2 tell of runs, v3 of the content blocks of a message.

A block is streamed by deltas and repeated whole in its `content-block-finish`, which alone has the signature of a thought
and the arguments of a call that came in one piece. `ContentBlocks` gives both as chunks of a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dragent_stream.fields import Fields, fields_of
from dragent_stream.values import first_text, index_of, text_of

__all__ = ["ContentBlocks", "is_block_event", "run_event"]

_BLOCK_EVENTS = frozenset(
    {"content-block-delta", "content-block-finish", "content-block-start", "message-finish", "message-start"}
)


def run_event(fields: Fields) -> Fields | None:
    """The event of a run, v1 or v2; None for what is none."""
    event = fields.get("event")
    is_event = isinstance(event, str) and event.startswith("on_") and "data" in fields and "run_id" in fields
    return fields if is_event else None


def is_block_event(fields: Fields) -> bool:
    """Whether this is an event of a message's blocks, v3."""
    event = fields.get("event")
    return event in _BLOCK_EVENTS or (event == "error" and isinstance(fields.get("message"), str))


class ContentBlocks:
    """The messages of one stream whose blocks are open; by the run that they come from."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[str, _Message] = {}

    def read(self, event: Fields, run: str) -> Iterator[Fields]:
        """The chunks of the message that an event brings, as fields of an `AIMessageChunk`."""
        kind = event["event"]
        if kind == "message-start":
            if event.get("role", "ai") != "ai":
                return
            self._open[run] = message = _Message(text_of(event.get("id")) or run)
            named = fields_of(event.get("metadata")) or {}
            yield message.chunk(
                response_metadata={"model_provider": named.get("provider"), "model_name": named.get("model")}
            )
            return
        message = self._open.get(run)
        if message is None:
            if kind == "message-finish" or kind == "error":
                return
            self._open[run] = message = _Message(run)
        if kind == "message-finish":
            metadata = {**(fields_of(event.get("metadata")) or {})}
            if reason := event.get("reason"):
                metadata.setdefault("finish_reason", reason)
            del self._open[run]
            yield message.chunk(response_metadata=metadata, usage_metadata=event.get("usage"), chunk_position="last")
        elif kind == "error":
            del self._open[run]
            failed = {"status": "failed", "error": {"message": event["message"]}}
            yield message.chunk(response_metadata=failed, chunk_position="last")
        else:
            block = fields_of(event.get("content")) or fields_of(event.get("delta")) or {}
            yield from message.block(kind, index_of(event.get("index")), block)


class _Message:
    __slots__ = ("_given", "id")

    def __init__(self, id: str) -> None:
        self.id = id
        self._given: dict[int | None, str] = {}  # text, thought or arguments by block

    def chunk(self, **fields: Any) -> Fields:
        return {"type": "AIMessageChunk", "id": self.id, "content": [], **fields}

    def block(self, event: str, index: int | None, block: Fields) -> Iterator[Fields]:
        kind = str(block.get("type"))
        ends = event == "content-block-finish"
        if kind == "block-delta":
            block = fields_of(block.get("fields")) or {}
            kind = str(block.get("type"))
        if kind in ("tool_call_chunk", "tool-call-delta"):
            yield self._call(index, block, text_of(block.get("args")) if not ends else self._rest(index, block, "args"))
        elif kind in ("tool_call", "invalid_tool_call"):
            if ends and not self._given.get(index):
                self._given[index] = "{}"
                field = "tool_calls" if kind == "tool_call" else "invalid_tool_calls"
                yield self.chunk(**{field: [block]}, content=[block])
        elif kind in ("text", "text-delta", "reasoning", "reasoning-delta"):
            name = "text" if kind.startswith("text") else "reasoning"
            text = self._rest(index, block, name) if ends else first_text(block, name)
            if not ends:
                self._given[index] = self._given.get(index, "") + text
            part = {**block, "type": name, name: text, "index": index}
            if not ends:
                part.pop("extras", None)  # repeated by the end of the block
            yield self.chunk(content=[part])
        elif ends:
            yield self.chunk(content=[{**block, "index": index}])

    def _rest(self, index: int | None, block: Fields, name: str) -> str:
        """What a whole block has beyond its deltas."""
        whole, given = first_text(block, name), self._given.get(index, "")
        return whole[len(given) :] if whole.startswith(given) else ""

    def _call(self, index: int | None, block: Fields, arguments: str) -> Fields:
        self._given[index] = self._given.get(index, "") + (arguments or " ")
        call = {"index": index, "id": block.get("id"), "name": block.get("name"), "args": arguments}
        return self.chunk(tool_call_chunks=[call])
