"""Turn any source's chunk into valid chunks of `openai.chat_completions.chunk/v1` that fit one record each.

Fabric refuses many chunks that real providers send, and one refused chunk costs the turn. A valid chunk passes as it
is, extras included. What is repaired, and who sends it:

- `id`, `model`, `object` empty, `created` missing, null or a float (Azure, mozilla-ai/any-llm#1164): the last good
  value of this stream, else the fallback;
- `choices` null or absent (pydantic/pydantic-ai#5165), `delta` null or absent (Azure, mozilla-ai/any-llm#657), a
  `message` instead of `delta` (read where the choice streamed nothing before, ENTERPILOT/GoModel#1068);
- content as parts (Mistral: thinking parts become `reasoning_content`) or as a number (cloudflare/ai#651);
- tool calls that are one mapping, whose arguments are an object (can1357/oh-my-pi#1779), or whose `index` is no number;
- wrong types of `role`, `refusal`, `finish_reason`, `usage`, `logprobs`: dropped;
- NaN, dates and other values that JSON has not: null, text;
- surrogate pairs cut between two chunks: joined; lone surrogates: U+FFFD.

What is no chunk, or holds in the place of choices, delta or calls what nobody can read, is refused: dropping it would make
a half answer a success. pydantic chunks (openai, NAT) are dumped; LangChain messages, `str` and what LangGraph streams
are rewritten as chunks, one message after the other (`message_row`). An in-band error is raised as `UpstreamError`.
Nothing here awaits; the clock and the ids are injected.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from dragent_stream.chunk_record import Chunk
from dragent_stream.chunks import ChunkReader
from dragent_stream.content_parts import text_and_reasoning
from dragent_stream.errors import ConversionError
from dragent_stream.fabric.contract import FabricStreamError, chunk_problem, encode_chunk
from dragent_stream.fabric.message_row import MessageRow
from dragent_stream.fabric.record_chunks import RecordChunks
from dragent_stream.fabric.split import split_chunk
from dragent_stream.options import random_id
from dragent_stream.usage import Usage

__all__ = ["ChunkNormalizer", "ReadyChunk"]

Json = dict[str, Any]

_INDEX = (int, type(None))


class ReadyChunk(NamedTuple):
    """A valid chunk and its JSON."""

    chunk: dict[str, Any]
    encoded: bytes


class ChunkNormalizer:
    """Normalises the chunks of one stream; remembers the last good id, model and time, and which choices streamed.

    `feed` it each chunk, then call `finish`; where the source failed, `release`.
    """

    def __init__(
        self, *, chunk_limit: int, model: str = "unknown-model", created: int = 0, new_id: Callable[[], str] = random_id
    ) -> None:
        """Start a stream.

        Args:
            chunk_limit: Bytes that the JSON of one chunk may have (`RecordEncoder.chunk_limit`).
            model: What `model` says where the source names none.
            created: What `created` says where the source says nothing usable, in Unix seconds.
            new_id: Makes the id for a stream that has none.
        """
        self._limit = chunk_limit
        self._id = ""
        self._model = model
        self._created = created
        self._new_id = new_id
        self._streamed: set[int] = set()
        self._halves: dict[tuple[object, ...], str] = {}
        self._reader = ChunkReader()
        self._row = MessageRow(new_id)
        self._kept: list[Json] = []  # what came before a failure in one chunk
        self._records = RecordChunks()

    def feed(self, chunk: object) -> list[ReadyChunk]:
        """The valid chunks that can go out after one chunk of the source.

        None for a heartbeat and for what waits for another message's end, several for one too large.

        Raises:
            UpstreamError: The chunk reports a failure of the upstream; `release` gives what came before it.
            ConversionError: The chunk cannot be made to fit one record, or is none; names the place, never the value.
        """
        return [ready for fields in self._fields(chunk) for ready in self._ready(fields)]

    def finish(self) -> list[ReadyChunk]:
        """What was held back until the end of the source.

        Raises:
            UpstreamError: What was held back reports a failure.
            ConversionError: As for `feed`.
        """
        records = self._written(self._reader.finish())
        return [ready for fields in (*records, *self._row.release()) for ready in self._ready(fields)]

    def release(self) -> list[ReadyChunk]:
        """What was held back of a source that has failed."""
        kept, self._kept = self._kept, []
        return [ready for fields in (*kept, *self._row.release()) for ready in self._ready(fields)]

    def _ready(self, fields: Json) -> list[ReadyChunk]:
        if chunk_problem(fields) is not None or _is_odd(fields):
            fields = self._repaired(fields)
        self._remember(fields)
        try:
            if self._halves:
                fields = self._joined(fields)
            encoded = encode_chunk(fields)
        except FabricStreamError:
            try:
                fields = cast("Json", _json_value(fields if self._halves else self._joined(fields)))
            except RecursionError:
                raise ConversionError("a chunk is nested too deeply for JSON") from None
            encoded = encode_chunk(fields)
        if len(encoded) <= self._limit:
            return [ReadyChunk(fields, encoded)]
        try:
            pieces = split_chunk(fields, self._limit)
        except ValueError as error:
            raise ConversionError(f"a chunk does not fit one record of Fabric: {error}") from None
        return [ReadyChunk(piece, encode_chunk(piece)) for piece in pieces]

    def _fields(self, chunk: object) -> Sequence[Json]:
        """The chunk as mappings in the shape of a completion chunk, or of something close to it."""
        if chunk is None or chunk == "":
            return ()
        if isinstance(chunk, str):
            return self._row.chat({"choices": [{"index": 0, "delta": {"content": chunk}}]})
        if isinstance(chunk, Mapping):
            fields: Json = dict(cast("Mapping[str, Any]", chunk))
        elif callable(dump := getattr(chunk, "model_dump", None)) and "choices" in getattr(chunk, "__dict__", {}):
            fields = cast("Json", dump(mode="json", exclude_none=True, warnings=False))
        else:
            return self._from_records(chunk)
        if fields.get("error") or ("choices" not in fields and "delta" not in fields):
            records = self._read(fields)
            if not (_holds_counts(fields, records) if "choices" not in fields else _holds_no_error(records)):
                return self._written(records)
        if "delta" in fields and "choices" not in fields:
            fields["choices"] = [{"delta": fields.pop("delta"), "finish_reason": fields.pop("finish_reason", None)}]
        return self._row.chat(fields)

    def _from_records(self, chunk: object) -> Sequence[Json]:
        return self._written(self._read(chunk))

    def _written(self, records: Iterable[Chunk]) -> Sequence[Json]:
        written: list[Json] = []
        for record in records:
            if record.error is not None:
                record.finish = None
            written += self._row.take(record, self._records.chunk(record))
            if record.error is not None:
                self._kept = written
                raise record.error
        return written

    def _read(self, chunk: object) -> Sequence[Chunk]:
        """The records of a chunk in no completion's shape; none for a heartbeat, and for a mode of LangGraph without any."""
        if _is_heartbeat(chunk):
            return ()
        unknown = self._reader.unknown
        records = self._reader.read(chunk)
        if self._reader.unknown != unknown:
            raise ConversionError(f"the source yielded {_looks(chunk)}, which is no chunk")
        return records

    def _repaired(self, fields: Json) -> Json:
        fields = dict(fields)
        fields["object"] = "chat.completion.chunk"
        fields["id"] = _string(fields.get("id")) or self._id or f"chatcmpl-{self._new_id()}"
        fields["model"] = _string(fields.get("model")) or self._model
        fields["created"] = _moment(fields.get("created"), self._created)
        if not isinstance(fields.get("usage"), dict):
            fields.pop("usage", None)
        fields["choices"] = [
            self._choice(choice, position)
            for position, choice in enumerate(_mappings(fields.get("choices"), "choices"))
        ]
        return fields

    def _choice(self, choice: Json, position: int) -> Json:
        choice = dict(choice)
        index = choice.get("index")
        choice["index"] = index if type(index) is int and 0 <= index < 1 << 32 else position
        if not isinstance(choice.get("finish_reason"), str) or not choice["finish_reason"].strip():
            choice["finish_reason"] = None
        if not isinstance(choice.get("logprobs"), dict):
            choice.pop("logprobs", None)
        message = choice.pop("message", None)
        delta: object = choice.get("delta")
        if not isinstance(delta, dict):
            if delta:
                raise ConversionError(f"choices[{position}].delta of a chunk is {_looks(delta)}, not a mapping")
            if message is None and isinstance(text := choice.get("text"), str):
                message = {"content": choice.pop("text")} if text else None  # a legacy text completion
                self._streamed.discard(choice["index"])
            # The whole message again would be text twice.
            delta = message if choice["index"] not in self._streamed else None
        choice["delta"] = _delta(cast("Json", delta)) if isinstance(delta, dict) else {}
        return choice

    def _joined(self, fields: Json) -> Json:
        """The chunk with surrogate pairs joined that were cut between two chunks; a first half waits for the next."""

        def join(holder: Json, name: str, *place: object) -> None:
            text = holder.get(name)
            if not isinstance(text, str) or not text:
                return
            text = self._halves.pop((*place, name), "") + text
            if "\ud800" <= text[-1] <= "\udbff":
                self._halves[(*place, name)], text = text[-1], text[:-1]
            holder[name] = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

        fields = {**fields, "choices": [{**choice, "delta": dict(choice["delta"])} for choice in fields["choices"]]}
        for choice in fields["choices"]:
            delta = choice["delta"]
            for name in ("content", "reasoning_content", "reasoning", "refusal"):
                join(delta, name, choice["index"])
            if delta.get("tool_calls"):
                delta["tool_calls"] = [_call(call) for call in delta["tool_calls"]]
                for call in delta["tool_calls"]:
                    join(call.get("function", {}), "arguments", choice["index"], call.get("index"))
        return fields

    def _remember(self, fields: Json) -> None:
        self._id, self._model, self._created = fields["id"], fields["model"], fields["created"]
        for choice in fields["choices"]:
            if choice["delta"]:
                self._streamed.add(choice["index"])


def _holds_no_error(records: Sequence[Chunk]) -> bool:
    return all(record.error is None for record in records)


def _holds_counts(fields: Json, records: Sequence[Chunk]) -> bool:
    """A completion chunk without choices, which passes as it is: token counts and nothing else."""
    if len(records) != 1 or fields.keys() & {"event", "type"}:
        return False
    (record,) = records
    return record == Chunk(id=record.id, model=record.model, provider=record.provider, usage=record.usage or Usage())


def _is_odd(fields: Json) -> bool:
    """Whether a chunk that Fabric would let pass still is none of OpenAI's."""
    for choice in fields["choices"]:
        if choice.get("finish_reason") == "" or "message" in choice:
            return True
        for call in choice["delta"].get("tool_calls") or ():
            if type(call.get("index")) not in _INDEX:
                return True
            function = call.get("function")
            if not isinstance(function, dict) and function is not None:
                return True
            if function and not isinstance(cast("Json", function).get("arguments"), str | None):
                return True
    return False


def _delta(delta: Json) -> Json:
    delta = dict(delta)
    content = delta.get("content")
    if content is not None and not isinstance(content, str):
        delta["content"], thought = text_and_reasoning(content)
        if thought:
            delta["reasoning_content"] = (_string(delta.get("reasoning_content")) or "") + thought
    for name in ("role", "refusal"):
        if not isinstance(delta.get(name), str) or not delta[name]:
            delta.pop(name, None)
    if not isinstance(delta.get("function_call"), dict):
        delta.pop("function_call", None)
    calls = delta.pop("tool_calls", None)
    if calls is not None:
        offered = [cast("object", calls)] if isinstance(calls, dict) else calls
        delta["tool_calls"] = [_call(call) for call in _mappings(offered, "tool_calls")]
    return delta


def _mappings(value: object, what: str) -> list[Json]:
    """The mappings in a list; what holds anything else would be lost, so it is refused."""
    if not value:
        return []
    if not isinstance(value, list | tuple):
        raise ConversionError(f"{what} of a chunk is {_looks(value)}, not a list of mappings")
    entries = list(cast("Iterable[object]", value))
    for at, entry in enumerate(entries):
        if entry and not isinstance(entry, dict):
            raise ConversionError(f"{what}[{at}] of a chunk is {_looks(entry)}, not a mapping")
    return [cast("Json", entry) for entry in entries if isinstance(entry, dict)]


def _is_heartbeat(chunk: object) -> bool:
    if not isinstance(chunk, Mapping):
        return False
    fields = cast("Json", chunk)
    return not fields or "ping" in fields or fields.get("type") in ("ping", "heartbeat", "keepalive")


def _looks(value: object) -> str:
    """What a value is, without what it says."""
    kind = type(value).__name__
    article = "an" if kind[0].lower() in "aeiou" else "a"
    if not isinstance(value, Mapping):
        return f"{article} {kind}"
    names = [str(name) for name in list(cast("Json", value))[:5]]
    return f"{article} {kind} with the keys {', '.join(names)}" if names else f"an empty {kind}"


def _call(call: Json) -> Json:
    call = dict(call)
    index = call.get("index")
    if index is not None and type(index) is not int:
        del call["index"]
        if isinstance(index, str) and index.isdecimal() and len(index) < 10:
            call["index"] = int(index)
    function = call.get("function")
    if isinstance(function, dict):
        function = dict(cast("Json", function))
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            function["arguments"] = json.dumps(_json_value(arguments), ensure_ascii=False)
        call["function"] = function
    else:
        call.pop("function", None)
    return call


def _string(value: object) -> str:
    if isinstance(value, str):
        return value if value.strip() else ""
    return str(value) if type(value) is int else ""


def _moment(value: object, fallback: int) -> int:
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    return value if type(value) is int and 0 <= value < 1 << 64 else fallback


def _json_value(value: object) -> object:
    """The value in JSON's terms: what JSON has not becomes null or text, a lone surrogate U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(_json_value(str(name))): _json_value(entry) for name, entry in items}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json_value(entry) for entry in cast("Iterable[object]", value)]
    if callable(dump := getattr(value, "model_dump", None)):
        return _json_value(dump(mode="json"))
    return _json_value(str(value))
