"""What one turn came to: final text, tool calls, usage or failure, gathered while its chunks pass.

The reading is the core's: the chunks go through a `ChunkConverter`, and its events are kept here as a result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ag_ui.core import BaseEvent

from dragent_stream.events import EventWriter
from dragent_stream.ledger import RunLedger
from dragent_stream.options import ConverterOptions
from dragent_stream.stream_converter import ChunkConverter

__all__ = ["TurnSummary"]

Json = dict[str, Any]


class TurnSummary:
    """Gathers the chunks of one turn, one at a time."""

    def __init__(self, options: ConverterOptions) -> None:
        count = iter(range(1 << 62))
        options = ConverterOptions(think_tags=options.think_tags, new_id=lambda: f"id-{next(count)}")
        self._gathered = _Gatherer()
        self._begun = False
        self._converter = ChunkConverter(RunLedger(self._gathered, options=options))

    def add(self, chunk: Json) -> None:
        """Read one chunk."""
        self._begun = True
        self._converter.feed(chunk)

    @property
    def failure(self) -> tuple[str, str] | None:
        """(code, message) where the chunks themselves ended in a failure: an error, a content filter, a cut call, no answer."""
        return self._gathered.failure

    def output(self) -> Json:
        """`{"response": text}` of the last answer, and `tool_calls` in OpenAI's shape where the model made any."""
        if self._begun:  # Fabric lets a turn say nothing at all
            self._converter.finish()
        output: Json = {"response": "".join(self._gathered.text)}
        if self._gathered.calls:
            output["tool_calls"] = [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": name, "arguments": "".join(self._gathered.arguments[call_id])},
                }
                for call_id, name in self._gathered.calls.items()
            ]
        return output

    def usage(self, *, with_cache: bool = True) -> Json | None:
        """The fields of Fabric's `AgentUsage`, summed over the turn's model calls; None where nothing was counted."""
        totals: dict[str, int] = {}
        for entry in self._converter.ledger.usage.entries():
            for name, field in _USAGE_FIELDS.items():
                if (count := entry.get(name)) is not None:
                    totals[field] = totals.get(field, 0) + count
        if not with_cache:
            totals.pop("cached_input_tokens", None)
        if not totals:
            return None
        # The counts come from OpenAI's shape, whose prompt tokens include the cached ones.
        return {**totals, "input_tokens_include_cache": True} if "cached_input_tokens" in totals else {**totals}


_USAGE_FIELDS = {
    "inputTokens": "input_tokens",
    "cachedInputTokens": "cached_input_tokens",
    "outputTokens": "output_tokens",
    "totalTokens": "total_tokens",
}


class _Gatherer(EventWriter[bool]):
    """Keeps what a result needs of the events that it is asked to write; an event is whether it is kept."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.calls: dict[str, str] = {}
        self.arguments: dict[str, list[str]] = {}
        self.failure: tuple[str, str] | None = None

    def text_writer(self, message_id: str) -> Callable[[str], bool]:
        """A new message is the answer so far; the ones before it were said on the way."""
        self.text = []
        return _gather(self.text)

    def reasoning_writer(self, message_id: str) -> Callable[[str], bool]:
        """Thoughts are no part of a result."""
        return lambda delta: False

    def arguments_writer(self, call_id: str) -> Callable[[str], bool]:
        """See `EventWriter.arguments_writer`."""
        return _gather(self.arguments[call_id])

    def _event(self, model: type[BaseEvent], **fields: Any) -> bool:
        match fields["type"]:
            case "TOOL_CALL_START":
                self.calls[fields["toolCallId"]] = fields["toolCallName"]
                self.arguments[fields["toolCallId"]] = []
            case "RUN_ERROR":
                self.failure = (fields["code"], fields["message"])
            case _:
                return False
        return True


def _gather(pieces: list[str]) -> Callable[[str], bool]:
    def keep(delta: str) -> bool:
        pieces.append(delta)
        return True

    return keep
