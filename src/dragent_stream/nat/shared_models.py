"""One client for each model, for all users and for as many runs as the front end lets in.

NAT (1.6 to 1.9) builds a model anew for every user of a per-user workflow, with an HTTP client of its own, more than a
megabyte, and frees none of them before the server ends. Each client opens 100 connections and lets the next request
wait.
"""

import functools
from typing import Any

import httpx

from dragent_stream.nat.imports import LLMFrameworkEnum, WorkflowBuilder, llm_hooks

__all__ = ["lift_connection_limit", "share_models"]


def lift_connection_limit() -> None:
    """Let a model have a connection for each of its requests; a second call changes nothing."""
    hooks: Any = llm_hooks
    if not isinstance(hooks.async_http_client, functools.partial):
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        hooks.async_http_client = functools.partial(hooks.async_http_client, limits=limits)


def share_models(builder: WorkflowBuilder) -> None:
    """Build each LangChain model once, not once for every user."""
    given: Any = builder
    get_llm = given.get_llm
    models: dict[str, Any] = {}

    async def shared(llm_name: Any, wrapper_type: Any) -> Any:
        if wrapper_type != LLMFrameworkEnum.LANGCHAIN:
            return await get_llm(llm_name, wrapper_type)
        name = str(llm_name)
        if name not in models:
            models[name] = await get_llm(llm_name, wrapper_type)
        return models[name]

    given.get_llm = shared
