"""Read one chunk of any provider, in any of its shapes, into one small record.

A chunk may be a mapping, a pydantic object (NAT's `ChatResponseChunk`, openai's `ChatCompletionChunk`), a LangChain
message chunk (alone or as the `(message, metadata)` pair of LangGraph), a complete `chat.completion`, a `str` of answer
text, or `None` (a heartbeat). What providers do to the format lives here and in `tool_calls`, nowhere else:

- `choices` null, absent or empty, `delta` null or absent, `role` on every chunk or never
  (pydantic/pydantic-ai#5165, mozilla-ai/any-llm#657, openai/openai-python#2129); a `message` beside `delta` repeats the
  text so far and is not read (microsoft/foundry-local#144), one instead of `delta` is read if nothing was streamed
  (ENTERPILOT/GoModel#1068);
- content as a number (cloudflare/ai#651) or as a list of typed parts with thinking among them (Mistral);
- reasoning as `reasoning_content`, `reasoning`, `reasoning_details` (increments, or snapshots that grow:
  can1357/oh-my-pi#2434) or `thinking_blocks`; a refusal is answer text;
- tool arguments as an object (oh-my-pi#1779), ids and names that are blank (symfony/ai#2220) or numbers, the id inside
  `function` (ggml-org/llama.cpp#13800), old `function_call` deltas, custom tools, Gemini's thought signature;
- usage on the finish chunk, in a chunk after it, inside the choice (earendil-works/pi#2017), in `x_groq`, as placeholders;
- errors as `error` object, as string (block/goose#8031), as vLLM's flat `{"object": "error"}`, as `finish_reason`;
- `index` as a token counter that starts above zero (foundry-local#144);
- tool messages between the chunks of an agent's loop: `{"role": "tool"}` and LangChain's `ToolMessage` are results.

Of several choices the first by index is converted; the others are counted. Not read: tool calls that a server leaks into
the text (guoqingbao/xinfer#383), audio, images, logprobs, citations, token ids, vendors' top-level extras.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from pydantic_core import to_json

from dragent_stream.errors import UpstreamError
from dragent_stream.fields import Fields, fields_of
from dragent_stream.usage import Usage, read_usage

__all__ = ["Chunk", "ChunkReader", "Finish", "ToolCallDelta", "json_text", "text_and_reasoning"]

logger = logging.getLogger("dragent_stream")

Finish: TypeAlias = Literal["stop", "calls", "length", "content_filter"]

_LONG_NUMBER = 20  # digits; Python refuses to read thousands of them
_SNAPSHOT_MIN = 12  # a shorter common beginning may be chance: "ha", "ha"

# What a finish reason means here; a word that is not listed ends the turn like "stop".
_FINISH: dict[str, Finish] = {
    "content_filter": "content_filter",
    "function_call": "calls",
    "guardrail_intervened": "content_filter",
    "length": "length",
    "max_tokens": "length",
    "sensitive": "content_filter",
    "tool_calls": "calls",
    "tool_use": "calls",
}
_FAILED = frozenset({"abort", "error", "network_error"})


@dataclass(slots=True)
class ToolCallDelta:
    """One entry of `delta.tool_calls`; what the provider left out or left blank is None or empty."""

    index: int | None
    id: str
    name: str
    arguments: str
    signature: str = ""


@dataclass(slots=True)
class Chunk:
    """What one chunk says, in the order in which it is to be acted on."""

    id: str = ""
    model: str = ""
    provider: str = ""
    reasoning: str = ""
    encrypted: list[str] = field(default_factory=list[str])
    text: str = ""
    tool_calls: list[ToolCallDelta] = field(default_factory=list[ToolCallDelta])
    tool_result: tuple[str, str] | None = None
    finish: Finish | None = None
    usage: Usage | None = None
    usage_adds: bool = False  # LangChain counts each chunk; everyone else repeats the total so far
    error: UpstreamError | None = None


class ChunkReader:
    """Reads the chunks of one stream; remembers only which choice it follows and what was streamed.

    Attributes:
        ignored_choices: How many choices beside the followed one were passed over.
        unknown_chunks: How many chunks of a type that nobody knows were skipped.
        choice_index: The `index` of the choice that is followed; None before the first one.
    """

    __slots__ = ("_counting", "_details", "_streamed", "choice_index", "ignored_choices", "unknown_chunks")

    def __init__(self) -> None:
        self.ignored_choices = 0
        self.unknown_chunks = 0
        self.choice_index: int | None = None
        self._counting = False
        self._streamed = False
        self._details = ""

    def read(self, chunk: object) -> Chunk | None:
        """The record of one chunk; None for a heartbeat and for a type that nobody knows."""
        if chunk is None:
            return None
        if isinstance(chunk, str):
            self._streamed = True
            return Chunk(text=chunk)
        if isinstance(chunk, tuple | list):
            pair = cast("list[object]", chunk)
            return self.read(pair[0]) if len(pair) == 2 else self._unknown(pair)
        fields = fields_of(chunk)
        if fields is None or not fields:
            return self._unknown(chunk)
        if fields.get("role") == "tool" and (call_id := _text(fields.get("tool_call_id"))):
            return Chunk(tool_result=(call_id, text_and_reasoning(fields.get("content"))[0]))
        if "choices" not in fields and isinstance(fields.get("type"), str) and "content" in fields:
            return _read_message(fields) or self._unknown(chunk)
        known = "choices" in fields or fields.keys() & {"usage", "error", "object", "delta"}
        if not known and not _is_flat_error(fields):
            return self._unknown(chunk)
        return self._read_completion(fields)

    def _unknown(self, chunk: object) -> None:
        if not self.unknown_chunks:
            logger.warning("skipped a chunk of unknown type %s; later ones are skipped silently", type(chunk).__name__)
        self.unknown_chunks += 1

    def _read_completion(self, fields: Fields) -> Chunk:
        record = Chunk(id=_text(fields.get("id")), model=_text(fields.get("model")))
        record.provider = _text(fields.get("provider"))
        choice = self._choose(fields)
        usage = fields.get("usage") or (choice and choice.get("usage"))
        if not usage and (groq := fields_of(fields.get("x_groq"))):
            usage = groq.get("usage")
        record.usage = read_usage(usage)
        record.error = _error(fields) or (_error(choice) if choice else None)
        if choice:
            self._read_choice(choice, record)
        return record

    def _choose(self, fields: Fields) -> Fields | None:
        """The followed choice of this chunk."""
        if "delta" in fields and "choices" not in fields:
            return {"delta": fields["delta"], "finish_reason": fields.get("finish_reason")}
        offered = fields.get("choices")
        if not isinstance(offered, list | tuple):
            return None
        choices: list[Fields] = [found for item in cast("Iterable[object]", offered) if (found := fields_of(item))]
        if not choices:
            return None
        if len(choices) == 1 and choices[0].get("index") == self.choice_index is not None:
            return choices[0]
        by_index = {_index(choice.get("index")) or 0: choice for choice in reversed(choices)}
        if self.choice_index is None:
            self.choice_index = min(by_index)
            self._counting = self.choice_index > 1
        elif self._counting and len(by_index) == 1 and next(iter(by_index)) > self.choice_index:
            self.choice_index = next(iter(by_index))
        self.ignored_choices += len(choices) - (self.choice_index in by_index)
        return by_index.get(self.choice_index)

    def _read_choice(self, choice: Fields, record: Chunk) -> None:
        delta = fields_of(choice.get("delta"))
        if delta is None and not self._streamed:
            # A complete chat.completion, or a legacy text completion.
            delta = fields_of(choice.get("message")) or ({"content": choice["text"]} if "text" in choice else None)
        elif delta:
            self._streamed = True
        if delta:
            self._read_delta(delta, record)
        reason = _text(choice.get("finish_reason"))
        if reason in _FAILED:
            record.error = record.error or UpstreamError(f"the model's answer ended with finish_reason {reason!r}")
        elif reason:
            record.finish = _FINISH.get(reason.lower(), "stop")

    def _read_delta(self, delta: Fields, record: Chunk) -> None:
        role = delta.get("role")
        if not role or role == "assistant":
            record.text, thought = text_and_reasoning(delta.get("content"))
            if isinstance(refusal := delta.get("refusal"), str):
                record.text += refusal
            record.reasoning = self._reasoning(delta, record.encrypted) + thought
        elif role == "tool" and (call_id := _text(delta.get("tool_call_id"))):
            record.tool_result = call_id, text_and_reasoning(delta.get("content"))[0]
        if isinstance(calls := delta.get("tool_calls"), list | tuple):
            for entry in cast("Iterable[object]", calls):
                if call := fields_of(entry):
                    record.tool_calls.append(_tool_call(call))
        if function := fields_of(delta.get("function_call")):
            record.tool_calls.append(
                ToolCallDelta(None, "", _text(function.get("name")), _arguments(function.get("arguments")))
            )

    def _reasoning(self, delta: Fields, encrypted: list[str]) -> str:
        """The delta's thought: as a string if any spelling holds one, else from the structured fields."""
        details = ""
        for key in ("reasoning_details", "thinking_blocks"):
            if not details and isinstance(entries := delta.get(key), list | tuple):
                for item in cast("Iterable[object]", entries):
                    if entry := fields_of(item):
                        details += _first_text(entry, "text", "summary", "thinking", "content")
                        if value := _first_text(entry, "signature") or _first_text(entry, "data"):
                            encrypted.append(value)
        if said := _first_text(delta, "reasoning_content", "reasoning"):
            return said
        if details and len(self._details) >= _SNAPSHOT_MIN and details.startswith(self._details):
            details, self._details = details[len(self._details) :], details
        else:
            self._details += details
        return details


def text_and_reasoning(content: object) -> tuple[str, str]:
    """The answer text and the thought in a `content`: a string, a number, or a list of typed parts."""
    if isinstance(content, str):
        return content, ""
    if isinstance(content, bool) or content is None:
        return "", ""
    if isinstance(content, int | float):
        return str(content), ""
    text: list[str] = []
    thought: list[str] = []
    for item in cast("Iterable[object]", content) if isinstance(content, list | tuple) else (content,):
        if isinstance(item, str):
            text.append(item)
        elif part := fields_of(item):
            if part.get("type") in ("thinking", "reasoning"):
                thought.append(_nested_text(part))
            elif part.get("type") in ("text", "output_text", "refusal", None):
                text.append(_first_text(part, "text", "refusal"))
    return "".join(text), "".join(thought)


def _nested_text(part: Fields) -> str:
    for key in ("thinking", "reasoning", "text", "summary", "content"):
        value = part.get(key)
        if isinstance(value, list | tuple):
            entries = [fields_of(entry) or {"text": entry} for entry in cast("Iterable[object]", value)]
            return "".join(_first_text(entry, "text", "thinking", "summary") for entry in entries)
        if isinstance(value, str) and value:
            return value
    return ""


def _read_message(message: Fields) -> Chunk | None:
    """A LangChain message: `AIMessageChunk` (deltas), `AIMessage` (whole) or `ToolMessage` (a result)."""
    kind = message["type"]
    record = Chunk(id=_text(message.get("id")))
    if kind == "tool":
        if call_id := _text(message.get("tool_call_id")):
            record.tool_result = call_id, text_and_reasoning(message["content"])[0]
        return record
    if kind in ("human", "system"):
        return record
    if kind not in ("ai", "AIMessageChunk"):
        return None
    metadata = fields_of(message.get("response_metadata")) or {}
    record.model = _first_text(metadata, "model_name", "model")
    record.provider = _text(metadata.get("model_provider"))
    record.text, record.reasoning = text_and_reasoning(message["content"])
    more = fields_of(message.get("additional_kwargs")) or {}
    record.reasoning += _first_text(more, "reasoning_content", "reasoning")
    for item in cast("Iterable[object]", message.get("tool_call_chunks") or message.get("tool_calls") or ()):
        if call := fields_of(item):
            record.tool_calls.append(
                ToolCallDelta(
                    _index(call.get("index")),
                    _text(call.get("id")),
                    _text(call.get("name")),
                    _arguments(call.get("args")),
                )
            )
    if reason := _first_text(metadata, "finish_reason", "stop_reason"):
        record.finish = _FINISH.get(reason.lower(), "stop")
    record.usage = read_usage(message.get("usage_metadata"))
    record.usage_adds = True
    return record


def _tool_call(call: Fields) -> ToolCallDelta:
    function = fields_of(call.get("function")) or fields_of(call.get("custom")) or call
    arguments = function.get("arguments")
    if arguments is None and "input" in function:
        arguments = function["input"]
    return ToolCallDelta(
        _index(call.get("index")),
        _call_id(call.get("id")) or _call_id(function.get("id")),
        _text(function.get("name")),
        _arguments(arguments),
        _signature(call, function),
    )


def _signature(call: Fields, function: Fields) -> str:
    """Gemini's thought signature, where it has been seen."""
    extra = fields_of(call.get("extra_content"))
    for holder in (
        extra and extra.get("google"),
        call.get("provider_specific_fields"),
        function.get("provider_specific_fields"),
    ):
        if holder and (fields := fields_of(holder)) and "thought_signature" in fields:
            return _text(fields["thought_signature"])
    return ""


def _call_id(value: object) -> str:
    call_id = _text(value)
    return "" if call_id == "null" else call_id  # mistralai's SDK fills in the word


def _is_flat_error(fields: Fields) -> bool:
    return isinstance(fields.get("message"), str) and bool(fields.keys() & {"code", "type"})


def _error(fields: Fields) -> UpstreamError | None:
    error = fields.get("error")
    if not error:
        if fields.get("object") == "error" or (
            "choices" not in fields and "delta" not in fields and _is_flat_error(fields)
        ):
            error = fields
        else:
            return None
    if isinstance(error, str):
        return UpstreamError(error)
    details = fields_of(error) or {}
    message = _first_text(details, "message", "msg", "detail")
    if not message:
        code = details.get("code") or details.get("type")
        message = (
            f"the upstream reported an error ({code})" if code else "the upstream reported an error without a message"
        )
    return UpstreamError(message)


def _text(value: object) -> str:
    """A non-blank string, or empty; some providers send ids as numbers."""
    if isinstance(value, str):
        return "" if value.isspace() else value
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    inner = getattr(value, "value", None)  # an enum of NAT's
    return inner if isinstance(inner, str) else ""


def _first_text(fields: Fields, *keys: str) -> str:
    for key in keys:
        if isinstance(value := fields.get(key), str) and value:
            return value
    return ""


def _index(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < _LONG_NUMBER else None


def _arguments(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return json_text(value)


def json_text(value: object) -> str:
    """A tool's input or output as text: a string as it is, anything else as strict JSON.

    NaN becomes null, bytes base64, sets lists, dates ISO 8601, models their fields, what nobody knows its `str()`.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return to_json(
            value, inf_nan_mode="null", bytes_mode="base64", serialize_unknown=True, by_alias=True, fallback=str
        ).decode()
    except ValueError:
        pass
    try:
        return json.dumps(value, default=str, skipkeys=True)  # lone surrogates: escaped here, replaced by the ledger
    except (ValueError, RecursionError):
        return json.dumps(str(value))  # it contains itself
