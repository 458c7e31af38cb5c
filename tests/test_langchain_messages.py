"""LangChain messages in every form that LangGraph streams them: real graphs, and what their servers make of the forms."""

from __future__ import annotations

import asyncio
import itertools
import json
import operator
from typing import Annotated, Any, TypedDict

import pytest
from lang_graphs import (
    FORMS,
    THREAD,
    ChunkModel,
    call_chunk,
    chunks_of,
    hello,
    joined,
    remembering,
    run_of,
    texts_of,
    tool_graph,
)
from langchain_core.language_models import FakeListLLM, FakeStreamingListLLM
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    message_to_dict,
    messages_to_dict,
)
from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnablePassthrough
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from dragent_stream.langchain_messages import LangChainReader
from dragent_stream.options import ConverterOptions

pytestmark = [
    pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning"),
    pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning"),
]


def records(*chunks: object) -> list[Any]:
    reader = LangChainReader()
    found: list[Any] = []
    for chunk in chunks:
        read = reader.read(chunk)
        assert read is not None, chunk
        found += read
    return found + list(reader.finish())


def said(*chunks: object) -> list[str]:
    return [record.text for record in records(*chunks) if record.text]


def one_node(node: Any, *more: tuple[str, Any], **compiled: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("agent", node)
    graph.add_edge(START, "agent")
    for name, other in more:
        graph.add_node(name, other)
        graph.add_edge(START, name)
    return graph.compile(**compiled)


# Whole runs of real graphs.


@pytest.mark.parametrize("form", FORMS)
async def test_every_form_of_one_graph_gives_the_same_run(form: str) -> None:
    wanted = joined(await run_of(FORMS["messages"](tool_graph(checkpointer=remembering()), hello())))
    assert [event["type"] for event in wanted].count("TEXT_MESSAGE_START") == 3
    assert [event["type"] for event in wanted].count("TOOL_CALL_RESULT") == 2
    assert wanted[-1]["usage"] == [{"inputTokens": 14, "outputTokens": 7, "totalTokens": 21}]
    assert joined(await run_of(FORMS[form](tool_graph(checkpointer=remembering()), hello()))) == wanted


@pytest.mark.parametrize(
    "form", [form for form in FORMS if ("subgraphs" in form and "messages" in form) or "all" in form]
)
async def test_tokens_of_a_subgraph_come_as_they_are_made(form: str) -> None:
    events = await run_of(FORMS[form](tool_graph(checkpointer=remembering()), hello()))
    assert [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"][-2:] == ["Sub ", "says hi."]


@pytest.mark.parametrize("form", FORMS)
async def test_the_second_run_of_a_thread_does_not_repeat_the_first(form: str) -> None:
    graph = tool_graph(
        [chunks_of("one"), chunks_of("two"), chunks_of("three"), chunks_of("four")], checkpointer=remembering()
    )
    assert texts_of(await run_of(FORMS[form](graph, hello()))) == ["one", "two"]
    again = {"messages": [HumanMessage("more", id="u2")]}
    assert texts_of(await run_of(FORMS[form](graph, again))) == ["three", "four"]


@pytest.mark.parametrize("form", FORMS)
async def test_two_parallel_nodes_give_two_messages(form: str) -> None:
    turns = {"a": asyncio.Event(), "b": asyncio.Event()}

    class Taking(ChunkModel):
        """Streams by turns with the other."""

        name_: str = ""

        async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            mine, other = turns[self.name_], turns["b" if self.name_ == "a" else "a"]
            async for chunk in super()._astream(messages):
                if self.name_ == "b":
                    await mine.wait()
                    mine.clear()
                yield chunk
                other.set()
                if self.name_ == "a":
                    await mine.wait()
                    mine.clear()

    one = Taking(answers=iter([chunks_of("A1 ", "A2")]), name_="a")
    two = Taking(answers=iter([chunks_of("B1 ", "B2")]), name_="b")

    async def a(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await one.ainvoke(state["messages"])]}

    async def b(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await two.ainvoke(state["messages"])]}

    events = await run_of(FORMS[form](one_node(a, ("other", b), checkpointer=remembering()), hello()))
    if "messages" in form:
        order = [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]
        assert order == ["A1 ", "B1 ", "A2", "B2"]
    assert sorted(texts_of(events)) == ["A1 A2", "B1 B2"]


@pytest.mark.parametrize("form", FORMS)
async def test_what_a_node_says_without_a_model_is_a_message(form: str) -> None:
    graph = one_node(lambda state: {"messages": [AIMessage("Hello.")]}, checkpointer=remembering())
    assert texts_of(await run_of(FORMS[form](graph, hello()))) == ["Hello."]


@pytest.mark.parametrize("form", FORMS)
async def test_a_command_brings_the_messages_of_its_update(form: str) -> None:
    graph = one_node(lambda state: Command(update={"messages": [AIMessage("Hello.")]}), checkpointer=remembering())
    assert texts_of(await run_of(FORMS[form](graph, hello()))) == ["Hello."]


@pytest.mark.parametrize("form", FORMS)
async def test_a_message_that_the_node_builds_anew_is_not_told_twice(form: str) -> None:
    model = ChunkModel(answers=iter([chunks_of("Hel", "lo")]))

    async def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage((await model.ainvoke(state["messages"])).content)]}

    assert texts_of(await run_of(FORMS[form](one_node(node, checkpointer=remembering()), hello()))) == ["Hello"]


@pytest.mark.parametrize("form", FORMS)
async def test_what_a_node_builds_anew_from_a_subgraph_is_not_told_twice(form: str) -> None:
    model = ChunkModel(answers=iter([chunks_of("Hel", "lo")]))

    async def inner(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    subgraph = one_node(inner)

    async def node(state: MessagesState) -> dict[str, Any]:
        return {
            "messages": [AIMessage((await subgraph.ainvoke({"messages": state["messages"]}))["messages"][-1].content)]
        }

    assert texts_of(await run_of(FORMS[form](one_node(node, checkpointer=remembering()), hello()))) == ["Hello"]


@pytest.mark.parametrize(
    "form", [form for form in FORMS if "messages" not in form or "all" in form or "updates" in form]
)
async def test_a_graph_that_waits_for_a_human_is_no_success(form: str) -> None:
    def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"you said {interrupt('go on?')}")]}

    events = await run_of(FORMS[form](one_node(node, checkpointer=remembering()), hello()))
    assert events[-1]["type"] == "RUN_ERROR"
    assert events[-1]["code"] == "INTERRUPTED"


@pytest.mark.parametrize("form", FORMS)
async def test_a_model_that_is_not_to_be_streamed_is_told_as_a_whole(form: str) -> None:
    model = ChunkModel(answers=iter([chunks_of("Hel", "lo")]))

    async def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], {"tags": ["nostream"]})]}

    assert texts_of(await run_of(FORMS[form](one_node(node, checkpointer=remembering()), hello()))) == ["Hello"]


@pytest.mark.parametrize("form", [form for form in FORMS if "event" not in form])
async def test_a_state_that_is_a_model_or_has_other_keys_is_read(form: str) -> None:
    class State(BaseModel):
        topic: str = ""
        answer: Any = None

    graph = StateGraph(State)
    graph.add_node("agent", lambda state: {"topic": "x", "answer": AIMessage("Hello.")})
    graph.add_edge(START, "agent")
    events = await run_of(FORMS[form](graph.compile(checkpointer=remembering()), {"topic": "t"}))
    assert texts_of(events) == ["Hello."]


def after(first: Any, *more: Any, state: Any = MessagesState) -> Any:
    """A graph whose nodes run one after the other."""
    builder: Any = StateGraph(state)
    builder.add_sequence([(f"n{number}", node) for number, node in enumerate([first, *more])])
    builder.add_edge(START, "n0")
    return builder.compile()


def saying(message: Any) -> Any:
    """A node that gives this to the state."""
    return lambda state: {"messages": [message() if callable(message) else message]}


UNNAMED = {
    "a message": lambda: AIMessage("first"),
    "a dict": lambda: {"role": "assistant", "content": "first"},
    "a pair": lambda: ("ai", "first"),
}


@pytest.mark.parametrize(
    "form", [form for form in FORMS if form != "events v3" and ("messages" not in form or "updates" in form)]
)
@pytest.mark.parametrize("unnamed", UNNAMED)
async def test_a_subgraph_that_brings_the_conversation_back_does_not_repeat_it(unnamed: str, form: str) -> None:
    inner = after(saying(lambda: AIMessage("second")), saying(lambda: AIMessage("third")))
    graph = after(saying(UNNAMED[unnamed]), inner, after(inner, saying(lambda: AIMessage("last"))))
    texts = ["first", "second", "third", "second", "third", "last"]
    assert texts_of(await run_of(FORMS[form](graph, hello()))) == texts


class Kept(TypedDict):
    """A state whose reducer gives no ids."""

    messages: Annotated[list[Any], operator.add]


@pytest.mark.parametrize("form", ["the default", "updates, subgraphs", "[messages, updates]", "events v1", "events v2"])
async def test_messages_that_never_get_an_id_are_told_once(form: str) -> None:
    inner = after(lambda state: {"messages": [AIMessage("second")]}, state=Kept)
    graph = after(saying(lambda: AIMessage("first")), inner, state=Kept)
    assert texts_of(await run_of(FORMS[form](graph, hello()))) == ["first", "second"]


@pytest.mark.parametrize("given", [[], [SystemMessage("be kind", id="s")]], ids=["nothing", "the system's"])
@pytest.mark.parametrize("form", ["the default", "updates, subgraphs", "[messages, updates]", "events v2"])
async def test_a_conversation_without_a_human_is_not_repeated_either(form: str, given: list[Any]) -> None:
    graph = after(saying(UNNAMED["a dict"]), after(saying(lambda: AIMessage("second"))))
    assert texts_of(await run_of(FORMS[form](graph, {"messages": given}))) == ["first", "second"]


@pytest.mark.parametrize("form", FORMS)
async def test_a_node_may_say_what_a_subgraph_has_said(form: str) -> None:
    model = ChunkModel(answers=iter([chunks_of("Yes ", "sir")]))

    async def inner(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = after(after(inner), saying(AIMessage("Yes sir", id="n1")))
    assert texts_of(await run_of(FORMS[form](graph, hello()))) == ["Yes sir", "Yes sir"]


def test_what_was_told_without_an_id_is_replaced_under_the_id_that_it_got() -> None:
    state = [HumanMessage("q", id="u"), AIMessage("draft", id="x")]
    parts = [("updates", {"a": {"messages": [AIMessage("draft")]}}), ("updates", {"b": {"messages": state}})]
    assert said(*parts, ("updates", {"c": {"messages": [AIMessage("final", id="x")]}})) == ["draft", "final"]


async def test_a_node_that_returns_the_whole_history_tells_only_what_is_new() -> None:
    class State(TypedDict):
        messages: list[Any]

    model = ChunkModel(answers=iter([chunks_of("one"), chunks_of("two")]))

    async def node(state: State) -> dict[str, Any]:
        return {"messages": [*state["messages"], await model.ainvoke(state["messages"])]}

    graph: Any = StateGraph(State)
    graph.add_node("agent", node)
    graph.add_edge(START, "agent")
    history = [HumanMessage("a", id="1"), AIMessage("old", id="2"), HumanMessage("b", id="3")]
    for form in ("the default", "values", "[messages, updates]"):
        model.answers = iter([chunks_of("one")])
        events = await run_of(FORMS[form](graph.compile(checkpointer=remembering()), {"messages": history}))
        assert texts_of(events) == ["one"], form


async def test_the_result_of_ainvoke_is_an_answer() -> None:
    graph = tool_graph()
    events = await run_of([await graph.ainvoke(hello())])
    assert texts_of(events) == ["Let me see.", "It is 3 and 12.", "Sub says hi."]
    assert [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"] == ["3", "12"]


async def test_events_of_a_chain_without_a_chat_model_are_its_text() -> None:
    async def say(_: Any) -> Any:
        for word in ("Hel", "lo"):
            yield word

    events = await run_of(RunnableLambda(say).astream_events("x", version="v2"))
    assert texts_of(events) == ["Hello"]


async def test_events_of_a_model_are_its_chunks() -> None:
    for version in (form.removeprefix("events ") for form in FORMS if form.startswith("events")):
        model = ChunkModel(answers=iter([chunks_of("Hel", "lo", finish="stop")]))
        assert texts_of(await run_of(model.astream_events("x", version=version))) == ["Hello"]


async def test_a_text_model_that_does_not_stream_is_told_as_a_whole() -> None:
    for model in (FakeListLLM(responses=["Hello"]), FakeStreamingListLLM(responses=["Hello"])):
        for version in ("v1", "v2"):
            events = await run_of(model.astream_events("x", version=version))
            assert texts_of(events) == ["Hello"]
            assert events[-1]["type"] == "RUN_FINISHED"


def model_of(*texts: str) -> ChunkModel:
    return ChunkModel(answers=itertools.repeat(chunks_of(*texts, finish="stop")))


ASK: Any = RunnableLambda(lambda given: given["messages"]) | model_of("a1", "a2", "a2")


@pytest.mark.parametrize(
    "chain",
    [
        RunnableParallel(answer=ASK),
        RunnablePassthrough.assign(answer=ASK),
        RunnableParallel(inner=RunnableParallel(answer=ASK)),
        RunnableParallel(answer=ASK) | RunnablePassthrough.assign(length=lambda x: None),
    ],
    ids=["parallel", "assign", "nested", "both"],
)
async def test_a_message_that_a_chain_streams_under_a_key_comes_whole(chain: Any) -> None:
    events = await run_of(chain.astream(hello()))
    assert [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["a1", "a2", "a2"]
    assert texts_of(events) == ["a1a2a2"]
    assert events[-1]["type"] == "RUN_FINISHED"


async def test_two_messages_that_a_chain_streams_under_two_keys_are_two() -> None:
    chain = RunnableParallel(a=model_of("a1", "a2"), b=model_of("b1", "b2"))
    assert sorted(texts_of(await run_of(chain.astream("x")))) == ["a1a2", "b1b2"]


async def test_a_call_that_a_chain_streams_under_a_key_is_whole() -> None:
    model = ChunkModel(answers=iter([[call_chunk("add", "c1", '{"a": 1,'), call_chunk(None, None, ' "b": 2}')]]))
    events = await run_of(RunnableParallel(raw=model).astream("x"))
    assert "".join(event["delta"] for event in events if event["type"] == "TOOL_CALL_ARGS") == '{"a": 1, "b": 2}'
    assert events[-1]["type"] == "RUN_FINISHED"


def test_a_chunk_that_each_state_repeats_is_said_once() -> None:
    chunk = AIMessageChunk("Hello", id="lc_run--1")
    assert said({"topic": "a", "answer": chunk}, {"topic": "b", "answer": chunk}) == ["Hello"]


def test_a_chunk_that_a_node_gives_in_a_list_is_a_whole_message() -> None:
    chunk = AIMessageChunk("Hello", id="lc_run--1")
    assert said({"a": {"messages": [chunk]}}, {"b": {"messages": [chunk]}}) == ["Hello"]


# Runs that go on where another stopped.


@pytest.mark.parametrize("form", FORMS)
async def test_a_resumed_run_does_not_repeat_the_answers_before(form: str) -> None:
    model = ChunkModel(answers=iter([chunks_of("Be", "fore")]))

    async def first(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def second(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"got {interrupt('really?')}")]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("first", first)
    graph.add_node("second", second)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph = graph.compile(checkpointer=remembering())
    assert texts_of(await run_of(FORMS[form](graph, hello()))) == ["Before"]
    events = await run_of(FORMS[form](graph, Command(resume="yes")))
    assert texts_of(events) == ["got yes"]
    assert events[-1]["type"] == "RUN_FINISHED"


def test_a_result_that_another_thing_follows_is_told_before_it() -> None:
    result = {"messages": [HumanMessage("hi", id="u1"), AIMessage("Hello", id="a1")]}
    other = {"messages": [HumanMessage("and?", id="u2"), AIMessage("More", id="a2")]}
    assert said(result, AIMessageChunk("x", id="lc_run--1")) == ["Hello", "x"]
    assert said(result, other) == ["Hello", "More"]
    reader = LangChainReader()
    assert reader.read(result) == []
    assert reader.read({"hello": "world"}) is None
    assert [record.text for record in reader.finish()] == ["Hello"]


async def test_a_result_that_waits_for_a_human_is_told_with_its_interrupt() -> None:
    def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"got {interrupt('really?')}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("first", lambda state: {"messages": [AIMessage("Before")]})
    graph.add_node("second", node)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    events = await run_of([await graph.compile(checkpointer=remembering()).ainvoke(hello(), THREAD)])
    assert texts_of(events) == ["Before"]
    assert events[-1]["code"] == "INTERRUPTED"


# What comes beside messages.


def writing(*texts: str, answer: str = "") -> Any:
    def node(state: MessagesState) -> dict[str, Any]:
        for text in texts:
            get_stream_writer()(text)
        return {"messages": [AIMessage(answer)] if answer else []}

    return one_node(node)


@pytest.mark.parametrize("more", [{}, {"subgraphs": True}, {"version": "v2"}], ids=str)
@pytest.mark.parametrize("mode", ["custom", ["custom"], ["messages", "custom"], ["updates", "custom"]], ids=str)
async def test_what_the_nodes_write_is_the_answer_where_they_say_nothing_else(mode: Any, more: Any) -> None:
    if "version" in more and "messages, v2" not in FORMS:
        return
    events = await run_of(writing("one ", "two").astream(hello(), stream_mode=mode, **more))
    assert texts_of(events) == ["one two"]
    assert events[-1]["type"] == "RUN_FINISHED"


async def test_what_the_nodes_write_beside_messages_is_passed_over_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    graph = writing("looking ", "it up", answer="Found it.")
    assert texts_of(await run_of(graph.astream(hello(), stream_mode=["updates", "custom"]))) == ["Found it."]
    assert caplog.messages == ["2 texts of the custom mode came beside messages and were passed over"]
    caplog.clear()
    graph = writing("Found ", "it.", answer="Found it.")
    assert texts_of(await run_of(graph.astream(hello(), stream_mode=["updates", "custom"]))) == ["Found it."]
    assert caplog.messages == []


def function(returned: Any) -> Any:
    model = model_of("Hel", "lo")

    @task
    async def ask(question: str) -> Any:
        return await model.ainvoke(question)

    @task
    async def look_up(question: str) -> str:
        return "found"

    @entrypoint()
    async def agent(question: str) -> Any:
        answer = await ask(question)
        await look_up(question)
        return returned(answer)

    return agent


@pytest.mark.parametrize("more", [{}, {"subgraphs": True}], ids=str)
@pytest.mark.parametrize(
    ("returned", "texts"),
    [
        (lambda answer: f"{answer.content}!", ["Hello", "Hello!"]),
        (lambda answer: answer.content, ["Hello"]),
        (lambda answer: answer, ["Hello"]),
        (lambda answer: None, ["Hello"]),
    ],
    ids=["other text", "its text", "the message", "nothing"],
)
async def test_the_text_that_a_graph_of_functions_gives_is_told(more: Any, returned: Any, texts: list[str]) -> None:
    events = await run_of(function(returned).astream("hi", stream_mode=["messages", "updates"], **more))
    assert texts_of(events) == texts


async def test_an_update_or_a_state_without_messages_is_no_unknown_chunk(caplog: pytest.LogCaptureFixture) -> None:
    class State(TypedDict, total=False):
        q: str
        answer: Any

    graph: Any = StateGraph(State)
    graph.add_node("one", lambda state: {"answer": AIMessage("Hello.")})
    graph.add_node("two", lambda state: {"answer": None})
    graph.add_edge(START, "one")
    graph.add_edge("one", "two")
    for mode in (["values"], ["values", "updates"]):
        assert texts_of(await run_of(graph.compile().astream({"q": "x"}, stream_mode=mode))) == ["Hello."]
    assert records({"q": "x", "answer": AIMessage("Hello.")}, {"q": "x", "answer": None}, {"q": "x"})
    assert records({"a": {"messages": [("ai", "x")]}}, {"b": {"messages": "human"}})
    assert caplog.messages == []


# Forms beside the live objects.


SPELLINGS = {
    "object": lambda message: message,
    "model_dump": lambda message: message.model_dump(),
    "json": lambda message: json.loads(message.model_dump_json()),
    "messages_to_dict": message_to_dict,
    "dumpd": dumpd,
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_message_is_read_in_each_of_its_spellings(spelling: str) -> None:
    spell = SPELLINGS[spelling]
    message = AIMessage("Hello", id="m", tool_calls=[{"name": "add", "args": {"a": 1}, "id": "c1"}])
    (record,) = records(spell(message))
    assert (record.message, record.text, record.whole) == ("m", "Hello", True)
    assert [(call.id, call.name, call.arguments) for call in record.tool_calls] == [("c1", "add", '{"a": 1}')]
    (record,) = records(spell(ToolMessage("3", tool_call_id="c1")))
    assert (record.tool_result.call_id, record.tool_result.content) == ("c1", "3")
    assert records(spell(HumanMessage("hi")), spell(SystemMessage("be kind"))) == []


def test_a_chunk_is_read_in_each_of_its_spellings() -> None:
    for spell in SPELLINGS.values():
        assert said(spell(AIMessageChunk("Hel", id="lc_run--1")), spell(AIMessageChunk("lo", id="lc_run--1"))) == [
            "Hel",
            "lo",
        ]


@pytest.mark.parametrize(
    "silent",
    [
        HumanMessage("hi"),
        HumanMessageChunk("hi"),
        SystemMessage("x"),
        SystemMessageChunk("x"),
        RemoveMessage(id="1"),
        ChatMessage("x", role="user"),
        {"role": "user", "content": "hi"},
        ("custom", {"progress": 1}),
        ("debug", {"type": "task", "payload": {"input": {"messages": [AIMessage("x")]}}}),
        {"type": "checkpoints", "ns": (), "data": {"values": {"messages": [AIMessage("x")]}}},
        {"type": "tasks", "ns": (), "data": {"result": {"messages": [AIMessage("x")]}}},
        {"event": "on_custom_event", "run_id": "1", "name": "x", "data": {"text": "no"}},
        {"type": "event", "method": "lifecycle", "params": {"namespace": [], "data": {"event": "started"}}},
        ("metadata", {"run_id": "1"}, None),
        ("end", None),
        {"agent": None},
        {"agent": None, "other": None},
        {"steps": [], "messages": []},
    ],
    ids=str,
)
def test_what_is_no_answer_is_understood_and_says_nothing(silent: object) -> None:
    assert records(silent) == []


@pytest.mark.parametrize(
    "foreign",
    [
        {"hello": "world"},
        {"hello": {"a": 1}},
        {"type": "response.output_text.delta", "delta": "x"},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}},
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}]},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "1", "delta": "x"},
        {"event": "message", "data": "x"},
        {"messages": "x"},
        {"steps": []},
        {"a": None, "b": 1},
        {"lc": 1, "type": "constructor", "id": ["langchain", "prompts", "Prompt"], "kwargs": {}},
        ("a", "b"),
        ["messages"],
        ("nothing", {"a": 1}),
        3,
        object(),
        [],
        (),
    ],
    ids=str,
)
def test_what_is_none_of_these_is_left_to_others(foreign: object) -> None:
    assert LangChainReader().read(foreign) is None


def test_a_chat_message_of_the_assistant_is_an_answer() -> None:
    assert said(ChatMessage("x", role="assistant"), {"role": "assistant", "content": "y"}) == ["x", "y"]


def test_messages_that_a_node_may_return_for_its_state_are_read() -> None:
    assert said(
        ("updates", {"a": {"messages": [("ai", "one")]}}),
        ("updates", {"a": {"messages": {"role": "assistant", "content": "two"}}}),
        ("updates", {"a": {"messages": ("assistant", "three")}}),
    ) == ["one", "two", "three"]


def test_a_function_message_is_the_result_of_the_call_that_it_names() -> None:
    (record,) = records(FunctionMessage("3", name="add"))
    assert (record.tool_result.call_id, record.tool_result.content) == ("add", "3")


def test_a_result_is_kept_as_it_is() -> None:
    image = [{"type": "image", "base64": "AAAA", "mime_type": "image/png"}]
    (record,) = records(ToolMessage(image, tool_call_id="c1"))  # type: ignore[arg-type]
    assert record.tool_result.content == image


def test_a_result_is_told_once_whoever_brings_it() -> None:
    bare, stored = ToolMessage("3", tool_call_id="c1"), ToolMessage("3", tool_call_id="c1", id="t1")
    assert len(records(bare, stored, stored, ("updates", {"tools": {"messages": [stored]}}))) == 1


def test_an_equal_result_of_another_call_under_the_same_id_is_told() -> None:
    call = AIMessageChunk("", id="lc_run--2", tool_call_chunks=[{"name": "f", "id": "c1", "args": "{}", "index": 0}])
    result = ToolMessage("3", tool_call_id="c1")
    assert len([record for record in records(result, call, result) if record.tool_result]) == 2


def test_messages_to_dict_of_a_list_in_an_update_is_read() -> None:
    assert said(("updates", {"a": {"messages": messages_to_dict([AIMessage("x", id="1")])}})) == ["x"]


def test_the_stream_parts_of_langgraphs_sdk_are_read() -> None:
    chunk = AIMessageChunk("Hel", id="lc_run--1").model_dump()
    rest = AIMessageChunk("lo", id="lc_run--1").model_dump()
    whole = AIMessage("Hello", id="lc_run--1").model_dump()
    meta = {"langgraph_step": 1, "langgraph_node": "agent"}
    assert said(
        ("metadata", {"run_id": "r"}, "1"),
        ("messages|sub:1", [chunk, meta], "2"),
        ("messages", [rest, meta], "3"),
        ("updates|sub:1", {"agent": {"messages": [whole]}}, "4"),
    ) == ["Hel", "lo"]


def test_partial_messages_of_langgraphs_sdk_say_what_is_new_in_them() -> None:
    parts = [("messages/partial", [{"type": "ai", "id": "m", "content": text}]) for text in ("He", "Hell", "Hello")]
    call = {"name": "f", "id": "c1", "args": {"a": 1}}
    done = ("messages/complete", [{"type": "ai", "id": "m", "content": "Hello!", "tool_calls": [call]}])
    found = records(("messages/metadata", {"m": {}}), *parts, done)
    assert [record.text for record in found] == ["He", "ll", "o", "!"]
    assert [(call.id, call.arguments) for call in found[-1].tool_calls] == [("c1", '{"a": 1}')]


def test_an_error_of_a_server_is_one() -> None:
    (record,) = records(("error", {"error": "ValueError", "message": "no such graph"}))
    assert str(record.error) == "no such graph"


# Which message a piece belongs to.


def test_the_providers_id_on_a_silent_chunk_names_the_message_that_it_stands_in() -> None:
    chunks = [("lc_run--1", "Hel"), ("msg_1", ""), ("lc_run--1", "lo")]
    found = records(*(AIMessageChunk(text, id=name) for name, text in chunks), AIMessage("Hello", id="msg_1"))
    assert {record.message for record in found} == {"lc_run--1"}
    assert [record.text for record in found] == ["Hel", "", "lo", ""]


def test_the_providers_id_may_come_first() -> None:
    found = records(
        AIMessageChunk("", id="resp_1"), AIMessageChunk("Hello", id="lc_run--1"), AIMessage("Hello", id="resp_1")
    )
    assert {record.message for record in found} == {"resp_1"}
    assert "".join(record.text for record in found) == "Hello"


def test_a_provider_id_that_speaks_is_a_message_of_its_own() -> None:
    found = records(
        AIMessageChunk("A", id="lc_run--1"), AIMessageChunk("B", id="other"), AIMessageChunk("C", id="other")
    )
    assert [record.message for record in found] == ["lc_run--1", "other", "other"]


def test_equal_answers_of_two_nodes_are_two_messages() -> None:
    def meta(node: str) -> dict[str, Any]:
        return {"langgraph_node": node, "langgraph_step": 1, "langgraph_checkpoint_ns": f"{node}:1"}

    assert said((AIMessageChunk("yes", id="lc_run--1"), meta("a")), (AIMessage("yes", id="x"), meta("b"))) == [
        "yes",
        "yes",
    ]


def test_a_message_without_an_id_is_another_nodes() -> None:
    parts = [{"a": {"messages": [AIMessage("OK")]}}, {"b": {"messages": [AIMessage("OK", id="lc_run--1")]}}]
    assert said(*parts) == ["OK", "OK"]
    assert said(*(("updates", part) for part in parts)) == ["OK", "OK"]


def test_a_whole_message_says_what_its_chunks_did_not() -> None:
    found = records(AIMessageChunk("Hel", id="lc_run--1"), AIMessage("Hello", id="lc_run--1"))
    assert [record.text for record in found] == ["Hel", "lo"]


def test_steps_are_counted_by_each_graph() -> None:
    meta = {"langgraph_step": 2, "langgraph_checkpoint_ns": "sub:1|inner:2"}
    (inner,) = records((AIMessageChunk("x", id="lc_run--1"), meta))
    (outer,) = records((AIMessageChunk("x", id="lc_run--1"), {"langgraph_step": 1, "langgraph_checkpoint_ns": "a:1"}))
    assert (inner.step, inner.lane) == (2, "sub:1")
    assert (outer.step, outer.lane) == (1, "")


def test_messages_without_an_id_are_read_like_chat_chunks() -> None:
    found = records(AIMessageChunk("Hel"), AIMessageChunk("lo"))
    assert [(record.message, record.text) for record in found] == [("", "Hel"), ("", "lo")]


async def test_messages_without_an_id_are_told_apart_by_their_tasks() -> None:
    def meta(node: str) -> dict[str, Any]:
        return {"langgraph_node": node, "langgraph_step": 1, "langgraph_checkpoint_ns": f"{node}:1"}

    parts: list[Any] = [(AIMessageChunk(f"{node}{piece}"), meta(node)) for piece in (1, 2) for node in "ab"]
    assert texts_of(await run_of(parts)) == ["a1a2", "b1b2"]
    end = AIMessageChunk("", response_metadata={"finish_reason": "stop"})
    parts += [(end, meta("a")), (AIMessageChunk("next"), meta("a")), (AIMessage("b1b2"), meta("b"))]
    assert texts_of(await run_of(parts)) == ["a1a2", "b1b2", "next"]


async def test_whole_messages_without_an_id_are_messages_of_their_own() -> None:
    parts = [AIMessageChunk("a"), AIMessageChunk("b"), AIMessage("ab"), AIMessage("c"), AIMessage("c")]
    assert texts_of(await run_of(parts)) == ["ab", "c", "c"]


async def test_the_rest_of_a_message_that_its_chunks_left_out_is_told() -> None:
    parts = [AIMessageChunk("Hel", id="lc_run--1"), AIMessage("Hello", id="lc_run--1")]
    assert texts_of(await run_of(parts)) == ["Hello"]


async def test_a_signature_at_the_end_of_a_stream_is_told() -> None:
    part = {"type": "thinking", "thinking": "hm", "signature": "S", "index": 0}
    events = await run_of([AIMessageChunk([part], id="lc_run--1")])
    assert [event["encryptedValue"] for event in events if event["type"] == "REASONING_ENCRYPTED_VALUE"] == ["S"]


async def test_each_signed_thought_is_a_message_with_its_own_signature() -> None:
    parts = [
        {"type": "thinking", "thinking": text, "signature": f"S{text}", "index": at} for at, text in enumerate("ab")
    ]
    chunks = [AIMessageChunk([part], id="lc_run--1") for part in [*parts, {"type": "text", "text": "Hi", "index": 2}]]
    whole = AIMessage([*parts, {"type": "text", "text": "Hi"}], id="lc_run--1")
    for stream in (chunks, [whole], [*chunks, whole]):
        events = await run_of(stream)
        assert texts_of(events, "REASONING_MESSAGE_CONTENT") == ["a", "b"]
        named = {event["messageId"]: event["delta"] for event in events if event["type"] == "REASONING_MESSAGE_CONTENT"}
        sealed = [event for event in events if event["type"] == "REASONING_ENCRYPTED_VALUE"]
        assert [(named[event["entityId"]], event["encryptedValue"]) for event in sealed] == [("a", "Sa"), ("b", "Sb")]


async def test_think_tags_go_on_inside_each_message() -> None:
    from dragent_stream.run import stream_agui_run

    chunks = [AIMessageChunk(text, id="lc_run--1") for text in ("<thi", "nk>a", "</think>b")]
    events = [event async for event in stream_agui_run(chunks, options=ConverterOptions(think_tags=True))]
    wire = [event.model_dump(by_alias=True, exclude_none=True, mode="json") for event in events]
    assert texts_of(wire) == ["b"]
    assert texts_of(wire, "REASONING_MESSAGE_CONTENT") == ["a"]


async def test_a_call_that_was_cut_off_is_not_ended() -> None:
    chunks = [
        call_chunk("write", "c1", '{"text": "Chap'),
        AIMessageChunk("", response_metadata={"finish_reason": "length"}),
    ]
    for chunk in chunks:
        chunk.id = "lc_run--1"
    events = await run_of(chunks)
    assert [event["type"] for event in events[1:]] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "RUN_ERROR"]
    assert events[-1]["code"] == "length"


async def test_a_block_that_is_told_in_deltas_and_then_whole_is_said_once() -> None:
    thought, text = {"type": "reasoning", "reasoning": "Let me see"}, {"type": "text", "text": "Yes"}
    events = await run_of(
        [
            {"event": "message-start", "role": "ai", "id": "lc1"},
            {"event": "content-block-delta", "index": 0, "delta": {"type": "reasoning-delta", "reasoning": "Let me "}},
            {"event": "content-block-delta", "index": 0, "delta": {"type": "reasoning-delta", "reasoning": "see"}},
            {"event": "content-block-delta", "index": 1, "delta": {"type": "text-delta", "text": "Yes"}},
            {"event": "content-block-finish", "index": 0, "content": thought},
            {"event": "content-block-finish", "index": 1, "content": text},
            {"event": "message-finish", "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}},
        ]
    )
    assert texts_of(events, "REASONING_MESSAGE_CONTENT") == ["Let me see"]
    assert texts_of(events) == ["Yes"]
