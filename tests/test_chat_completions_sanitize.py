"""The request of a streaming client, made ready for a server that computes whole completions."""

from collections import OrderedDict
from threading import Lock
from typing import Any

import pytest
from openai.resources.chat.completions import Completions
from pydantic import BaseModel, ConfigDict

from dragent_stream.chat_completions import OPENAI_CHAT_FIELDS, STRICT_CHAT_FIELDS, sanitize_streaming_chat_body
from dragent_stream.errors import ConversionError

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_stream_and_stream_options_are_dropped_and_usage_is_reported() -> None:
    body = {**BODY, "stream": True, "stream_options": {"include_usage": True}}
    assert sanitize_streaming_chat_body(body) == (BODY, True)


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": None}, "include_usage", [1]])
def test_usage_is_not_wanted_without_a_truthy_include_usage(options: object) -> None:
    assert sanitize_streaming_chat_body({**BODY, "stream_options": options}) == (BODY, False)


@pytest.mark.parametrize("value", [1, "yes", "false", [0]])
def test_include_usage_is_plain_truthiness_and_reported_as_a_bool(value: object) -> None:
    assert sanitize_streaming_chat_body({**BODY, "stream_options": {"include_usage": value}})[1] is True


def test_unknown_fields_are_dropped_and_known_ones_keep_their_order_and_value() -> None:
    body = {"temperature": "hot", "top_k": 5, "seed": None, "n": 2, 7: "x", "zzz": 1, **BODY}
    cleaned, _ = sanitize_streaming_chat_body(body)
    assert list(cleaned.items()) == [("temperature", "hot"), ("seed", None), ("n", 2), *BODY.items()]


def test_a_server_may_accept_more_or_other_fields() -> None:
    body = {**BODY, "top_k": 5, "verbosity": "low", "stream": True}
    assert sanitize_streaming_chat_body(body, extra_fields=["top_k", "stream"])[0] == {**BODY, "top_k": 5}
    assert sanitize_streaming_chat_body(body, allowed_fields=OPENAI_CHAT_FIELDS)[0] == {**BODY, "verbosity": "low"}
    assert sanitize_streaming_chat_body(body, allowed_fields=["model"], extra_fields=["top_k"])[0] == {
        "model": "m",
        "top_k": 5,
    }


def test_the_result_shares_nothing_with_the_request() -> None:
    body: OrderedDict[str, Any] = OrderedDict(BODY, stream=True)
    cleaned, _ = sanitize_streaming_chat_body(body)
    assert type(cleaned) is dict
    cleaned["messages"][0]["content"] = "changed"
    assert body == {**BODY, "stream": True}
    assert BODY["messages"][0]["content"] == "hi"


def test_a_pydantic_request_gives_its_set_fields() -> None:
    class Request(BaseModel):
        model_config = ConfigDict(extra="allow")
        model: str
        temperature: float | None = None

    request = Request.model_validate({**BODY, "stream": True, "stream_options": {"include_usage": True}})
    assert sanitize_streaming_chat_body(request) == (BODY, True)


@pytest.mark.parametrize("body", [None, [], "text", 3])
def test_a_body_that_is_no_object_is_refused(body: object) -> None:
    with pytest.raises(ConversionError, match="JSON object, not " + type(body).__name__):
        sanitize_streaming_chat_body(body)


def test_a_value_that_cannot_be_copied_is_refused_by_name() -> None:
    with pytest.raises(ConversionError, match="field 'metadata' of the request cannot be copied"):
        sanitize_streaming_chat_body({**BODY, "metadata": {"lock": Lock()}})
    assert sanitize_streaming_chat_body({**BODY, "lock": Lock()})[0] == BODY


def test_the_openai_fields_are_those_of_the_openai_sdk() -> None:
    annotations = {name for name in Completions.create.__annotations__ if not name.startswith("extra_")}
    sdk = annotations - {"return", "timeout", "stream", "stream_options"}
    assert sdk <= OPENAI_CHAT_FIELDS
    assert STRICT_CHAT_FIELDS < OPENAI_CHAT_FIELDS


@pytest.mark.parametrize("option", ["extra_fields", "allowed_fields"])
@pytest.mark.parametrize("names", ["top_k", "", b"top_k"])
def test_a_text_is_no_collection_of_names(option: str, names: object) -> None:
    with pytest.raises(ConversionError, match=f"{option} must be a list or set of names, not a text"):
        sanitize_streaming_chat_body({"model": "m", "k": 1, "top": 1}, **{option: names})


def test_a_field_that_is_nested_too_deeply_is_named() -> None:
    deep: list[object] = []
    for _ in range(2000):
        deep = [deep]
    with pytest.raises(ConversionError, match="the field 'metadata' of the request is nested too deeply"):
        sanitize_streaming_chat_body({"model": "m", "metadata": deep})
