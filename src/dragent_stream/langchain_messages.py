"""LangChain messages as records: `AIMessageChunk` (deltas), `AIMessage` (whole), `ToolMessage` (a result)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from dragent_stream.chunk_record import Chunk, ToolCallDelta, ToolResult
from dragent_stream.content_parts import text_and_reasoning
from dragent_stream.fields import Fields, fields_of
from dragent_stream.finish_reasons import read_finish
from dragent_stream.usage import read_usage
from dragent_stream.values import arguments_of, first_text, index_of, text_of

__all__ = ["LangChainReader"]


class LangChainReader:
    """Reads the LangChain messages of one stream."""

    __slots__ = ()

    def read(self, chunk: object) -> Sequence[Chunk] | None:
        """The records of a message, or of what a LangGraph stream gives; none where it says nothing of the run.

        None for what is neither.
        """
        if isinstance(chunk, tuple | list):
            pair = cast("Sequence[object]", chunk)
            return self.read(pair[0]) if len(pair) == 2 else None
        fields = fields_of(chunk)
        if not fields or not isinstance(fields.get("type"), str) or "content" not in fields:
            return None
        record = self._message(fields)
        return None if record is None else (record,)

    def _message(self, message: Fields) -> Chunk | None:
        kind = message["type"]
        record = Chunk(id=text_of(message.get("id")))
        if kind == "tool":
            if call_id := text_of(message.get("tool_call_id")):
                record.tool_result = ToolResult(call_id, text_and_reasoning(message["content"])[0])
            return record
        if kind in ("human", "system"):
            return record
        if kind not in ("ai", "AIMessageChunk"):
            return None
        metadata = fields_of(message.get("response_metadata")) or {}
        record.model = first_text(metadata, "model_name", "model")
        record.provider = text_of(metadata.get("model_provider"))
        record.text, record.reasoning = text_and_reasoning(message["content"])
        more = fields_of(message.get("additional_kwargs")) or {}
        record.reasoning += first_text(more, "reasoning_content", "reasoning")
        for item in cast("Iterable[object]", message.get("tool_call_chunks") or message.get("tool_calls") or ()):
            if call := fields_of(item):
                record.tool_calls.append(
                    ToolCallDelta(
                        index_of(call.get("index")),
                        text_of(call.get("id")),
                        text_of(call.get("name")),
                        arguments_of(call.get("args")),
                    )
                )
        if reason := first_text(metadata, "finish_reason", "stop_reason"):
            record.finish = read_finish(reason)
        record.usage = read_usage(message.get("usage_metadata"))
        record.usage_adds = True
        return record
