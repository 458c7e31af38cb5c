"""Put the chunks of a stream together into the completion they came from."""

import json
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any, Final, cast

from pydantic import BaseModel

from dragent_stream.chat_completions.objects import json_fields
from dragent_stream.chunk_record import ToolCallDelta
from dragent_stream.content_parts import text_and_reasoning
from dragent_stream.errors import ConversionError, UpstreamError
from dragent_stream.tool_calls import ToolCall, TurnCalls

__all__ = ("ChatCompletionAssembler", "assemble_chat_completion", "assemble_chat_completion_async", "error_in_chunk")

_Fields = dict[str, Any]
_FIRST: Final = frozenset({"id", "created", "model"})  # constant at OpenAI; Azure opens with blank ones
_STREAM_ONLY: Final = frozenset({"choices", "object", "obfuscation"})
_AUDIO_TEXT: Final = frozenset({"data", "transcript"})


def assemble_chat_completion(chunks: Iterable[object]) -> dict[str, Any]:
    """Put a stream together: `assemble(synthesize(completion)) == completion`.

    Streams of other servers are read with the same rules as by the converter (which call a fragment belongs to, blank
    first ids, usage on any chunk). The work is linear.

    Args:
        chunks: Chunks as JSON objects or pydantic objects (openai's `ChatCompletionChunk`), up to the end or `[DONE]`.

    Returns:
        A `chat.completion`. A choice that the stream never finished has the finish reason null.

    Raises:
        UpstreamError: The stream reported an error.
        ConversionError: There is no chunk, or one is no chunk; the message names its number.
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
        self._top: _Fields = {}
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
        for key, value in fields.items():
            if key not in _STREAM_ONLY:
                _replace(self._top, key, value, keep_first=key in _FIRST)
        for position, item in enumerate(_sequence(fields.get("choices"), f"chunk {self._count}: choices")):
            place = f"chunk {self._count}: choices[{position}]"
            choice = _mapping(item, place)
            index = choice.get("index")
            index = position if index is None else index
            if not isinstance(index, int):
                raise ConversionError(f"{place}.index is {type(index).__name__}, not a number")
            self._choices.setdefault(index, _Choice()).feed(choice, place)

    def finish(self) -> dict[str, Any]:
        """Return the completion."""
        if not self._count:
            raise ConversionError("the stream holds no chunk, so there is no completion to assemble")
        top = {key: self._top.pop(key) for key in ("id", "created", "model") if key in self._top}
        choices = [{"index": index, **self._choices[index].finish()} for index in sorted(self._choices)]
        made: _Fields = {"id": top.pop("id", None), "object": "chat.completion", **top, "choices": choices, **self._top}
        return made


class _Choice:
    """One choice while it grows."""

    def __init__(self) -> None:
        self._extras: _Fields = {}
        self._token_ids: list[object] = []
        self._message: _Fields = {}
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, list[object]] = {}
        self._logprobs: _Fields | None = None
        self._tokens: dict[str, list[object]] = {}
        self._has_logprobs = False
        self._finish: str | None = None
        self._function: _CallParts | None = None
        self._turn = TurnCalls()
        self._calls: dict[int, _CallParts] = {}  # by identity of the turn's call
        self._seen: set[int | str] = set()  # indexes and ids of the calls

    def feed(self, choice: Mapping[str, Any], place: str) -> None:
        delta = choice.get("delta")
        if delta is None and not self._message and not self._texts:
            delta = choice.get("message")  # ENTERPILOT/GoModel#1068: the whole message in place of a delta
        if delta is not None:
            self._feed_delta(_mapping(delta, f"{place}.delta"), f"{place}.delta")
        for key, value in choice.items():
            if key == "finish_reason":
                self._finish = value or self._finish
            elif key == "logprobs":
                self._feed_logprobs(value, f"{place}.logprobs")
            elif key == "token_ids" and isinstance(value, list):  # vLLM: those of this chunk
                self._token_ids.extend(cast("list[object]", value))
                self._extras[key] = self._token_ids
            elif key not in ("index", "delta", "message"):
                _replace(self._extras, key, value)

    def finish(self) -> _Fields:
        message = self._message
        for key, parts in self._texts.items():
            message[key] = _joined(parts)
        if self._function is not None:
            message["function_call"] = self._function.finish("arguments")
        for call, text in self._turn.leftover():
            call.append(text)
            self._calls[id(call)] = _CallParts({"id": call.provider_id})
        if self._turn.calls:
            message["tool_calls"] = [self._calls[id(call)].finish_call(call) for call in self._turn.calls]
        made: _Fields = {"message": message, "finish_reason": self._finish}
        if self._has_logprobs:
            made["logprobs"] = None if self._logprobs is None else {**self._logprobs, **self._tokens}
        return {**made, **self._extras}

    def _feed_delta(self, delta: Mapping[str, Any], place: str) -> None:
        for key, value in delta.items():
            if key == "role":
                _replace(self._message, key, value, keep_first=True)
            elif key == "tool_calls" and value:
                for number, item in enumerate(_sequence(value, f"{place}.tool_calls")):
                    self._feed_call(_mapping(item, f"{place}.tool_calls[{number}]"))
            elif key == "function_call" and value:
                fields = _mapping(value, f"{place}.function_call")
                if self._function is None:
                    self._function = _CallParts({})
                self._function.feed(fields, "arguments")
            elif key == "audio" and isinstance(value, Mapping):
                self._feed_audio(cast("Mapping[str, Any]", value))
            elif key == "content" and value is not None and not isinstance(value, str):
                text, reasoning = text_and_reasoning(value)  # Mistral's parts, Cloudflare's numbers
                for name, part in (("content", text), ("reasoning_content", reasoning)):
                    if part:
                        self._texts.setdefault(name, []).append(part)
            elif isinstance(value, str):
                self._texts.setdefault(key, []).append(value)
            elif isinstance(value, list):
                known = self._lists.setdefault(key, [])
                known.extend(cast("list[object]", value))
                self._message[key] = known
            else:
                _replace(self._message, key, value)

    def _feed_audio(self, audio: Mapping[str, Any]) -> None:
        known: _Fields = self._message.get("audio") or {}
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
                _replace(self._logprobs, key, item)

    def _feed_call(self, delta: Mapping[str, Any]) -> None:
        kind = "custom" if delta.get("custom") else "function"
        body = _fields(delta.get(kind))
        text = _argument_text(body.get("input" if kind == "custom" else "arguments"))
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
        self._calls.setdefault(id(call), _CallParts({})).feed_call(delta, kind, body)


class _CallParts:
    """The keys of one call while it grows; the turn's call holds the text."""

    def __init__(self, fields: _Fields) -> None:
        self._fields = fields
        self._kind = "function"
        self._parts: list[str] = []

    def feed(self, fields: Mapping[str, Any], text_key: str) -> None:
        for key, value in fields.items():
            if key == text_key:
                self._parts.append(_argument_text(value))
            else:
                _replace(self._fields, key, value, keep_first=key == "name")

    def finish(self, text_key: str) -> _Fields:
        return {**self._fields, text_key: _joined(self._parts)}

    def feed_call(self, delta: Mapping[str, Any], kind: str, body: Mapping[str, Any]) -> None:
        self._kind = kind if body else self._kind
        for key, value in delta.items():
            if key == kind and body:
                known: _Fields = self._fields.setdefault(kind, {})
                for name, item in body.items():
                    _replace(known, name, item)
            elif key != "index":
                _replace(self._fields, key, value, keep_first=key in ("id", "type"))

    def finish_call(self, call: ToolCall) -> _Fields:
        body = _fields(self._fields.get(self._kind))
        if not body and not call.name and not call.arguments and self._fields.get("type") not in (None, self._kind):
            return self._fields  # a call of another type, which has neither function nor custom tool
        text_key = "input" if self._kind == "custom" else "arguments"
        whole = {**body, "name": call.name, text_key: _joined([call.arguments])}
        return {**self._fields, "type": self._fields.get("type") or self._kind, self._kind: whole}


def _replace(fields: _Fields, key: str, value: object, *, keep_first: bool = False) -> None:
    """Set a key; null never replaces a value, and with `keep_first` only a blank one is replaced."""
    if key not in fields or (value is not None and not (keep_first and fields[key])):
        fields[key] = value


def _joined(parts: list[str]) -> str:
    """The whole text; the two halves of a character that were sent apart become that character."""
    text = "".join(parts)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text


def _argument_text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _fields(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


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


def error_in_chunk(fields: Mapping[str, Any]) -> UpstreamError | None:
    """The error that a chunk reports, in any of its shapes (an object, a text, vLLM's flat body)."""
    error = fields.get("error") or (fields if fields.get("object") == "error" else None)
    if error is None:
        return None
    if not isinstance(error, Mapping):
        return UpstreamError(str(error))
    body = cast("Mapping[str, Any]", error)
    message = str(body.get("message") or "the stream reported an error")
    return UpstreamError(message, str(body.get("code") or "STREAM_ERROR"))
