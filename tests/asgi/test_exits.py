"""What would end the process or the task ends the run with RUN_ERROR: the server lives, and real cancellation stays real."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync
from asgi_wire import Exchange, exchange, run_input
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from starlette.requests import Request

from dragent_stream.asgi import create_app, langchain_source
from dragent_stream.asgi_exits import AgentExitError, as_exception, exits_contained
from dragent_stream.asgi_response import EventStreamResponse
from dragent_stream.testing.chunks import finish_chunk, text_chunk
from dragent_stream.testing.plugin import AssertAgui


class Odd(BaseException):
    """An exception that is no Exception."""


ENDINGS: dict[str, Callable[[], BaseException]] = {
    "sys.exit": lambda: SystemExit(3),
    "ctrl-c": KeyboardInterrupt,
    "cancelled": asyncio.CancelledError,
    "generator exit": GeneratorExit,
    "of its own": lambda: Odd("odd"),
}
endings = pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)


def when_called(ending: Callable[[], BaseException]) -> Any:
    def agent(run_input: Any) -> Any:
        raise ending()

    return agent


def when_awaited(ending: Callable[[], BaseException]) -> Any:
    async def agent(run_input: Any) -> Any:
        await asyncio.sleep(0)
        raise ending()

    return agent


def before_the_first_chunk(ending: Callable[[], BaseException]) -> Any:
    async def agent(run_input: Any) -> AsyncIterator[Any]:
        await asyncio.sleep(0)
        raise ending()
        yield

    return agent


def in_the_middle(ending: Callable[[], BaseException]) -> Any:
    async def agent(run_input: Any) -> AsyncIterator[Any]:
        yield text_chunk("Hel")
        yield text_chunk("lo")
        raise ending()

    return agent


def in_a_plain_generator(ending: Callable[[], BaseException]) -> Any:
    def agent(run_input: Any) -> Iterator[Any]:
        yield text_chunk("Hel")
        raise ending()

    return agent


def at_the_end(ending: Callable[[], BaseException]) -> Any:
    async def agent(run_input: Any) -> AsyncIterator[Any]:
        try:
            yield text_chunk("Hel")
            yield finish_chunk()
        finally:
            raise ending()

    return agent


def when_closed(ending: Callable[[], BaseException]) -> Any:
    class Stream:
        def __init__(self) -> None:
            self.chunks = [finish_chunk(), text_chunk("Hel")]

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> Any:
            if not self.chunks:
                raise StopAsyncIteration
            return self.chunks.pop()

        async def aclose(self) -> None:
            raise ending()

    return lambda run_input: Stream()


def in_a_task_of_its_own(ending: Callable[[], BaseException]) -> Any:
    async def work() -> None:
        await asyncio.sleep(0)
        raise ending()

    async def agent(run_input: Any) -> AsyncIterator[Any]:
        yield text_chunk("Hel")
        await asyncio.create_task(work())

    return agent


def in_a_task_that_was_begun_by_the_call(ending: Callable[[], BaseException]) -> Any:
    async def work() -> None:
        raise ending()

    def agent(run_input: Any) -> Any:
        task = asyncio.create_task(work())

        async def stream() -> AsyncIterator[Any]:
            await task
            yield

        return stream()

    return agent


def in_a_thread(ending: Callable[[], BaseException]) -> Any:
    def work() -> None:
        raise ending()

    async def agent(run_input: Any) -> AsyncIterator[Any]:
        yield text_chunk("Hel")
        await run_sync(work)

    return agent


PLACES = (
    *(when_called, when_awaited, before_the_first_chunk, in_the_middle, in_a_plain_generator, at_the_end, when_closed),
    *(in_a_task_of_its_own, in_a_task_that_was_begun_by_the_call, in_a_thread),
)


@pytest.mark.parametrize(
    ("place", "ending"),
    [
        pytest.param(place, ending, id=f"{place.__name__}, {name}")
        for place in PLACES
        for name, ending in ENDINGS.items()
        if (place, name) != (in_a_thread, "generator exit")  # no await of CPython passes one on
    ],
)
@pytest.mark.parametrize("coalesce_ms", [0, 16])
async def test_an_agent_that_raises_what_is_no_exception_ends_its_run_with_an_error(
    place: Any, ending: Callable[[], BaseException], coalesce_ms: float, assert_agui: AssertAgui
) -> None:
    app = create_app(place(ending), coalesce_ms=coalesce_ms)
    done = await exchange(app, body=run_input())
    assert done.complete
    assert done.types[0] == "RUN_STARTED" and done.types[-1] == "RUN_ERROR"
    assert done.events[-1]["message"].startswith("The agent failed. Reference: ")
    assert_agui(done.events)
    assert len(app.state.runs) == 0
    assert (await exchange(app, body=run_input(runId="next"))).types[-1] == "RUN_ERROR"


@endings
async def test_the_log_has_what_was_raised_under_the_reference(
    ending: Callable[[], BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    done = await exchange(create_app(in_the_middle(ending)), body=run_input())
    reference = done.events[-1]["message"].rpartition(" ")[2]
    (record,) = [record for record in caplog.records if reference in record.getMessage()]
    error = record.exc_info and record.exc_info[1]
    assert isinstance(error, AgentExitError)
    assert type(error.__cause__) is type(ending())


async def test_a_client_that_may_read_errors_reads_what_it_was() -> None:
    done = await exchange(create_app(in_the_middle(lambda: SystemExit(3)), expose_errors=True), body=run_input())
    assert done.events[-1]["message"] == "the agent raised SystemExit(3)"


async def test_a_tool_of_langgraph_that_exits_ends_its_run_and_not_the_server(assert_agui: AssertAgui) -> None:
    @tool
    async def leave() -> str:
        """Leave."""
        sys.exit(1)

    @tool
    def leave_in_a_thread() -> str:
        """Leave."""
        sys.exit(1)

    for chosen in (leave, leave_in_a_thread):
        call = {"name": chosen.name, "args": {}, "id": "c", "type": "tool_call"}

        def model(state: MessagesState, call: Any = call) -> dict[str, Any]:
            return {"messages": [AIMessage("", tool_calls=[call])]}

        graph = StateGraph(MessagesState)
        graph.add_node("model", model)
        graph.add_node("tools", ToolNode([chosen], handle_tool_errors=False))
        graph.add_edge(START, "model")
        graph.add_edge("model", "tools")
        graph.add_edge("tools", END)
        with anyio.fail_after(10):
            done = await exchange(create_app(langchain_source(graph.compile())), body=run_input())
        assert done.types[-1] == "RUN_ERROR"
        assert_agui(done.events)


@endings
async def test_a_stop_stays_a_stop_whatever_the_agent_raises_when_it_is_closed(
    ending: Callable[[], BaseException], assert_agui: AssertAgui
) -> None:
    async def agent(run_input: Any) -> AsyncIterator[Any]:
        yield text_chunk("Hel")
        try:
            await asyncio.Event().wait()
        finally:
            raise ending()

    app = create_app(agent)
    async with Exchange(app, body=run_input()) as going:
        await going.until(lambda body: b"Hel" in body)
        await exchange(app, "POST", "/agui/run/stop")
    assert going.complete
    assert going.types[-1] in ("RUN_FINISHED", "RUN_ERROR")
    assert_agui(going.events)


@endings
async def test_a_client_that_leaves_is_no_error_whatever_the_agent_raises_when_it_is_closed(
    ending: Callable[[], BaseException],
) -> None:
    closed = asyncio.Event()

    async def agent(run_input: Any) -> AsyncIterator[Any]:
        yield text_chunk("Hel")
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()
            raise ending()

    app = create_app(agent)
    async with Exchange(app, body=run_input()) as going:
        await going.until(lambda body: b"Hel" in body)
        going.disconnect()
    assert closed.is_set()
    assert len(app.state.runs) == 0


async def test_a_cancelled_request_is_cancelled_and_says_nothing_more() -> None:
    async def agent(run_input: Any) -> AsyncIterator[Any]:
        yield text_chunk("Hel")
        await asyncio.Event().wait()

    going = Exchange(create_app(agent), body=run_input())
    async with going:
        await going.until(lambda body: b"Hel" in body)
        going.task.cancel()
    assert going.task.cancelled()
    assert b"RUN_ERROR" not in going.body


async def test_an_agent_that_cancels_its_own_task_has_failed() -> None:
    async def agent(run_input: Any) -> AsyncIterator[Any]:
        yield text_chunk("Hel")
        task = asyncio.current_task()
        assert task
        task.cancel()
        await asyncio.sleep(0)
        yield text_chunk("lo")

    done = await exchange(create_app(agent), body=run_input())
    assert done.complete and done.types[-1] == "RUN_ERROR"


@pytest.mark.parametrize("target", ["/agui", "/agui/run/stop"])
@pytest.mark.parametrize("late", [False, True])
@endings
async def test_an_identify_that_exits_is_a_500_in_json_and_the_server_lives(
    ending: Callable[[], BaseException], late: bool, target: str
) -> None:
    def now(request: Request) -> str:
        raise ending()

    async def later(request: Request) -> str:
        raise ending()

    going = Exchange(create_app(when_called(SystemExit), identify=later if late else now), "POST", target, run_input())
    with pytest.raises(AgentExitError):
        async with going:
            pass
    assert going.status == 500
    assert going.json["error"]["code"] == "internal_error"


async def test_a_request_that_is_cancelled_while_it_is_identified_stays_cancelled() -> None:
    begun = asyncio.Event()

    async def identify(request: Request) -> str:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError("went on")

    async with Exchange(create_app(when_called(SystemExit), identify=identify), body=run_input()) as going:
        with anyio.fail_after(5):
            await begun.wait()
        going.task.cancel()
    assert going.task.cancelled()


@endings
async def test_frames_without_a_farewell_raise_an_exception_that_a_server_survives(
    ending: Callable[[], BaseException],
) -> None:
    async def frames() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        raise ending()

    with pytest.raises(AgentExitError):
        await exchange(EventStreamResponse(frames()))


async def test_tasks_made_outside_a_run_are_left_alone() -> None:
    await exchange(create_app(in_the_middle(SystemExit)), body=run_input())

    async def work() -> int:
        return 42

    coroutine = work()
    task = asyncio.create_task(coroutine, name="mine")
    assert task.get_coro() is coroutine
    assert task.get_name() == "mine"
    assert await task == 42


async def test_a_task_inside_a_run_keeps_its_name_its_context_and_its_stack() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 42

    with exits_contained():
        task = asyncio.create_task(work(), name="mine")
        never = asyncio.create_task(work())
    never.cancel()  # before it began: nothing may be left that was never awaited
    assert task.get_name() == "mine"
    assert "work" in repr(task)
    assert await task == 42
    with pytest.raises(asyncio.CancelledError):
        await never


async def test_the_task_factory_of_the_loops_owner_still_makes_the_tasks() -> None:
    loop = asyncio.get_running_loop()
    made: list[Any] = []

    def factory(loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(coro)
        return asyncio.Task(coro, loop=loop, **options)

    before = loop.get_task_factory()
    loop.set_task_factory(factory)  # type: ignore[arg-type]
    try:
        done = await exchange(create_app(in_a_task_of_its_own(SystemExit)), body=run_input())
    finally:
        loop.set_task_factory(before)
    assert done.types[-1] == "RUN_ERROR"
    assert made


def test_an_exception_stays_what_it_is() -> None:
    error = ValueError("x")
    assert as_exception(error) is error
    assert str(as_exception(Odd("why"))) == "the agent raised Odd('why')"
    assert str(as_exception(KeyboardInterrupt())) == "the agent raised KeyboardInterrupt"


SERVER = """
import asyncio, sys
from dragent_stream.asgi import create_app
from dragent_stream.asgi.serve import run_server
from dragent_stream.testing.chunks import text_chunk

async def leave():
    sys.exit(3)

async def agent(run_input):
    yield text_chunk("Hel")
    if run_input.run_id == "task":
        await asyncio.gather(leave(), asyncio.sleep(1))
    sys.exit(3)

run_server(create_app(agent), port=0, announce=lambda url: print(url, flush=True))
"""


async def test_a_real_server_goes_on_after_an_agent_that_exits() -> None:
    from test_server import post

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout
    try:
        with anyio.fail_after(20):
            port = int((await process.stdout.readline()).rpartition(b":")[2])
            for run_id in ("plain", "task", "again"):
                reader, writer = await post(port, run_input(runId=run_id))
                body = await reader.read()
                writer.close()
                assert b'"RUN_ERROR"' in body and body.endswith(b"0\r\n\r\n")
        assert process.returncode is None
    finally:
        process.kill()
        await process.communicate()


async def test_tasks_of_an_agent_are_cancelled_and_time_out_as_anywhere() -> None:
    seen: list[str] = []

    async def sleeper() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def leaves() -> None:
        sys.exit(2)

    async def agent(run_input: Any) -> AsyncIterator[Any]:
        async with anyio.create_task_group() as group:
            group.start_soon(sleeper)
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sleeper(), 0.001)
        with pytest.raises(BaseExceptionGroup) as caught:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(sleeper())
                tasks.create_task(leaves())
        assert [str(error) for error in caught.value.exceptions] == ["the agent raised SystemExit(2)"]
        yield text_chunk("Hello")
        yield finish_chunk()

    done = await exchange(create_app(agent), body=run_input())
    assert done.types[-1] == "RUN_FINISHED"
    assert seen == ["cancelled"] * 3
