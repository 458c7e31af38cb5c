"""A NAT workflow as an adapter, in NAT's own environment, which has nothing of Fabric: served by our binding."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.builder.workflow_builder import WorkflowBuilder
from nat.cli.register_workflow import register_function
from nat.data_models.api_server import ChatRequest, ChatResponseChunk
from nat.data_models.config import Config
from nat.data_models.function import FunctionBaseConfig
from nat.runtime.loader import PluginTypes, discover_and_register_plugins
from nat.utils.data_models.schema_validator import validate_schema

from dragent_stream.fabric import serve_binding


class AddConfig(FunctionBaseConfig, name="fabric_add"):
    pass


@register_function(config_type=AddConfig)
async def add_function(config: AddConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    async def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    yield FunctionInfo.from_fn(add, description="Add two integers.")


@asynccontextmanager
async def lifespan(payload: Any) -> AsyncIterator[Any]:
    discover_and_register_plugins(PluginTypes.CONFIG_OBJECT)
    configuration = {
        "llms": {
            "model": {
                "_type": "openai",
                "base_url": os.environ["MODEL_URL"],
                "api_key": "none",
                "model_name": "scripted",
                "max_retries": 0,
            }
        },
        "functions": {"add": {"_type": "fabric_add"}},
        "workflow": {"_type": "tool_calling_agent", "llm_name": "model", "tool_names": ["add"]},
    }
    async with WorkflowBuilder.from_config(validate_schema(configuration, Config)) as builder:
        workflow = await builder.build()

        async def stream_fn(messages: Any) -> AsyncIterator[ChatResponseChunk]:
            async with workflow.run(ChatRequest(messages=messages)) as runner:
                async for chunk in runner.result_stream(to_type=ChatResponseChunk):
                    yield chunk

        yield stream_fn


if __name__ == "__main__":
    serve_binding(lifespan=lifespan)
