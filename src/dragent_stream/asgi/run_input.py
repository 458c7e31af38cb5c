"""Read the body of a run request: `RunAgentInput` as clients of AG-UI 0.x and 1.x send it.

Whatever the installed ag-ui-protocol requires and the other generation leaves out is filled in, so an agent always finds
`tools` and `context` as lists. What cannot be read is refused with the field's name, before any stream is opened
(spec 1.0, transport: invalid input is an HTTP error status).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ag_ui.core import RunAgentInput
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dragent_stream.errors import DragentStreamError

__all__ = ["RunInputError", "read_run_input"]

# Roles that the client may send back and an older ag-ui-protocol does not know; no model needs them.
_OPTIONAL_ROLES = frozenset({"activity", "reasoning"})
_DEFAULTS: Mapping[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}


class RunInputError(DragentStreamError):
    """The request is no run input.

    Attributes:
        field: The path of the field at fault, as in `messages[2].toolCallId`; empty where the whole body is.
        status: The HTTP status that fits.
        code: A word for programs.
    """

    def __init__(self, problem: str, *, field: str = "", status: int = 422, code: str = "invalid_run_input") -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field = field
        self.status = status
        self.code = code


def read_run_input(body: bytes) -> RunAgentInput:
    """The run input in a request body.

    Raises:
        RunInputError: The body is no JSON object, or a field is missing or malformed.
    """
    try:
        fields: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RunInputError(f"the body is not JSON: {error}", status=400, code="invalid_json") from None
    if not isinstance(fields, dict):
        raise RunInputError("the body must be a JSON object, a RunAgentInput", status=400, code="invalid_json")
    return _validate(_filled(cast("dict[str, Any]", fields)))


def _filled(fields: dict[str, Any]) -> dict[str, Any]:
    filled = {key: value for key, value in fields.items() if value is not None}
    for snake, camel in (("thread_id", "threadId"), ("run_id", "runId"), ("forwarded_props", "forwardedProps")):
        if camel not in filled and snake in filled:
            filled[camel] = filled.pop(snake)
    for field, meaning in (("threadId", "the conversation"), ("runId", "this run, new for every run")):
        if field not in filled:
            raise RunInputError(f"is missing; give the id of {meaning}", field=field)
        if not isinstance(filled[field], str) or not filled[field].strip():
            raise RunInputError("must be a string that is not blank", field=field)
    if "messages" not in filled:
        raise RunInputError("is missing; give the conversation so far as a list", field="messages")
    return {**_DEFAULTS, **filled}


def _is_optional(message: Mapping[str, Any]) -> bool:
    role = message.get("role")
    return isinstance(role, str) and role in _OPTIONAL_ROLES


def _check_calls(messages: Sequence[Mapping[str, Any]]) -> None:
    """The calls of messages that should have none: kept as an extra by ag-ui-protocol, whatever they are."""
    for at, message in enumerate(messages):
        calls = message.get("toolCalls")
        entries = cast("list[object]", calls) if isinstance(calls, list) else [None]
        if calls is not None and not all(isinstance(entry, dict) for entry in entries):
            raise RunInputError("must be a list of objects", field=f"messages[{at}].toolCalls")


def _validate(fields: dict[str, Any]) -> RunAgentInput:
    try:
        found = RunAgentInput.model_validate(fields)
        _check_calls(cast("list[dict[str, Any]]", fields["messages"]))
        return found
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        foreign = {
            cast("int", problem["loc"][1])
            for problem in problems
            if problem["type"] == "union_tag_invalid"
            and problem["loc"][:1] == ("messages",)
            and len(problem["loc"]) == 2
        }
        messages = cast("list[dict[str, Any]]", fields["messages"]) if foreign else []
        if foreign and all(_is_optional(messages[at]) for at in foreign):
            kept = [message for at, message in enumerate(messages) if at not in foreign]
            return _validate({**fields, "messages": kept})
        # A value that may be several things fails as each of them; the deepest complaint is the one that was meant.
        path, kind, message = max(
            ((_path(problem, fields), problem["type"], problem["msg"]) for problem in problems),
            key=lambda found: found[0].count(".") + found[0].count("["),
        )
        if kind.startswith("union_tag"):
            path += ".type" if ".content[" in path else ".role"
        raise RunInputError(_wording(kind, message), field=path) from None


def _wording(kind: str, message: str) -> str:
    if kind in ("missing", "union_tag_not_found"):
        return "is missing"
    if kind == "union_tag_invalid":
        return "must be one of " + message.rpartition("expected tags: ")[2]
    return message[:1].lower() + message[1:]


def _path(problem: ErrorDetails, fields: object) -> str:
    """The place in the request; pydantic's names of union members are left out."""
    loc = problem["loc"]
    path = ""
    place: Any = fields
    for at, part in enumerate(loc):
        missing = problem["type"] == "missing" and at == len(loc) - 1
        if isinstance(part, int):
            path += f"[{part}]"
            items = cast("list[Any]", place) if isinstance(place, list) else []
            place = items[part] if part < len(items) else None
        elif isinstance(place, dict) and part in place:
            path += f".{part}" if path else part
            place = cast("dict[str, Any]", place)[part]
        elif missing and isinstance(place, dict):
            path += f".{part}" if path else part
    return path
