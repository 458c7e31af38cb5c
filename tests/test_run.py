"""Whole runs: what a request may look like."""

from __future__ import annotations

from typing import Any

import pytest
from ag_ui.core import RunAgentInput
from agui_case import delta, wire

from dragent_stream import ConversionError, stream_agui_run, stream_agui_sse


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [None]},
        {"messages": "abc"},
        {"messages": {"a": 1}},
        {"messages": 5},
        {"messages": [{"toolCalls": "x"}]},
        {"messages": [{"toolCalls": [None]}]},
        {"tools": [None]},
        {"tools": ["f"]},
        {"tools": {"name": "f"}},
        {"tools": 5},
    ],
)
def test_a_request_whose_lists_are_none_is_refused_in_words(fields: dict[str, Any]) -> None:
    with pytest.raises(ConversionError, match="must be a list of objects"):
        stream_agui_run([], fields)


def test_a_request_object_that_was_built_without_validation_is_refused_in_words() -> None:
    broken = RunAgentInput.model_construct(thread_id="t", run_id="r", tools=["f"])
    with pytest.raises(ConversionError):
        stream_agui_run([], broken)


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": None, "tools": None, "threadId": None},
        {"messages": [{"role": "user", "content": "hi"}], "tools": [{}, {"name": None}]},
        {"protocolVersion": 1.0, "threadId": 5},
        {"threadId": "t\ud800", "runId": "\udc00"},
    ],
)
async def test_what_a_request_leaves_out_or_spells_oddly_is_no_reason_to_refuse_it(fields: dict[str, Any]) -> None:
    events = [wire(event) async for event in stream_agui_run(["hi"], fields)]
    assert [event["type"] for event in events][-1] == "RUN_FINISHED"


async def test_a_run_input_may_be_the_text_of_a_request() -> None:
    for text in ('{"threadId": "t1", "runId": "r1"}', b'{"threadId": "t1", "runId": "r1"}'):
        frames = [frame async for frame in stream_agui_sse([delta("stop", content="Hi")], text)]
        assert b'"threadId":"t1","runId":"r1"' in frames[0]
    for text in ("{", "[]"):
        with pytest.raises(ConversionError, match="run_input is"):
            stream_agui_sse([], text)
