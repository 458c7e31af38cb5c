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

import logging
from collections.abc import Iterable, Sequence
from typing import cast

from dragent_stream.chunk_record import Chunk, ToolCallDelta, ToolResult
from dragent_stream.content_parts import text_and_reasoning
from dragent_stream.errors import UpstreamError
from dragent_stream.fields import Fields, fields_of
from dragent_stream.finish_reasons import read_finish
from dragent_stream.langchain_messages import LangChainReader
from dragent_stream.usage import read_usage
from dragent_stream.values import arguments_of, first_text, index_of, text_of

__all__ = ["ChunkReader"]

logger = logging.getLogger("dragent_stream")

_SNAPSHOT_MIN = 12  # a shorter common beginning may be chance: "ha", "ha"


class ChunkReader:
    """Reads the chunks of one stream; remembers only which choice it follows and what was streamed.

    Attributes:
        ignored_choices: How many choices beside the followed one were passed over.
        unknown_chunks: How many chunks of a kind that nobody knows were skipped.
        first_unknown: The first of them.
        choice_index: The `index` of the choice that is followed; None before the first one.
    """

    __slots__ = (
        "_counting",
        "_details",
        "_langchain",
        "_streamed",
        "choice_index",
        "first_unknown",
        "ignored_choices",
        "unknown_chunks",
    )

    def __init__(self) -> None:
        self.ignored_choices = 0
        self.unknown_chunks = 0
        self.first_unknown: object = None
        self.choice_index: int | None = None
        self._counting = False
        self._streamed = False
        self._details = ""
        self._langchain = LangChainReader()

    def read(self, chunk: object) -> Sequence[Chunk]:
        """The records of one chunk: one, several for what brings whole messages, none for a heartbeat.

        None also for what nobody knows: it is counted in `unknown_chunks`.
        """
        if chunk is None:
            return ()
        if isinstance(chunk, str):
            self._streamed = True
            return (Chunk(text=chunk),)
        fields = fields_of(chunk)
        if fields and fields.get("role") == "tool" and (call_id := text_of(fields.get("tool_call_id"))):
            return (Chunk(tool_result=ToolResult(call_id, fields.get("content"))),)
        if fields and ("choices" in fields or _is_completion(fields)):
            return (self._read_completion(fields),)
        records = self._langchain.read(chunk)
        if records is not None:
            return records
        self.unknown_chunks += 1
        self.first_unknown = chunk if self.first_unknown is None else self.first_unknown
        return ()

    def _read_completion(self, fields: Fields) -> Chunk:
        record = Chunk(id=text_of(fields.get("id")), model=text_of(fields.get("model")))
        record.provider = text_of(fields.get("provider"))
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
        by_index = {index_of(choice.get("index")) or 0: choice for choice in reversed(choices)}
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
        reason = text_of(choice.get("finish_reason"))
        record.finish = read_finish(reason)
        if record.finish == "failed":
            record.error = record.error or UpstreamError(f"the model's answer ended with finish_reason {reason!r}")

    def _read_delta(self, delta: Fields, record: Chunk) -> None:
        role = delta.get("role")
        if not role or role == "assistant":
            record.text, thought = text_and_reasoning(delta.get("content"))
            if isinstance(refusal := delta.get("refusal"), str):
                record.text += refusal
            record.reasoning = self._reasoning(delta, record.encrypted) + thought
        elif role == "tool" and (call_id := text_of(delta.get("tool_call_id"))):
            record.tool_result = ToolResult(call_id, delta.get("content"))
        if isinstance(calls := delta.get("tool_calls"), list | tuple):
            for entry in cast("Iterable[object]", calls):
                if call := fields_of(entry):
                    record.tool_calls.append(_tool_call(call))
        if function := fields_of(delta.get("function_call")):
            record.tool_calls.append(
                ToolCallDelta(None, "", text_of(function.get("name")), arguments_of(function.get("arguments")))
            )

    def _reasoning(self, delta: Fields, encrypted: list[str]) -> str:
        """The delta's thought: as a string if any spelling holds one, else from the structured fields."""
        details = ""
        for key in ("reasoning_details", "thinking_blocks"):
            if not details and isinstance(entries := delta.get(key), list | tuple):
                for item in cast("Iterable[object]", entries):
                    if entry := fields_of(item):
                        details += first_text(entry, "text", "summary", "thinking", "content")
                        if value := first_text(entry, "signature") or first_text(entry, "data"):
                            encrypted.append(value)
        if said := first_text(delta, "reasoning_content", "reasoning"):
            return said
        if details and len(self._details) >= _SNAPSHOT_MIN and details.startswith(self._details):
            details, self._details = details[len(self._details) :], details
        else:
            self._details += details
        return details


def _tool_call(call: Fields) -> ToolCallDelta:
    function = fields_of(call.get("function")) or fields_of(call.get("custom")) or call
    arguments = function.get("arguments")
    if arguments is None and "input" in function:
        arguments = function["input"]
    return ToolCallDelta(
        index_of(call.get("index")),
        _call_id(call.get("id")) or _call_id(function.get("id")),
        text_of(function.get("name")),
        arguments_of(arguments),
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
            return text_of(fields["thought_signature"])
    return ""


def _call_id(value: object) -> str:
    call_id = text_of(value)
    return "" if call_id == "null" else call_id  # mistralai's SDK fills in the word


def _is_completion(fields: Fields) -> bool:
    """A chunk without choices: of usage or an error, or the bare delta of one."""
    return bool(fields.keys() & {"usage", "error", "object", "delta"}) or _is_flat_error(fields)


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
    message = first_text(details, "message", "msg", "detail")
    if not message:
        code = details.get("code") or details.get("type")
        message = (
            f"the upstream reported an error ({code})" if code else "the upstream reported an error without a message"
        )
    return UpstreamError(message)
