"""The model as an agent of this package calls it: with the client's tools, and never taking half an answer for one.

The request's tools are shown to the model beside the agent's. A call of one of them ends the run: the client executes
it and asks again with the result. A connection that ends in an orderly way in the middle of an answer is no end of the
answer; LangChain takes it for one. It also completes half a call's arguments by guessing, and the tool would run with
them.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from dragent_stream.nat.failures import AgentFailedError
from dragent_stream.nat.imports import Builder, Runnable, RunnableGenerator, RunnableLambda

__all__ = ["BuilderWithClientTools", "client_tools"]

ENDS_WITH_A_REASON = frozenset({"openai", "azure", "azure_openai"})
REASONS = ("finish_reason", "status", "stop_reason")

client_tools: ContextVar[Sequence[dict[str, Any]]] = ContextVar("dragent_stream_client_tools", default=())
"""The tools of this run's client, in OpenAI's form."""


class BuilderWithClientTools:
    """NAT's builder, whose models can be given more tools in each run."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    async def get_llm(self, *args: Any, **kwargs: Any) -> Any:
        """The model, for an agent that calls `bind_tools` once."""
        return _ModelWithClientTools(await self._builder.get_llm(*args, **kwargs))


class _ModelWithClientTools:
    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, Any]:
        bound = self._model.bind_tools(tools, **kwargs)

        def choose(messages: Any, **more: Any) -> Any:
            extra = client_tools.get()
            model = self._model.bind_tools([*tools, *extra], **kwargs) if extra else bound
            return model.bind(**more) if more else model

        return RunnableLambda(choose, name="ClientTools") | RunnableGenerator(_whole, name="WholeAnswer")


async def _whole(answers: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """The pieces of an answer as they come.

    Raises:
        AgentFailedError: They end without a reason, where the API always gives one, or inside the arguments of a call.
    """
    provider = ended = False
    calls: dict[object, list[Mapping[str, Any]]] = {}
    async for answer in answers:
        about: Any = getattr(answer, "response_metadata", None) or {}
        provider = provider or about.get("model_provider") in ENDS_WITH_A_REASON
        ended = ended or any(about.get(name) for name in REASONS)
        for piece in getattr(answer, "tool_call_chunks", None) or ():
            calls.setdefault(piece.get("index"), []).append(piece)
        yield answer
    if provider and not ended:
        raise AgentFailedError("the model's answer was cut off: its stream ended without a finish reason")
    for pieces in calls.values():
        if not _begins_with_json("".join(piece.get("args") or "" for piece in pieces)):
            name = next((piece["name"] for piece in pieces if piece.get("name")), "")
            raise AgentFailedError(
                f"the arguments of the call of {name!r} are no complete JSON, so it was not made",
                "INCOMPLETE_TOOL_CALL",
            )


def _begins_with_json(arguments: str) -> bool:
    """Also where more follows: some providers repeat the arguments, or put an empty object before them."""
    try:
        return not arguments.strip() or bool(json.JSONDecoder(strict=False).raw_decode(arguments.lstrip()))
    except ValueError:
        return False
