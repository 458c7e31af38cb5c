"""The agents: NAT's tool_calling_agent whose stream is AG-UI, per user and shared.

No `from __future__ import annotations` here: NAT 1.8 and older build a function's schemas from its annotations as they
stand, and strings would silently give other schemas.
"""

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any

from ag_ui.core import BaseEvent
from pydantic import model_validator

from dragent_stream.ledger import RunLedger
from dragent_stream.nat.agent_run import AgentRun, run_options
from dragent_stream.nat.callbacks import AgentObserver, ToolResult, observe
from dragent_stream.nat.chat_stream import ChatStream, chat_stream
from dragent_stream.nat.client_tools import BuilderWithClientTools
from dragent_stream.nat.converters import AgentAnswer
from dragent_stream.nat.imports import (
    REPLAYS_HISTORY,
    WORKFLOW_PARENT,
    Builder,
    ChatRequest,
    ChatRequestOrMessage,
    Context,
    FunctionInfo,
    GlobalTypeConverter,
    LLMFrameworkEnum,
    ToolCallAgentWorkflowConfig,
    register_function,
    register_per_user_function,
    tool_calling_agent_workflow,
)
from dragent_stream.nat.messages import history, with_history, with_message_ids
from dragent_stream.nat.names import PER_USER_AGENT, PUBLISHED_PER_USER_AGENT, SHARED_AGENT, published_name_is_free
from dragent_stream.response import DRAgentEventResponse, batch_of
from dragent_stream.stream_converter import convert_chunks_to_agui_events
from dragent_stream.usage import Usage, read_usage

__all__ = [
    "DragentPerUserToolCallingAgentConfig",
    "PerUserToolCallingAgentConfig",
    "ToolCallingAgentConfig",
    "raw_chunks",
    "run_ledger",
]

raw_chunks: ContextVar[bool] = ContextVar("dragent_stream_raw_chunks", default=False)
"""True inside a run that converts the chunks itself, beside the steps: the root agent then streams them as they are."""

run_ledger: ContextVar[RunLedger[BaseEvent] | None] = ContextVar("dragent_stream_run_ledger", default=None)
"""The ledger that a step adaptor opened for this run; the agent's stream writes through it too."""


class _AgentConfig(ToolCallAgentWorkflowConfig):
    @model_validator(mode="after")
    def _has_tools(self) -> "_AgentConfig":
        if not self.tool_names:
            raise ValueError("tool_names is empty: name at least one function or function group for the agent to call")
        return self


class DragentPerUserToolCallingAgentConfig(_AgentConfig, name=PER_USER_AGENT):
    """A tool-calling agent with its own tools and state for each user; its stream is AG-UI."""


class PerUserToolCallingAgentConfig(_AgentConfig, name=PUBLISHED_PER_USER_AGENT):
    """The same, under the name of the published design."""


PER_USER_CONFIGS: list[type[_AgentConfig]] = [DragentPerUserToolCallingAgentConfig]
if published_name_is_free():
    PER_USER_CONFIGS.append(PerUserToolCallingAgentConfig)


class ToolCallingAgentConfig(_AgentConfig, name=SHARED_AGENT):
    """A tool-calling agent that all users share; its stream is AG-UI."""


async def agent(config: ToolCallAgentWorkflowConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """Build NAT's tool_calling_agent and give its stream as batches of AG-UI events."""
    original: Any = tool_calling_agent_workflow
    workflow: AsyncGenerator[FunctionInfo, None] = original.__wrapped__(config, BuilderWithClientTools(builder))
    try:
        info = await anext(workflow)
        inner: Callable[[Any], AsyncGenerator[Any, None]] | None = info.stream_fn
        whole: Callable[[Any], Awaitable[str]] | None = info.single_fn
        if inner is None or whole is None:
            yield info
            return
        return_direct = frozenset(str(name) for name in config.return_direct or ())

        model = _model_name(config, builder)

        async def single_fn(chat_request_or_message: ChatRequestOrMessage) -> str:
            stream = chat_stream.get()
            if stream is not None and Context.get().active_function.parent_id == WORKFLOW_PARENT:
                stream.model = model
                observe(_UsageCount(stream), beside=True)
            answer: str = await whole(chat_request_or_message)
            return answer

        async def stream_fn(
            chat_request_or_message: ChatRequestOrMessage,
        ) -> AsyncGenerator[DRAgentEventResponse, None]:
            is_root = Context.get().active_function.parent_id == WORKFLOW_PARENT
            chunks = _chunks(inner, chat_request_or_message, return_direct, is_root)
            source: AsyncGenerator[Any, None] = chunks
            if not is_root:
                source = convert_chunks_to_agui_events(chunks, ledger=_open_ledger())
            elif not raw_chunks.get():
                source = _batches(chunks, model)
            async with contextlib.aclosing(source) as items:
                async for item in items:
                    yield item

        yield FunctionInfo.create(single_fn=single_fn, stream_fn=stream_fn, description=info.description)
    finally:
        await workflow.aclose()


def _open_ledger() -> RunLedger[BaseEvent] | None:
    """The ledger of this run; a finished one is an earlier run's, left in the context that this run was started from."""
    ledger = run_ledger.get()
    return None if ledger is None or ledger.finished else ledger


async def _batches(chunks: AsyncGenerator[Any, None], model: str) -> AsyncGenerator[DRAgentEventResponse, None]:
    """The run as batches: through the ledger of the steps beside it, or a whole run where there are none."""
    ledger = _open_ledger()
    run = AgentRun(ledger or RunLedger(options=run_options.get()), owns_run=ledger is None)
    stream = chat_stream.get()
    if stream is None or stream.began:
        stream = ChatStream()
        chat_stream.set(stream)
    stream.model = model

    async def produce() -> None:
        observe(run)
        async with contextlib.aclosing(chunks) as items:
            async for chunk in items:
                run.put_chunk(chunk)

    async with contextlib.aclosing(run.events(produce)) as produced:
        async for events in produced:
            usage, run.chunks.usage = run.chunks.usage, None
            yield batch_of(events, run.chunks.model or None, _metrics(usage))


def _metrics(usage: Usage | None) -> dict[str, int] | None:
    if usage is None:
        return None
    counts = zip(("prompt_tokens", "completion_tokens", "total_tokens"), usage, strict=False)
    return {name: count for name, count in counts if count is not None}


def _model_name(config: ToolCallAgentWorkflowConfig, builder: Builder) -> str:
    llm: Any = builder.get_llm_config(config.llm_name)
    return str(getattr(llm, "model_name", None) or getattr(llm, "azure_deployment", None) or "")


async def _chunks(
    inner: Callable[[Any], AsyncGenerator[Any, None]],
    given: ChatRequestOrMessage,
    return_direct: frozenset[str],
    is_root: bool,
) -> AsyncGenerator[Any, None]:
    """The agent's own chunks, and the answer that `return_direct` tools give, which NAT streams nowhere."""
    request: Any = given
    if is_root and (messages := history.get()):
        request = with_history(GlobalTypeConverter.get().convert(given, to_type=ChatRequest), messages)
    elif REPLAYS_HISTORY:
        request = with_message_ids(GlobalTypeConverter.get().convert(given, to_type=ChatRequest))
    direct = _DirectAnswer(return_direct)
    if return_direct:
        observe(direct, beside=True)
    async with contextlib.aclosing(inner(request)) as chunks:
        async for chunk in chunks:
            yield chunk
    if direct.answer:
        yield {"choices": [{"index": 0, "delta": {"content": direct.answer}}]}


class _UsageCount(AgentObserver):
    """What all model calls of a run use, counted on the chat completion that the run is."""

    def __init__(self, stream: ChatStream) -> None:
        self._stream = stream

    def model_ended(self, finish_reason: str, usage: object, model: str) -> None:
        self.nested_model_ended(usage, model)

    def nested_model_ended(self, usage: object, model: str) -> None:
        if counts := read_usage(usage):
            self._stream.count(counts)


class _DirectAnswer(AgentObserver):
    """The result of the last tool that returned, where it is one whose result is the agent's answer."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self.answer = ""

    def model_starts(self, results: Sequence[ToolResult]) -> bool:
        self.answer = ""  # the result goes to the model, which answers itself
        return True

    def tool_ended(self, tool_call_id: str, name: str, content: str) -> None:
        self.answer = content if name in self._names else ""


for _config in PER_USER_CONFIGS:
    register_per_user_function(
        config_type=_config,
        input_type=ChatRequestOrMessage,
        single_output_type=AgentAnswer,
        streaming_output_type=DRAgentEventResponse,
        framework_wrappers=[LLMFrameworkEnum.LANGCHAIN],
    )(agent)
register_function(config_type=ToolCallingAgentConfig, framework_wrappers=[LLMFrameworkEnum.LANGCHAIN])(agent)
