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
    from langchain_core.runnables.config import merge_configs

    from dragent_stream.asgi.graphs_in_tools import GraphsInTools

    update, conversation = await _given(graph, messages, config)
    given = {"messages": update}
    if open_turn := _open_turn(conversation):
        yield (), "values", {"messages": open_turn}
    tools = GraphsInTools()
    config = cast("dict[str, Any]", merge_configs(cast("Any", config), {"callbacks": [tools]}))
    stream = graph.astream(given, config, stream_mode=["messages", "updates"], subgraphs=True)
    try:
        async for part in stream:
            if not part[0] or not tools.has(part[0]):
                yield part
    finally:
        await stream.aclose()


def _open_turn(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """What follows the last message of a human: calls with the client's results, or an answer to go on with."""
    asked = max((at for at, message in enumerate(messages) if message.type == "human"), default=-1)
    return list(messages[asked + 1 :])


async def _given(graph: Any, messages: Sequence[BaseMessage], config: dict[str, Any]) -> tuple[Any, list[BaseMessage]]:
    """What makes the graph's messages those of the client, whatever its reducer; and those messages."""
    if not getattr(graph, "checkpointer", None):
        return list(messages), list(messages)
    from langchain_core.messages import RemoveMessage

    held, pending = await _held(graph, config)
    if not held and not pending:
        return list(messages), list(messages)
    sent, replaces = messages_to_send(held, messages, pending)
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


async def _held(graph: Any, config: dict[str, Any]) -> tuple[list[BaseMessage], list[BaseMessage]]:
    """The messages of the graph's state, and those that finished tasks of a step that broke off would add to them."""
    state = await graph.aget_state(config)
    shown = _messages(state)
    if not state.tasks:
        return shown, []
    # LangGraph shows what is pending as if it were stored, but not in the state of a checkpoint that is named.
    place = {**config["configurable"], **state.config["configurable"]}
    stored = _messages(await graph.aget_state({**config, "configurable": place}))
    if shown[: len(stored)] != stored:
        return stored, []
    return stored, shown[len(stored) :]


def _messages(state: Any) -> list[BaseMessage]:
    from langchain_core.messages import convert_to_messages

    messages = (fields_of(state.values) or {}).get("messages")
    return convert_to_messages(cast("Any", messages)) if isinstance(messages, list) else []
