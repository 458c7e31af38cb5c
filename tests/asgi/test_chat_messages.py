"""The conversation as a Chat Completions endpoint takes it."""

import json
from typing import Any

import pytest
from asgi_wire import run_input

from dragent_stream.asgi.messages import chat_messages, chat_tools
from dragent_stream.asgi.run_input import RunInputError, read_run_input


def convert(*messages: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    numbered = [{"id": str(at), **message} for at, message in enumerate(messages)]
    return chat_messages(read_run_input(json.dumps(run_input(messages=numbered, **fields)).encode()))


def call(call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}


def test_texts_keep_their_roles_and_order() -> None:
    assert convert(
        {"role": "system", "content": "be kind"},
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
    ) == [
        {"role": "system", "content": "be kind"},
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
    ]


def test_results_follow_their_calls_wherever_the_client_keeps_them() -> None:
    assert convert(
        {"role": "assistant", "toolCalls": [call("a"), call("b")]},
        {"role": "assistant", "content": "both done"},
        {"role": "tool", "toolCallId": "b", "content": "B"},
        {"role": "tool", "toolCallId": "a", "content": "A"},
    ) == [
        {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]},
        {"role": "tool", "tool_call_id": "a", "content": "A"},
        {"role": "tool", "tool_call_id": "b", "content": "B"},
        {"role": "assistant", "content": "both done"},
    ]


def test_a_call_of_a_stopped_run_gets_an_empty_result_and_whole_arguments() -> None:
    assert convert({"role": "assistant", "content": "", "toolCalls": [call("a", '{"x": ')]}) == [
        {"role": "assistant", "content": "", "tool_calls": [call("a")]},
        {"role": "tool", "tool_call_id": "a", "content": ""},
    ]


@pytest.mark.parametrize("arguments", ["[]", "1", "null", '"s"', "", "[" * 100_000])
def test_arguments_that_are_no_object_are_an_empty_one(arguments: str) -> None:
    asked, _ = convert({"role": "assistant", "toolCalls": [call("c", arguments)]})
    assert asked["tool_calls"][0]["function"]["arguments"] == "{}"


def test_thoughts_activities_empty_answers_and_orphaned_results_are_not_sent() -> None:
    assert (
        convert(
            {"role": "reasoning", "content": "hm"},
            {"role": "activity", "activityType": "plan", "content": {}},
            {"role": "assistant", "content": ""},
            {"role": "tool", "toolCallId": "gone", "content": "x"},
        )
        == []
    )


def source(kind: str, value: str, mime: str = "image/png") -> dict[str, Any]:
    return {"type": kind, "value": value, "mimeType": mime}


@pytest.mark.parametrize(
    ("part", "converted"),
    [
        ({"type": "text", "text": "hi"}, {"type": "text", "text": "hi"}),
        (
            {"type": "image", "source": source("data", "QQ==")},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
        ),
        (
            {"type": "image", "source": source("url", "http://host/a.png")},
            {"type": "image_url", "image_url": {"url": "http://host/a.png"}},
        ),
        (
            {"type": "audio", "source": source("data", "QQ==", "audio/wav")},
            {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}},
        ),
        (
            {"type": "document", "source": source("data", "QQ==", "application/pdf")},
            {
                "type": "file",
                "file": {"filename": "attachment", "file_data": "data:application/pdf;base64,QQ=="},
            },
        ),
    ],
)
def test_parts_are_converted(part: dict[str, Any], converted: dict[str, Any]) -> None:
    assert convert({"role": "user", "content": [part]}) == [{"role": "user", "content": [converted]}]


def test_a_part_without_counterpart_is_refused_with_its_place() -> None:
    part = {"type": "video", "source": source("url", "http://host/a.mp4", "video/mp4")}
    with pytest.raises(RunInputError, match=r"messages\[0\]\.content\[1\]: a 'video' part"):
        convert({"role": "user", "content": [{"type": "text", "text": "see"}, part]})


def test_the_clients_tools_become_functions() -> None:
    parameters = {"type": "object", "properties": {"x": {"type": "number"}}}
    tools = [{"name": "f", "description": "does", "parameters": parameters}, {"name": "g", "description": ""}]
    found = chat_tools(read_run_input(json.dumps(run_input(tools=tools)).encode()))
    assert found == [
        {"type": "function", "function": {"name": "f", "description": "does", "parameters": parameters}},
        {
            "type": "function",
            "function": {"name": "g", "description": "", "parameters": {"type": "object", "properties": {}}},
        },
    ]
