"""A whole completion as one AG-UI run: synthesized chunks through the core."""

import json
from pathlib import Path
from typing import Any

import pytest

from dragent_stream.chat_completions import synthesize_chat_completion_chunks
from dragent_stream.check import check_events
from dragent_stream.run import stream_agui_run

SHAPES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "clients_chat" / "shapes.json").read_text("utf-8")
)


async def run_of(completion: dict[str, Any]) -> list[dict[str, Any]]:
    chunks = synthesize_chat_completion_chunks(completion, include_usage=True)
    return [
        json.loads(event.model_dump_json(by_alias=True, exclude_none=True)) async for event in stream_agui_run(chunks)
    ]


def text_of(events: list[dict[str, Any]], kind: str) -> str:
    return "".join(event["delta"] for event in events if event["type"] == kind)


@pytest.mark.parametrize("name", SHAPES)
async def test_every_completion_becomes_one_valid_run(name: str) -> None:
    message = SHAPES[name]["choices"][0]["message"]
    if SHAPES[name]["choices"][0]["index"]:
        message = SHAPES[name]["choices"][1]["message"]
    events = await run_of(SHAPES[name])
    assert check_events(events) == []
    assert text_of(events, "TEXT_MESSAGE_CONTENT") == (
        message.get("content") or message.get("refusal") or (message.get("audio") or {}).get("transcript", "")
    )
    thought = message.get("reasoning_content") or message.get("reasoning") or ""
    assert text_of(events, "REASONING_MESSAGE_CONTENT") == thought
    expected = [
        call.get("function", call.get("custom"))["name"]
        for call in [*(message.get("tool_calls") or []), {"function": message.get("function_call")}]
        if call.get("function", call.get("custom"))
    ]
    assert [event["toolCallName"] for event in events if event["type"] == "TOOL_CALL_START"] == expected
    ended = "RUN_ERROR" if name == "finish_reason content_filter" else "RUN_FINISHED"
    assert events[-1]["type"] == ended


async def test_the_usage_of_a_completion_stands_on_the_terminal_event() -> None:
    (usage,) = (await run_of(SHAPES["text with usage and details"]))[-1]["usage"]
    assert (usage["inputTokens"], usage["outputTokens"], usage["totalTokens"]) == (11, 7, 18)
