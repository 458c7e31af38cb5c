"""The failures that chunks report, in every provider's shape."""

from __future__ import annotations

from typing import Any

import pytest
from agui_case import both_writers, delta

from dragent_stream.reported_errors import looks_like_error, read_error

BODIES: list[tuple[dict[str, Any], str]] = [
    ({"error": {"message": "overloaded", "code": 529}}, "overloaded"),
    ({"error": {"error": {"message": "overloaded"}}}, "overloaded"),
    ({"error": "overloaded"}, "overloaded"),
    ({"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}}, "overloaded"),
    ({"object": "error", "message": "overloaded", "type": "x"}, "overloaded"),
    ({"detail": "overloaded"}, "overloaded"),
    ({"detail": [{"loc": ["body"], "msg": "field required"}, {"msg": "too long"}]}, "field required; too long"),
    ({"detail": {"message": "overloaded"}}, "overloaded"),
    ({"code": 1210, "msg": "overloaded"}, "overloaded"),
    ({"code": "1210", "message": "overloaded", "request_id": "r"}, "overloaded"),
    ({"error_code": 17, "error_msg": "overloaded"}, "overloaded"),
    ({"__type": "ThrottlingException", "message": "overloaded"}, "overloaded"),
    ({"title": "overloaded", "status": 429}, "overloaded"),
    ({"errors": [{"message": "overloaded"}]}, "overloaded"),
    ({"errors": ["overloaded"]}, "overloaded"),
    ({"status": "error", "message": "overloaded"}, "overloaded"),
    ({"choices": None, "base_resp": {"status_code": 1008, "status_msg": "overloaded"}}, "overloaded"),
    ({"choices": [], "base_resp": {"status_code": 1008, "status_msg": "overloaded"}}, "overloaded"),
    ({"base_resp": {"status_code": 1008}}, "the upstream reported an error (1008)"),
]


@pytest.mark.parametrize(("body", "message"), BODIES)
def test_an_error_ends_the_run_with_what_the_provider_says(body: dict[str, Any], message: str) -> None:
    for feed in (
        [body],
        [delta(content="Hi"), body],
        [delta(content="Hi"), body, delta(content="more"), delta("stop")],
    ):
        events = both_writers({}, feed)
        assert (events[-1]["type"], events[-1]["message"]) == ("RUN_ERROR", message)


@pytest.mark.parametrize(
    "chunk",
    [
        {**delta(content="Hi"), "base_resp": {"status_code": 0, "status_msg": "success"}},
        {**delta(content="Hi"), "code": 0, "message": "success"},
        {**delta(content="Hi"), "error": None, "errors": []},
        {**delta(content="Hi"), "detail": "x", "status": 500},
        {"code": 0, "message": "ok"},
        {"status": "success", "message": "done"},
        {"id": "1", "message": "hello", "type": "note"},
    ],
)
def test_what_is_no_error_is_none(chunk: dict[str, Any]) -> None:
    assert read_error(chunk) is None


def test_an_error_is_told_from_a_message() -> None:
    assert not looks_like_error({"type": "ai", "content": "x", "message": "m"})
    assert looks_like_error({"message": "m", "type": "x"})
