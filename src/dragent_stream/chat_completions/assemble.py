"""Put the chunks of a stream together into the completion they came from."""

import json
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any, Final, cast

from pydantic import BaseModel

from dragent_stream.chat_completions.growing import (
    CallParts,
    Fields,
    argument_text,
    joined,
    mapping_or_empty,
    merged_usage,
    replace_field,
)
from dragent_stream.chat_completions.objects import error_in_chunk, json_fields
from dragent_stream.chat_completions.reasoning_blocks import BLOCK_LISTS, ReasoningBlocks
from dragent_stream.chat_completions.schema import default_finish, split_content
from dragent_stream.chunk_record import ToolCallDelta
from dragent_stream.content_parts import text_and_reasoning
from dragent_stream.errors import ConversionError
from dragent_stream.snapshots import GrowingText
from dragent_stream.tool_calls import TurnCalls

__all__ = ("ChatCompletionAssembler", "assemble_chat_completion", "assemble_chat_completion_async")

_FIRST: Final = frozenset({"id", "created", "model"})  # constant at OpenAI; Azure opens with blank ones
_STREAM_ONLY: Final = frozenset({"choices", "object", "obfuscation"})
_LONGEST_TIME: Final = 20  # digits
_AUDIO_TEXT: Final = frozenset({"data", "transcript"})
_TEXTS: Final = frozenset({"reasoning", "reasoning_content", "refusal"})
_GROWING: Final = frozenset(
    {"content", "reasoning", "reasoning_content"}
)  # some servers repeat all of it in each delta


def assemble_chat_completion(chunks: Iterable[object]) -> dict[str, Any]:
    """Put a stream together: `assemble(synthesize(completion, True)) == read_chat_completion(completion)`.

    That is the completion itself where it has the keys that OpenAI requires. Streams of other servers are read with the
    same rules as by the converter (which call a fragment belongs to, blank first ids, usage on any chunk), and fragments
    of `thinking_blocks` and `reasoning_details` become the blocks that they are. The work is linear.

    Args:
        chunks: Chunks as JSON objects or pydantic objects (openai's `ChatCompletionChunk`), up to the end or `[DONE]`.

    Returns:
        A `chat.completion`. Where the stream named no role it is `assistant`. Where it gave no finish reason, that is null,
        for it may have been cut; but `tool_calls` or `function_call` for calls that are whole, and `length` if it broke off
        inside the arguments of one.

    Raises:
        UpstreamError: The stream reported an error.
        ConversionError: There is no chunk, or one is no chunk; the message names its number. Also where none has a choice
            or usage: those are chunks of something else, or hold no answer.
    """
    assembler = ChatCompletionAssembler()
    for chunk in chunks:
        assembler.feed(chunk)
    return assembler.finish()


async def assemble_chat_completion_async(chunks: AsyncIterable[object]) -> dict[str, Any]:
    """Do the same with an async stream."""
    assembler = ChatCompletionAssembler()
    async for chunk in chunks:
        assembler.feed(chunk)
    return assembler.finish()


class ChatCompletionAssembler:
    """The incremental form of `assemble_chat_completion`: `feed` each chunk, then `finish`."""

    def __init__(self) -> None:
        """Start a new completion."""
        self._count = 0
        self._understood = False
        self._top: Fields = {}
        self._choices: dict[int, _Choice] = {}

    def feed(self, chunk: object) -> None:
        """Take the next chunk (None is a heartbeat); errors as for `assemble_chat_completion`."""
        if chunk is None:
            return
        self._count += 1
        if isinstance(chunk, BaseModel):
            chunk = json_fields(chunk)
        fields = _mapping(chunk, f"chunk {self._count}")
        if (error := error_in_chunk(fields)) is not None:
            raise error
        usage: object = fields.get("usage")
        if usage is not None and not isinstance(usage, Mapping):
            raise ConversionError(f"chunk {self._count}: usage is {type(usage).__name__}, not an object")
        self._understood = self._understood or "choices" in fields or "usage" in fields
        if usage and (known := self._top.get("usage")):
            fields = {**fields, "usage": merged_usage(known, cast("Fields", usage))}
        for key, value in fields.items():
            if key not in _STREAM_ONLY and not (key == "usage" and not value and self._top.get(key)):
                replace_field(self._top, key, value, keep_first=key in _FIRST)
        for position, item in enumerate(_sequence(fields.get("choices"), f"chunk {self._count}: choices")):
            place = f"chunk {self._count}: choices[{position}]"
            choice = _mapping(item, place)
            index = choice.get("index")
            index = position if index is None else index
            if not isinstance(index, int) or isinstance(index, bool) or index < 0:
                said = index if isinstance(index, int) else type(index).__name__
                raise ConversionError(f"{place}.index is {said}, not a number from 0")
            self._choices.setdefault(index, _Choice()).feed(choice, place)

    def finish(self) -> dict[str, Any]:
        """Return the completion; errors as for `assemble_chat_completion`."""
        if not self._count:
            raise ConversionError("the stream holds no chunk, so there is no completion to assemble")
        if not self._understood:
            raise ConversionError(
                "no chunk of the stream has choices or usage, so these are no chunks of a chat completion; "
                f"they have: {', '.join(map(str, self._top)) or 'nothing'}"
            )
        if not self._choices and self._top.get("usage") is None:
            raise ConversionError("no chunk of the stream has a choice, so there is no answer to assemble")
        top = {key: self._top.pop(key, None) for key in ("id", "created", "model")}
        choices = [{"index": index, **self._choices[index].finish()} for index in sorted(self._choices)]
        for key in ("id", "model"):
            if top[key] is not None:
                top[key] = str(top[key])
        created = top["created"]
        if isinstance(created, str) and created.isdecimal() and created.isascii() and len(created) < _LONGEST_TIME:
            top["created"] = int(created)  # some write it as text
        elif isinstance(created, bool) or not isinstance(created, int | float | None):
            top["created"] = None
        made: Fields = {"id": top.pop("id"), "object": "chat.completion", **top, "choices": choices, **self._top}
        return made


class _Choice:
    """One choice while it grows."""

    def __init__(self) -> None:
        self._extras: Fields = {}
        self._token_ids: list[object] = []
        self._message: Fields = {}
        self._texts: dict[str, list[str]] = {}
        self._growing = {key: GrowingText() for key in _GROWING}
        self._lists: dict[str, list[object]] = {}
        self._blocks: dict[tuple[str, ...], ReasoningBlocks] = {}  # by the keys that lead to the list
        self._logprobs: Fields | None = None
        self._tokens: dict[str, list[object]] = {}
        self._has_logprobs = False
        self._finish: str | None = None
        self._function: CallParts | None = None
        self._turn = TurnCalls()
        self._calls: dict[int, CallParts] = {}  # by identity of the turn's call
        self._seen: set[int | str] = set()  # indexes and ids of the calls

    def feed(self, choice: Mapping[str, Any], place: str) -> None:
        delta = choice.get("delta")
        if delta is None and not self._message and not self._texts:
            delta = choice.get("message")  # ENTERPILOT/GoModel#1068: the whole message in place of a delta
        if delta is not None:
            fields = _mapping(delta, f"{place}.delta")
            self._feed_delta(
                fields, f"{place}.delta", repeats=bool(fields.get("tool_calls") or choice.get("finish_reason"))
            )
        for key, value in choice.items():
            if key == "finish_reason":
                self._finish = str(value) if value else self._finish
            elif key == "logprobs":
                self._feed_logprobs(value, f"{place}.logprobs")
            elif key == "token_ids" and isinstance(value, list):  # vLLM: those of this chunk
                self._token_ids.extend(cast("list[object]", value))
                self._extras[key] = self._token_ids
            elif key not in ("index", "delta", "message"):
                replace_field(self._extras, key, value)

    def finish(self) -> Fields:
        role: object = self._message.pop("role", None)
        message: Fields = {"role": role if role and isinstance(role, str) else "assistant", **self._message}
        for key, parts in self._texts.items():
            message[key] = joined([*parts, self._growing[key].release()] if key in _GROWING else parts)
        for path, blocks in self._blocks.items():
            holder = message
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = blocks.finish()
        if self._function is not None:
            message["function_call"] = self._function.finish("arguments")
        for call, text in self._turn.leftover():
            call.append(text)
            self._calls[id(call)] = CallParts({"id": call.provider_id})
        if self._turn.calls:
            message["tool_calls"] = [self._calls[id(call)].finish_call(call) for call in self._turn.calls]
        made: Fields = {"message": message, "finish_reason": self._finish or _finish_of(message)}
        if self._has_logprobs:
            made["logprobs"] = None if self._logprobs is None else {**self._logprobs, **self._tokens}
        return {**made, **self._extras}

    def _feed_delta(self, delta: Mapping[str, Any], place: str, *, repeats: bool) -> None:
        for key, value in delta.items():
            if key == "role":
                replace_field(self._message, key, value, keep_first=True)
            elif key == "tool_calls" and value:
                for number, item in enumerate(_sequence(value, f"{place}.tool_calls")):
                    self._feed_call(_mapping(item, f"{place}.tool_calls[{number}]"))
            elif key == "tool_calls" and value is not None and value != []:
                pass  # false, or an empty text
            elif key == "function_call" and value:
                fields = _mapping(value, f"{place}.function_call")
                if self._function is None:
                    self._function = CallParts({})
                self._function.feed(fields, "arguments")
            elif key == "audio" and isinstance(value, Mapping):
                self._feed_audio(cast("Mapping[str, Any]", value))
            elif key == "content" and value is not None and not isinstance(value, str):
                self._feed_parts(value)
            elif isinstance(value, str):
                self._feed_text(key, value, repeats=repeats)
            elif key in _TEXTS and value is not None:
                if text := "".join(text_and_reasoning(value)):
                    self._feed_text(key, text, repeats=repeats)
            elif isinstance(value, list):
                self._feed_list(self._message, (key,), cast("list[object]", value))
            elif isinstance(value, Mapping):
                self._feed_mapping(key, cast("Mapping[str, Any]", value))
            else:
                replace_field(self._message, key, value)

    def _feed_parts(self, content: object) -> None:
        """A content that is no text: Mistral's list of parts, Cloudflare's numbers."""
        text, reasoning = text_and_reasoning(content)
        others: list[object] = []
        if isinstance(content, list):
            text, reasoning, others = split_content(cast("list[object]", content))
        for name, part in (("content", text), ("reasoning_content", reasoning)):
            if part:
                self._feed_text(name, part)
        if others:
            self._feed_list(self._message, ("content_parts",), others)

    def _feed_text(self, key: str, text: str, *, repeats: bool = False) -> None:
        parts = self._texts.setdefault(key, [])
        if key not in _GROWING:
            parts.append(text)
        elif not (repeats and self._growing[key].is_repeated_by(text)):
            parts.append(self._growing[key].take(text))

    def _feed_list(self, holder: Fields, path: tuple[str, ...], value: list[object]) -> None:
        if path[-1] in BLOCK_LISTS:
            holder.setdefault(path[-1], None)
            self._blocks.setdefault(path, ReasoningBlocks()).feed(value)
            return
        known = self._lists.setdefault("/".join(path), [])
        known.extend(value)
        holder[path[-1]] = known

    def _feed_mapping(self, key: str, value: Mapping[str, Any]) -> None:
        """An object of the server's own (`provider_specific_fields`): what later ones do not name stays."""
        known: object = self._message.get(key)
        holder: Fields = cast("Fields", known) if isinstance(known, dict) else {}
        self._message[key] = holder
        for name, item in value.items():
            if name in BLOCK_LISTS and isinstance(item, list):
                self._feed_list(holder, (key, name), cast("list[object]", item))
            else:
                replace_field(holder, name, item)

    def _feed_audio(self, audio: Mapping[str, Any]) -> None:
        known: Fields = self._message.get("audio") or {}
        for key, value in audio.items():
            joins = key in _AUDIO_TEXT and isinstance(value, str) and isinstance(known.get(key), str)
            known[key] = known[key] + value if joins else value
        self._message["audio"] = known

    def _feed_logprobs(self, value: object, place: str) -> None:
        self._has_logprobs = True
        if value is None:
            return
        if self._logprobs is None:
            self._logprobs = {}
        for key, item in _mapping(value, place).items():
            if isinstance(item, list):
                self._tokens.setdefault(key, []).extend(cast("list[object]", item))
            else:
                replace_field(self._logprobs, key, item)

    def _feed_call(self, delta: Mapping[str, Any]) -> None:
        kind = "custom" if delta.get("custom") else "function"
        body = mapping_or_empty(delta.get(kind))
        text = argument_text(body.get("input" if kind == "custom" else "arguments"))
        raw_index = delta.get("index")
        index = raw_index if isinstance(raw_index, int) else None
        call_id, name = str(delta.get("id") or ""), str(body.get("name") or "")
        if (
            index is not None
            and index not in self._seen
            and delta.get("type")
            and (not call_id or call_id in self._seen)
        ):
            call_id = f"index {index}"  # a new call that only its index tells apart; this id is not written
        self._seen.update(mark for mark in (index, call_id) if mark not in (None, ""))
        placed = self._turn.place(ToolCallDelta(index, call_id, name, text))
        if placed is None:
            return
        call, text = placed
        if text:
            call.append(text)
        self._calls.setdefault(id(call), CallParts({})).feed_call(delta, kind, body)


def _finish_of(message: Fields) -> str | None:
    """The finish reason that the server left out; None for a text, which may be whole or not."""
    if not message.get("tool_calls") and not message.get("function_call"):
        return None
    texts = [call["function"].get("arguments") for call in message.get("tool_calls") or () if call.get("function")]
    texts += [message["function_call"].get("arguments")] if message.get("function_call") else []
    return default_finish(message) if all(_is_whole(text) for text in texts) else "length"


def _is_whole(arguments: str) -> bool:
    try:
        return not arguments.strip() or json.loads(arguments) is not ...
    except ValueError:
        return False
    except RecursionError:
        return True


def _mapping(value: object, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConversionError(f"{place} is {type(value).__name__}, not an object")
    return cast("Mapping[str, Any]", value)


def _sequence(value: object, place: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConversionError(f"{place} is {type(value).__name__}, not a list")
    return cast("list[object]", value)
