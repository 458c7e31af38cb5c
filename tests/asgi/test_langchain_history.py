"""A graph that remembers holds the client's conversation, whatever the client did with it; a model sees it once."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import anyio
import langgraph.types
import pytest
from ag_ui.core import RunAgentInput
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lang_graphs import ChunkModel, add, call_chunk, chunks_of, mul
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode

from dragent_stream.asgi import langchain_source
from dragent_stream.asgi.langchain_history import langchain_messages, messages_to_send
from dragent_stream.check import check_events
from dragent_stream.errors import ConversionError
from dragent_stream.run import stream_agui_run

Json = dict[str, Any]


def request(messages: list[Json], run: str = "r", tools: Any = ()) -> RunAgentInput:
    return RunAgentInput.model_validate(
        {
            "threadId": "t",
            "runId": run,
            "state": {},
            "tools": list(tools),
            "context": [],
            "forwardedProps": {},
            "messages": messages,
        }
    )


class Client:
    """An AG-UI client of one thread: keeps what the events of its runs build."""

    def __init__(self, graph: Any, **options: Any) -> None:
        self.graph = graph
        self.agent = langchain_source(graph, **options)
        self.messages: list[Json] = []
        self.tools: list[Json] = []
        self.on_event: Callable[[Json], None] = lambda event: None
        self._ids = itertools.count(1)

    async def ask(
        self, text: str | None = None, *, stop_after: int | None = None, stop_after_result: bool = False
    ) -> str:
        """One run; with `stop_after` it is stopped after so many events."""
        if text is not None:
            self.messages.append({"id": f"u{next(self._ids)}", "role": "user", "content": text})
        run_input = request(self.messages, f"r{next(self._ids)}", self.tools)
        events: list[Json] = []
        stream = stream_agui_run(self.agent(run_input), run_input)
        try:
            async for event in stream:
                events.append(event.model_dump(by_alias=True, exclude_none=True, mode="json"))
                self.take(events[-1])
                self.on_event(events[-1])
                if len(events) == stop_after or (stop_after_result and events[-1]["type"] == "TOOL_CALL_RESULT"):
                    return "stopped"
        finally:
            await stream.aclose()
        assert check_events(events) == []
        return str(events[-1]["type"])

    def take(self, event: Json) -> None:
        kind = event["type"]
        if kind == "TEXT_MESSAGE_CONTENT":
            self.message(event["messageId"])["content"] += event["delta"]
        elif kind == "TOOL_CALL_START":
            function = {"name": event["toolCallName"], "arguments": ""}
            call = {"id": event["toolCallId"], "type": "function", "function": function}
            self.message(event["parentMessageId"]).setdefault("toolCalls", []).append(call)
        elif kind == "TOOL_CALL_ARGS":
            for message in self.messages:
                for call in message.get("toolCalls", ()):
                    if call["id"] == event["toolCallId"]:
                        call["function"]["arguments"] += event["delta"]
        elif kind == "TOOL_CALL_RESULT":
            self.messages.append(
                {
                    "id": event["messageId"],
                    "role": "tool",
                    "toolCallId": event["toolCallId"],
                    "content": event["content"],
                }
            )

    def message(self, name: str) -> Json:
        for message in self.messages:
            if message["id"] == name:
                return message
        self.messages.append({"id": name, "role": "assistant", "content": ""})
        return self.messages[-1]

    async def stored(self) -> list[BaseMessage]:
        state = await self.graph.aget_state({"configurable": {"thread_id": "t"}})
        return list(state.values.get("messages", []))

    async def assert_agreed(self) -> None:
        """The graph's state is the client's conversation."""
        assert [_of_graph(message) for message in await self.stored()] == [
            _of_client(message) for message in self.messages
        ]


def _of_graph(message: Any) -> tuple[Any, ...]:
    role = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}[message.type]
    calls = [(call["name"], len(call["args"])) for call in getattr(message, "tool_calls", ())]
    return role, message.content, calls


def _of_client(message: Json) -> tuple[Any, ...]:
    role = "system" if message["role"] == "developer" else message["role"]
    calls = [call["function"] for call in message.get("toolCalls", ())]
    return (
        role,
        message.get("content", ""),
        [(call["name"], call["arguments"].count(":")) for call in calls],
    )


def echo_graph(
    checkpointer: Any = None,
    state: Any = MessagesState,
    sizes: list[int] | None = None,
    asked: list[list[BaseMessage]] | None = None,
) -> Any:
    """A graph whose model answers with the number of its answer, and keeps how much and what it was asked."""
    count = itertools.count(1)

    class Counting(ChunkModel):
        async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            if sizes is not None:
                sizes.append(len(messages))
            if asked is not None:
                asked.append(messages)
            self.answers = iter([chunks_of("answer ", str(next(count)))])
            async for chunk in super()._astream(messages):
                yield chunk

    model = Counting(answers=None)

    async def ask(state: Any) -> Json:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(state)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    return graph.compile(checkpointer=InMemorySaver() if checkpointer is None else checkpointer)


def tool_graph(answers: list[list[AIMessageChunk]], tools: Any = (add, mul), *, apart: bool = False) -> Any:
    """An agent with tools; with `apart` each call is a task of its own, as in LangChain's agents."""
    model = ChunkModel(answers=iter(answers))
    names = {tool.__name__ for tool in tools}

    async def ask(state: MessagesState) -> Json:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def after(state: MessagesState) -> Any:
        calls = state["messages"][-1].tool_calls  # type: ignore[union-attr]
        if calls and apart:
            return [langgraph.types.Send("tools", [call]) for call in calls]
        return "tools" if calls and calls[0]["name"] in names else "__end__"

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode(list(tools)))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", after, ["tools", "__end__"])
    graph.add_edge("tools", "ask")
    compiled = graph.compile(checkpointer=InMemorySaver())
    compiled.asked = model.asked
    return compiled


@pytest.mark.parametrize("turns", range(1, 11))
async def test_after_n_turns_the_graph_holds_what_the_client_holds_and_the_model_saw_it_once(turns: int) -> None:
    sizes: list[int] = []
    client = Client(echo_graph(sizes=sizes))
    for turn in range(turns):
        assert await client.ask(f"question {turn}") == "RUN_FINISHED"
        await client.assert_agreed()
    assert sizes == [2 * turn + 1 for turn in range(turns)]


async def test_ids_that_the_graph_gave_stay_while_the_client_has_its_own() -> None:
    client = Client(echo_graph())
    for turn in range(3):
        await client.ask(str(turn))
        names = [message.id for message in await client.stored()]
        assert names[0::2] == [message["id"] for message in client.messages[0::2]]
        assert all("run--" in str(name) for name in names[1::2])


async def test_an_edited_question_replaces_it_and_what_followed() -> None:
    client = Client(echo_graph())
    for text in ("a", "b", "c"):
        await client.ask(text)
    del client.messages[3:]
    client.messages[2] = {**client.messages[2], "content": "B"}
    await client.ask()
    await client.assert_agreed()
    assert [message.content for message in await client.stored()] == ["a", "answer 1", "B", "answer 4"]


async def test_a_regenerated_answer_replaces_the_one_before() -> None:
    client = Client(echo_graph())
    await client.ask("a")
    await client.ask("b")
    client.messages.pop()
    await client.ask()
    await client.assert_agreed()
    assert [message.content for message in await client.stored()] == ["a", "answer 1", "b", "answer 3"]


async def test_deleted_messages_are_gone_wherever_they_stood() -> None:
    client = Client(echo_graph())
    for text in ("a", "b", "c"):
        await client.ask(text)
    del client.messages[2:4]
    await client.ask("d")
    await client.assert_agreed()
    client.messages.clear()
    await client.ask("e")
    await client.assert_agreed()


async def test_an_edited_answer_is_the_graphs_too() -> None:
    client = Client(echo_graph())
    await client.ask("a")
    client.messages[1]["content"] = "another answer"
    await client.ask("b")
    await client.assert_agreed()


async def test_what_came_before_a_stop_is_in_the_conversation() -> None:
    client = Client(echo_graph())
    await client.ask("a")
    assert await client.ask("b", stop_after=3) == "stopped"
    assert client.messages[-1]["content"] == "answer "
    await client.ask("c")
    await client.assert_agreed()


async def test_equal_messages_are_told_apart_by_their_place() -> None:
    client = Client(echo_graph())
    for _ in range(4):
        await client.ask("again")
    del client.messages[2:4]
    await client.ask("again")
    await client.assert_agreed()


async def test_calls_and_results_of_the_graphs_own_tools_are_its_own() -> None:
    calls = [call_chunk("add", "c1", '{"a": 1, "b": 2}'), call_chunk("mul", "c2", '{"a": 3, "b": 4}', 1)]
    graph = tool_graph([[*chunks_of("Let me see."), *calls], chunks_of("It is 3."), chunks_of("Bye.")])
    client = Client(graph)
    await client.ask("what is it?")
    await client.assert_agreed()
    before = await client.stored()
    await client.ask("thanks")
    await client.assert_agreed()
    assert (await client.stored())[: len(before)] == before
    assert [len(asked) for asked in graph.asked] == [1, 4, 6]


async def test_call_ids_that_a_provider_uses_again_find_their_own_results() -> None:
    def call() -> list[AIMessageChunk]:
        return [call_chunk("add", "call_0", '{"a": 1, "b": 2}')]

    client = Client(tool_graph([call(), chunks_of("one"), call(), chunks_of("two"), chunks_of("three")]))
    for text in ("a", "b"):
        await client.ask(text)
        await client.assert_agreed()
    del client.messages[-1]  # the second answer is asked for again
    await client.ask()
    await client.assert_agreed()
    stored = await client.stored()
    assert {getattr(message, "tool_call_id", "call_0") for message in stored} == {"call_0"}


async def test_the_result_of_a_clients_tool_follows_its_call() -> None:
    graph = tool_graph([[call_chunk("paint", "c1", '{"colour": "red"}')], chunks_of("Nice.")])
    client = Client(graph)
    client.tools = [{"name": "paint", "description": "paints", "parameters": {"type": "object", "properties": {}}}]
    await client.ask("paint it")
    await client.assert_agreed()
    client.messages.append({"id": "x", "role": "tool", "toolCallId": "c1", "content": "painted"})
    await client.ask()
    await client.assert_agreed()
    assert [type(message).__name__ for message in graph.asked[-1]] == ["HumanMessage", "AIMessage", "ToolMessage"]
    assert len(await client.stored()) == 4


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize("ends_with", ["a result", "an answer"])
async def test_what_follows_the_last_question_is_not_told_again(ends_with: str, remembers: bool) -> None:
    """A graph that is a node gives the whole conversation back."""

    def answer(state: MessagesState) -> dict[str, Any]:
        last = state["messages"][-1]
        calls = [{"name": "paint", "id": "c1", "args": {}}] if last.type == "human" and ends_with == "a result" else []
        return {"messages": [AIMessage("Wait." if last.type == "human" else "Nice.", tool_calls=calls)]}

    inner: Any = StateGraph(MessagesState)
    inner.add_node("inner", answer)
    inner.add_edge(START, "inner")
    outer: Any = StateGraph(MessagesState)
    outer.add_node("sub", inner.compile())
    outer.add_edge(START, "sub")
    client = Client(outer.compile(checkpointer=InMemorySaver() if remembers else None))
    await client.ask("paint it")
    if ends_with == "a result":
        client.messages.append({"id": "x", "role": "tool", "toolCallId": "c1", "content": "painted"})
    await client.ask()
    texts = [message["content"] for message in client.messages]
    assert texts == ["paint it", "Wait.", *(["painted"] if ends_with == "a result" else []), "Nice."]


@pytest.mark.parametrize("arguments", ["[]", "1", "null", '"s"', "[" * 100_000, '{"a": '])
@pytest.mark.parametrize("remembers", [True, False])
async def test_arguments_that_are_no_object_do_not_end_the_conversation(remembers: bool, arguments: str) -> None:
    client = Client(echo_graph(InMemorySaver() if remembers else None))
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    client.messages = [
        {"id": "u", "role": "user", "content": "hi"},
        {"id": "a", "role": "assistant", "content": "", "toolCalls": [call]},
        {"id": "t", "role": "tool", "toolCallId": "c1", "content": "r"},
    ]
    assert await client.ask("go on") == "RUN_FINISHED"
    assert await client.ask("and on") == "RUN_FINISHED"


async def test_a_result_that_is_no_text_stays_the_graphs_own() -> None:
    image = [{"type": "image", "base64": "AAAA", "mime_type": "image/png"}]

    def shot() -> Any:
        """Take a picture."""
        return image

    graph = tool_graph([[call_chunk("shot", "c1", "{}")], chunks_of("A cat."), chunks_of("Bye.")], (shot,))
    client = Client(graph)
    await client.ask("look")
    client.messages[2]["content"] = ""  # what is left of its parts as text
    await client.ask("thanks")
    assert (await client.stored())[2].content == image


async def test_the_graphs_own_messages_stay() -> None:
    model = ChunkModel(answers=iter([chunks_of("one"), chunks_of("two"), chunks_of("three")]))

    async def ask(state: MessagesState) -> Json:
        own = [SystemMessage("be kind"), HumanMessage("a note of another agent")] if len(state["messages"]) == 1 else []
        return {"messages": [*own, await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    client = Client(graph.compile(checkpointer=InMemorySaver()))
    await client.ask("a")
    await client.ask("b")
    client.messages.pop()
    await client.ask()
    assert [message.content for message in await client.stored()] == [
        "a",
        "be kind",
        "a note of another agent",
        "one",
        "b",
        "three",
    ]


@pytest.mark.parametrize("role", ["system", "developer"])
async def test_a_clients_instruction_is_the_clients_to_edit_and_to_delete(role: str) -> None:
    asked: list[list[BaseMessage]] = []
    graph = echo_graph(asked=asked)
    client = Client(graph)
    for turn in range(3):
        instruction = {"id": "instruction", "role": role, "content": f"Instruction {turn}"}
        client.messages = [instruction, *(message for message in client.messages if message["role"] != role)]
        await client.ask(f"question {turn}")
        await client.assert_agreed()
        assert [message.content for message in asked[-1] if message.type == "system"] == [f"Instruction {turn}"]
    del client.messages[0]
    await client.ask("and now?")
    await client.assert_agreed()
    assert [message for message in asked[-1] if message.type == "system"] == []


async def test_an_instruction_of_the_graphs_own_stays_beside_the_clients() -> None:
    async def ask(state: MessagesState) -> Json:
        own = [] if any(message.type == "system" for message in state["messages"][1:]) else [SystemMessage("own")]
        return {"messages": [*own, AIMessage("answer")]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    client = Client(graph.compile(checkpointer=InMemorySaver()))
    client.messages = [{"id": "s", "role": "system", "content": "be kind"}]
    await client.ask("a")
    client.messages[0] = {**client.messages[0], "content": "be brief"}
    await client.ask("b")
    assert [message.content for message in await client.stored()] == ["be brief", "a", "own", "answer", "b", "answer"]
    del client.messages[0]
    await client.ask("c")
    assert [message.content for message in await client.stored()][:4] == ["a", "own", "answer", "b"]


# A step that broke off: LangGraph shows what its finished tasks wrote, and throws it away at the next input.


def breaking(how: str, other: anyio.Event) -> Any:
    """A tool that breaks off once the result of the other one has come."""

    async def breaks() -> str:
        """Break."""
        await other.wait()
        if how == "stop":
            await anyio.sleep_forever()
        if how == "error":
            raise ValueError("no")
        return str(langgraph.types.interrupt("sure?"))

    return breaks


def works() -> str:
    """Work."""
    return "worked"


@pytest.mark.parametrize("edits", [False, True], ids=["goes on", "edits"])
@pytest.mark.parametrize("order", [1, -1], ids=["last breaks", "first breaks"])
@pytest.mark.parametrize("how", ["error", "interrupt", "stop"])
async def test_the_turn_after_parallel_tools_broke_off_goes_on_with_what_came(
    how: str, order: int, edits: bool
) -> None:
    came = anyio.Event()
    tools = (works, breaking(how, came))[::order]
    calls = [call_chunk(tool.__name__, f"c{at}", "{}", at) for at, tool in enumerate(tools)]
    answers = [chunks_of("hello"), [*chunks_of("Let me see."), *calls], chunks_of("two"), chunks_of("three")]
    client = Client(tool_graph(answers, tools, apart=True))
    client.on_event = lambda event: came.set() if event["type"] == "TOOL_CALL_RESULT" else None
    with anyio.fail_after(10):
        await client.ask("hi")
        await client.ask("one", stop_after_result=how == "stop")
        assert came.is_set()
        if edits:
            client.messages[0]["content"] = "hi there"
        (pending,) = [message for message in await client.stored() if message.type == "tool"]
        assert await client.ask("two") == "RUN_FINISHED"
        assert await client.ask("three") == "RUN_FINISHED"
    stored = await client.stored()
    results = {message.tool_call_id: message for message in stored if isinstance(message, ToolMessage)}
    assert [results[f"c{at}"].content for at in (0, 1)] == ["worked", ""][::order]
    assert pending in stored
    told = [(message["role"], message.get("content", "")) for message in client.messages]
    assert [_of_graph(message)[:2] for message in stored if message.type != "tool" or message.content] == told


async def test_the_answer_of_a_node_beside_one_that_failed_is_kept() -> None:
    failing = [True]
    answered = anyio.Event()

    def good(state: MessagesState) -> Json:
        return {"messages": [AIMessage("good")]}

    async def bad(state: MessagesState) -> Json:
        if failing.pop():
            await answered.wait()
            raise ValueError("no")
        return {"messages": [AIMessage("better")]}

    graph = StateGraph(MessagesState)
    for node in (good, bad):
        graph.add_node(node.__name__, node)
        graph.add_edge(START, node.__name__)
    client = Client(graph.compile(checkpointer=InMemorySaver()))
    client.on_event = lambda event: answered.set() if event["type"] == "TEXT_MESSAGE_END" else None
    assert await client.ask("one") == "RUN_ERROR"
    failing.append(False)
    assert await client.ask("two") == "RUN_FINISHED"
    await client.assert_agreed()
    assert [message["content"] for message in client.messages[:3]] == ["one", "good", "two"]


class Plain(TypedDict):
    messages: list[Any]


class Unfolded(TypedDict):
    messages: Annotated[list[Any], lambda before, after: [*before, *after]]
    topic: str


class WithMore(TypedDict):
    messages: Annotated[list[Any], add_messages]
    topic: str


# Before 1.1 LangGraph had no way past a reducer of the graph's own.
@pytest.mark.parametrize("state", [Plain, WithMore, *([Unfolded] if hasattr(langgraph.types, "Overwrite") else [])])
async def test_any_reducer_of_messages_is_served(state: Any) -> None:
    sizes: list[int] = []
    graph = echo_graph(state=state, sizes=sizes)
    client = Client(graph)
    for text in ("a", "b", "c"):
        await client.ask(text)
    assert sizes == [1, 3, 5] if state is not Plain else sizes
    del client.messages[2:4]
    client.messages[-1]["content"] = "edited"
    await client.ask("d")
    if state is not Plain:  # its node keeps only its own answer
        await client.assert_agreed()


async def test_a_graph_without_a_checkpointer_gets_the_whole_conversation() -> None:
    sizes: list[int] = []
    client = Client(echo_graph(checkpointer=False, sizes=sizes))
    for turn in range(3):
        await client.ask(str(turn))
    assert sizes == [1, 3, 5]


def test_a_graph_over_something_else_is_refused_with_what_it_has() -> None:
    class Joke(TypedDict):
        joke: str

    graph = StateGraph(Joke)
    graph.add_node("tell", lambda state: {"joke": "x"})
    graph.add_edge(START, "tell")
    with pytest.raises(ConversionError, match="this one's state has: joke"):
        langchain_source(graph.compile())


async def test_what_a_tools_own_agent_says_is_no_part_of_the_conversation() -> None:
    inner = echo_graph(checkpointer=False)

    async def research(topic: str) -> str:
        """Ask another agent."""
        return str((await inner.ainvoke({"messages": [HumanMessage(topic)]}))["messages"][-1].content)

    client = Client(tool_graph([[call_chunk("research", "c1", '{"topic": "x"}')], chunks_of("Done.")], (research,)))
    await client.ask("go")
    await client.assert_agreed()
    assert [message.get("content") for message in client.messages] == ["go", "", "answer 1", "Done."]


@given(seed=st.integers(0, 2**32))
@example(seed=236)  # two equal answers change places
@settings(max_examples=60, deadline=None)
async def test_whatever_a_client_does_with_its_conversation_the_graph_follows(seed: int) -> None:
    choose = random.Random(seed)
    client = Client(echo_graph())
    actions: list[Callable[[], Any]] = [
        lambda: None,
        lambda: client.messages.pop() if client.messages else None,
        lambda: client.messages.__delitem__(slice(choose.randrange(len(client.messages) + 1), None)),
        lambda: client.messages.pop(choose.randrange(len(client.messages))) if client.messages else None,
        lambda: choose.choice(client.messages).update(content=f"edit {choose.random()}") if client.messages else None,
        lambda: choose.shuffle(client.messages),
        lambda: client.messages.insert(0, {"id": f"s{choose.random()}", "role": "user", "content": "first"}),
    ]
    for turn in range(6):
        choose.choice(actions)()
        await client.ask(choose.choice(["same", f"new {turn}"]), stop_after=choose.choice([None, None, None, 3]))
        if client.messages[-1]["role"] == "assistant" and (await client.stored())[-1].type == "human":
            continue  # it was stopped: the graph has not got the answer, and gets it with the next question
        await client.assert_agreed()


# The matching itself.


def test_what_the_graph_knows_of_a_matching_message_is_kept() -> None:
    signed = AIMessage(
        [{"type": "thinking", "thinking": "hm", "signature": "S"}, {"type": "text", "text": "Hi"}], id="lc_run--1"
    )
    client = langchain_messages(
        request(
            [
                {"id": "1", "role": "user", "content": "a"},
                {"id": "2", "role": "assistant", "content": "Hi"},
                {"id": "3", "role": "user", "content": "b"},
            ]
        )
    )
    stored: list[BaseMessage] = [client[0], signed]
    assert messages_to_send(stored, client) == ([client[2]], False)
    merged, replaces = messages_to_send(
        [HumanMessage("old", additional_kwargs={"dragent_stream": "client"}), *stored], client
    )
    assert replaces
    assert merged == [client[0], signed, client[2]]


def test_a_result_goes_to_the_call_by_the_graphs_id_of_it() -> None:
    call = {"name": "add", "args": {"a": 1}, "id": "stored"}
    stored: list[BaseMessage] = [AIMessage("", tool_calls=[call])]
    client: list[BaseMessage] = [
        AIMessage("", tool_calls=[{**call, "id": "wire"}]),
        ToolMessage("3", tool_call_id="wire"),
    ]
    (result,), replaces = messages_to_send(stored, client)
    assert (getattr(result, "tool_call_id", ""), replaces) == ("stored", False)


def test_an_id_that_a_client_gives_twice_is_given_once() -> None:
    messages = [{"id": "1", "role": "user", "content": "a"}, {"id": "1", "role": "user", "content": "b"}]
    assert [message.id for message in langchain_messages(request(messages))] == ["1", None]


def test_an_id_that_the_graph_has_for_an_equal_message_is_given_once() -> None:
    wire = [
        {"id": "1", "role": "user", "content": "a"},
        {"id": "2", "role": "assistant", "content": "Hi"},
        {"id": "3", "role": "user", "content": "b"},
        {"id": "4", "role": "assistant", "content": "Hi"},
    ]
    stored = langchain_messages(request(wire[:3]))
    swapped = langchain_messages(request([wire[0], wire[3], wire[2], wire[1]]))
    (sent,), replaces = messages_to_send(stored, swapped)
    assert (sent.content, replaces) == ("Hi", False)
    assert sent.id not in {message.id for message in stored}


@pytest.mark.parametrize("stop", range(1, 14))
async def test_a_run_that_was_stopped_anywhere_leaves_one_conversation(stop: int) -> None:
    call = [call_chunk("add", "c1", '{"a": 1,'), call_chunk(None, None, ' "b": 2}')]
    answers = [[*chunks_of("Let me see."), *call], *(chunks_of(f"answer {number}") for number in range(4))]
    client = Client(tool_graph(answers))
    await client.ask("what is it?", stop_after=stop)
    for text in ("a", "b"):
        await client.ask(text)
    stored = [message for message in await client.stored() if message.type != "tool" or message.content]
    told = [(message["role"], message.get("content", "")) for message in client.messages]
    assert [_of_graph(message)[:2] for message in stored] == told  # beside the empty result of a call without one


@pytest.mark.parametrize("own", [False, True], ids=["in its place", "beside it"])
async def test_an_answer_that_is_handed_over_as_a_named_message_is_not_doubled(own: bool) -> None:
    model = ChunkModel(answers=iter([chunks_of(text) for text in ("found", "told", "found", "told again")]))

    async def research(state: MessagesState) -> Json:
        answer = await model.ainvoke(state["messages"])
        return {"messages": [*([answer] if own else []), HumanMessage(answer.content, name="researcher")]}

    async def tell(state: MessagesState) -> Json:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("research", research)
    graph.add_node("tell", tell)
    graph.add_edge(START, "research")
    graph.add_edge("research", "tell")
    client = Client(graph.compile(checkpointer=InMemorySaver()))
    await client.ask("a")
    before = [(message.type, message.content) for message in await client.stored()]
    assert before == [("human", "a"), *([("ai", "found")] if own else []), ("human", "found"), ("ai", "told")]
    await client.ask("b")
    after = [(message.type, message.content) for message in await client.stored()]
    assert after[: len(before)] == before
    assert [kind_and_text[1] for kind_and_text in after[len(before) :]] == ["b", *["found"] * (1 + own), "told again"]
