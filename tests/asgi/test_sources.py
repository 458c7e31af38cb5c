"""Agents in the box, each against the real thing: openai's client, LangChain, LangGraph, a recording."""

import asyncio
import itertools
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest
from asgi_wire import Exchange, exchange, run_input
from langchain_core.language_models import BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from dragent_stream import answer_body
from dragent_stream.asgi import create_app, langchain_source, openai_source, trace_source
from dragent_stream.asgi.serve import resolve_agent
from dragent_stream.check import check_events
from dragent_stream.errors import ConversionError, TraceFormatError
from dragent_stream.testing.chunks import finish_chunk, text_chunk, usage_chunk
from dragent_stream.testing.model import Fail, Hold, ScriptedModel
from dragent_stream.testing.plugin import AssertAgui

TRACES = Path(__file__).parents[1] / "traces"
TOOLS = [{"name": "paint", "description": "paints", "parameters": {"type": "object", "properties": {}}}]


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


@pytest.fixture
async def hello_model() -> AsyncIterator[ScriptedModel]:
    turn = [text_chunk("Hel"), text_chunk("lo"), finish_chunk(), usage_chunk(3, 2)]
    async with ScriptedModel([turn]) as model:
        yield model


def openai_app(model: ScriptedModel, **more: Any) -> Any:
    client = openai.AsyncOpenAI(base_url=model.base_url, api_key="none", max_retries=0)
    return create_app(openai_source(client, "tiny", **more), expose_errors=True)


async def test_an_openai_endpoint_streams(hello_model: ScriptedModel, assert_agui: AssertAgui) -> None:
    app = openai_app(hello_model, system="be kind", temperature=0)
    done = await exchange(app, body=run_input(tools=TOOLS))
    assert_agui(done.events)
    assert text_of(done.events) == "Hello"
    (usage,) = done.events[-1]["usage"]
    assert (usage["inputTokens"], usage["outputTokens"]) == (3, 2)
    (request,) = hello_model.requests
    assert request.path == "/v1/chat/completions"
    assert request.body == {
        "model": "tiny",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "paint",
                    "description": "paints",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
    }


async def test_a_parameter_of_none_leaves_it_out(hello_model: ScriptedModel) -> None:
    await exchange(openai_app(hello_model, stream_options=None), body=run_input())
    assert "stream_options" not in hello_model.requests[0].body
    assert "tools" not in hello_model.requests[0].body


async def test_a_leaving_client_closes_the_models_connection() -> None:
    async with ScriptedModel([[text_chunk("Hel"), Hold()]]) as model:
        async with Exchange(openai_app(model), body=run_input()) as going:
            await going.until(lambda body: b"Hel" in body)
            going.disconnect()
        with anyio.fail_after(1):
            await model.requests[0].disconnected.wait()


async def test_a_model_that_refuses_is_a_run_error(assert_agui: AssertAgui) -> None:
    async with ScriptedModel([[Fail(429, "slow down")]]) as model:
        done = await exchange(openai_app(model), body=run_input())
    assert_agui(done.events)
    assert done.types == ["RUN_STARTED", "RUN_ERROR"]
    assert "slow down" in done.events[-1]["message"]


async def test_a_conversation_that_cannot_be_sent_is_422(hello_model: ScriptedModel) -> None:
    part = {"type": "video", "source": {"type": "url", "value": "http://host/a", "mimeType": "video/mp4"}}
    messages = [{"id": "1", "role": "user", "content": [part]}]
    done = await exchange(openai_app(hello_model), body=run_input(messages=messages))
    assert done.status == 422
    assert done.json["error"]["field"] == "messages[0].content[0]"
    assert hello_model.requests == []


async def test_the_command_lines_endpoint_is_the_same_source(hello_model: ScriptedModel) -> None:
    agent = resolve_agent(hello_model.base_url + "/", model="tiny", api_key="key", system="be kind")
    done = await exchange(create_app(agent), body=run_input())
    assert text_of(done.events) == "Hello"
    assert hello_model.requests[0].headers["authorization"] == "Bearer key"


Handle = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_endpoint(answer: Handle, content_type: str = "text/event-stream") -> AsyncIterator[str]:
    """An endpoint that answers 200 and lets the test write the rest; gives its base URL."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = re.findall(rb"(?i)content-length: (\d+)", head)
        await reader.readexactly(int(length))
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\n".encode())
        await answer(writer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def to_its_end(body: bytes) -> Handle:
    """Write a body that ends where the connection does."""

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(b"connection: close\r\n\r\n" + body)
        await writer.drain()

    return write


async def run_of(base_url: str) -> Exchange:
    client = openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)
    with anyio.fail_after(10):
        return await exchange(create_app(openai_source(client, "tiny"), expose_errors=True), body=run_input())


def frames(*chunks: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)


HELLO = frames(text_chunk("Hello"))
DONE = b"data: [DONE]\n\n"
ARGUMENTS = {"index": 0, "id": "1", "type": "function", "function": {"name": "rm", "arguments": '{"path": "/tm'}}
CALL = {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [ARGUMENTS]}, "finish_reason": None}]}
MESSAGE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello"}}
COMPLETION = {"id": "c", "object": "chat.completion", "choices": [MESSAGE]}


@pytest.mark.parametrize(
    ("content_type", "body", "text", "problem"),
    [
        ("text/event-stream", HELLO, "Hello", "the answer ended without finish_reason"),
        ("text/event-stream", frames(CALL), "", "the answer ended without finish_reason"),
        ("text/event-stream", b"", "", "the body of the answer is empty"),
        ("text/event-stream", DONE, "", "says [DONE] and holds no chunk"),
        ("text/html", b"<html><body>blocked</body></html>", "", "is an HTML page"),
        ("text/event-stream", HELLO + b"event: error\ndata: overloaded\n\n", "Hello", "overloaded"),
        ("application/json", b'{"error": {"message": "no credit"}}', "", "no credit"),
        ("application/json", json.dumps(COMPLETION).encode(), "Hello", ""),
        ("text/event-stream", HELLO.rstrip() + b"\n" + frames(finish_chunk()), "Hello", ""),
        ("text/event-stream", HELLO + b"event: ping\ndata: 1\n\n" + DONE, "Hello", ""),
    ],
)
async def test_what_an_endpoint_sends_instead_of_a_whole_answer_is_told(
    content_type: str, body: bytes, text: str, problem: str
) -> None:
    async with raw_endpoint(to_its_end(body), content_type) as url:
        done = await run_of(url)
    assert check_events(done.events) == []
    assert text_of(done.events) == text
    assert problem in done.events[-1].get("message", "")
    assert done.types[-1] == ("RUN_ERROR" if problem else "RUN_FINISHED")
    assert "TOOL_CALL_END" not in done.types


async def test_usage_in_a_read_behind_the_end_is_counted() -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"connection: close\r\n\r\n" + HELLO + frames(finish_chunk()) + DONE)
        await writer.drain()
        writer.write(frames(usage_chunk(3, 2)))
        await writer.drain()

    async with raw_endpoint(answer) as url:
        done = await run_of(url)
    (usage,) = done.events[-1]["usage"]
    assert usage["outputTokens"] == 2


@pytest.mark.parametrize("breaks_off", [True, False])
async def test_a_connection_that_stays_open_or_breaks_off_behind_the_end_is_a_whole_answer(
    breaks_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_body, "_AFTER_DONE", 0.05)
    left = asyncio.Event()

    async def answer(writer: asyncio.StreamWriter) -> None:
        whole = HELLO + DONE
        writer.write(b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(whole), whole))
        await writer.drain()
        if not breaks_off:
            await left.wait()

    async with raw_endpoint(answer) as url:
        done = await run_of(url)
        left.set()
    assert (text_of(done.events), done.types[-1]) == ("Hello", "RUN_FINISHED")


async def test_a_connection_that_breaks_off_before_the_end_is_an_error() -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(HELLO), HELLO))
        await writer.drain()

    async with raw_endpoint(answer) as url:
        done = await run_of(url)
    assert (text_of(done.events), done.types[-1]) == ("Hello", "RUN_ERROR")


async def test_a_langchain_chat_model_streams(assert_agui: AssertAgui) -> None:
    model = GenericFakeChatModel(messages=itertools.cycle(["Hello there"]))
    done = await exchange(create_app(langchain_source(model)), body=run_input())
    assert_agui(done.events)
    assert text_of(done.events) == "Hello there"


async def test_a_langchain_chain_may_give_plain_text() -> None:
    chain = RunnableLambda(lambda messages: f"you said {messages[-1].content}")
    done = await exchange(create_app(langchain_source(chain)), body=run_input())
    assert text_of(done.events) == "you said hello"


class ChunkModel(BaseChatModel):
    """A chat model that streams given chunks, one answer after the other."""

    answers: Any

    @property
    def _llm_type(self) -> str:
        return "chunks"

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def _astream(self, *args: Any, run_manager: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
        for chunk in next(self.answers):
            yield ChatGenerationChunk(message=chunk)


async def test_a_graph_streams_its_models_and_answers_its_calls_once(assert_agui: AssertAgui) -> None:
    fragments = [("add", "c1", '{"a": 1,'), (None, None, ' "b": 2}')]
    calls = [[{"name": name, "id": id_, "args": args, "index": 0}] for name, id_, args in fragments]
    model = ChunkModel(
        answers=iter(
            [
                [AIMessageChunk("", tool_call_chunks=call) for call in calls],
                [AIMessageChunk("It is "), AIMessageChunk("3")],
            ]
        )
    )

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def after(state: MessagesState) -> str:
        return "tools" if state["messages"][-1].tool_calls else "__end__"  # type: ignore[union-attr]

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode([add]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", after, ["tools", "__end__"])
    graph.add_edge("tools", "think")
    done = await exchange(create_app(langchain_source(graph.compile())), body=run_input())
    assert_agui(done.events)
    started = [event for event in done.events if event["type"] == "TOOL_CALL_START"]
    results = [event for event in done.events if event["type"] == "TOOL_CALL_RESULT"]
    assert [(event["toolCallId"], event["toolCallName"]) for event in started] == [("c1", "add")]
    assert [(event["toolCallId"], event["content"]) for event in results] == [("c1", "3")]
    assert text_of(done.events) == "It is 3"


def test_what_cannot_be_streamed_is_no_runnable() -> None:
    with pytest.raises(ConversionError, match="int has not"):
        langchain_source(3)


async def test_a_trace_plays_for_every_run_with_the_runs_own_ids(assert_agui: AssertAgui) -> None:
    app = create_app(trace_source(TRACES / "nat1.9_parallel.jsonl"))
    one = await exchange(app, body=run_input())
    two = await exchange(app, body=run_input(runId="2"))
    assert_agui(one.events)
    assert two.events[0]["runId"] == "2"
    assert one.types == two.types
    assert {event.get("messageId") for event in one.events} & {event.get("messageId") for event in two.events} == {None}


@pytest.mark.parametrize("trace", sorted(TRACES.glob("*.jsonl")), ids=lambda path: path.stem)
@pytest.mark.parametrize("version", ["1.0", None])
async def test_every_recording_is_served_as_valid_agui(
    trace: Path, version: str | None, assert_agui: AssertAgui
) -> None:
    done = await exchange(create_app(trace_source(trace)), body=run_input(protocolVersion=version))
    assert done.complete
    assert_agui(done.events, run_input=run_input(protocolVersion=version))


def test_a_file_that_is_no_trace_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("nope")
    with pytest.raises(TraceFormatError, match=r"x\.txt"):
        trace_source(tmp_path / "x.txt")


# What a command line names.


def test_a_file_is_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(json.dumps({"dragent_trace": 1}) + "\n" + json.dumps(text_chunk("x")) + "\n")
    assert callable(resolve_agent(str(file)))


def test_an_endpoint_needs_a_model() -> None:
    with pytest.raises(ConversionError, match="--model NAME"):
        resolve_agent("http://127.0.0.1:1/v1")


def test_a_model_may_come_with_its_endpoint_beside_it() -> None:
    assert callable(resolve_agent("tiny", base_url="http://127.0.0.1:1/v1"))


def test_a_module_gives_a_function_or_a_runnable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_agent.py").write_text(
        "def agent(run_input):\n    return []\n\n\nclass Box:\n    chain = agent\n\n\nnumber = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve_agent("my_agent:agent")(None) == []  # type: ignore[arg-type]
    assert callable(resolve_agent("my_agent:Box.chain"))
    with pytest.raises(ConversionError, match="it is a int, not a function"):
        resolve_agent("my_agent:number")
    with pytest.raises(ConversionError, match="my_agent has no 'nothing'"):
        resolve_agent("my_agent:nothing")


NO_AGENTS = """
import functools
from starlette.applications import Starlette
from langgraph.graph import MessagesState, StateGraph
from dragent_stream.asgi import create_app

app = Starlette()
ours = create_app(lambda run_input: [])
graph = StateGraph(MessagesState)
async def raw(scope, receive, send): ...
def older(scope): ...
def wsgi(environ, start_response): ...
def nothing(): ...
def two(run_input, more): ...
def keyword(run_input, *, needed): ...
async def silent(run_input): print(run_input)
async def text(run_input): return "Hello"
def sync_text(run_input): return "Hello"
async def chunks(run_input): yield "Hello"
class Agent:
    def __call__(self, run_input): return []
    def two(self, run_input, more): ...
coroutine, stream = silent(None), chunks(None)
bound = Agent().two
coroutine.close()
"""


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("app", "it is an ASGI application; serve it with: uvicorn no_agents:app"),
        ("ours", "uvicorn no_agents:ours"),
        ("raw", "uvicorn no_agents:raw"),
        ("older", "uvicorn no_agents:older"),
        ("wsgi", "it is a WSGI application"),
        ("Starlette", "it is the class Starlette; give an instance"),
        ("Agent", "it is the class Agent; give an instance"),
        ("graph", "it is a StateGraph, not a function of the run input; compile\\(\\) it first"),
        ("coroutine", "it is a coroutine, which can be used up once; give the function"),
        ("stream", "it is a async_generator, which can be used up once; give the function"),
        ("nothing", "it takes nothing; an agent is a function of one argument"),
        ("two", "it takes run_input, more; an agent is a function of one argument"),
        ("bound", "it takes run_input, more; an agent is a function of one argument"),
        ("keyword", "it takes run_input, needed; an agent is a function of one argument"),
        ("silent", "it gives NoneType, never a stream; yield chunks"),
        ("text", "it gives str, never a stream; yield chunks"),
        ("sync_text", "it gives str, never a stream; yield chunks"),
    ],
)
def test_what_would_fail_every_run_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, problem: str
) -> None:
    (tmp_path / "no_agents.py").write_text(NO_AGENTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "no_agents", raising=False)
    with pytest.raises(ConversionError, match=f"no_agents:{name} is no agent: .*{problem}"):
        resolve_agent(f"no_agents:{name}")


AGENTS = """
import functools
class Agent:
    def __call__(self, run_input): return []
    def method(self, run_input): yield "Hello"
async def awaited(run_input): return await elsewhere()
async def either(run_input):
    if run_input: return [1]
def partial_of(model, run_input): return iter(())
def more(run_input, *rest, temperature=0): return rest
async def chunks(run_input): yield "Hello"
instance, method, partial = Agent(), Agent().method, functools.partial(partial_of, "model")
"""


@pytest.mark.parametrize("name", ["awaited", "either", "more", "chunks", "instance", "method", "partial"])
def test_every_callable_that_takes_a_run_input_may_be_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "some_agents.py").write_text(AGENTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_agents", raising=False)
    assert callable(resolve_agent(f"some_agents:{name}"))


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("1 / 0\n", r"broken_module cannot be imported: ZeroDivisionError: .*broken_module.py:1\)"),
        ("def (:\n", "broken_module cannot be imported: SyntaxError: "),
        ("import broken_module.more\n", "broken_module needs 'broken_module.more', which is not installed"),
        ("from os import no_such_name\n", "broken_module cannot be imported: ImportError: .*no_such_name"),
    ],
)
def test_a_module_that_fails_is_named_with_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, problem: str
) -> None:
    (tmp_path / "broken_module.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConversionError, match=problem):
        resolve_agent("broken_module:agent")


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("no_such_module:agent", "there is no module 'no_such_module'"),
        ("no/such/file.jsonl", "is no file, no http"),
        ("nothing", "is no file, no http"),
        ("ftp://host/x", "is no file, no http"),
        (":agent", "is no file, no http"),
    ],
)
def test_what_is_none_of_these_is_refused_with_the_remedy(target: str, problem: str) -> None:
    with pytest.raises(ConversionError, match=problem):
        resolve_agent(target)


def test_what_a_module_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConversionError, match="needs_more needs 'no_such_package'"):
        resolve_agent("needs_more:agent")
