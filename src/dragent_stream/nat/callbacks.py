"""What LangChain knows and NAT's streams leave out: tool-call ids, the ends of model turns, token usage.

NAT's chunks have no `finish_reason` and no usage, and its function steps carry no tool-call id. LangChain's callbacks
have all three. One handler class is hooked into LangChain once; it is active where a task has set an observer.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple
from uuid import UUID

from dragent_stream.nat.imports import (
    WORKFLOW_PARENT,
    BaseCallbackHandler,
    Context,
    register_configure_hook,
)

__all__ = ["AgentObserver", "ToolResult", "observe", "result_text"]


class ToolResult(NamedTuple):
    """One result, as the model is told it."""

    tool_call_id: str
    name: str
    content: str


class AgentObserver:
    """Told what the run's root agent does, in the order in which it happens, on the event loop of the run."""

    def model_starts(self, results: Sequence[ToolResult]) -> bool:
        """A model is about to be called with the results of its last turn; False holds the call until the run ends."""
        return True

    def model_ended(self, finish_reason: str, usage: object, model: str) -> None:
        """The model's answer is complete; the chunks that carry its end may still be on their way."""

    def nested_model_ended(self, usage: object, model: str) -> None:
        """A model inside a tool or a sub-agent has answered."""

    def tool_starts(self, tool_call_id: str) -> None:
        """A tool runs; every chunk of the turn that called it has been yielded."""

    def tool_ended(self, tool_call_id: str, name: str, content: str) -> None:
        """A tool has returned."""

    def tool_failed(self, tool_call_id: str, error: BaseException) -> None:
        """A tool has raised, or its arguments were refused."""


class _Handler(BaseCallbackHandler):
    """Passes on what belongs to the root agent; a nested agent's tools are that agent's own affair."""

    run_inline = True  # in the task of the agent: the order of the calls is the order of the run

    def __init__(self, observers: Sequence[AgentObserver]) -> None:
        self.observers = tuple(observers)
        self._tool_ids: dict[UUID, str] = {}
        self._models: dict[UUID, bool] = {}  # run id -> it belongs to the root agent

    async def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[Any]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        is_root = self._models[run_id] = _in_root_function()
        if is_root:
            results = _trailing_results(messages[0]) if messages else []
            answers = [observer.model_starts(results) for observer in self.observers]  # every one is to know
            if not all(answers):
                await asyncio.Event().wait()

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        is_root = self._models.pop(run_id, None)
        message: Any = _first_message(response)
        if is_root is None or message is None:
            return
        about: Mapping[str, Any] = getattr(message, "response_metadata", None) or {}
        usage: object = getattr(message, "usage_metadata", None)
        model = str(about.get("model_name") or "")
        for observer in self.observers:
            if is_root:
                observer.model_ended(str(about.get("finish_reason") or ""), usage, model)
            else:
                observer.nested_model_ended(usage, model)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._models.pop(run_id, None)

    def on_tool_start(self, serialized: dict[str, Any], input_str: str, *, run_id: UUID, **kwargs: Any) -> None:
        tool_call_id = kwargs.get("tool_call_id")
        if isinstance(tool_call_id, str) and _in_root_function():
            self._tool_ids[run_id] = tool_call_id
            for observer in self.observers:
                observer.tool_starts(tool_call_id)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        tool_call_id = self._tool_ids.pop(run_id, None)
        if tool_call_id is not None:
            name = str(getattr(output, "name", None) or "")
            for observer in self.observers:
                observer.tool_ended(tool_call_id, name, result_text(getattr(output, "content", output)))

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        tool_call_id = self._tool_ids.pop(run_id, None)
        if tool_call_id is not None:
            for observer in self.observers:
                observer.tool_failed(tool_call_id, error)


_handler: ContextVar[_Handler | None] = ContextVar("dragent_stream_handler", default=None)
register_configure_hook(_handler, inheritable=True)


def observe(observer: AgentObserver, *, beside: bool = False) -> None:
    """Tell the observer what happens in this task from now on, and in the tasks that it starts.

    Nothing is reset at the end: NAT may finish a generator in another context, where a token is void. Call it in a task
    of the run's own, and after NAT has entered the run: a per-user workflow restores the context of its first request.

    Args:
        observer: Is called on the event loop.
        beside: Keep the observers that this task has; else they are replaced.
    """
    current = _handler.get() if beside else None
    _handler.set(_Handler((*(current.observers if current else ()), observer)))


def result_text(content: object) -> str:
    """The text of a tool's result: as it is, or as JSON where it is no text."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(p, Mapping) and p.get("type") == "text" for p in content):
        return "".join(str(part["text"]) for part in content)
    return json.dumps(content, ensure_ascii=False, default=str)


def _in_root_function() -> bool:
    return Context.get().active_function.parent_id == WORKFLOW_PARENT


def _first_message(response: Any) -> Any:
    for generations in getattr(response, "generations", None) or ():
        for generation in generations:
            return getattr(generation, "message", None)
    return None


def _trailing_results(messages: Sequence[Any]) -> list[ToolResult]:
    """The tool results that the conversation ends with."""
    results: list[ToolResult] = []
    for message in reversed(messages):
        if getattr(message, "type", None) != "tool":
            break
        content = result_text(message.content)
        results.append(ToolResult(str(message.tool_call_id), str(getattr(message, "name", None) or ""), content))
    return results[::-1]
