"""What the core has read of a LangChain message or of a graph's part, as a completion chunk."""

from __future__ import annotations

from typing import Any

from dragent_stream.chunk_record import Chunk, ToolCallDelta
from dragent_stream.content_parts import result_text
from dragent_stream.usage import Usage

__all__ = ["RecordChunks"]

Json = dict[str, Any]

_FINISH_WORDS = {"calls": "tool_calls"}


class RecordChunks:
    """Writes the records of one stream; remembers what each message has used."""

    def __init__(self) -> None:
        self._counted: dict[str, Usage] = {}

    def chunk(self, record: Chunk) -> Json | None:
        """The completion chunk that says what a record says; None where it says nothing."""
        delta: Json = {}
        if record.tool_result is not None:
            delta = {
                "role": "tool",
                "tool_call_id": record.tool_result.call_id,
                "content": result_text(record.tool_result.content),
            }
        if record.reasoning:
            # Nothing here says that a thought is another one; as a paragraph it is at least not glued to the one before.
            delta["reasoning_content"] = "\n\n" + record.reasoning if record.new_thought else record.reasoning
        if record.encrypted:
            delta["reasoning_details"] = [{"type": "reasoning.encrypted", "data": value} for value in record.encrypted]
        if record.text:
            delta["content"] = record.text
        if record.tool_calls:
            delta["tool_calls"] = [_call_fields(call) for call in record.tool_calls]
        usage = self._running_usage(record)
        if not delta and record.finish is None and usage is None:
            return None
        fields: Json = {"id": record.id, "model": record.model}
        choice: Json = {"index": 0, "delta": delta}
        if record.finish is not None:
            choice["finish_reason"] = _FINISH_WORDS.get(record.finish, record.finish)
        fields["choices"] = [choice] if delta or record.finish is not None else []
        if record.provider:
            fields["provider"] = record.provider
        if usage is not None:
            fields["usage"] = usage
        return fields

    def _running_usage(self, record: Chunk) -> Json | None:
        """LangChain counts each chunk for itself; a completion chunk states the total so far."""
        if record.usage is None:
            return None
        total = record.usage
        if record.usage_adds and (before := self._counted.get(record.message)):
            total = before.plus(total)
        self._counted[record.message] = total
        prompt = {"cached_tokens": total.cached_input_tokens, "cache_creation": total.cache_write_input_tokens}
        usage: Json = {
            "prompt_tokens": total.input_tokens,
            "completion_tokens": total.output_tokens,
            "total_tokens": total.total_tokens,
            "prompt_tokens_details": _known(prompt) or None,
            "completion_tokens_details": _known({"reasoning_tokens": total.reasoning_tokens}) or None,
        }
        return _known(usage)


def _call_fields(call: ToolCallDelta) -> Json:
    function = _known({"name": call.name or None, "arguments": call.arguments})
    fields = {"index": call.index, "id": call.id or None, "type": "function", "function": function}
    if call.signature:
        fields["extra_content"] = {"google": {"thought_signature": call.signature}}
    return _known(fields)


def _known(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value is not None}
