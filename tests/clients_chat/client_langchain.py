"""Ask for every shape with langchain-openai, streamed and whole; arguments and output as in client_openai.py."""

import asyncio
import json
import sys
from importlib.metadata import version

from langchain_openai import ChatOpenAI

METADATA = ("finish_reason", "model_name", "system_fingerprint", "service_tier", "logprobs")


def plain(message):
    return {
        "content": message.content,
        "additional_kwargs": message.additional_kwargs,
        "tool_calls": message.tool_calls,
        "invalid_tool_calls": message.invalid_tool_calls,
        "metadata": {key: message.response_metadata.get(key) for key in METADATA},
        "usage": message.usage_metadata,
    }


async def streamed(model):
    total = None
    async for chunk in model.astream("hi"):
        total = chunk if total is None else total + chunk
    return plain(total)


async def whole(model):
    return plain(await model.ainvoke("hi"))


async def attempt(coroutine):
    try:
        return {"answer": await coroutine}
    except Exception as error:
        return {"raised": type(error).__name__}


async def read(name):
    model = ChatOpenAI(model=name, base_url=sys.argv[1], api_key="none", max_retries=0, stream_usage=True)
    return {"streamed": await attempt(streamed(model)), "whole": await attempt(whole(model))}


async def main():
    shapes = {name: await read(name) for name in json.load(sys.stdin)}
    json.dump({"version": version("langchain-openai"), "shapes": shapes}, sys.stdout)


asyncio.run(main())
