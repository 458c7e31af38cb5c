"""The functions and configurations of the agents under test."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from nat.builder.builder import Builder
from nat.builder.context import Context
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.function import FunctionBaseConfig
from pydantic import BaseModel

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


class WhoConfig(FunctionBaseConfig, name="t_who"):
    pass


class GivesConfig(FunctionBaseConfig, name="t_gives"):
    """A workflow that gives whatever `what` names."""

    what: str
    stream: bool = False


class PairConfig(FunctionBaseConfig, name="t_pair"):
    """A workflow whose input is no chat."""


class HeldConfig(FunctionBaseConfig, name="t_held"):
    """A workflow that waits, as `slow` does, and never streams."""


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


@register_function(config_type=WhoConfig)
async def who_function(config: WhoConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    async def who(question: str = "") -> str:
        """Tell whose request this is."""
        context = Context.get()
        headers: Any = context.metadata.headers or {}
        told = {name: headers.get(name) for name in ("x-who", "authorization")}
        path, cookies = context.metadata.url_path, context.metadata.cookies
        return f"{told['x-who']} {told['authorization']} {cookies} {path} {context.conversation_id}"

    yield FunctionInfo.from_fn(who, description="Tell whose request this is.")


class Report(BaseModel):
    title: str
    pages: list[int]


THINGS: dict[str, Any] = {
    "model": Report(title="Größe", pages=[1, 2]),
    "models": [Report(title="a", pages=[])],
    "mapping": {"a": [1, None], "b": "ü"},
    "list": [1, "two"],
    "nothing": None,
    "number": 7,
    "truth": True,
    "text": "as it is",
}


@register_function(config_type=GivesConfig)
async def gives_workflow(config: GivesConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    async def gives(message: str) -> Any:
        """Give it."""
        return THINGS[config.what]

    async def streams(message: str) -> AsyncGenerator[Any, None]:
        """Give it twice."""
        yield THINGS[config.what]
        yield THINGS[config.what]

    yield FunctionInfo.create(single_fn=gives, stream_fn=streams if config.stream else None, description="Give it.")


@register_function(config_type=PairConfig)
async def pair_workflow(config: PairConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    async def pair(left: int, right: int) -> int:
        """Add two numbers."""
        return left + right

    yield FunctionInfo.from_fn(pair, description="Add two numbers.")


@register_function(config_type=HeldConfig)
async def held_workflow(config: HeldConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    async def held(message: str) -> str:
        """Take for ever."""
        slow_states.put_nowait("started")
        try:
            await release.wait()
        except asyncio.CancelledError:
            slow_states.put_nowait("cancelled")
            raise
        return message

    yield FunctionInfo.from_fn(held, description="Take for ever.")


@register_function(config_type=PlainConfig)
async def plain_workflow(config: PlainConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    async def plain(message: str) -> str:
        """Answer without a stream."""
        return f"You said {message!r}."

    yield FunctionInfo.from_fn(plain, description="Answer without a stream.")


TOOLS = ["add", "mul", "fail", "now", "slow", "who", "helper"]


def with_front_end(config: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """The configuration with settings of the front end."""
    front_end = {**config["general"]["front_end"], **settings}
    return {**config, "general": {**config["general"], "front_end": front_end}}


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
            "who": {"_type": "t_who"},
            "helper": {
                "_type": "dragent_tool_calling_agent",
                "llm_name": "inner_model",
                "tool_names": ["mul"],
                "description": "Ask a helper.",
            },
        },
        "workflow": {**agent, **workflow},
    }
