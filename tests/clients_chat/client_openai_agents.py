"""Ask for every shape with openai-agents' Chat Completions model, streamed and whole; in and out as in client_openai.py."""

import asyncio
import json
import sys
from importlib.metadata import version

from agents import ModelSettings, ModelTracing, OpenAIChatCompletionsModel
from openai import AsyncOpenAI

client = AsyncOpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
REQUEST = {
    "system_instructions": None,
    "input": "hi",
    "model_settings": ModelSettings(include_usage=True),
    "tools": [],
    "output_schema": None,
    "handoffs": [],
    "tracing": ModelTracing.DISABLED,
    "previous_response_id": None,
    "conversation_id": None,
    "prompt": None,
}


def without_ids(value):
    if isinstance(value, dict):
        return {key: without_ids(item) for key, item in value.items() if key not in ("id", "status", "provider_data")}
    return [without_ids(item) for item in value] if isinstance(value, list) else value


def plain(output, usage):
    items = [without_ids(item.model_dump(mode="json", exclude_none=True)) for item in output]
    return {"output": items, "usage": usage and [usage.input_tokens, usage.output_tokens, usage.total_tokens]}


async def streamed(model):
    done = None
    async for event in model.stream_response(**REQUEST):
        if event.type == "response.completed":
            done = event.response
    return plain(done.output, done.usage)


async def whole(model):
    response = await model.get_response(**REQUEST)
    usage = response.usage if response.usage.requests and response.usage.total_tokens else None
    return plain(response.output, usage)


async def attempt(coroutine):
    try:
        return {"answer": await coroutine}
    except Exception as error:
        return {"raised": type(error).__name__}


async def read(name):
    model = OpenAIChatCompletionsModel(name, client)
    return {"streamed": await attempt(streamed(model)), "whole": await attempt(whole(model))}


async def main():
    shapes = {name: await read(name) for name in json.load(sys.stdin)}
    json.dump({"version": version("openai-agents"), "shapes": shapes}, sys.stdout)


asyncio.run(main())
