"""Ask for every shape with pydantic-ai, streamed and whole; arguments and output as in client_openai.py."""

import asyncio
import json
import sys
from importlib.metadata import version

from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

REQUEST = [ModelRequest.user_text_prompt("hi")]
PART = ("part_kind", "content", "tool_name", "args", "tool_call_id", "signature")


def plain(response):
    return {
        "parts": [{key: getattr(part, key, None) for key in PART} for part in response.parts],
        "model": response.model_name,
        "finish_reason": response.finish_reason,
        "id": response.provider_response_id,
        "usage": [response.usage.input_tokens, response.usage.output_tokens, response.usage.details],
    }


async def streamed(model):
    async with model_request_stream(model, REQUEST) as stream:
        async for _ in stream:
            pass
        return plain(stream.get())


async def whole(model):
    return plain(await model_request(model, REQUEST))


async def attempt(coroutine):
    try:
        return {"answer": await coroutine}
    except Exception as error:
        return {"raised": type(error).__name__}


async def read(name):
    model = OpenAIChatModel(name, provider=OpenAIProvider(base_url=sys.argv[1], api_key="none"))
    return {"streamed": await attempt(streamed(model)), "whole": await attempt(whole(model))}


async def main():
    shapes = {name: await read(name) for name in json.load(sys.stdin)}
    json.dump({"version": version("pydantic-ai-slim"), "shapes": shapes}, sys.stdout)


asyncio.run(main())
