"""The functions and configurations of the agents under test."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.function import FunctionBaseConfig

release = asyncio.Event()
slow_states: asyncio.Queue[str] = asyncio.Queue()


class AddConfig(FunctionBaseConfig, name="t_add"):
    pass


class MulConfig(FunctionBaseConfig, name="t_mul"):
    pass


class FailConfig(FunctionBaseConfig, name="t_fail"):
    pass


class NowConfig(FunctionBaseConfig, name="t_now"):
    pass


class SlowConfig(FunctionBaseConfig, name="t_slow"):
    pass


class PlainConfig(FunctionBaseConfig, name="t_plain_workflow"):
    pass


@register_function(config_type=AddConfig)
async def add_function(config: AddConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    async def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    yield FunctionInfo.from_fn(add, description="Add two integers.")


@register_function(config_type=MulConfig)
async def mul_function(config: MulConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    async def mul(a: int, b: int) -> str:
        """Multiply two integers."""
        return str(a * b)

    yield FunctionInfo.from_fn(mul, description="Multiply two integers.")


@register_function(config_type=FailConfig)
async def fail_function(config: FailConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    async def fail(reason: str) -> str:
        """Fail."""
        raise RuntimeError(f"failed: {reason}")

    yield FunctionInfo.from_fn(fail, description="Fail.")


@register_function(config_type=NowConfig)
async def now_function(config: NowConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    async def now(zone: str = "utc") -> str:
        """Tell the time."""
        return f"noon {zone}"

    yield FunctionInfo.from_fn(now, description="Tell the time.")


@register_function(config_type=SlowConfig)
async def slow_function(config: SlowConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    async def slow(what: str) -> str:
        """Take for ever."""
        slow_states.put_nowait("started")
        try:
            await release.wait()
        except asyncio.CancelledError:
            slow_states.put_nowait("cancelled")
            raise
        return what

    yield FunctionInfo.from_fn(slow, description="Take for ever.")


@register_function(config_type=PlainConfig)
async def plain_workflow(config: PlainConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    async def plain(message: str) -> str:
        """Answer without a stream."""
        return f"You said {message!r}."

    yield FunctionInfo.from_fn(plain, description="Answer without a stream.")


TOOLS = ["add", "mul", "fail", "now", "slow", "helper"]


def configuration(base_url: str, **workflow: Any) -> dict[str, Any]:
    """A NAT configuration with all test tools; `workflow` replaces parts of the agent's."""
    model = {"_type": "openai", "base_url": base_url, "api_key": "none", "do_auto_retry": False, "max_retries": 0}
    agent = {
        "_type": "per_user_tool_calling_agent",
        "llm_name": "model",
        "tool_names": TOOLS,
        "max_iterations": 6,
    }
    return {
        "general": {"front_end": {"_type": "dragent_stream", "port": 0}},
        "llms": {
            "model": {**model, "model_name": "root-model"},
            "inner_model": {**model, "model_name": "inner-model"},
        },
        "functions": {
            "add": {"_type": "t_add"},
            "mul": {"_type": "t_mul"},
            "fail": {"_type": "t_fail"},
            "now": {"_type": "t_now"},
            "slow": {"_type": "t_slow"},
            "helper": {
                "_type": "dragent_tool_calling_agent",
                "llm_name": "inner_model",
                "tool_names": ["mul"],
                "description": "Ask a helper.",
            },
        },
        "workflow": {**agent, **workflow},
    }
