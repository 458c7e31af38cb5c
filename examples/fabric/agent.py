"""An agent for NeMo Fabric: an async generator of chunks, and one line that serves it.

Without Fabric's packages in this environment, end with `serve_binding(answer)` and describe the file with `--script`.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from dragent_stream.fabric import serve_adapter


async def answer(question: Any) -> AsyncIterator[Any]:
    """Answer in chunks of any provider's shape: the first one is Azure's, without id and model."""
    yield {"id": "", "object": "", "model": "", "created": 0, "choices": []}
    if question == "think":
        await asyncio.sleep(3600)
    if question == "fail":
        raise RuntimeError("the database password is wrong")
    for word in ("You ", "asked: ", str(question)):
        yield {"choices": [{"index": 0, "delta": {"content": word}}]}
    yield {"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]}


if __name__ == "__main__":  # Fabric runs the module; a test imports it
    serve_adapter(answer, model="echo")
