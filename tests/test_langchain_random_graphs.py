"""Random LangGraph graphs whose texts are all different: every form says each message of the final state once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from lang_graphs import FORMS, THREAD, ChunkModel, chunks_of, hello, run_of, texts_of
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from dragent_stream.asgi.graphs import graph_parts

pytestmark = [
    pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning"),
    pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning"),
]
EVERY_FORM: dict[str, Callable[[Any, Any], Any]] = {
    **FORMS,
    "langchain_source": lambda graph, given: graph_parts(graph, given["messages"], THREAD),
}


def random_node(dice: random.Random, texts: Iterator[str], kinds: list[str]) -> Any:
    """A node that says something in one of the ways in which nodes do; each call of it says the same."""
    kind, text, more = dice.choice(kinds), next(texts), next(texts)

    async def asked(*, streams: bool = True) -> Any:
        answer = [chunks_of(text[:2], text[2:], finish="stop")]
        return await ChunkModel(answers=iter(answer), disable_streaming=not streams).ainvoke("q")

    async def node(state: MessagesState) -> Any:
        if kind == "streams":
            return {"messages": [await asked()]}
        if kind == "does not stream":
            return {"messages": [await asked(streams=False)]}
        if kind == "builds anew":
            return {"messages": [AIMessage((await asked()).content, name="bot")]}
        if kind == "says":
            return {"messages": [AIMessage(text)]}
        if kind == "says under an id":
            return {"messages": AIMessage(text, id=f"id of {text}")}
        if kind == "says two":
            return {"messages": [AIMessage(text), AIMessage(more)]}
        if kind == "says as a dict":
            return {"messages": [{"role": "assistant", "content": text}]}
        if kind == "commands":
            return Command(update={"messages": [AIMessage(text)]})
        return {}

    return node


def random_graph(seed: int, *, dicts: bool) -> Any:
    """Up to three steps of up to three nodes, some of which are graphs; the same for the same seed."""
    dice, numbers = random.Random(seed), count()
    texts = (f"text {number} of {seed}" for number in numbers)
    kinds = ["streams", "streams", "does not stream", "builds anew", "says", "says under an id", "says two", "commands"]
    kinds += ["says nothing", *(["says as a dict"] if dicts else [])]

    def graph(depth: int) -> Any:
        builder: Any = StateGraph(MessagesState)
        before: Any = START
        for step in range(dice.randrange(1, 4)):
            names = [f"n{step}_{number}" for number in range(dice.choice([1, 1, 1, 2, 3]))]
            for name in names:
                is_graph = depth and dice.random() < 0.3
                builder.add_node(name, graph(depth - 1) if is_graph else random_node(dice, texts, kinds))
                builder.add_edge(before, name)
            before = names
        return builder.compile()

    return graph(2)


@pytest.mark.parametrize("seed", range(16))
async def test_every_form_says_each_message_once(seed: int) -> None:
    for form, stream in EVERY_FORM.items():
        # Nothing but an update or a state brings the message that a node gives as a dict.
        dicts = form not in {"events v3"} and ("messages" not in form or "updates" in form or "values" in form)
        final = await random_graph(seed, dicts=dicts).ainvoke(hello())
        wanted = [message.content for message in final["messages"] if message.type == "ai"]
        found = texts_of(await run_of(stream(random_graph(seed, dicts=dicts), hello())))
        assert sorted(found) == sorted(wanted), form
