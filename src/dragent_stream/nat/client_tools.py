"""Tools that the client executes, for an agent whose own tools NAT binds when it builds it.

The request's tools are shown to the model beside the agent's. A call of one of them ends the run: the client executes
it and asks again with the result.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from dragent_stream.nat.imports import Builder, Runnable, RunnableLambda

__all__ = ["BuilderWithClientTools", "client_tools"]

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

        return RunnableLambda(choose, name="ClientTools")
