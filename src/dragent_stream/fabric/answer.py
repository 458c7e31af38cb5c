"""The answer of a turn that was invoked and not streamed, as chunks.

Fabric's bundled adapters answer in `output.response` (text, or any JSON value), mini-SWE-agent in `output.output`; what
stands beside it (paths, transcripts, telemetry) is not for the client.
"""

from __future__ import annotations

import json
from typing import Any, cast

from dragent_stream.errors import UpstreamError
from dragent_stream.fabric.contract import field
from dragent_stream.usage import Usage

__all__ = ["answer_chunks", "usage_chunk"]

_Json = dict[str, Any]


def answer_chunks(result: Any) -> list[_Json]:
    """The chunks of a `RunResult` that succeeded: its text, its tool calls, the end; none for one that did not.

    Raises:
        UpstreamError: The output holds something, and nothing that is known to be an answer (code `no_response`).
    """
    if str(field(result, "status") or "") != "succeeded":
        return []
    output = field(result, "output")
    if callable(plain := getattr(output, "to_mapping", None)):
        output = plain()
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


def _answer(output: Any) -> str:
    if not isinstance(output, dict):
        return _text(output)
    fields = cast("_Json", output)
    for name in ("response", "output"):
        if name in fields:
            return _text(fields[name])
    if fields:
        raise UpstreamError(f"the turn's output has no response, only {', '.join(map(str, fields))}", "no_response")
    return ""


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
