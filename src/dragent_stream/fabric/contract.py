"""The record contract of Fabric's native OpenAI streaming: names, limits, the chunk's rules and the record encoder.

Source: the NeMo Fabric adapter contract (`openai-stream-record.schema.json`, `fabric.openai_stream/v1alpha1`) and what
the SDK's listener and the common host of 0.2.0 to 0.5.0 do. Nothing here awaits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from dragent_stream.errors import DragentStreamError

__all__ = [
    "CHUNK_PROFILE",
    "INVALID_CHUNK",
    "INVALID_SINK",
    "OVERSIZED_CHUNK",
    "RECORD_LIMIT",
    "STREAM_HOST",
    "STREAM_PATH",
    "STREAM_PROTOCOL",
    "TRANSPORT_FAILED",
    "FabricStreamError",
    "RecordEncoder",
    "chunk_problem",
    "encode_chunk",
    "field",
]

STREAM_PROTOCOL = "fabric.openai_stream/v1alpha1"
CHUNK_PROFILE = "openai.chat_completions.chunk/v1"
STREAM_HOST = "127.0.0.1"
STREAM_PATH = "/openai-stream"
RECORD_LIMIT = 1024 * 1024
"""Bytes of one record, line feed included: the host counts it and the consumer does not, so this fits both."""

INVALID_CHUNK = "lifecycle_invalid_openai_stream_event"
OVERSIZED_CHUNK = "lifecycle_openai_stream_event_too_large"
TRANSPORT_FAILED = "lifecycle_stream_transport_failed"
INVALID_SINK = "lifecycle_invalid_stream_sink"

_UINT32_MAX = (1 << 32) - 1
_UINT64_MAX = (1 << 64) - 1
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class FabricStreamError(DragentStreamError):
    """The stream cannot be delivered: a refused chunk, a rejected or lost connection.

    Attributes:
        code: The contract's word for it, as the common host of Fabric uses it.
        message: The text; never the bearer token, never a chunk's content.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def field(value: object, name: str) -> Any:
    """The member `name` of a mapping, or the attribute of an object; None where there is none."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(name)
    return getattr(value, name, None)


def chunk_problem(chunk: object) -> str | None:
    """What the profile `openai.chat_completions.chunk/v1` forbids about this chunk; None where it is valid.

    The text names the place (`choices[0].delta.content`) and the rule, and never the offending value.
    """
    if not isinstance(chunk, dict):
        return "the chunk must be a mapping"
    value = cast("dict[str, Any]", chunk)
    if value.get("object") != "chat.completion.chunk":
        return "object must be 'chat.completion.chunk'"
    for name in ("id", "model"):
        text = value.get(name)
        if not isinstance(text, str) or not text.strip():
            return f"{name} must be a string with a non-whitespace character"
    if not _is_uint(value.get("created"), _UINT64_MAX):
        return "created must be an unsigned 64-bit integer"
    usage = value.get("usage")
    if usage is not None and not isinstance(usage, dict):
        return "usage must be a mapping or null"
    choices = value.get("choices")
    if not isinstance(choices, list):
        return "choices must be a list"
    for position, choice in enumerate(cast("list[object]", choices)):
        problem = _choice_problem(choice)
        if problem is not None:
            return f"choices[{position}]{problem}"
    return None


def _choice_problem(choice: object) -> str | None:
    if not isinstance(choice, dict):
        return " must be a mapping"
    value = cast("dict[str, Any]", choice)
    if not _is_uint(value.get("index"), _UINT32_MAX):
        return ".index must be an unsigned 32-bit integer"
    reason = value.get("finish_reason")
    if reason is not None and not isinstance(reason, str):
        return ".finish_reason must be a string or null"
    logprobs = value.get("logprobs")
    if logprobs is not None and not isinstance(logprobs, dict):
        return ".logprobs must be a mapping or null"
    delta = value.get("delta")
    if not isinstance(delta, dict):
        return ".delta must be a mapping"
    fields = cast("dict[str, Any]", delta)
    for name in ("content", "refusal", "role"):
        text = fields.get(name)
        if text is not None and not isinstance(text, str):
            return f".delta.{name} must be a string or null"
    call = fields.get("function_call")
    if call is not None and not isinstance(call, dict):
        return ".delta.function_call must be a mapping or null"
    calls = fields.get("tool_calls")
    if calls is not None and not (
        isinstance(calls, list) and all(isinstance(entry, dict) for entry in cast("list[object]", calls))
    ):
        return ".delta.tool_calls must be a list of mappings or null"
    return None


def _is_uint(value: object, maximum: int) -> bool:
    # The exact type: True is no number here, and neither is 1.0, which JSON Schema alone would let pass.
    return type(value) is int and 0 <= value <= maximum


def encode_chunk(chunk: Mapping[str, Any]) -> bytes:
    """A chunk as compact JSON in raw UTF-8.

    Raises:
        FabricStreamError: The chunk holds something that JSON or UTF-8 cannot carry (code `INVALID_CHUNK`).
    """
    try:
        return _JSON.encode(chunk).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise FabricStreamError(
            INVALID_CHUNK, f"the chunk cannot be written as JSON in UTF-8 ({type(error).__name__})"
        ) from None


class RecordEncoder:
    """Numbers and writes the records of one invocation.

    Attributes:
        sequence: The number of the next record, from 0.
        chunk_limit: Bytes that the JSON of one chunk may have; what the envelope leaves of `RECORD_LIMIT`.
    """

    def __init__(self, *, runtime_id: str, invocation_id: str, request_id: str) -> None:
        ids = {"runtime_id": runtime_id, "invocation_id": invocation_id, "request_id": request_id}
        self._ids = b"," + _JSON.encode(ids).encode()[1:-1]
        self.sequence = 0
        # A sequence number has at most 20 digits; the line feed counts.
        self.chunk_limit = RECORD_LIMIT - len(b'{"type":"chunk","sequence":,"chunk":}\n') - len(self._ids) - 20

    def chunk(self, encoded: bytes) -> bytes:
        """The record line of one chunk, given as its JSON; takes the next number.

        Raises:
            FabricStreamError: The record would exceed `RECORD_LIMIT` (code `OVERSIZED_CHUNK`); no number is used.
        """
        line = b'{"type":"chunk","sequence":%d%b,"chunk":%b}\n' % (self.sequence, self._ids, encoded)
        if len(line) > RECORD_LIMIT:
            raise FabricStreamError(
                OVERSIZED_CHUNK, f"the record has {len(line)} bytes; one record may have {RECORD_LIMIT}"
            )
        self.sequence += 1
        return line

    def end(self) -> bytes:
        """The end record's line; takes the next number."""
        line = b'{"type":"end","sequence":%d%b}\n' % (self.sequence, self._ids)
        self.sequence += 1
        return line
