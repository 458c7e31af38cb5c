"""The stream of a turn as a chunk source: its end is a success only where the turn's result is one."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from dragent_stream import stream_agui_sse
from dragent_stream.check import check_events
from dragent_stream.errors import UpstreamError
from dragent_stream.fabric import fabric_chunks, wait_fabric_drains
from dragent_stream.testing import finish_chunk, text_chunk, usage_chunk

Json = dict[str, Any]
SUCCEEDED: Json = {"status": "succeeded", "output": {"response": "ab"}}
FAILED: Json = {"status": "failed", "output": None, "error": {"code": "rate_limited", "message": "secret"}}


class Stream:
    """Imitates the SDK's `OpenAIInvokeStream`."""

    def __init__(self, chunks: list[Any], outcome: Any = SUCCEEDED) -> None:
        self.chunks = chunks
        self.outcome = outcome
        self.over = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[Any]:
        for chunk in self.chunks:
            await asyncio.sleep(0)
            yield chunk

    async def result(self) -> Any:
        self.over.set()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    async def aclose(self) -> None:
        self.over.set()


async def events_of(source: Any) -> list[Json]:
    with anyio.fail_after(5):
        events = [json.loads(frame[6:]) async for frame in stream_agui_sse(source)]
    assert check_events(events) == []
    return events


def said(events: list[Json]) -> str:
    return "".join(event.get("delta", "") for event in events)


async def test_a_turn_is_a_chunk_source() -> None:
    events = await events_of(
        fabric_chunks(Stream([text_chunk("a"), text_chunk("b"), finish_chunk(), usage_chunk(1, 2)]))
    )
    assert (said(events), events[-1]["type"]) == ("ab", "RUN_FINISHED")
    assert events[-1]["usage"][0]["totalTokens"] == 3


async def test_a_turn_that_failed_fails_the_run_with_fabrics_code_and_without_its_text() -> None:
    events = await events_of(fabric_chunks(Stream([text_chunk("a")], FAILED)))
    assert (said(events), events[-1]["type"], events[-1]["code"]) == ("a", "RUN_ERROR", "rate_limited")
    assert events[-1]["message"].startswith("The agent failed (rate_limited). Reference: ")
    assert "secret" not in json.dumps(events)


async def test_the_sdks_exception_is_the_cause() -> None:
    error = RuntimeError("adapter lifecycle invoke failed for runtime `r` (host_crashed): secret")
    with anyio.fail_after(5):
        with pytest.raises(UpstreamError) as caught:
            async for _ in fabric_chunks(Stream([], error)):
                pass
    assert (caught.value.code, caught.value.__cause__, caught.value.private) == ("host_crashed", error, True)


async def test_the_answer_of_a_silent_turn_is_shown() -> None:
    events = await events_of(fabric_chunks(Stream([])))
    assert (said(events), events[-1]["type"]) == ("ab", "RUN_FINISHED")
    events = await events_of(fabric_chunks(Stream([], {"status": "succeeded", "output": None})))
    assert events[-1]["code"] == "EMPTY_ANSWER"


async def test_the_stream_itself_is_refused_with_the_remedy_and_closed() -> None:
    stream = Stream([text_chunk("a")], FAILED)
    events = await events_of(stream)
    assert [event["type"] for event in events] == ["RUN_STARTED", "RUN_ERROR"]
    assert "fabric_chunks" in events[-1]["message"]
    assert stream.over.is_set()


@pytest.mark.parametrize("begun", [False, True])
async def test_a_reader_that_leaves_lets_the_turn_run_out(begun: bool) -> None:
    stream = Stream([text_chunk("a"), text_chunk("b")])
    with anyio.fail_after(5):
        chunks = fabric_chunks(stream)
        if begun:
            await anext(chunks)
        del chunks
        gc.collect()
        await wait_fabric_drains()
    assert stream.over.is_set()
