"""From a RunAgentInput to NAT's ChatRequest."""

from typing import Any

import pytest
from nat_server import user_says

from dragent_stream.errors import ConversionError
from dragent_stream.nat.imports import MESSAGES_KEEP_TOOLS
from dragent_stream.nat.messages import chat_request, with_message_ids

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
HISTORY = [
    {"id": "1", "role": "developer", "content": "Be brief."},
    {"id": "2", "role": "user", "content": "1 and 1?"},
    {"id": "3", "role": "assistant", "content": "See:", "toolCalls": [CALL]},
    {"id": "4", "role": "tool", "toolCallId": "c1", "content": "2"},
    {"id": "5", "role": "activity", "activityType": "x", "content": {}},
    {"id": "6", "role": "assistant", "content": "Two."},
    {"id": "7", "role": "user", "content": "Thanks."},
]


def messages(given: list[dict[str, Any]], *, keep_tools: bool = MESSAGES_KEEP_TOOLS) -> list[dict[str, Any]]:
    request = chat_request({"messages": given}, keep_tools=keep_tools)
    return [message.model_dump(mode="json", exclude_none=True) for message in request.messages]


def test_the_history_keeps_its_order_and_its_tools() -> None:
    told = messages(HISTORY)
    assert [m["role"] for m in told][:2] == ["system", "user"]
    assert told[-1] == {"role": "user", "content": "Thanks."}
    if MESSAGES_KEEP_TOOLS:
        assert told[2] == {"role": "assistant", "content": "See:", "tool_calls": [CALL]}
        assert told[3] == {"role": "tool", "content": "2", "tool_call_id": "c1"}
    else:
        line = '[called the tool add with {"a":1}; it returned "2"]'
        assert told[2] == {"role": "assistant", "content": f"See:\n{line}"}
        assert told[3] == {"role": "assistant", "content": "Two."}


def test_plain_messages_hold_calls_and_results_as_text() -> None:
    told = messages(HISTORY, keep_tools=False)
    assert told[2]["content"] == 'See:\n[called the tool add with {"a":1}; it returned "2"]'
    assert [m["role"] for m in told] == ["system", "user", "assistant", "assistant", "user"]


def test_a_result_at_the_end_is_the_users_turn_where_there_are_no_tools() -> None:
    told = messages(HISTORY[1:4], keep_tools=False)
    assert told == [
        {"role": "user", "content": "1 and 1?"},
        {"role": "assistant", "content": 'See:\n[called the tool add with {"a":1}]'},
        {"role": "user", "content": "[the tool add returned 2]"},
    ]


def test_user_parts_of_both_protocol_versions_are_read() -> None:
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "data", "value": "AAAA", "mimeType": "image/png"}},
        {"type": "image", "source": {"type": "url", "value": "https://example.com/a.png"}},
        {"type": "binary", "mimeType": "image/jpeg", "data": "BBBB"},
        {"type": "binary", "mimeType": "image/jpeg", "url": "https://example.com/b.jpg"},
        {"type": "audio", "source": {"type": "data", "value": "CCCC", "mimeType": "audio/wav"}},
        {"type": "document", "source": {"type": "data", "value": "DDDD", "mimeType": "application/pdf"}},
    ]
    assert messages([{"id": "1", "role": "user", "content": parts}])[0]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,BBBB"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/b.jpg"}},
        {"type": "input_audio", "input_audio": {"data": "CCCC", "format": "wav"}},
        {"type": "text", "text": "[application/pdf attachment, which this agent cannot read]"},
    ]


def test_frontend_tools_state_context_and_props_go_along() -> None:
    run_input = user_says(
        "hi",
        tools=[{"name": "pick", "description": "Pick.", "parameters": {"type": "object"}}],
        state={"n": 1},
        context=[{"description": "d", "value": "v"}],
        forwardedProps={"p": True},
    )
    request = chat_request(run_input)
    function = {"name": "pick", "description": "Pick.", "parameters": {"type": "object"}}
    assert request.tools == [{"type": "function", "function": function}]
    extra = request.model_extra or {}
    assert (extra["state"], extra["forwarded_props"]) == ({"n": 1}, {"p": True})
    assert extra["context"] == [{"description": "d", "value": "v"}]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "messages: a list"),
        ({"messages": [1]}, "messages[0]: an object"),
        ({"messages": [{"role": "reasoning", "content": "x"}]}, "none for the model"),
        ({"messages": [{"role": "assistant", "toolCalls": [{}]}]}, "messages[0].toolCalls"),
        ({"messages": [{"role": "user", "content": [1]}]}, "messages[0].content[0]"),
    ],
)
def test_an_error_names_its_place(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConversionError) as caught:
        chat_request(given)
    assert says in str(caught.value)


def test_message_ids_survive_what_the_agent_does_with_a_request() -> None:
    request = with_message_ids(chat_request({"messages": HISTORY}))
    dumped = [message.model_dump() for message in request.messages]
    assert len({message["id"] for message in dumped}) == len(dumped)
    assert [m["content"] for m in dumped] == [m.content for m in chat_request({"messages": HISTORY}).messages]
