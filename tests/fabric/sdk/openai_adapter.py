"""An adapter for the common host over the openai client."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from openai import AsyncOpenAI

from dragent_stream.fabric import serve_adapter


@asynccontextmanager
async def lifespan(payload: Any) -> AsyncIterator[Any]:
    async with AsyncOpenAI(base_url=os.environ["MODEL_URL"], api_key="none", max_retries=0) as client:
        yield lambda messages: client.chat.completions.create(
            model="scripted", messages=messages, stream=True, stream_options={"include_usage": True}
        )


if __name__ == "__main__":
    serve_adapter(lifespan=lifespan)
