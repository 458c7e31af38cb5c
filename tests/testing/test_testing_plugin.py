import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest
from ag_ui.core import RunAgentInput

from dragent_stream import ConversionError, replay_trace, stream_agui_run, stream_agui_sse
from dragent_stream.asgi import openai_source
from dragent_stream.asgi_exits import AgentExitError
from dragent_stream.options import ConverterOptions
from dragent_stream.testing import RanCall, finish_chunk, reasoning_chunk, text_chunk, tool_call_chunk
from dragent_stream.testing.model import ScriptedModel
from dragent_stream.testing.plugin import AguiReplay, AguiRunAgent, AssertAgui

EXAMPLE = Path(__file__).parents[2] / "examples" / "replay_in_tests"


def test_a_trace_is_replayed_in_one_line(agui_replay: AguiReplay) -> None:
    events = agui_replay("../traces/nat1.9_plain.jsonl")
    assert events[0] == {"type": "RUN_STARTED", "threadId": "thread", "runId": "run", "protocolVersion": "1.0"}
    assert events[1] == {"type": "TEXT_MESSAGE_START", "messageId": "id-1", "role": "assistant"}
    assert events[-1]["type"] == "RUN_FINISHED"


def test_a_path_is_looked_for_beside_the_test_and_in_the_root(agui_replay: AguiReplay) -> None:
    assert agui_replay("tests/traces/nat1.9_plain.jsonl") == agui_replay("../traces/nat1.9_plain.jsonl")


def test_a_path_that_is_nowhere_is_told_with_both_places(agui_replay: AguiReplay, request: Any) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl") as missing:
        agui_replay("none.jsonl")
    assert str(request.path.parent) in str(missing.value)
    assert str(request.config.rootpath) in str(missing.value)


def test_lines_are_taken_too(agui_replay: AguiReplay) -> None:
    lines = ['{"choices": [{"index": 0, "delta": {"content": "hi"}}]}']
    events = agui_replay(lines, run=False, options=ConverterOptions(new_id=lambda: "mine"))
    assert [event["messageId"] for event in events] == ["mine"] * 3


def test_good_events_pass(agui_replay: AguiReplay, assert_agui: AssertAgui) -> None:
    assert_agui(agui_replay("../traces/nat1.9_parallel.jsonl"))
    assert_agui(agui_replay("../traces/nat1.9_parallel.jsonl", run=False), lifecycle=False)


def test_bad_events_fail_with_each_violation(agui_replay: AguiReplay, assert_agui: AssertAgui) -> None:
    events = agui_replay("../traces/nat1.9_plain.jsonl")
    with pytest.raises(AssertionError) as failed:
        assert_agui(events[1:])
    assert str(failed.value) == (
        "1 AG-UI violation(s):\n  event 0: V1: the first event is TEXT_MESSAGE_START, not RUN_STARTED\n"
        '    > 0 {"type": "TEXT_MESSAGE_START", "messageId": "id-1", "role": "assistant"}\n'
        '      1 {"type": "TEXT_MESSAGE_CONTENT", "messageId": "id-1", "delta": "Hello "}'
    )


def test_what_is_missing_at_the_end_is_shown_behind_the_last_event(
    agui_replay: AguiReplay, assert_agui: AssertAgui
) -> None:
    events = agui_replay("../traces/nat1.9_plain.jsonl")[:-1]
    with pytest.raises(AssertionError) as failed:
        assert_agui(events)
    *_, last, end = str(failed.value).splitlines()
    assert '"TEXT_MESSAGE_END"' in last
    assert end.split() == [">", str(len(events)), "(the", "end", "of", "the", "stream)"]


def test_many_violations_are_counted_and_the_first_are_shown(assert_agui: AssertAgui) -> None:
    with pytest.raises(AssertionError, match=r"^20 AG-UI violation") as failed:
        assert_agui([{"type": "CUSTOM", "name": "a"}] * 20, lifecycle=False, content=False)
    assert "... and 10 more" in str(failed.value)


FAILING = """
def test_bad(assert_agui):
    assert_agui([{"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"}])
"""
FAILING_ASYNC = """
import asyncio

def test_bad(assert_agui):
    async def events():
        yield b'data: {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"}\\n\\n'

    asyncio.run(assert_agui(events()))
"""


@pytest.mark.parametrize("source", [FAILING, FAILING_ASYNC], ids=["sync", "async"])
def test_a_failure_shows_the_event_and_not_the_source_of_the_plugin(tmp_path: Path, source: str) -> None:
    (tmp_path / "test_bad.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "test_bad.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "event 1: D2: the stream ends without RUN_FINISHED or RUN_ERROR" in done.stdout
    assert '0 {"type": "RUN_STARTED"' in done.stdout
    assert not re.search(r"^\S*runs\.py:\d+", done.stdout, re.MULTILINE)  # no entry of the traceback
    assert "raise AssertionError" not in done.stdout


NO_ANSWER = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"},
    {"type": "RUN_ERROR", "message": "a Responses API event", "code": "UNKNOWN_CHUNKS"},
]
FAILED = [NO_ANSWER[0], {"type": "RUN_ERROR", "message": "boom", "code": "STREAM_ERROR"}]
EMPTY = [NO_ANSWER[0], {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}]


def test_a_run_without_an_answer_fails_unless_that_is_expected(assert_agui: AssertAgui) -> None:
    with pytest.raises(AssertionError, match=r"failed with UNKNOWN_CHUNKS: a Responses API event\n.*RUN_STARTED"):
        assert_agui(NO_ANSWER)
    empty_answer = [NO_ANSWER[0], NO_ANSWER[1] | {"code": "EMPTY_ANSWER"}]
    with pytest.raises(AssertionError, match="failed with EMPTY_ANSWER"):
        assert_agui(empty_answer)
    assert_agui(NO_ANSWER, error="UNKNOWN_CHUNKS")
    assert_agui(NO_ANSWER, error=True)
    with pytest.raises(AssertionError, match="D16"):
        assert_agui(EMPTY)
    assert_agui(EMPTY, content=False)


def test_a_failed_run_is_valid_unless_it_was_to_succeed_or_to_fail_otherwise(assert_agui: AssertAgui) -> None:
    assert_agui(FAILED)
    assert_agui(FAILED, error=True)
    assert_agui(FAILED, error="STREAM_ERROR")
    with pytest.raises(AssertionError, match="failed with STREAM_ERROR: boom"):
        assert_agui(FAILED, error=False)
    with pytest.raises(AssertionError, match="failed with STREAM_ERROR; length was expected: boom"):
        assert_agui(FAILED, error="length")
    with pytest.raises(AssertionError, match=r"did not fail; a RUN_ERROR was expected \(length\)"):
        assert_agui(EMPTY, error="length", content=False)


async def test_objects_frames_and_what_arrives_are_judged(assert_agui: AssertAgui) -> None:
    chunks = [text_chunk("Hi"), finish_chunk()]
    await assert_agui(stream_agui_run(chunks))
    await assert_agui(stream_agui_sse(chunks))
    assert_agui([event async for event in stream_agui_run(chunks)])
    frames = [frame async for frame in stream_agui_sse(chunks)]
    assert_agui(frames)
    assert_agui(b"".join(frames))
    assert_agui(b"".join(frames).decode())
    with pytest.raises(AssertionError, match="D2"):
        assert_agui(frames[:-1])
    with pytest.raises(AssertionError, match="S7: no JSON object: 'hello'"):
        assert_agui([*frames, "hello\n"])


# Running an agent.


async def weather(run_input: RunAgentInput) -> AsyncIterator[Any]:
    yield reasoning_chunk("hm")
    yield text_chunk("Let me look.")
    yield tool_call_chunk('{"city": "Oslo"}', call_id="c", name="weather")
    yield finish_chunk("tool_calls")
    yield {"role": "tool", "tool_call_id": "c", "content": "rain"}
    yield text_chunk(f"{run_input.messages[-1].content} It rains.", id="chatcmpl-2")
    yield finish_chunk()


async def test_an_agent_is_run_in_one_line(agui_run: AguiRunAgent) -> None:
    events = await agui_run(weather, "Oslo?")
    assert isinstance(events, list)
    assert events[0] == {"type": "RUN_STARTED", "threadId": "thread", "runId": "run", "protocolVersion": "1.0"}
    assert events[-1]["type"] == "RUN_FINISHED"
    assert events.text == "Let me look.\nOslo? It rains."
    assert events.reasoning == "hm"
    assert events.tool_calls == [RanCall("c", "weather", {"city": "Oslo"}, "rain")]
    assert events.error is None
    assert events == await agui_run(weather, "Oslo?")


async def test_the_client_of_a_run_may_bring_all_that_a_client_brings(agui_run: AguiRunAgent) -> None:
    seen: list[RunAgentInput] = []

    def agent(run_input: RunAgentInput) -> list[Any]:
        seen.append(run_input)
        return [tool_call_chunk("{}", call_id="c", name="pay"), finish_chunk("tool_calls")]

    history = [{"role": "user", "content": "a"}, {"id": "x", "role": "assistant", "content": "b"}]
    events = await agui_run(
        agent,
        history,
        tools=["pay", {"name": "ask", "description": "d", "parameters": {}}],
        context={"the document": "INVOICE"},
        state={"n": 1},
        forwarded_props={"temperature": 0},
        thread_id="t",
        run_id="r",
    )
    (run_input,) = seen
    assert [(message.id, message.content) for message in run_input.messages] == [("message-1", "a"), ("x", "b")]
    assert [tool.name for tool in run_input.tools] == ["pay", "ask"]
    assert [(entry.description, entry.value) for entry in run_input.context] == [("the document", "INVOICE")]
    assert (run_input.state, run_input.forwarded_props) == ({"n": 1}, {"temperature": 0})
    assert (events[0]["threadId"], events[0]["runId"]) == ("t", "r")
    assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c"]}
    assert events.tool_calls == [RanCall("c", "pay", {}, None)]


@pytest.mark.parametrize(
    "question",
    [
        {"role": "user", "content": "x"},
        {"threadId": "thread", "runId": "run", "messages": [{"id": "m", "role": "user", "content": "x"}]},
        RunAgentInput.model_validate(
            {
                "threadId": "thread",
                "runId": "run",
                "messages": [{"id": "m", "role": "user", "content": "x"}],
                "state": {},
                "tools": [],
                "context": [],
                "forwardedProps": {},
            }
        ),
    ],
    ids=["a message", "a request", "a RunAgentInput"],
)
async def test_a_question_may_be_a_message_or_a_whole_request(agui_run: AguiRunAgent, question: Any) -> None:
    assert (await agui_run(weather, question)).text == "Let me look.\nx It rains."


async def awaited(run_input: RunAgentInput) -> list[Any]:
    return [text_chunk("x"), finish_chunk()]


@pytest.mark.parametrize(
    "agent",
    [
        lambda run_input: ["x"],
        lambda run_input: iter([text_chunk("x"), finish_chunk()]),
        lambda run_input: replay_trace([json.dumps(text_chunk("x"))]),
        awaited,
    ],
    ids=["text", "an iterator", "a recording", "a coroutine"],
)
async def test_every_agent_that_an_app_takes_is_run(agui_run: AguiRunAgent, agent: Any) -> None:
    assert (await agui_run(agent)).text == "x"


async def test_an_agent_that_raises_ends_its_run_and_the_exception_is_kept(agui_run: AguiRunAgent) -> None:
    async def agent(run_input: RunAgentInput) -> AsyncIterator[Any]:
        yield text_chunk("x")
        raise KeyError("boom")

    events = await agui_run(agent, "?", error="STREAM_ERROR")
    assert events.error == {"type": "RUN_ERROR", "message": "'boom'", "code": "STREAM_ERROR"}
    assert isinstance(events.exception, KeyError)
    assert events == await agui_run(agent, "?")
    with pytest.raises(AssertionError, match="failed with STREAM_ERROR") as failed:
        await agui_run(agent, "?", error=False)
    assert isinstance(failed.value.__cause__, KeyError)


async def test_an_agent_that_shows_nothing_fails_the_test(agui_run: AguiRunAgent) -> None:
    with pytest.raises(AssertionError, match=r"D16|EMPTY_ANSWER|UNKNOWN_CHUNKS"):
        await agui_run(lambda run_input: [])


@pytest.mark.parametrize("agent", [42, lambda run_input: 42, lambda run_input: "hello"])
async def test_what_is_no_agent_is_told_so(agui_run: AguiRunAgent, agent: Any) -> None:
    with pytest.raises(ConversionError):
        await agui_run(agent, "?")


async def test_what_is_no_question_is_told_so(agui_run: AguiRunAgent) -> None:
    with pytest.raises(ConversionError, match="the question is no run input"):
        await agui_run(weather, [{"role": "nobody"}])


@pytest.mark.parametrize("question", [5, None, b"hello", 1.5, object()])
async def test_a_question_of_a_wrong_type_is_told_so(agui_run: AguiRunAgent, question: Any) -> None:
    with pytest.raises(ConversionError, match=f"the question is a {type(question).__name__}; give a text"):
        await agui_run(weather, question)


@pytest.mark.parametrize("beside", [{"tools": 5}, {"tools": "pay"}, {"tools": [5]}, {"context": 5}, {"context": "x"}])
async def test_what_beside_the_question_is_of_a_wrong_type_is_told_so(agui_run: AguiRunAgent, beside: Any) -> None:
    with pytest.raises(ConversionError):
        await agui_run(weather, "?", **beside)


class Odd(BaseException):
    pass


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit, Odd])
@pytest.mark.parametrize("place", ["called", "awaited", "first", "later", "in a task"])
async def test_an_agent_that_exits_ends_its_run_as_in_an_app(
    agui_run: AguiRunAgent, ending: type[BaseException], place: str
) -> None:
    async def stream(begun: bool) -> AsyncIterator[Any]:
        if begun:
            yield text_chunk("x")
        if place == "in a task":
            await asyncio.create_task(late())
        raise ending
        yield

    async def late() -> Any:
        raise ending

    def agent(run_input: RunAgentInput) -> Any:
        if place == "called":
            raise ending
        return late() if place == "awaited" else stream(place != "first")

    events = await agui_run(agent, "?", error="STREAM_ERROR")
    assert events.error and "the agent raised" in events.error["message"]
    assert isinstance(events.exception, AgentExitError)
    assert isinstance(events.exception.__cause__, ending)


async def test_a_test_that_is_cancelled_stays_cancelled(agui_run: AguiRunAgent) -> None:
    begun, closed = asyncio.Event(), asyncio.Event()

    async def agent(run_input: RunAgentInput) -> AsyncIterator[Any]:
        try:
            yield text_chunk("x")
            begun.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    running = asyncio.create_task(agui_run(agent, "?"))
    with anyio.fail_after(5):
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert closed.is_set()


async def test_an_agent_of_a_model_is_run_against_a_scripted_one(agui_run: AguiRunAgent) -> None:
    async with ScriptedModel([["hello"]]) as model:
        client = openai.AsyncOpenAI(base_url=model.base_url, api_key="none")
        events = await agui_run(openai_source(client, "m"), "?")
    assert events.text == "hello"
    assert model.requests[0].messages[-1]["content"] == "?"


def test_the_request_is_judged_too(agui_replay: AguiReplay, assert_agui: AssertAgui) -> None:
    events = agui_replay("../traces/nat1.9_plain.jsonl", thread_id="t", run_id="r")
    assert_agui(events, run_input={"threadId": "t", "runId": "r"})
    with pytest.raises(AssertionError, match="I9"):
        assert_agui(events, run_input={"threadId": "other", "runId": "r"})


def test_the_plugin_adds_no_import_to_a_session_of_pytest() -> None:
    code = (
        "import sys, json, pytest, dragent_stream; before = set(sys.modules)\n"
        "import dragent_stream.testing.plugin\n"
        "print(json.dumps(sorted(m for m in set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    added = {name for name in json.loads(done.stdout) if name.partition(".")[0] not in sys.stdlib_module_names}
    assert added == {"dragent_stream.testing", "dragent_stream.testing.plugin"}


def test_the_example_holds() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE / "run.py")], capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_example_would_notice_a_change(tmp_path: Path) -> None:
    for path in EXAMPLE.iterdir():
        if path.is_file():
            text = path.read_text("utf-8")
            (tmp_path / path.name).write_text(
                text.replace("18 degrees, dry.", "rain.") if path.suffix == ".py" else text
            )
    done = subprocess.run([sys.executable, str(tmp_path / "run.py")], capture_output=True, encoding="utf-8")
    assert done.returncode == 1, done.stdout + done.stderr
