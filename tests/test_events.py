"""The two writers: one method set, one wire JSON, and no event beyond those that are pinned here."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest
from agui_case import wire

from dragent_stream import events
from dragent_stream.events import EventWriter, ModelEvents, WireEvents

USAGE = [{"model": "m", "inputTokens": 1}]

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = [
    ("run_started", ("t", "r"), {}, {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"}),
    ("run_finished", ("t", "r"), {}, {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}),
    (
        "run_finished",
        ("t", "r"),
        {"outcome": {"type": "success"}, "usage": USAGE},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": {"type": "success"}, "usage": USAGE},
    ),
    ("run_error", ("m", "c"), {}, {"type": "RUN_ERROR", "message": "m", "code": "c"}),
    ("run_error", ("m", "c"), {"usage": USAGE}, {"type": "RUN_ERROR", "message": "m", "code": "c", "usage": USAGE}),
    ("step_started", ("s",), {}, {"type": "STEP_STARTED", "stepName": "s"}),
    ("step_finished", ("s",), {}, {"type": "STEP_FINISHED", "stepName": "s"}),
    ("text_start", ("m",), {}, {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}),
    ("text_end", ("m",), {}, {"type": "TEXT_MESSAGE_END", "messageId": "m"}),
    (
        "encrypted_value",
        ("tool-call", "e", "v"),
        {},
        {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "tool-call", "entityId": "e", "encryptedValue": "v"},
    ),
    ("call_start", ("c", "f", None), {}, {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f"}),
    (
        "call_start",
        ("c", "f", "m"),
        {},
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f", "parentMessageId": "m"},
    ),
    ("call_end", ("c",), {}, {"type": "TOOL_CALL_END", "toolCallId": "c"}),
    (
        "call_result",
        ("m", "c", "4"),
        {},
        {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": "4", "role": "tool"},
    ),
    ("custom", ("a.b", {"x": None}), {}, {"type": "CUSTOM", "name": "a.b", "value": {"x": None}}),
]


@pytest.mark.parametrize("writer", [ModelEvents(), WireEvents()], ids=["models", "wire"])
@pytest.mark.parametrize(("method", "args", "kwargs", "expected"), CALLS)
def test_a_writer_says_exactly_this(
    writer: EventWriter[Any], method: str, args: tuple[Any, ...], kwargs: dict[str, Any], expected: Any
) -> None:
    assert wire(getattr(writer, method)(*args, **kwargs)) == expected


@pytest.mark.parametrize("writer", [ModelEvents(), WireEvents()], ids=["models", "wire"])
def test_a_thought_is_a_span_with_one_message(writer: EventWriter[Any]) -> None:
    frames = [*writer.reasoning_start("r"), writer.reasoning_writer("r")("hm"), *writer.reasoning_end("r")]
    assert [wire(frame) for frame in frames] == [
        {"type": "REASONING_START", "messageId": "r"},
        {"type": "REASONING_MESSAGE_START", "messageId": "r", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "r", "delta": "hm"},
        {"type": "REASONING_MESSAGE_END", "messageId": "r"},
        {"type": "REASONING_END", "messageId": "r"},
    ]


def test_the_surface_of_emitted_events_is_pinned() -> None:
    names = {node.id for node in ast.walk(ast.parse(inspect.getsource(events))) if isinstance(node, ast.Name)}
    assert sorted(name for name in names if name.endswith("Event") and name != "BaseEvent") == [
        "CustomEvent",
        "ReasoningEncryptedValueEvent",
        "ReasoningEndEvent",
        "ReasoningMessageContentEvent",
        "ReasoningMessageEndEvent",
        "ReasoningMessageStartEvent",
        "ReasoningStartEvent",
        "RunErrorEvent",
        "RunFinishedEvent",
        "RunStartedEvent",
        "StepFinishedEvent",
        "StepStartedEvent",
        "TextMessageContentEvent",
        "TextMessageEndEvent",
        "TextMessageStartEvent",
        "ToolCallArgsEvent",
        "ToolCallEndEvent",
        "ToolCallResultEvent",
        "ToolCallStartEvent",
    ]
