"""One run of a LangGraph graph: what it is given so that it holds the client's conversation, and what it streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any, cast

from dragent_stream.asgi.langchain_history import messages_to_send
from dragent_stream.errors import ConversionError
from dragent_stream.fields import fields_of

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

__all__ = ["check_graph", "graph_parts"]

_REMOVE_ALL = "__remove_all__"  # langgraph.graph.message.REMOVE_ALL_MESSAGES


def check_graph(graph: Any) -> None:
    """Refuse a graph whose state has no `messages`.

    Raises:
        ConversionError: It has none; names what it has.
    """
    keys = getattr(getattr(graph, "builder", None), "channels", None)
    if isinstance(keys, dict) and "messages" not in keys:
        names = ", ".join(str(key) for key in cast("dict[object, object]", keys)) or "nothing"
        raise ConversionError(
            f"langchain_source() runs a graph whose state has messages; this one's state has: {names}"
        )


async def graph_parts(
    graph: Any, messages: Sequence[BaseMessage], config: dict[str, Any]
) -> AsyncGenerator[tuple[Any, ...], None]:
    """The parts `(namespace, mode, payload)` of one run.

    The updates bring what the messages do not: what a node returns without a model, and interrupts. Where the
    conversation does not end with a human's message, the first part holds what follows that: a node that gives the
    whole conversation back brings it again.

    Args:
        graph: The graph.
        messages: The client's conversation.
        config: The run's config, with the thread's id.
    """
    subgraphs = _subgraphs(graph)
    update, conversation = await _given(graph, messages, config)
    given = {"messages": update}
    if open_turn := _open_turn(conversation):
        yield (), "values", {"messages": open_turn}
    stream = graph.astream(given, config, stream_mode=["messages", "updates"], subgraphs=True)
    try:
        async for part in stream:
            if subgraphs is None or not part[0] or _names(part[0]) in subgraphs:
                yield part
    finally:
        await stream.aclose()


def _open_turn(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """What follows the last message of a human: calls with the client's results, or an answer to go on with."""
    asked = max((at for at, message in enumerate(messages) if message.type == "human"), default=-1)
    return list(messages[asked + 1 :])


def _subgraphs(graph: Any) -> set[str] | None:
    """The paths of the graphs that are nodes of this one; what else streams from inside is a tool's own agent."""
    if not hasattr(graph, "get_subgraphs"):
        return None
    try:
        return {name for name, _ in graph.get_subgraphs(recurse=True)}
    except NotImplementedError:
        return None  # a graph on a server


def _names(namespace: Sequence[str]) -> str:
    """The path of a graph in the spelling of `get_subgraphs`; a number tells two runs of one graph in one task apart."""
    return "|".join(task.partition(":")[0] for task in namespace if not task.isdecimal())


async def _given(graph: Any, messages: Sequence[BaseMessage], config: dict[str, Any]) -> tuple[Any, list[BaseMessage]]:
    """What makes the graph's messages those of the client, whatever its reducer; and those messages."""
    if not getattr(graph, "checkpointer", None):
        return list(messages), list(messages)
    state = fields_of((await graph.aget_state(config)).values) or {}
    stored = state.get("messages")
    if not isinstance(stored, list) or not stored:
        return list(messages), list(messages)
    from langchain_core.messages import RemoveMessage, convert_to_messages

    held = convert_to_messages(cast("Any", stored))
    sent, replaces = messages_to_send(held, messages)
    conversation = sent if replaces else [*held, *sent]
    reducer = getattr(graph.channels.get("messages"), "operator", None)
    if reducer is None:
        return conversation, conversation  # what is given is what it holds
    if not replaces:
        return sent, conversation
    try:
        from langgraph.types import Overwrite
    except ImportError:  # before 1.1
        if "add_messages" in getattr(reducer, "__qualname__", ""):
            return [RemoveMessage(id=_REMOVE_ALL), *sent], conversation
        raise ConversionError(
            "the conversation was edited, and only a newer langgraph can tell the graph's own reducer of messages so"
            " (langgraph.types.Overwrite)"
        ) from None
    return Overwrite(sent), conversation
