"""Ask for every shape with llama-index's OpenAILike, streamed and whole; arguments and output as in client_openai.py."""

import asyncio
import json
import sys
from importlib.metadata import version

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

MESSAGES = [ChatMessage(role="user", content="hi")]


def plain(response):
    message = response.message
    calls = message.additional_kwargs.get("tool_calls") or []
    blocks = [block.model_dump(mode="json", exclude_none=True) for block in message.blocks]
    return {
        "role": str(message.role),
        "blocks": [block for block in blocks if block != {"block_type": "text", "text": ""}],
        "calls": [call if isinstance(call, dict) else call.model_dump(mode="json", exclude={"index"}) for call in calls],
    }


async def streamed(model):
    last = None
    async for last in await model.astream_chat(MESSAGES):
        pass
    return plain(last)


async def whole(model):
    return plain(await model.achat(MESSAGES))


async def attempt(coroutine):
    try:
        return {"answer": await coroutine}
    except Exception as error:
        return {"raised": type(error).__name__}


async def read(name):
    model = OpenAILike(
        model=name,
        api_base=sys.argv[1],
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
    )
    return {"streamed": await attempt(streamed(model)), "whole": await attempt(whole(model))}


async def main():
    shapes = {name: await read(name) for name in json.load(sys.stdin)}
    json.dump({"version": version("llama-index-llms-openai-like"), "shapes": shapes}, sys.stdout)


asyncio.run(main())
