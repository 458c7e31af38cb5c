"""The shape of each AG-UI 1.0 event on the wire, as a table: which fields it has, and what each may hold.

Source: the specification's JSON Schema (docs.ag-ui.com/spec/1.0), narrowed where an older client in use or a client's
reducer wants more: a field without a value is left out, never null.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

__all__ = ("EVENT_SHAPES", "shape_problems")

_MAX_INT = 2**53 - 1
_Test = Callable[[object], str | None]
"""Takes a field's value; gives what is wrong with it, or None."""


class _Field(NamedTuple):
    test: _Test
    required: bool = False


def _any(value: object) -> str | None:
    return None


def _string(value: object) -> str | None:
    return None if isinstance(value, str) else "must be a string"


def _filled(value: object) -> str | None:
    if not isinstance(value, str):
        return "must be a string"
    return None if value else "must not be empty"


def _integer(value: object) -> str | None:
    good = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MAX_INT
    return None if good else "must be an integer within +-(2^53-1)"


def _count(value: object) -> str | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_INT
    return None if good else "must be an integer from 0 to 2^53-1"


def _boolean(value: object) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _object(value: object) -> str | None:
    return None if isinstance(value, Mapping) else "must be an object"


def _one_of(*words: str) -> _Test:
    def test(value: object) -> str | None:
        return None if value in words else f"must be {' or '.join(map(repr, words))}"

    return test


def _list_of(item: _Test, *, at_least: int = 0) -> _Test:
    def test(value: object) -> str | None:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return "must be a list"
        items = cast("Sequence[object]", value)
        if len(items) < at_least:
            return f"must have at least {at_least} entry"
        for position, entry in enumerate(items):
            if problem := item(entry):
                return f"entry {position} {problem}"
        return None

    return test


def _record(fields: Mapping[str, _Field]) -> _Test:
    def test(value: object) -> str | None:
        if not isinstance(value, Mapping):
            return "must be an object"
        record = cast("Mapping[str, object]", value)
        for _, problem in _record_problems(record, fields):
            return f"has a bad field: {problem}"
        return None

    return test


def _choice(key: str, members: Mapping[str, Mapping[str, _Field]]) -> _Test:
    tests = {word: _record({key: _Field(_one_of(word), True), **fields}) for word, fields in members.items()}

    def test(value: object) -> str | None:
        record: Mapping[str, object] = (
            cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {key: None}
        )
        word = record.get(key)
        if not isinstance(word, str) or word not in tests:
            return f"must be an object whose {key!r} is {' or '.join(map(repr, members))}"
        return tests[word](record)

    return test


def _pointer(value: object) -> str | None:
    if not isinstance(value, str) or (value and not value.startswith("/")):
        return "must be a JSON pointer ('' or '/...')"
    return None


_NEED = True
_PATH = _Field(_pointer, _NEED)
_VALUE = _Field(_any, _NEED)
_PATCH = _list_of(
    _choice(
        "op",
        {
            "add": {"path": _PATH, "value": _VALUE},
            "remove": {"path": _PATH},
            "replace": {"path": _PATH, "value": _VALUE},
            "move": {"path": _PATH, "from": _PATH},
            "copy": {"path": _PATH, "from": _PATH},
            "test": {"path": _PATH, "value": _VALUE},
        },
    )
)
_SOURCE = _choice(
    "type",
    {
        "data": {"value": _Field(_string, _NEED), "mimeType": _Field(_string, _NEED)},
        "url": {"value": _Field(_string, _NEED), "mimeType": _Field(_string)},
        "file": {"value": _Field(_string, _NEED), "mimeType": _Field(_string), "provider": _Field(_string)},
    },
)
_MEDIA = {"id": _Field(_string), "source": _Field(_SOURCE, _NEED), "metadata": _Field(_any)}
_PARTS = _list_of(
    _choice(
        "type",
        {
            "text": {"id": _Field(_string), "text": _Field(_string, _NEED), "metadata": _Field(_any)},
            "image": _MEDIA,
            "audio": _MEDIA,
            "video": _MEDIA,
            "document": _MEDIA,
        },
    )
)


def _content(value: object) -> str | None:
    return None if isinstance(value, str) else (_PARTS(value) and "must be a string or a list of content parts")


_TOOL_CALL = _record(
    {
        "id": _Field(_filled, _NEED),
        "type": _Field(_one_of("function"), _NEED),
        "function": _Field(_record({"name": _Field(_string, _NEED), "arguments": _Field(_string, _NEED)}), _NEED),
        "encryptedValue": _Field(_string),
        "metadata": _Field(_object),
    }
)
_MESSAGE_BASE = {
    "id": _Field(_filled, _NEED),
    "subagentRunId": _Field(_string),
    "encryptedValue": _Field(_string),
    "metadata": _Field(_object),
}
_NAMED = _MESSAGE_BASE | {"name": _Field(_string)}
_MESSAGES = _list_of(
    _choice(
        "role",
        {
            "developer": _NAMED | {"content": _Field(_string, _NEED)},
            "system": _NAMED | {"content": _Field(_string, _NEED)},
            "user": _NAMED | {"content": _Field(_content, _NEED)},
            "assistant": _NAMED | {"content": _Field(_string), "toolCalls": _Field(_list_of(_TOOL_CALL))},
            "tool": _MESSAGE_BASE
            | {
                "content": _Field(_content, _NEED),
                "toolCallId": _Field(_filled, _NEED),
                "error": _Field(_string),
            },
            "activity": {
                "id": _Field(_filled, _NEED),
                "subagentRunId": _Field(_string),
                "metadata": _Field(_object),
                "activityType": _Field(_string, _NEED),
                "content": _Field(_object, _NEED),
            },
            "reasoning": _MESSAGE_BASE | {"content": _Field(_string, _NEED)},
        },
    )
)
_INTERRUPT = _record(
    {
        "id": _Field(_filled, _NEED),
        "reason": _Field(_string, _NEED),
        "message": _Field(_string),
        "toolCallId": _Field(_filled),
        "responseSchema": _Field(_object),
        "expiresAt": _Field(_string),
        "metadata": _Field(_object),
        "subagentRunId": _Field(_string),
    }
)
_RUN_OUTCOME = _choice(
    "type",
    {
        "success": {"pendingToolCallIds": _Field(_list_of(_filled))},
        "interrupt": {"interrupts": _Field(_list_of(_INTERRUPT, at_least=1), _NEED)},
        "cancelled": {},
    },
)
_SUBAGENT_OUTCOME = _choice("type", {"success": {}, "suspended": {"interruptIds": _Field(_list_of(_filled))}})
_USAGE = _list_of(
    _record(
        {
            "provider": _Field(_string),
            "model": _Field(_string),
            "inputTokens": _Field(_count),
            "outputTokens": _Field(_count),
            "totalTokens": _Field(_count),
            "reasoningTokens": _Field(_count),
            "cachedInputTokens": _Field(_count),
            "cacheWriteInputTokens": _Field(_count),
        }
    )
)

_BASE = {
    "type": _Field(_string, _NEED),
    "timestamp": _Field(_integer),
    "rawEvent": _Field(_any),
    "metadata": _Field(_object),
}
_OWNED = _BASE | {"subagentRunId": _Field(_filled)}
_ID = _Field(_filled, _NEED)
_TEXT_ROLE = _Field(_one_of("developer", "system", "assistant", "user"))

EVENT_SHAPES: Mapping[str, Mapping[str, _Field]] = {
    "RUN_STARTED": _BASE
    | {
        "threadId": _ID,
        "runId": _ID,
        "protocolVersion": _Field(_filled),
        "parentRunId": _Field(_filled),
        "input": _Field(_object),
    },
    "RUN_FINISHED": _BASE
    | {
        "threadId": _ID,
        "runId": _ID,
        "result": _Field(_any),
        "outcome": _Field(_RUN_OUTCOME),
        "usage": _Field(_USAGE),
    },
    "RUN_ERROR": _BASE | {"message": _ID, "code": _Field(_filled), "usage": _Field(_USAGE)},
    "STEP_STARTED": _OWNED | {"stepName": _ID},
    "STEP_FINISHED": _OWNED | {"stepName": _ID},
    "TEXT_MESSAGE_START": _OWNED | {"messageId": _ID, "role": _TEXT_ROLE, "name": _Field(_string)},
    "TEXT_MESSAGE_CONTENT": _OWNED | {"messageId": _ID, "delta": _Field(_string, _NEED)},
    "TEXT_MESSAGE_END": _OWNED | {"messageId": _ID},
    "TEXT_MESSAGE_CHUNK": _OWNED
    | {"messageId": _Field(_filled), "role": _TEXT_ROLE, "delta": _Field(_string), "name": _Field(_string)},
    "TOOL_CALL_START": _OWNED | {"toolCallId": _ID, "toolCallName": _ID, "parentMessageId": _Field(_filled)},
    "TOOL_CALL_ARGS": _OWNED | {"toolCallId": _ID, "delta": _Field(_string, _NEED)},
    "TOOL_CALL_END": _OWNED | {"toolCallId": _ID},
    "TOOL_CALL_CHUNK": _OWNED
    | {
        "toolCallId": _Field(_filled),
        "toolCallName": _Field(_filled),
        "parentMessageId": _Field(_filled),
        "delta": _Field(_string),
    },
    "TOOL_CALL_RESULT": _OWNED
    | {"messageId": _ID, "toolCallId": _ID, "content": _Field(_content, _NEED), "role": _Field(_one_of("tool"))},
    "REASONING_START": _OWNED | {"messageId": _ID},
    "REASONING_MESSAGE_START": _OWNED | {"messageId": _ID, "role": _Field(_one_of("reasoning"), _NEED)},
    "REASONING_MESSAGE_CONTENT": _OWNED | {"messageId": _ID, "delta": _Field(_string, _NEED)},
    "REASONING_MESSAGE_END": _OWNED | {"messageId": _ID},
    "REASONING_MESSAGE_CHUNK": _OWNED | {"messageId": _Field(_filled), "delta": _Field(_string)},
    "REASONING_END": _OWNED | {"messageId": _ID},
    "REASONING_ENCRYPTED_VALUE": _OWNED
    | {"subtype": _Field(_one_of("tool-call", "message"), _NEED), "entityId": _ID, "encryptedValue": _ID},
    "STATE_SNAPSHOT": _OWNED | {"snapshot": _VALUE},
    "STATE_DELTA": _OWNED | {"delta": _Field(_PATCH, _NEED)},
    "MESSAGES_SNAPSHOT": _BASE | {"messages": _Field(_MESSAGES, _NEED)},
    "ACTIVITY_SNAPSHOT": _OWNED
    | {"messageId": _ID, "activityType": _ID, "content": _Field(_object, _NEED), "replace": _Field(_boolean)},
    "ACTIVITY_DELTA": _OWNED | {"messageId": _ID, "activityType": _ID, "patch": _Field(_PATCH, _NEED)},
    "RAW": _OWNED | {"event": _VALUE, "source": _Field(_string)},
    "CUSTOM": _OWNED | {"name": _ID, "value": _VALUE},
    "SUBAGENT_STARTED": _BASE
    | {
        "subagentRunId": _ID,
        "name": _ID,
        "description": _Field(_string),
        "parentSubagentRunId": _Field(_filled),
        "parentToolCallId": _Field(_filled),
        "parentMessageId": _Field(_filled),
    },
    "SUBAGENT_FINISHED": _BASE | {"subagentRunId": _ID, "result": _Field(_any), "outcome": _Field(_SUBAGENT_OUTCOME)},
    "SUBAGENT_ERROR": _BASE | {"subagentRunId": _ID, "message": _ID, "code": _Field(_filled)},
}


def shape_problems(event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield `(rule, message)` for each thing wrong with one event on its own; rules S1 to S6 of `check.RULES`."""
    kind = event.get("type")
    if not isinstance(kind, str):
        yield "S1", "the event has no 'type'"
        return
    fields = EVENT_SHAPES.get(kind)
    if fields is None:
        yield "S1", f"{kind!r} is no event of AG-UI 1.0"
        return
    for rule, problem in _record_problems(event, fields):
        yield rule, f"{kind}: {problem}"
    for name, value in event.items():
        if problem := _unsendable(value):
            yield "S6", f"{kind}: {name!r} holds {problem}"


def _record_problems(record: Mapping[str, object], fields: Mapping[str, _Field]) -> Iterator[tuple[str, str]]:
    for name, field in fields.items():
        if field.required and name not in record:
            yield "S2", f"{name!r} is missing"
    for name, value in record.items():
        field = fields.get(name)
        if field is None:
            yield "S5", f"{name!r} is no field of the protocol; put own data into 'metadata'"
        elif value is None and field.test is not _any:
            hint = "" if field.required else "; leave the field out"
            yield "S4", f"{name!r} is null{hint}"
        elif problem := field.test(value):
            yield "S3", f"{name!r} {problem}"


def _unsendable(value: object) -> str | None:
    """What in a value cannot be written as UTF-8 JSON, or None."""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            return "a lone surrogate, which has no UTF-8 form"
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else "a number that JSON does not have (NaN or Infinity)"
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return next((bad for key, entry in pairs if (bad := _unsendable(key) or _unsendable(entry))), None)
    if isinstance(value, list | tuple):
        return next((bad for entry in cast("Sequence[object]", value) if (bad := _unsendable(entry))), None)
    return None
