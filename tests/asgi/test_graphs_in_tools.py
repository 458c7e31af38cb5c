"""A tool's own agent is not shown; an agent that a node runs is, wherever the node has it from."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from asgi_wire import exchange, run_input
from lang_graphs import ChunkModel, call_chunk, chunks_of
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from dragent_stream.asgi import create_app, langchain_source

Json = dict[str, Any]
CALL = [call_chunk("research", "c1", '{"topic": "x"}')]


@tool
async def research(topic: str) -> str:
    """Ask other agents, one after the other."""
    found: list[str] = []
    for text in ("hidden one", "hidden two"):
        outer = graph(functools.partial(hand_over, agent=agent(chunks_of(text)), name="x"))
        found.append((await outer.ainvoke({"messages": [HumanMessage(topic)]}))["messages"][-1].content)
    return ", ".join(found)


def agent(*answers: Any) -> Any:
    """An agent that has the tool."""
    model = ChunkModel(answers=iter(answers))

    async def ask(state: MessagesState) -> Json:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def after(state: MessagesState) -> str:
        return "tools" if state["messages"][-1].tool_calls else "__end__"  # type: ignore[union-attr]

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode([research]))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", after, ["tools", "__end__"])
    graph.add_edge("tools", "ask")
    return graph.compile()


def graph(node: Any) -> Any:
    """A graph of one node."""
    built = StateGraph(MessagesState)
    built.add_node("node", node)
    built.add_edge(START, "node")
    return built.compile()


async def hand_over(state: Any, agent: Any, name: str) -> Json:
    """The node of LangGraph's tutorials."""
    answer = (await agent.ainvoke(state))["messages"][-1]
    return {"messages": [HumanMessage(answer.text, name=name)]}


class Team:
    def __init__(self, agent: Any) -> None:
        self.agents = {"first": agent}

    async def by_look_up(self, state: Any) -> Json:
        return await hand_over(state, next(iter(self.agents.values())), "x")

    async def last_message(self, state: Any) -> Json:
        return {"messages": (await self.agents["first"].ainvoke(state))["messages"][-1:]}


def in_closure(agent: Any) -> Any:
    async def node(state: MessagesState) -> Json:
        return await hand_over(state, agent, "x")

    return node


NODES: dict[str, Callable[[Any], Any]] = {
    "partial": lambda agent: functools.partial(hand_over, agent=agent, name="x"),
    "look-up": lambda agent: Team(agent).by_look_up,
    "method": lambda agent: Team(agent).last_message,
    "closure": in_closure,
    "subgraph": lambda agent: agent,
    "two deep": lambda agent: graph(functools.partial(hand_over, agent=agent, name="x")),
}


async def told(graph: Any, **options: Any) -> list[tuple[str, ...]]:
    done = await exchange(create_app(langchain_source(graph, **options)), body=run_input())
    texts: dict[str, str] = {}
    found: list[tuple[str, ...]] = []
    for event in done.events:
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            texts[event["messageId"]] = texts.get(event["messageId"], "") + event["delta"]
        elif event["type"] == "TEXT_MESSAGE_END":
            found.append(("text", texts[event["messageId"]]))
        elif event["type"] == "TOOL_CALL_START":
            found.append(("call", event["toolCallName"]))
        elif event["type"] == "TOOL_CALL_RESULT":
            found.append(("result", event["content"]))
        elif event["type"] in ("RUN_FINISHED", "RUN_ERROR"):
            found.append((event["type"],))
    return found


SHOWN = [("call", "research"), ("result", "hidden one, hidden two"), ("text", "It is x."), ("RUN_FINISHED",)]


@pytest.mark.parametrize("node", NODES.values(), ids=NODES)
async def test_the_agent_of_a_node_is_shown_and_that_of_its_tool_is_not(node: Callable[[Any], Any]) -> None:
    assert await told(graph(node(agent(CALL, chunks_of("It is ", "x."))))) == SHOWN


async def test_a_tool_that_a_node_calls_by_hand_hides_its_own_agents_and_no_other() -> None:
    after = agent(chunks_of("shown"))

    async def node(state: MessagesState) -> Json:
        await research.ainvoke({"topic": "x"})
        return {"messages": (await after.ainvoke({"messages": state["messages"]}))["messages"][-1:]}

    assert await told(graph(node)) == [("text", "shown"), ("RUN_FINISHED",)]


async def test_callbacks_of_the_users_own_are_called_as_well() -> None:
    class Counting(BaseCallbackHandler):
        starts = 0

        def on_tool_start(self, *args: Any, **more: Any) -> None:
            self.starts += 1

    counting = Counting()
    built = graph(NODES["partial"](agent(CALL, chunks_of("It is ", "x."))))
    assert await told(built, config={"callbacks": [counting]}) == SHOWN
    assert counting.starts == 1
