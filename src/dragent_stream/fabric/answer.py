"""The answer in the result of a turn whose stream held none, as chunks.

Fabric's bundled adapters answer in `output.response` (text, or any JSON value), mini-SWE-agent in `output.output`; what
stands beside it (paths, transcripts, telemetry) is not for the client.
"""

from __future__ import annotations

import json
from typing import Any, cast

from dragent_stream.errors import UpstreamError
from dragent_stream.fabric.contract import field
from dragent_stream.usage import Usage

__all__ = ["answer_chunks", "unknown_answer", "usage_chunk"]

_Json = dict[str, Any]

_ANSWERS = ("response", "output")


def answer_chunks(result: Any) -> list[_Json]:
    """The chunks of a `RunResult` that succeeded: its text, its tool calls, the end; none for one that holds no answer."""
    if str(field(result, "status") or "") != "succeeded":
        return []
    output = _output(result)
    text, calls = _answer(output), _calls(output)
    delta: _Json = ({"content": text} if text else {}) | ({"tool_calls": calls} if calls else {})
    if not delta:
        return []
    return [_chunk(delta), _chunk({}, "tool_calls" if calls else "stop")]


def usage_chunk(usage: Usage) -> _Json:
    """The chunk that ends a stream with its token counts."""
    counts: _Json = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }
    if usage.cached_input_tokens is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.cached_input_tokens}
    return {"choices": [], "usage": {name: count for name, count in counts.items() if count is not None}}


def unknown_answer(result: Any) -> UpstreamError | None:
    """The failure (code `no_response`) of a result whose output holds something, and nothing known to be an answer."""
    output = _output(result)
    if str(field(result, "status") or "") != "succeeded" or not (isinstance(output, dict) and output):
        return None
    if any(name in output for name in _ANSWERS):
        return None
    names = ", ".join(map(str, cast("_Json", output)))
    return UpstreamError(f"the turn's output has no response, only {names}", "no_response")


def _output(result: Any) -> Any:
    output = field(result, "output")
    return plain() if callable(plain := getattr(output, "to_mapping", None)) else output


def _answer(output: Any) -> str:
    if not isinstance(output, dict):
        return _text(output)
    fields = cast("_Json", output)
    return next((_text(fields[name]) for name in _ANSWERS if name in fields), "")


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _calls(output: Any) -> list[_Json]:
    """The calls of an adapter of this library, which are in OpenAI's shape."""
    offered: object = cast("_Json", output).get("tool_calls") if isinstance(output, dict) else None
    if not isinstance(offered, list):
        return []
    calls = cast("list[object]", offered)
    return [
        {**cast("_Json", call), "index": index}
        for index, call in enumerate(calls)
        if isinstance(call, dict) and isinstance(cast("_Json", call).get("function"), dict)
    ]


def _chunk(delta: _Json, finish: str | None = None) -> _Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
