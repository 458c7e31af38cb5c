"""DRAgentEventResponse: its SSE form is that of the wire writer, whatever the events hold."""

from __future__ import annotations

import json
from typing import Any

from ag_ui.core import CustomEvent, RunFinishedEvent, TextMessageContentEvent, ToolCallArgsEvent
from ag_ui.encoder import EventEncoder
from hypothesis import given
from hypothesis import strategies as st

from dragent_stream import DRAgentEventResponse
from dragent_stream.events import ModelEvents, WireEvents
from dragent_stream.response import event_json

text = st.text(min_size=1)


@given(text, text)
def test_a_delta_is_written_as_the_encoder_and_the_wire_writer_write_it(entity: str, delta: str) -> None:
    for method in ("text_writer", "reasoning_writer", "arguments_writer"):
        event = getattr(ModelEvents(), method)(entity)(delta)
        assert event == type(event).model_validate(event.model_dump())
        ours = event_json(event)
        assert ours.isascii()
        assert json.loads(ours) == json.loads(EventEncoder().encode(event)[6:])
        assert f"data: {ours}\n\n".encode() == getattr(WireEvents(), method)(entity)(delta)


def test_a_batch_is_one_frame_per_event_without_nulls() -> None:
    batch = DRAgentEventResponse(
        events=[
            TextMessageContentEvent(messageId="m", delta="a\u2028b", metadata={"a": 1}),
            ToolCallArgsEvent(toolCallId="c", delta="{}"),
            CustomEvent(name="a.b", value={"deep": None}),
            RunFinishedEvent(threadId="t", runId="r"),
        ]
    )
    frames = batch.get_stream_data().split("\n\n")
    assert frames.pop() == ""
    assert [json.loads(frame.removeprefix("data: ")) for frame in frames] == [
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "a\u2028b", "metadata": {"a": 1}},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{}"},
        {"type": "CUSTOM", "name": "a.b", "value": {"deep": None}},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ]
    assert json.loads(batch.model_dump_json())["events"][1] == {
        "type": "TOOL_CALL_ARGS",
        "toolCallId": "c",
        "delta": "{}",
    }


def test_fields_of_datarobot_genai_are_ignored() -> None:
    event = TextMessageContentEvent(message_id="m", delta="x")
    fields: dict[str, Any] = {
        "original_chunk": object(),
        "datarobot_moderations": {"a": 1},
        "pipeline_interactions": None,
    }
    batch = DRAgentEventResponse(events=[event], model="m", **fields)
    assert batch.events == [event]
    assert batch.model_dump(exclude_none=True).keys() == {"events", "model"}
