"""Real runtimes as an agent, and every way in which a client can leave one of their turns."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest
from ag_ui.core import RunAgentInput
from fabric_runtime import DEADLINES, HERE, configuration, runtime
from nemo_fabric import Fabric, Runtime

from dragent_stream import stream_agui_sse
from dragent_stream.asgi import create_app
from dragent_stream.check import check_events
from dragent_stream.fabric import (
    convert_fabric_sse,
    convert_fabric_stream,
    fabric_chunks,
    fabric_source,
    wait_fabric_drains,
)
from dragent_stream.testing import finish_chunk, text_chunk, usage_chunk
from dragent_stream.testing.model import ScriptedModel

Json = dict[str, Any]
Start = Callable[..., AbstractAsyncContextManager[Runtime]]
HARNESS: Json = {"module": "harness_adapter", "python": sys.executable, "pythonpath": HERE}


def asks(text: str, thread: str = "t") -> RunAgentInput:
    return RunAgentInput.model_validate(
        {
            "threadId": thread,
            "runId": f"run of {text}",
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {},
            "messages": [{"id": "u", "role": "user", "content": text}],
        }
    )


def told(run_input: RunAgentInput) -> Any:
    """The scripted target's orders are JSON in the question."""
    return json.loads(str(run_input.messages[-1].content))


async def run(agent: Any, text: str, thread: str = "t") -> list[Json]:
    run_input = asks(text, thread)
    frames = b"".join([frame async for frame in stream_agui_sse(agent(run_input), run_input)])
    return events_of(frames)


async def serve(app: Any, text: str) -> list[Json]:
    """The events of one POST to an application."""
    sent: list[bytes] = []
    body = asks(text).model_dump_json(by_alias=True).encode()
    received: list[Json] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Json:
        if not received:
            await asyncio.Event().wait()
        return received.pop()

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    await app(
        {
            "type": "http",
            "method": "POST",
            "path": "/agui",
            "raw_path": b"/agui",
            "root_path": "",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"host", b"127.0.0.1")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "scheme": "http",
            "http_version": "1.1",
        },
        receive,
        send,
    )
    return events_of(b"".join(sent))


def events_of(frames: bytes) -> list[Json]:
    events = [json.loads(part[6:]) for part in frames.decode().split("\n\n") if part.startswith("data: ")]
    assert check_events(events) == []
    return events


def said(events: list[Json]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


async def assert_usable(runtime: Runtime) -> None:
    stream = runtime.invoke_openai_stream(input={"do": "flood", "times": 3})
    assert len([chunk async for chunk in stream]) == 3
    assert (await stream.result()).status == "succeeded"


async def over(runtime: Runtime) -> None:
    """The turn has its result, whoever reads it."""
    while not runtime.invocations:
        await asyncio.sleep(0.01)


async def test_a_client_that_stalls_beyond_the_timeout_gets_its_whole_run_and_the_runtime_lives(start: Start) -> None:
    # More chunks than the SDK and the sockets hold between them: a turn that waited for its reader would not end.
    with anyio.fail_after(60):
        async with start(timeout=20) as runtime:
            events = convert_fabric_sse(runtime.invoke_openai_stream(input={"do": "flood", "times": 30_000}), {})
            first = await anext(events)
            await over(runtime)
            await assert_usable(runtime)
            rest = b"".join([frame async for frame in events])
            assert said(events_of(first + rest)) == "x" * 30_000


async def leave(state: str, events: Any) -> None:
    if state == "never begun":
        return
    async for _ in events:
        if state == "begun":
            return
    assert state == "finished"


@pytest.mark.parametrize("how", ["closed", "dropped"])
@pytest.mark.parametrize("state", ["never begun", "begun", "finished"])
async def test_a_run_can_be_left_in_every_state_and_its_runtime_lives(start: Start, state: str, how: str) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            events = convert_fabric_sse(runtime.invoke_openai_stream(input={"do": "slowly", "times": 5}), {})
            await leave(state, events)
            if how == "closed":
                await events.aclose()
                await events.aclose()
            else:
                del events
                gc.collect()
            await wait_fabric_drains()
            await assert_usable(runtime)


async def test_a_cancelled_client_keeps_its_cancellation_and_the_runtime_lives(start: Start) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            events = convert_fabric_stream(runtime.invoke_openai_stream(input={"do": "slowly", "times": 5}), {})
            while (await anext(events)).type != "TEXT_MESSAGE_CONTENT":
                pass
            pull = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            pull.cancel()
            with pytest.raises(asyncio.CancelledError):
                await pull
            await events.aclose()
            await wait_fabric_drains()
            await assert_usable(runtime)


async def test_requests_at_once_and_a_turn_that_fails_in_an_application(start: Start) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            app = create_app(fabric_source(runtime, prepare=told))
            orders = [{"do": "slowly", "times": n, "pause": 0} for n in range(1, 5)] + [{"do": "raise_"}]
            *runs, failed = await asyncio.gather(*[serve(app, json.dumps(order)) for order in orders])
            for n, events in enumerate(runs, 1):
                assert events[-1]["type"] == "RUN_FINISHED"
                assert said(events) == "".join(f"{number} " for number in range(n))
            assert (failed[-1]["type"], failed[-1]["code"]) == ("RUN_ERROR", "target_failed")
            assert "own words" not in json.dumps(failed)
            await assert_usable(runtime)


async def test_a_client_that_leaves_an_application_delays_only_the_next_turn(start: Start) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            agent = fabric_source(runtime, prepare=told)
            left = agent(asks('{"do": "slowly", "times": 5}'))
            await anext(left)
            await left.aclose()
            assert said(await run(agent, '{"do": "flood", "times": 3}')) == "xxx"


async def test_a_dead_runtime_is_replaced(tmp_path: Path, host: str) -> None:
    env = {"DRAGENT_HOST": host, "DRAGENT_RUNS": str(tmp_path / "runs")}
    target = {"script": HERE / "scripted_target.py"} if host == "binding" else {**HARNESS, "module": "scripted_target"}
    described = configuration(tmp_path, env=env, **target)

    def begin() -> Awaitable[Runtime]:
        return Fabric().start_runtime(described, base_dir=tmp_path)

    with anyio.fail_after(60):
        async with fabric_source(begin, prepare=told, max_runtimes=1) as agent:
            events = await run(agent, '{"do": "die"}')
            assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "host_crashed")
            assert said(await run(agent, '{"do": "flood", "times": 3}')) == "xxx"


async def test_a_stream_as_a_chunk_source_tells_what_its_result_says(start: Start) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:

            def agent(run_input: RunAgentInput) -> Any:
                return fabric_chunks(runtime.invoke_openai_stream(input=told(run_input)))

            assert said(await run(agent, '{"do": "flood", "times": 3}')) == "xxx"
            for events in (await run(agent, '{"do": "raise_"}'), await serve(create_app(agent), '{"do": "raise_"}')):
                assert (said(events), events[-1]["type"], events[-1]["code"]) == ("a", "RUN_ERROR", "target_failed")
                assert "own words" not in json.dumps(events)
            assert (await run(agent, '{"do": "empty"}'))[-1]["code"] == "EMPTY_ANSWER"


async def test_a_stream_that_nobody_asks_for_its_result_is_refused_and_its_runtime_stays_usable(start: Start) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            bare = runtime.invoke_openai_stream(input={"do": "raise_"})
            events = [json.loads(frame[6:]) async for frame in stream_agui_sse(bare)]
            assert (events[-1]["type"], len(events)) == ("RUN_ERROR", 2)
            assert "fabric_chunks" in events[-1]["message"]
            agent = fabric_source(runtime, prepare=told)
            assert said(await run(agent, '{"do": "flood", "times": 3}')) == "xxx"


@pytest.mark.parametrize("streaming", [False, True], ids=["honest", "lying"])
async def test_a_harness_without_streaming_answers_as_a_run(tmp_path: Path, streaming: bool) -> None:
    with anyio.fail_after(60):
        async with runtime(tmp_path, streaming=streaming, **HARNESS) as started:
            assert started.supports_openai_streaming is streaming
            agent = fabric_source(started)
            app = create_app(agent)
            assert said(await serve(app, "one")) == "one"
            events = await run(agent, "two")
            assert (said(events), events[-1]["type"]) == ("one | two", "RUN_FINISHED")
            events = await serve(app, "fail")
            assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "harness_refused")
            assert said(await run(agent, "three")) == "one | two | fail | three"
            events = await serve(app, "raise")
            assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "harness_broken")
            assert "own words" not in json.dumps(events)


@pytest.mark.parametrize("streaming", [False, True], ids=["honest", "lying"])
async def test_a_lying_descriptor_fails_a_bare_conversion_with_fabrics_code(tmp_path: Path, streaming: bool) -> None:
    with anyio.fail_after(60):
        async with runtime(tmp_path, **HARNESS) as started:
            frames = [frame async for frame in convert_fabric_sse(started.invoke_openai_stream(input="x"), {})]
    last = events_of(b"".join(frames))[-1]
    assert (last["type"], last["code"]) == ("RUN_ERROR", "lifecycle_openai_stream_unsupported")
    assert last["message"].startswith("The agent failed (lifecycle_openai_stream_unsupported). Reference: ")


async def test_threads_have_harnesses_of_their_own(tmp_path: Path) -> None:
    described = configuration(tmp_path, **HARNESS)

    def begin() -> Awaitable[Runtime]:
        return Fabric().start_runtime(described, base_dir=tmp_path)

    with anyio.fail_after(60):
        async with fabric_source(begin, max_runtimes=2) as agent:
            runs = [run(agent, f"{thread}{n}", thread) for n in range(2) for thread in "ab"]
            answers = [said(events) for events in await asyncio.gather(*runs)]
            assert answers == ["a0", "b0", "a0 | a1", "b0 | b1"]


async def test_a_runtime_that_does_not_start_fails_its_run_with_fabrics_code(tmp_path: Path) -> None:
    described = configuration(tmp_path, env={"HARNESS_START": "fail"}, **HARNESS)

    def begin() -> Awaitable[Runtime]:
        return Fabric().start_runtime(described, base_dir=tmp_path)

    with anyio.fail_after(60):
        async with fabric_source(begin) as agent:
            events = await serve(create_app(agent), "x")
    assert events[-1]["code"] == "lifecycle_adapter_start_failed"
    assert "OPENAI_API_KEY" not in json.dumps(events)


if DEADLINES:  # the environment of 0.2 has no bundled adapter: remote-agent came with 0.3

    async def test_the_bundled_adapter_that_claims_streaming_answers_as_a_run(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ADAPTER_PYTHON", sys.executable)
        with anyio.fail_after(60):
            async with ScriptedModel(
                [[text_chunk("Hel"), text_chunk("lo"), finish_chunk(), usage_chunk(3, 4)]] * 2
            ) as model:
                settings = {"base_url": model.base_url, "api_type": "openai-completions"}
                config = {"models": {"default": {"provider": "openai", "model": "scripted"}}}
                adapter = "nvidia.fabric.remote-agent"
                async with runtime(tmp_path, adapter=adapter, harness={"settings": settings}, config=config) as started:
                    assert started.supports_openai_streaming
                    agent = fabric_source(started)
                    for question in ("one", "two"):
                        events = await run(agent, question)
                        assert (said(events), events[-1]["type"]) == ("Hello", "RUN_FINISHED")
                        assert events[-1]["usage"][0]["inputTokens"] == 3
                (_, second) = model.requests
                assert [message["content"] for message in second.body["messages"]] == ["one", "Hello", "two"]
