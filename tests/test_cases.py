"""Every recorded provider bug, whole and split, through both writers, the async shells and the trace format."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import time
from typing import Any

import anyio
import pytest
from agui_case import (
    Upstream,
    assert_expected,
    both_writers,
    by_trace,
    calls,
    case_id,
    feed_of,
    load_cases,
    options_of,
    order_of,
    splits,
    texts,
    wire,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from dragent_stream.check import check_events
from dragent_stream.run import stream_agui_run
from dragent_stream.step_adaptor import StepConverter
from dragent_stream.stream_converter import ChunkConverter, convert_chunks_to_agui_events

CONVERTED = load_cases("chunks", "steps", "feed", "sse")


def _is_object(chunk: Any) -> bool:
    try:
        return isinstance(chunk, dict) and json.loads(json.dumps(chunk, allow_nan=False)) == chunk
    except ValueError:
        return False


# Their deltas are snapshots of the text so far, which a piece of one is not.
SNAPSHOTS = ("253", "254")
CHUNKED = [case for case in load_cases("chunks") if "repeat" not in case]
UPSTREAMS = load_cases("upstream")


@pytest.mark.parametrize("case", CONVERTED, ids=case_id)
def test_a_case_comes_out_as_expected_through_both_writers(case: dict[str, Any]) -> None:
    started = time.process_time()
    events = both_writers(case)
    if repeat := case.get("repeat"):
        assert time.process_time() - started < 2 * repeat["max_seconds"]
    assert_expected(case, events)
    assert check_events(events) == []


@pytest.mark.parametrize("case", CONVERTED, ids=case_id)
def test_a_case_comes_out_as_expected_from_a_recording(case: dict[str, Any]) -> None:
    events = by_trace(case)
    # JSON has no dates, sets and bytes: what the recorder wrote for them is what counts then.
    if case["id"] != "104":
        assert_expected(case, events)
    assert check_events(events) == []


@pytest.mark.parametrize("case", load_cases("feed"), ids=case_id)
def test_two_converters_that_share_a_ledger_give_what_one_stream_of_both_gives(case: dict[str, Any]) -> None:
    from dragent_stream.events import ModelEvents
    from dragent_stream.ledger import RunLedger

    ledger = RunLedger(ModelEvents(), options=options_of(case), thread_id="t", run_id="r")
    chunks, steps = ChunkConverter(ledger), StepConverter(ledger)
    events = ledger.start_run()
    for item in feed_of(case):
        if isinstance(item, Exception):
            events += chunks.fail(item)
        elif hasattr(item, "step"):
            events += steps.feed(item.step)
        else:
            events += chunks.feed(item)
    events += chunks.finish() + steps.finish() + ledger.finish_run()
    assert_expected(case, [wire(event) for event in events])


@given(data=st.data())
@settings(deadline=None, max_examples=25)
@pytest.mark.parametrize("case", [case for case in CHUNKED if case["id"] not in SNAPSHOTS], ids=case_id)
def test_any_split_of_a_case_gives_the_same_run(case: dict[str, Any], data: st.DataObject) -> None:
    whole = both_writers(case)
    pieces = [piece for chunk in feed_of(case) for piece in _cut(chunk, data)]
    split = both_writers(case, pieces)
    assert list(texts(split).values()) == list(texts(whole).values())
    assert calls(split) == [
        {**call, "parent": other["parent"]} for call, other in zip(calls(whole), calls(split), strict=True)
    ]
    assert list(texts(split, "REASONING_MESSAGE").values()) == list(texts(whole, "REASONING_MESSAGE").values())
    assert order_of(split) == order_of(whole)


@given(data=st.data())
@settings(deadline=None, max_examples=10)
@pytest.mark.parametrize("case", [case for case in CHUNKED if all(map(_is_object, feed_of(case)))], ids=case_id)
def test_a_case_as_sse_body_gives_the_same_run_however_it_is_cut(case: dict[str, Any], data: st.DataObject) -> None:
    separators = data.draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    ascii_only = data.draw(st.booleans())
    frames = [json.dumps(chunk, separators=separators, ensure_ascii=ascii_only) for chunk in feed_of(case)]
    body = "".join(f"data: {frame}\n\n" for frame in [*frames, "[DONE]"]).encode("utf-8", "backslashreplace")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    reads = [body[a:b] for a, b in itertools.pairwise([0, *cuts, len(body)])]
    assert both_writers(case, reads) == both_writers(case)


def _cut(chunk: Any, data: st.DataObject) -> list[Any]:
    """The chunk as several: text, thought and arguments cut anywhere, everything else in the first piece that has it."""
    choices = chunk.get("choices") if isinstance(chunk, dict) else None
    if not choices or len(choices) != 1 or "message" in choices[0] or not isinstance(choices[0].get("delta"), dict):
        return [chunk]
    delta = choices[0]["delta"]
    field = next(
        (key for key in ("content", "reasoning_content") if isinstance(delta.get(key), str) and delta[key]), None
    )
    entries = delta.get("tool_calls") or []
    if field and not entries:
        cuts = data.draw(st.lists(st.integers(1, max(1, len(delta[field]) - 1)), max_size=3))
        parts = list(splits(delta[field], cuts))
        found = []
        for number, part in enumerate(parts):
            piece = copy.deepcopy(chunk)
            piece["choices"][0]["delta"] = {**delta, field: part}
            if number < len(parts) - 1:
                piece["choices"][0]["finish_reason"] = None
                piece.pop("usage", None)
            found.append(piece)
        return found
    arguments = entries[0]["function"].get("arguments") if len(entries) == 1 and "function" in entries[0] else None
    if not field and isinstance(arguments, str) and arguments:
        cuts = data.draw(st.lists(st.integers(1, max(1, len(arguments) - 1)), max_size=3))
        parts = list(splits(arguments, cuts))
        found = []
        for number, part in enumerate(parts):
            piece = copy.deepcopy(chunk)
            entry = piece["choices"][0]["delta"]["tool_calls"][0]
            if number:
                entry.pop("id", None)
                entry["function"] = {}
            entry["function"]["arguments"] = part
            if number < len(parts) - 1:
                piece["choices"][0]["finish_reason"] = None
            found.append(piece)
        return found
    return [chunk]


@pytest.mark.parametrize("case", CHUNKED, ids=case_id)
async def test_the_async_shells_say_what_the_converter_says(case: dict[str, Any]) -> None:
    expected = both_writers(case)
    run = [
        event
        async for event in stream_agui_run(feed_of(case), {"threadId": "t", "runId": "r"}, options=options_of(case))
    ]
    assert [wire(event) for event in run] == expected
    batches = [batch async for batch in convert_chunks_to_agui_events(feed_of(case), options=options_of(case))]
    flat = [wire(event) for batch in batches for event in batch.events]
    assert [{**e, "usage": None} for e in flat] == [
        {**e, "usage": None} for e in expected[1:] if e["type"] != "RUN_FINISHED"
    ]


@pytest.mark.parametrize("case", UPSTREAMS, ids=case_id)
async def test_an_upstream_that_misbehaves_is_closed_once_and_said_so(case: dict[str, Any]) -> None:
    upstream = Upstream(case["upstream"])
    consumer = case.get("consumer", {})
    lifecycle = case["expect"].get("lifecycle", {})
    stream = stream_agui_run(upstream, options=options_of(case))
    events: list[Any] = []
    with anyio.fail_after(5):
        if lifecycle.get("raises"):
            with pytest.raises(asyncio.CancelledError):
                async for event in stream:
                    events.append(event)
            assert upstream.closed == 1
            assert not any(wire(event)["type"] in ("RUN_FINISHED", "RUN_ERROR") for event in events)
            return
        async for event in stream:
            events.append(event)
            if len(events) == consumer.get("aclose_after_events"):
                await stream.aclose()
    assert upstream.closed == 1
    assert upstream.pulled <= lifecycle.get("pulled_at_most", len(case["upstream"]))
    if not consumer.get("aclose_after_events"):
        assert_expected(case, [wire(event) for event in events])
