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
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from dragent_stream.choices import FollowedChoice
from dragent_stream.chunk_record import Chunk, ToolCallDelta, ToolResult
from dragent_stream.content_parts import text_and_reasoning
from dragent_stream.errors import UpstreamError
from dragent_stream.fields import Fields, fields_of, items_of
from dragent_stream.finish_reasons import read_finish
from dragent_stream.langchain_events import is_block_event
from dragent_stream.langchain_messages import LangChainReader
from dragent_stream.reported_errors import looks_like_error, read_error
from dragent_stream.think_tags import ThinkTags
from dragent_stream.usage import read_usage
from dragent_stream.values import arguments_of, first_text, index_of, text_of

__all__ = ["ChunkReader"]

logger = logging.getLogger("dragent_stream")

_DESCRIPTION = frozenset(
    {"created", "id", "model", "object", "provider", "service_tier", "system_fingerprint", "usage"}
)
_CHOICE = frozenset({"delta", "finish_reason", "index", "logprobs", "message"})
_TOOL_ROLES = frozenset({"tool", "function"})
_PLAIN = frozenset({"content", "role", "tool_calls"})
_SNAPSHOT_MIN = 12  # a shorter common beginning may be chance: "ha", "ha"


class ChunkReader:
    """Reads the chunks of one stream; remembers only which choice it follows and what was streamed.

    Attributes:
        understood: How many chunks said something that is known, if only that the model has begun.
        unread: How many deltas held what AG-UI's messages do not have: images, sound.
        unknown: How many chunks of a kind that nobody knows were skipped.
        first_unknown: The first of them.
    """

    __slots__ = (
        "_called",
        "_calls_due",
        "_choice",
        "_details",
        "_has_calls",
        "_langchain",
        "_streamed",
        "_tags",
        "first_unknown",
        "understood",
        "unknown",
        "unread",
    )

    def __init__(self) -> None:
        self.understood = 0
        self.unknown = 0
        self.unread = 0
        self.first_unknown: object = None
        self._choice = FollowedChoice()
        self._langchain = LangChainReader()
        self._details = _Details()
        self._streamed = False
        self._tags: ThinkTags | None = None  # of Gemini's thoughts
        self._has_calls = False
        self._called = False  # some answer of the stream has made calls
        self._calls_due = False  # the answer ended in tool calls, but brought none

    @property
    def choice_index(self) -> int | None:
        """The `index` of the choice that is followed; None before the first one."""
        return self._choice.index

    @property
    def others_spoke(self) -> bool:
        """Another choice than the followed one has text."""
        return self._choice.others_spoke

    @property
    def ignored_choices(self) -> int:
        """How many choices beside the followed one were passed over."""
        return self._choice.ignored

    def read(self, chunk: object) -> Sequence[Chunk]:
        """The records of one chunk: one, several for what brings whole messages, none for a heartbeat.

        None also for what nobody knows: it is counted in `unknown`.
        """
        if chunk is None:
            return ()
        records = self._read(chunk)
        if records is None:
            self.unknown += 1
            self.first_unknown = chunk if self.first_unknown is None else self.first_unknown
            return ()
        self.understood += 1
        return records

    def finish(self) -> Sequence[Chunk]:
        """What was kept back until the end of the stream."""
        records = [self._completion(chunk, choice) for chunk, choice in self._choice.finish()]
        if self._tags and (held := self._tags.held):
            records.append(Chunk(text=held))
        if calls := self._calls_of_other():
            records.append(calls)
        return [*records, *self._langchain.finish()]

    def _read(self, chunk: object) -> Sequence[Chunk] | None:
        if isinstance(chunk, str):
            self._streamed = True
            return (Chunk(text=chunk),)
        if type(chunk) is list:
            errors = items_of(cast("object", chunk))
            if errors and all(item.get("error") for item in errors):
                return (Chunk(error=read_error(errors[0])),)  # Google's
        fields = fields_of(cast("object", chunk))
        if fields and fields.get("object") == "error":
            return (Chunk(error=read_error(fields)),)
        if fields and "role" in fields and "choices" not in fields:
            if text_of(fields["role"]) in _TOOL_ROLES:
                return (Chunk(tool_result=_tool_result(fields)),)
            if fields["role"] == "assistant" and not ("type" in fields or "delta" in fields):
                return (self._chat_message(fields),)
        if not fields or not ("choices" in fields or _is_completion(fields)):
            return self._langchain.read(cast("object", chunk))
        if "delta" in fields and "choices" not in fields:
            choice = {"delta": fields["delta"], "finish_reason": fields.get("finish_reason")}
            return (self._completion(fields, choice),)
        pairs = self._choice.of(fields)
        if len(pairs) == 1 and not self._choice.ignored:
            return (self._completion(*pairs[0]),)
        records = [self._completion(part, choice) for part, choice in pairs]
        # A whole answer that is split says so by what its choices hold; deltas may be alternatives.
        whole = any(choice and "message" in choice and not choice.get("delta") for _, choice in pairs)
        self._calls_due = self._calls_due or (whole and not any(record.tool_calls for record in records))
        if whole and (calls := self._calls_of_other()):
            records.append(calls)
        return records

    def _chat_message(self, message: Fields) -> Chunk:
        """A whole message of an assistant, as agents keep them beside their tool messages."""
        record = Chunk(id=text_of(message.get("id")), whole=True)
        self._read_delta(message, record)
        record.finish = "calls" if record.tool_calls else "stop"
        return record

    def _calls_of_other(self) -> Chunk | None:
        """The calls of an answer that was split over two choices."""
        calls = self._choice.calls_of_other()
        if not (calls and self._calls_due):
            return None
        return self._completion({}, {"delta": {"tool_calls": calls}, "finish_reason": "tool_calls"})

    def _completion(self, fields: Fields, choice: Fields | None) -> Chunk:
        record = Chunk(id=text_of(fields.get("id")), model=text_of(fields.get("model")))
        record.provider = text_of(fields.get("provider"))
        usage = fields.get("usage") or (choice and choice.get("usage"))
        if not usage and (groq := fields_of(fields.get("x_groq"))):
            usage = groq.get("usage")
        record.usage = read_usage(usage)
        record.error = read_error(fields)
        if choice is None and fields.get("finish_reason") and "choices" in fields:
            self._read_reason(fields, record)
        if choice:
            if error := choice.get("error"):
                record.error = record.error or read_error({"error": error})
            self._read_choice(choice, record)
        return record

    def _read_choice(self, choice: Fields, record: Chunk) -> None:
        delta = fields_of(choice.get("delta"))
        if delta is None and isinstance(choice.get("delta"), str):
            delta = {"content": choice["delta"]}
        elif not delta and not self._streamed:
            # A complete chat.completion, or a legacy text completion.
            delta = fields_of(choice.get("message")) or ({"content": choice["text"]} if "text" in choice else None)
        elif delta is None and not self._called and (message := fields_of(choice.get("message"))):
            delta = {"tool_calls": message.get("tool_calls")}  # its text was streamed; its calls were not
        elif delta:
            self._streamed = True
        if delta:
            self._read_delta(delta, record)
        if record.tool_calls:
            self._has_calls = self._called = True
        if choice.get("finish_reason") or not choice.keys() <= _CHOICE:
            self._read_reason(choice, record)

    def _read_reason(self, choice: Fields, record: Chunk) -> None:
        reason = _reason_of(choice)
        if reason:
            record.finish = read_finish(reason)
            self._calls_due = record.finish == "calls" and not self._has_calls
            self._has_calls = False
            if record.finish == "failed":
                record.error = record.error or UpstreamError(f"the model's answer ended with finish_reason {reason!r}")
            elif record.finish == "unknown":
                logger.warning("the model's answer ended with the finish_reason %r, which nobody here knows", reason)

    def _read_delta(self, delta: Fields, record: Chunk) -> None:
        role = delta.get("role")
        if not role or role == "assistant":
            content = delta.get("content")
            if type(content) is str:
                record.text = content
            elif content is not None:
                record.text, record.reasoning = text_and_reasoning(content)
                self.unread += bool(content and not (record.text or record.reasoning))
            if self._tags or not delta.keys() <= _PLAIN:
                self._read_unusual(delta, record)
        elif text_of(role) in _TOOL_ROLES and (result := _tool_result(delta)).call_id:
            record.tool_result = result
        if calls := delta.get("tool_calls"):
            found = items_of(calls) or ([cast("Fields", calls)] if isinstance(calls, Mapping) else [])
            for call in map(_tool_call, found):
                # Two entries of one list are two calls, even if they say the same.
                call.apart = bool(call.name and call.arguments and not call.id) and call in record.tool_calls
                record.tool_calls.append(call)
        if "function_call" in delta and (function := fields_of(delta["function_call"])):
            record.tool_calls.append(
                ToolCallDelta(None, "", text_of(function.get("name")), arguments_of(function.get("arguments")))
            )

    def _read_unusual(self, delta: Fields, record: Chunk) -> None:
        """What a delta says beside its content and its calls."""
        if record.text:
            record.text, flagged = self._gemini_thought(delta, record.text)
            record.reasoning += flagged
        record.reasoning = self._reasoning(delta, record.encrypted) + record.reasoning
        if isinstance(refusal := delta.get("refusal"), str):
            record.text += refusal
        if audio := fields_of(delta.get("audio")):
            record.text += first_text(audio, "transcript")
        self.unread += bool(delta.get("images") or (audio and audio.get("data") and not record.text))

    def _gemini_thought(self, delta: Fields, text: str) -> tuple[str, str]:
        """The content as answer text and as a thought: Gemini flags thoughts, which then stand in `<thought>` tags."""
        google = fields_of((fields_of(delta.get("extra_content")) or {}).get("google"))
        flagged = bool(google) and google.get("thought") is True
        if flagged and self._tags is None:
            self._tags = ThinkTags()
        if self._tags is None:
            return text, ""
        pieces = self._tags.feed(text)
        thought = "".join(piece for is_thought, piece in pieces if is_thought or flagged)
        said = "".join(piece for is_thought, piece in pieces if not (is_thought or flagged))
        if said and not self._tags.held:
            self._tags = None
        return said, thought

    def _reasoning(self, delta: Fields, encrypted: list[str]) -> str:
        """The delta's thought: as a string if any spelling holds one, else from the structured fields."""
        details = ""
        for key in ("reasoning_details", "thinking_blocks", "thinking", "reasoning"):
            entries = delta.get(key)
            if isinstance(entries, Mapping):
                entries = (cast("Fields", entries),)
            if not details and isinstance(entries, list | tuple):
                details = self._details.read(cast("Iterable[object]", entries), encrypted)
        encrypted.extend(_opaque(delta))
        return first_text(delta, "reasoning_content", "reasoning", "reasoning_text", "thinking", "thought") or details


class _Details:
    """Structured reasoning: `reasoning_details` (increments, or snapshots that grow), `thinking_blocks`."""

    __slots__ = ("_index", "_so_far")

    def __init__(self) -> None:
        self._so_far = ""
        self._index: int | None = None

    def read(self, entries: Iterable[object], encrypted: list[str]) -> str:
        """The new text of these entries; their signatures are added to `encrypted`."""
        text = ""
        for item in entries:
            if not (entry := fields_of(item)):
                continue
            said = first_text(entry, "text", "summary", "thinking", "content")
            if value := first_text(entry, "signature") or first_text(entry, "data"):
                encrypted.append(value)
            index = index_of(entry.get("index"))
            if said and index is not None:
                if self._index is not None and index != self._index and (text or self._so_far):
                    text += "\n\n"  # a part of another index is a paragraph of its own (pydantic/pydantic-ai#4522)
                self._index = index
            text += said
        if text and len(self._so_far) >= _SNAPSHOT_MIN and text.startswith(self._so_far):
            text, self._so_far = text[len(self._so_far) :], text
        else:
            self._so_far += text
        return text


def _opaque(delta: Fields) -> Iterable[str]:
    """Encrypted reasoning that stands in the delta itself: GitHub Copilot, the Responses API, Gemini, LiteLLM."""
    if value := first_text(delta, "reasoning_opaque", "encrypted_content", "reasoning_signature"):
        yield value
    google = fields_of((fields_of(delta.get("extra_content")) or {}).get("google"))
    specific = fields_of(delta.get("provider_specific_fields")) or {}
    if value := first_text(google or {}, "thought_signature") or first_text(specific, "thought_signature"):
        yield value
    elif isinstance(values := specific.get("thought_signatures"), list | tuple):
        yield from (value for value in cast("Iterable[object]", values) if isinstance(value, str) and value)


def _tool_result(message: Fields) -> ToolResult:
    call_id = text_of(message.get("tool_call_id")) or text_of(message.get("toolCallId"))
    return ToolResult(call_id, message.get("content"), text_of(message.get("name")))


def _reason_of(choice: Fields) -> str:
    """Why the model stopped, as a word; where a provider's own word says more than "stop", that one (OpenRouter)."""
    reason = _word(choice.get("finish_reason")) or _word(choice.get("finishReason"))
    if not reason:
        stopped = _word(choice.get("stop_reason"))  # vLLM's is the stop string or token that was met
        return stopped if read_finish(stopped) in ("length", "content_filter") else ""
    native = _word(choice.get("native_finish_reason"))
    gentle = native and read_finish(reason) in ("stop", "unknown")
    return native if gentle and read_finish(native) in ("failed", "content_filter", "length") else reason


def _word(reason: object) -> str:
    """A finish reason that is a string, an enum or an object (SGLang's `{"type": "abort"}`)."""
    if type(reason) is not str and isinstance(reason, Mapping):
        return first_text(cast("Fields", reason), "type", "reason", "code")
    return text_of(reason)


def _tool_call(call: Fields) -> ToolCallDelta:
    function = fields_of(call.get("function")) or fields_of(call.get("custom")) or call
    arguments = function.get("arguments")
    if arguments is None:
        arguments = function.get("input") if "input" in function else function.get("args")
    return ToolCallDelta(
        index_of(call.get("index")),
        _call_id(call.get("id")) or _call_id(function.get("id")),
        text_of(function.get("name")),
        arguments_of(arguments),
        _signature(call, function),
        custom="custom" in call and "function" not in call,
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
    """A chunk without choices: of usage, an error or nothing but its own description; or the bare delta of one."""
    if looks_like_error(fields) or "error" in fields:
        return True
    kind = fields.get("object")
    is_chunk = isinstance(kind, str) and kind.startswith("chat.completion")
    if kind and not is_chunk:
        return False
    # Events of other APIs have these fields, too, and a type; LangChain's name themselves as events.
    if (
        "type" not in fields
        and not is_block_event(fields)
        and any(fields_of(fields.get(name)) is not None for name in ("usage", "delta"))
    ):
        return True
    return is_chunk and fields.keys() <= _DESCRIPTION
