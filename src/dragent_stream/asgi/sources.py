"""Agents in the box: an OpenAI-compatible endpoint, a LangChain runnable or graph, a recorded trace.

Each function gives an agent for `create_app`: called with a run input, it gives a stream of chunks.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ag_ui.core import RunAgentInput

from dragent_stream.answer_body import reads_of_response
from dragent_stream.asgi.graphs import check_graph, graph_parts
from dragent_stream.asgi.langchain_history import langchain_messages, provider_of
from dragent_stream.asgi.messages import chat_messages, chat_tools
from dragent_stream.errors import ConversionError
from dragent_stream.trace import read_trace, replay_trace

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["langchain_source", "openai_source", "trace_source"]

_Agent: TypeAlias = Callable[[RunAgentInput], AsyncIterator[Any]]


def openai_source(client: AsyncOpenAI, model: str, *, system: str = "", **parameters: Any) -> _Agent:
    """A model behind any OpenAI-compatible endpoint.

    The client's own connection, authentication and retries are used; its chunk objects are not: the bytes of the answer
    go to the converter, since building those objects costs many times the conversion. So whatever a body may be that is
    no whole answer (cut off, empty, a page) is told. A server that does not close after `[DONE]` is left a second later.

    Args:
        client: An `openai.AsyncOpenAI`, for the endpoint in its `base_url`.
        model: The model's name there.
        system: A system message that goes before the conversation.
        **parameters: More of the request, such as `temperature`, or `stream_options=None` for an endpoint that refuses
            it. The client's tools are sent as `tools`, after those given here.
    """

    def agent(run_input: RunAgentInput) -> AsyncIterator[Any]:
        messages = chat_messages(run_input)
        if system:
            messages.insert(0, {"role": "system", "content": system})
        request: dict[str, Any] = {"stream_options": {"include_usage": True}, **parameters}
        if tools := [*(request.pop("tools", None) or ()), *chat_tools(run_input)]:
            request["tools"] = tools
        request = {key: value for key, value in request.items() if value is not None}
        return _openai_chunks(client, {**request, "model": model, "messages": messages, "stream": True})

    return agent


async def _openai_chunks(client: AsyncOpenAI, request: dict[str, Any]) -> AsyncGenerator[bytes, None]:
    create = cast("Any", client.chat.completions.with_streaming_response.create)
    async with create(**request) as response, aclosing(reads_of_response(response.iter_bytes())) as reads:
        async for data in reads:
            yield data


def langchain_source(runnable: Any, *, config: Mapping[str, Any] | None = None, provider: str | None = None) -> _Agent:
    """A LangChain chat model or chain, or a LangGraph graph over `messages`.

    A graph is streamed with its subgraphs: the chunks of its models, the results of its tools, and the messages that its
    nodes add. What a tool's own agent says is not shown, since it is no part of the conversation. If the graph has a
    checkpointer, its state holds the client's conversation when a run begins, edits and deletions included, and what
    the graph knows of a message beside its text is kept.

    Args:
        runnable: Anything with `astream`.
        config: The run's config; the thread is added as `configurable.thread_id`.
        provider: Whose encrypted reasoning the client's history holds: "anthropic", "bedrock_converse", "google_genai" or
            "openai" (Responses). Known for a chat model or a chain; to be said for a graph without a checkpointer.
    """
    if not hasattr(runnable, "astream"):
        raise ConversionError(f"a runnable has astream(); {type(runnable).__name__} has not")
    is_graph = hasattr(runnable, "get_graph") and hasattr(runnable, "nodes")
    if is_graph:
        check_graph(runnable)
    if provider is None:
        provider = "" if is_graph else provider_of(runnable)

    def agent(run_input: RunAgentInput) -> AsyncIterator[Any]:
        messages = langchain_messages(run_input, provider)
        run_config: dict[str, Any] = {**(config or {})}
        run_config["configurable"] = {"thread_id": run_input.thread_id, **run_config.get("configurable", {})}
        if is_graph:
            return graph_parts(runnable, messages, run_config)
        tools = chat_tools(run_input)
        bound = runnable.bind_tools(tools) if tools and hasattr(runnable, "bind_tools") else runnable
        return bound.astream(messages, run_config)

    return agent


def trace_source(file: str | PathLike[str], *, speed: float | None = None) -> _Agent:
    """A recorded trace, played for every run whatever was asked; ids are the run's own.

    Args:
        file: The trace. It is looked at once now, so that a wrong file is told at once.
        speed: 1.0 keeps the recorded pauses, 2.0 halves them; None plays without pauses.

    Raises:
        TraceFormatError: The file is no trace.
    """
    next(read_trace(file), None)

    def agent(run_input: RunAgentInput) -> AsyncIterator[Any]:
        return replay_trace(file, speed=speed)

    return agent
