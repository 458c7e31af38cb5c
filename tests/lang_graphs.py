"""Real LangGraph graphs over a model that streams given chunks, and every form in which such a graph can be streamed."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, HumanMessage, message_chunk_to_message
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from pydantic import Field

from dragent_stream.check import check_events
from dragent_stream.options import ConverterOptions
from dragent_stream.run import stream_agui_run

Event = dict[str, Any]


class ChunkModel(BaseChatModel):
    """A chat model that streams given chunks, one answer after the other, and keeps what it was asked."""

    answers: Any
    asked: Any = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "chunks"

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        self.asked.append(messages)
        first, *more = next(self.answers)
        whole = sum(more, first)
        return ChatResult(generations=[ChatGeneration(message=message_chunk_to_message(whole))])

    async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        self.asked.append(messages)
        for chunk in next(self.answers):
            yield ChatGenerationChunk(message=chunk)

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def chunks_of(*texts: str, finish: str = "") -> list[AIMessageChunk]:
    """An answer of text."""
    answer = [AIMessageChunk(text) for text in texts]
    return [*answer, AIMessageChunk("", response_metadata={"finish_reason": finish})] if finish else answer


def call_chunk(name: str | None, call_id: str | None, args: str, index: int = 0) -> AIMessageChunk:
    """A fragment of a call."""
    return AIMessageChunk("", tool_call_chunks=[{"name": name, "id": call_id, "args": args, "index": index}])  # type: ignore[list-item]


def counted(input_tokens: int, output_tokens: int, finish: str) -> AIMessageChunk:
    """The end of an answer, with its usage."""
    usage = {"input_tokens": input_tokens, "output_tokens": output_tokens, "total_tokens": input_tokens + output_tokens}
    return AIMessageChunk("", response_metadata={"finish_reason": finish}, usage_metadata=usage)  # type: ignore[arg-type]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def mul(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def tool_answers() -> list[list[AIMessageChunk]]:
    """Two turns of an agent with parallel tools, then one answer more."""
    return [
        [
            *chunks_of("Let me ", "see."),
            call_chunk("add", "c1", '{"a": 1,'),
            call_chunk(None, None, ' "b": 2}'),
            call_chunk("mul", "c2", '{"a": 3, "b": 4}', 1),
            counted(5, 3, "tool_calls"),
        ],
        [*chunks_of("It is ", "3 and 12."), counted(9, 4, "stop")],
        chunks_of("Sub ", "says hi."),
    ]


def tool_graph(answers: Iterable[list[AIMessageChunk]] | None = None, *, checkpointer: Any = None) -> Any:
    """An agent with two tools, followed by a subgraph that asks the model once more."""
    model = ChunkModel(answers=iter(tool_answers() if answers is None else answers))

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def after(state: MessagesState) -> str:
        return "tools" if state["messages"][-1].tool_calls else "sub"  # type: ignore[union-attr]

    inner = StateGraph(MessagesState)
    inner.add_node("inner", ask)
    inner.add_edge(START, "inner")
    graph = StateGraph(MessagesState)
    graph.add_node("agent", ask)
    graph.add_node("tools", ToolNode([add, mul]))
    graph.add_node("sub", inner.compile())
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", after, ["tools", "sub"])
    graph.add_edge("tools", "agent")
    return graph.compile(checkpointer=checkpointer)


ALL_MODES = ["messages", "updates", "values", "custom", "debug", "tasks", "checkpoints"]


def _form(mode: Any, **more: Any) -> Callable[[Any, Any], Any]:
    return lambda graph, given: graph.astream(given, THREAD, stream_mode=mode, **more)


THREAD: Any = {"configurable": {"thread_id": "t"}}
FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "messages": _form("messages"),
    "messages, subgraphs": _form("messages", subgraphs=True),
    "[messages]": _form(["messages"]),
    "[messages], subgraphs": _form(["messages"], subgraphs=True),
    "[messages, updates]": _form(["messages", "updates"]),
    "[messages, updates], subgraphs": _form(["messages", "updates"], subgraphs=True),
    "[messages, values], subgraphs": _form(["messages", "values"], subgraphs=True),
    "all modes, subgraphs": _form(ALL_MODES, subgraphs=True),
    "messages, v2": _form("messages", version="v2"),
    "all modes, subgraphs, v2": _form(ALL_MODES, subgraphs=True, version="v2"),
    "the default": lambda graph, given: graph.astream(given, THREAD),
    "updates, subgraphs": _form("updates", subgraphs=True),
    "values": _form("values"),
    "values, subgraphs": _form("values", subgraphs=True),
    "values, v2": _form("values", version="v2"),
    "[updates, values], subgraphs": _form(["updates", "values"], subgraphs=True),
    "[values, updates]": _form(["values", "updates"]),
    "events v1": lambda graph, given: graph.astream_events(given, THREAD, version="v1"),
    "events v2": lambda graph, given: graph.astream_events(given, THREAD, version="v2"),
    "events v3": lambda graph, given: graph.astream_events(given, THREAD, version="v3"),
}
if "version" not in inspect.signature(Pregel.astream).parameters:  # LangGraph before 1.1 has one form less of each
    FORMS = {name: form for name, form in FORMS.items() if "v2" not in name or "events" in name}
if "astream_events" not in vars(Pregel):
    del FORMS["events v3"]


def hello() -> dict[str, Any]:
    """What a graph is given."""
    return {"messages": [HumanMessage("hi", id="u1")]}


def remembering() -> InMemorySaver:
    """A checkpointer."""
    return InMemorySaver()


async def run_of(stream: Any, run_input: Any = None) -> list[Event]:
    """One valid run as wire JSON, with counted ids."""
    count = itertools.count(1)
    options = ConverterOptions(new_id=lambda: f"id-{next(count)}")
    events = [
        event.model_dump(by_alias=True, exclude_none=True, mode="json")
        async for event in stream_agui_run(stream, run_input, options=options)
    ]
    assert check_events(events) == []
    return events


def joined(events: list[Event]) -> list[Event]:
    """A run whose deltas are joined and whose ids are numbered in their order; arguments are their value."""
    whole: list[Event] = []
    if "chunk_position" not in AIMessageChunk.model_fields:  # before 1.0 nothing says that a message is over
        events = [event for event in events if event["type"] != "TEXT_MESSAGE_END"]
    for event in events:
        before = whole[-1] if whole else {}
        if "delta" in event and all(event.get(key) == before.get(key) for key in ("type", "messageId", "toolCallId")):
            before["delta"] += event["delta"]
        else:
            whole.append({**event})
    numbers: dict[str, int] = {}
    for event in whole:
        if event["type"] == "TOOL_CALL_ARGS":
            event["delta"] = json.loads(event["delta"])
        for key in ("messageId", "parentMessageId", "threadId", "runId"):
            if key in event:
                event[key] = numbers.setdefault(event[key], len(numbers))
    return whole


def texts_of(events: list[Event], kind: str = "TEXT_MESSAGE_CONTENT") -> list[str]:
    """The texts of a run's messages, in the order of their beginning."""
    found: dict[str, str] = {}
    for event in events:
        if event["type"] == kind:
            found[event["messageId"]] = found.get(event["messageId"], "") + event["delta"]
    return list(found.values())
