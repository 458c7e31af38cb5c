"""The adapter under test, in its own process: what the target does stands in the turn's input.

Served by Fabric's common host or by ours, as DRAGENT_HOST says. Each run of the target adds a line to DRAGENT_RUNS.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from dragent_stream.options import ConverterOptions
from dragent_stream.testing import error_chunk, finish_chunk, text_chunk, tool_call_chunk, usage_chunk

RECORD_LIMIT = 1024 * 1024
MANY: list[Any] = [
    text_chunk("Hé\u2028llo ", role="assistant"),
    text_chunk("wörld \U0001f600"),
    tool_call_chunk('{"a":', call_id="c1", name="add"),
    tool_call_chunk("1}"),
    tool_call_chunk("{}", call_id="c2", name="now", index=1),
    finish_chunk("tool_calls"),
    usage_chunk(3, 4),
]
ODD: dict[str, Any] = {
    "empty id": {**text_chunk("x"), "id": ""},
    "blank id": {**text_chunk("x"), "id": " "},
    "no model": {key: value for key, value in text_chunk("x").items() if key != "model"},
    "created -1": {**text_chunk("x"), "created": -1},
    "created 1.0": {**text_chunk("x"), "created": 1.0},
    "created true": {**text_chunk("x"), "created": True},
    "created null": {**text_chunk("x"), "created": None},
    "object": {**text_chunk("x"), "object": "chat.completion"},
    "object empty": {**text_chunk("x"), "object": ""},
    "choices null": {**text_chunk("x"), "choices": None},
    "choices mapping": {**text_chunk("x"), "choices": {}},
    "no index": {**text_chunk("x"), "choices": [{"delta": {"content": "x"}}]},
    "no delta": {**text_chunk("x"), "choices": [{"index": 0, "finish_reason": "stop"}]},
    "null delta": {**text_chunk("x"), "choices": [{"index": 0, "delta": None}]},
    "content int": text_chunk(6),  # type: ignore[arg-type]
    "content parts": text_chunk([{"type": "text", "text": "x"}]),  # type: ignore[arg-type]
    "NaN": {**text_chunk("x"), "extra": float("nan")},
    "lone surrogate": text_chunk("x\ud800"),
    "tuple of choices": {**text_chunk("x"), "choices": tuple(text_chunk("x")["choices"])},
    "usage list": {**text_chunk("x"), "usage": []},
}


class Target:
    """Does what the input says."""

    async def __call__(self, told: Any) -> AsyncIterator[Any]:
        with Path(os.environ["DRAGENT_RUNS"]).open("a", encoding="utf-8") as file:
            file.write(f"{told['do']}\n")
        async for chunk in getattr(self, told["do"])(told):
            yield chunk

    async def empty(self, told: Any) -> AsyncIterator[Any]:
        for chunk in ():
            yield chunk

    async def many(self, told: Any) -> AsyncIterator[Any]:
        for chunk in MANY:
            yield chunk

    async def cached(self, told: Any) -> AsyncIterator[Any]:
        usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}}
        yield {**text_chunk("a"), "usage": usage}

    async def raise_(self, told: Any) -> AsyncIterator[Any]:
        yield text_chunk("a")
        raise RuntimeError("the target's own words")

    async def error_chunk(self, told: Any) -> AsyncIterator[Any]:
        yield text_chunk("a")
        yield error_chunk("overloaded")

    async def cancel(self, told: Any) -> AsyncIterator[Any]:
        yield text_chunk("a")
        raise asyncio.CancelledError

    async def odd(self, told: Any) -> AsyncIterator[Any]:
        yield text_chunk("a")
        yield ODD[told["which"]]
        yield text_chunk("b")

    async def large(self, told: Any) -> AsyncIterator[Any]:
        yield text_chunk("x" * told["size"])

    async def undividable(self, told: Any) -> AsyncIterator[Any]:
        yield {**text_chunk("a"), "citations": ["x" * RECORD_LIMIT]}

    async def slowly(self, told: Any) -> AsyncIterator[Any]:
        for number in range(told["times"]):
            yield text_chunk(f"{number} ")
            await asyncio.sleep(told.get("pause", 0.05))

    async def flood(self, told: Any) -> AsyncIterator[Any]:
        for _ in range(told["times"]):
            yield text_chunk("x")

    async def hang(self, told: Any) -> AsyncIterator[Any]:
        yield text_chunk("a")
        await asyncio.Event().wait()

    async def swallow(self, told: Any) -> AsyncIterator[Any]:
        yield text_chunk("a")
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass

    async def nonsense(self, told: Any) -> AsyncIterator[Any]:
        yield {"text": "secret"}

    async def key_error(self, told: Any) -> AsyncIterator[Any]:
        yield text_chunk(os.environ["NO_SUCH_KEY"])

    async def odd_index(self, told: Any) -> AsyncIterator[Any]:
        call = {"index": [0], "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}\ud83d"}}
        yield {**text_chunk("x"), "choices": [{"index": [0], "delta": {"tool_calls": [call]}}]}

    async def block(self, told: Any) -> AsyncIterator[Any]:
        yield text_chunk("a")
        time.sleep(30)

    async def die(self, told: Any) -> AsyncIterator[Any]:
        yield text_chunk("a")
        await asyncio.sleep(0.2)
        os._exit(3)

    async def print_(self, told: Any) -> AsyncIterator[Any]:
        print("a stray print")
        if os.environ["DRAGENT_HOST"] == "binding":
            os.write(1, b"and raw bytes\n")
        yield text_chunk("a")


if __name__ == "__main__":
    if os.environ["DRAGENT_HOST"] == "common":
        from dragent_stream.fabric import serve_adapter as serve
    else:
        from dragent_stream.fabric import serve_binding as serve
    limit = os.environ.get("DRAGENT_TURN_TIMEOUT")
    serve(Target(), turn_timeout=float(limit) if limit else None, options=ConverterOptions(close_timeout=0.2))
    sys.exit(0)
