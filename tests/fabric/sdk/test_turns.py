"""Every row of what Fabric does end to end, against the installed SDK, with its common host and with ours.

Where a row differs from what an adapter without this library gets, the test's comment says what it would get.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest
from fabric_runtime import DEADLINES, stderr_of
from nemo_fabric import FabricRuntimeError, FabricStateError, RunResult, Runtime
from scripted_target import MANY, ODD, RECORD_LIMIT

from dragent_stream.fabric import convert_fabric_stream, wait_fabric_drains

Runs = Callable[[], list[str]]
Start = Callable[..., AbstractAsyncContextManager[Runtime]]
pytestmark = pytest.mark.usefixtures("host")


async def turn(runtime: Runtime, do: str, **told: Any) -> tuple[list[dict[str, Any]], RunResult]:
    """(chunks, result): iterated to the end, then the result."""
    stream = runtime.invoke_openai_stream(input={"do": do, **told})
    chunks = [chunk async for chunk in stream]
    return chunks, await stream.result()


def text(chunks: list[dict[str, Any]]) -> str:
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


async def assert_usable(runtime: Runtime) -> None:
    """The runtime takes another turn, and a plain invoke."""
    chunks, result = await turn(runtime, "many")
    assert len(chunks) == len(MANY)
    assert result.status == "succeeded"
    assert (await runtime.invoke(input={"do": "empty"})).status == "succeeded"


async def assert_spent(runtime: Runtime) -> None:
    """The runtime has failed: it refuses another turn, and still can be stopped."""
    with pytest.raises(FabricRuntimeError, match="cannot invoke a failed runtime"):
        stream = runtime.invoke_openai_stream(input={"do": "many"})
        await stream.result()


async def test_an_empty_stream(start: Start, runs: Runs) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            chunks, result = await turn(runtime, "empty")
            assert chunks == []
            assert result.status == "succeeded"
            assert result.output is not None and result.output.response == ""  # type: ignore[union-attr]
            assert runs() == ["empty"]
            await assert_usable(runtime)


async def test_many_chunks_with_tool_calls_and_usage(start: Start, runs: Runs) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            assert runtime.supports_openai_streaming
            chunks, result = await turn(runtime, "many")
            assert chunks == MANY
            assert result.status == "succeeded"
            output: Any = result.output
            assert output["response"] == "Hé\u2028llo wörld \U0001f600"
            assert [call["id"] for call in output["tool_calls"]] == ["c1", "c2"]
            usage: Any = result.usage
            assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (3, 4, 7)
            assert runs() == ["many"]
            await assert_usable(runtime)


async def test_usage_with_cached_tokens(start: Start) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            _, result = await turn(runtime, "cached")
            usage: Any = result.usage
            assert (usage.input_tokens, usage.output_tokens) == (9, 1)
            # Before 0.5 a result that names them is refused.
            assert usage.get("cached_input_tokens") == (8 if DEADLINES else None)
            await assert_usable(runtime)


@pytest.mark.parametrize(
    ("do", "code", "message"),
    [
        # An adapter that raises gets FabricRuntimeError with its traceback, and a failed runtime.
        ("raise_", "target_failed", "the target failed with RuntimeError; the traceback is on the adapter's stderr"),
        ("key_error", "target_failed", "the target failed with KeyError; the traceback is on the adapter's stderr"),
        ("error_chunk", "upstream_error", "overloaded"),
    ],
)
async def test_a_failing_target_says_what_may_be_told_and_leaves_its_traceback_on_stderr(
    start: Start, runs: Runs, tmp_path: Path, do: str, code: str, message: str
) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            chunks, result = await turn(runtime, do)
            assert text(chunks) == ("" if do == "key_error" else "a")
            assert result.status == "failed"
            assert result.error is not None
            assert (result.error.code, result.error.message) == (code, message)
            assert runs() == [do]
            await assert_usable(runtime)
    words = {"raise_": "own words", "key_error": "NO_SUCH_KEY", "error_chunk": "overloaded"}[do]
    assert "Traceback" in (stderr := stderr_of(tmp_path)) and words in stderr


async def test_a_target_that_yields_no_chunks(start: Start, runs: Runs) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            chunks, result = await turn(runtime, "nonsense")
            assert chunks == []
            assert result.error is not None and result.error.code == "invalid_chunk"
            assert result.error.message == "the source yielded a dict with the keys text, which is no chunk"
            assert runs() == ["nonsense"]
            await assert_usable(runtime)


async def test_an_index_that_is_a_list(start: Start) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            chunks, result = await turn(runtime, "odd_index")
            (choice,) = chunks[0]["choices"]
            assert choice["index"] == 0
            assert "index" not in choice["delta"]["tool_calls"][0]
            assert result.status == "succeeded"


async def test_a_cancelled_target(start: Start, runs: Runs) -> None:
    # An adapter that lets CancelledError out loses its whole process: host_crashed.
    with anyio.fail_after(60):
        async with start() as runtime:
            chunks, result = await turn(runtime, "cancel")
            assert text(chunks) == "a"
            assert result.status == "cancelled"
            assert runs() == ["cancel"]
            await assert_usable(runtime)


async def test_chunks_that_fabric_refuses(start: Start, runs: Runs) -> None:
    # An adapter that emits them as they are gets lifecycle_invalid_openai_stream_event and a failed runtime.
    with anyio.fail_after(60):
        async with start() as runtime:
            for which in ODD:
                chunks, result = await turn(runtime, "odd", which=which)
                assert result.status == "succeeded", which
                assert text(chunks)[0] == "a" and text(chunks)[-1] == "b", which
                assert len(chunks) == 3, which
            assert len(runs()) == len(ODD)
            await assert_usable(runtime)


@pytest.mark.parametrize("beyond", [0, 1, 3 * RECORD_LIMIT])
async def test_records_at_and_above_one_mebibyte(start: Start, runs: Runs, beyond: int) -> None:
    # An adapter that emits one byte too much gets lifecycle_openai_stream_event_too_large and a failed runtime.
    with anyio.fail_after(60):
        async with start() as runtime:
            chunks, result = await turn(runtime, "large", size=RECORD_LIMIT + beyond)
            assert text(chunks) == "x" * (RECORD_LIMIT + beyond)
            assert len(chunks) == 2 + beyond // RECORD_LIMIT
            assert result.status == "succeeded"
            assert len(runs()) == 1


async def test_a_chunk_that_cannot_be_divided(start: Start, runs: Runs) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            chunks, result = await turn(runtime, "undividable")
            assert chunks == []
            assert result.error is not None and result.error.code == "invalid_chunk"
            await assert_usable(runtime)
            assert runs().count("undividable") == 1


async def test_an_early_close_waits_for_the_target_and_the_next_turn_works(start: Start, runs: Runs) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            stream = runtime.invoke_openai_stream(input={"do": "slowly", "times": 10})
            async for _ in stream:
                break
            with pytest.raises(FabricStateError):
                runtime.invoke_openai_stream(input={"do": "many"})
            await stream.aclose()
            assert (await stream.result()).status == "succeeded"
            assert runs() == ["slowly"]
            await assert_usable(runtime)


async def test_a_client_that_leaves_is_drained_and_the_next_turn_works(start: Start, runs: Runs) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            events = convert_fabric_stream(runtime.invoke_openai_stream(input={"do": "slowly", "times": 10}))
            async for event in events:
                if event.type == "TEXT_MESSAGE_CONTENT":
                    break
            begun = time.monotonic()
            await events.aclose()
            assert time.monotonic() - begun < 0.2
            await wait_fabric_drains()
            assert runs() == ["slowly"]
            await assert_usable(runtime)


async def test_an_early_close_of_a_flood_drains_it(start: Start, runs: Runs) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            stream = runtime.invoke_openai_stream(input={"do": "flood", "times": 20_000})
            async for _ in stream:
                break
            await stream.aclose()
            assert (await stream.result()).status == "succeeded"
            assert runs() == ["flood"]


async def test_a_slow_consumer_loses_nothing(start: Start) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            stream = runtime.invoke_openai_stream(input={"do": "flood", "times": 20_000})
            await asyncio.sleep(1)
            chunks = [chunk async for chunk in stream]
            assert text(chunks) == "x" * 20_000
            assert (await stream.result()).status == "succeeded"


async def test_a_deadline(start: Start, runs: Runs) -> None:
    with anyio.fail_after(60):
        async with start(timeout=2) as runtime:
            if DEADLINES:
                begun = time.monotonic()
                chunks, result = await turn(runtime, "hang")
                assert time.monotonic() - begun < 2
                assert text(chunks) == "a"
                assert result.error is not None and result.error.code == "timeout"
                assert runs() == ["hang"]
                await assert_usable(runtime)
            else:
                # Before 0.5 no adapter learns of a deadline: the host is killed, whatever serves it.
                with pytest.raises(FabricRuntimeError, match="host_timeout"):
                    await turn(runtime, "hang")
                assert runs() == ["hang"]
                await assert_spent(runtime)


@pytest.mark.parametrize("do", ["hang", "swallow"])
async def test_a_target_that_hangs_beyond_the_adapters_own_limit(start: Start, runs: Runs, do: str) -> None:
    # Fabric 0.2 to 0.4 tell no deadline: without a limit their timeout kills the host, and the runtime with it.
    with anyio.fail_after(60):
        async with start(timeout=10, turn_timeout=0.3) as runtime:
            chunks, result = await turn(runtime, do)
            assert text(chunks) == "a"
            assert result.error is not None and result.error.code == "timeout"
            assert runs() == [do]
            await assert_usable(runtime)


async def test_a_target_that_swallows_its_cancellation_at_fabrics_deadline(start: Start) -> None:
    with anyio.fail_after(60):
        async with start(timeout=2) as runtime:
            if DEADLINES:
                _, result = await turn(runtime, "swallow")
                assert result.error is not None and result.error.code == "timeout"
                await assert_usable(runtime)
            else:
                with pytest.raises(FabricRuntimeError, match="host_timeout"):
                    await turn(runtime, "swallow")


async def test_a_missed_deadline(start: Start, runs: Runs) -> None:
    with anyio.fail_after(60):
        async with start(timeout=2) as runtime:
            stream = runtime.invoke_openai_stream(input={"do": "block"})
            events = [event async for event in convert_fabric_stream(stream)]
            last: Any = events[-1]
            assert last.type == "RUN_ERROR"
            assert last.code == ("timeout" if DEADLINES else "host_timeout")
            assert last.message.startswith(f"The agent failed ({last.code}). Reference: ")
            assert runs() == ["block"]
            await assert_spent(runtime)


async def test_a_killed_host(start: Start, runs: Runs) -> None:
    with anyio.fail_after(60):
        async with start() as runtime:
            stream = runtime.invoke_openai_stream(input={"do": "die"})
            events = [event async for event in convert_fabric_stream(stream)]
            last: Any = events[-1]
            assert (last.type, last.code) == ("RUN_ERROR", "host_crashed")
            assert last.message.startswith("The agent failed (host_crashed). Reference: ")
            with pytest.raises(FabricRuntimeError, match="host_crashed"):
                await stream.result()
            assert runs() == ["die"]
            await assert_spent(runtime)


async def test_prints_of_the_target(start: Start) -> None:
    # Raw bytes on descriptor 1 end a runtime of the common host (protocol_error); ours keeps the descriptor.
    with anyio.fail_after(60):
        async with start() as runtime:
            chunks, result = await turn(runtime, "print_")
            assert text(chunks) == "a"
            assert result.status == "succeeded"
            await assert_usable(runtime)


async def test_two_runtimes_at_once(start: Start, runs: Runs) -> None:
    with anyio.fail_after(60):
        async with start() as one, start() as other:
            turns = [turn(runtime, "slowly", times=20, pause=0.01) for runtime in (one, other)]
            for chunks, result in await asyncio.gather(*turns):
                assert text(chunks) == "".join(f"{number} " for number in range(20))
                assert result.status == "succeeded"
            assert runs() == ["slowly", "slowly"]
