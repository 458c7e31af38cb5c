"""Reading the request: both generations of clients, and errors that name the field."""

import json
from typing import Any

import pytest
from asgi_wire import run_input

from dragent_stream.asgi.run_input import RunInputError, read_run_input


def read(**fields: Any) -> Any:
    return read_run_input(json.dumps(run_input(**fields)).encode())


def test_a_1_0_client_is_understood() -> None:
    found = read(parentRunId="before")
    assert (found.thread_id, found.run_id) == ("thread", "run")
    assert found.model_dump(by_alias=True)["protocolVersion"] == "1.0"


def test_a_0_x_client_sends_no_protocol_version() -> None:
    assert not read(protocolVersion=None).model_dump(by_alias=True).get("protocolVersion")


def test_what_a_client_may_leave_out_is_filled_in() -> None:
    found = read(state=None, tools=None, context=None, forwardedProps=None)
    assert (found.state, found.tools, found.context, found.forwarded_props) == ({}, [], [], {})


def test_null_counts_as_left_out() -> None:
    body = json.dumps({**run_input(), "tools": None, "context": None, "state": None}).encode()
    assert read_run_input(body).tools == []


def test_snake_case_ids_are_understood() -> None:
    body = json.dumps({"thread_id": "t", "run_id": "r", "messages": []}).encode()
    assert read_run_input(body).run_id == "r"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"nope", b"[" * 100_000])
def test_a_body_that_is_no_json_is_400(body: bytes) -> None:
    with pytest.raises(RunInputError, match="the body is not JSON") as caught:
        read_run_input(body)
    assert (caught.value.status, caught.value.code, caught.value.field) == (400, "invalid_json", "")


@pytest.mark.parametrize("body", [b"[]", b"3", b"null", b'"text"'])
def test_a_body_that_is_no_object_is_400(body: bytes) -> None:
    with pytest.raises(RunInputError, match="must be a JSON object") as caught:
        read_run_input(body)
    assert caught.value.status == 400


USER = {"id": "1", "role": "user", "content": "hi"}
FUNCTION = {"name": "f", "arguments": "{}"}
CALL = {"id": "c", "type": "function", "function": FUNCTION}


@pytest.mark.parametrize(
    ("fields", "field", "problem"),
    [
        ({"threadId": None}, "threadId", "is missing"),
        ({"runId": None}, "runId", "is missing"),
        ({"runId": ""}, "runId", "must be a string that is not blank"),
        ({"threadId": 3}, "threadId", "must be a string that is not blank"),
        ({"messages": None}, "messages", "is missing"),
        ({"messages": 3}, "messages", "should be a valid list"),
        ({"messages": [USER, 3]}, "messages[1]", "should be a valid dictionary"),
        ({"messages": [{"id": "1", "content": "hi"}]}, "messages[0].role", "is missing"),
        ({"messages": [{**USER, "role": "robot"}]}, "messages[0].role", "must be one of 'developer'"),
        ({"messages": [{**USER, "role": ["user"]}]}, "messages[0].role", "must be one of 'developer'"),
        ({"messages": [{**USER, "role": {"user": 1}}]}, "messages[0].role", "must be one of 'developer'"),
        ({"messages": [{**USER, "role": None}]}, "messages[0].role", "must be one of 'developer'"),
        ({"messages": [{**USER, "content": {"text": "hi"}}]}, "messages[0].content", "should be a valid"),
        ({"messages": [[USER]]}, "messages[0]", "should be a valid dictionary"),
        ({"messages": [USER, {**USER, "toolCalls": 3}]}, "messages[1].toolCalls", "must be a list of objects"),
        ({"messages": [{**USER, "toolCalls": "c"}]}, "messages[0].toolCalls", "must be a list of objects"),
        ({"messages": [{**USER, "toolCalls": CALL}]}, "messages[0].toolCalls", "must be a list of objects"),
        ({"messages": [{**USER, "toolCalls": [[CALL]]}]}, "messages[0].toolCalls", "must be a list of objects"),
        ({"messages": [{**USER, "toolCalls": [None]}]}, "messages[0].toolCalls", "must be a list of objects"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "messages[0].id", "is missing"),
        ({"messages": [{"id": "1", "role": "user"}]}, "messages[0].content", "is missing"),
        ({"messages": [{**USER, "content": 3}]}, "messages[0].content", "should be a valid"),
        ({"messages": [{**USER, "content": [{"type": "text"}]}]}, "messages[0].content[0].text", "is missing"),
        ({"messages": [{**USER, "role": "tool"}]}, "messages[0].toolCallId", "is missing"),
        (
            {"messages": [{"id": "1", "role": "assistant", "toolCalls": [{**CALL, "function": {"name": "f"}}]}]},
            "messages[0].toolCalls[0].function.arguments",
            "is missing",
        ),
        ({"tools": [{"name": "f"}]}, "tools[0].description", "is missing"),
        ({"tools": {}}, "tools", "should be a valid list"),
        ({"context": [{"value": "v"}]}, "context[0].description", "is missing"),
    ],
)
def test_a_bad_field_is_422_and_named(fields: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(RunInputError) as caught:
        read(**fields)
    assert caught.value.field == field
    assert caught.value.status == 422
    assert problem in str(caught.value)
    assert str(caught.value).startswith(f"{field}: ")
