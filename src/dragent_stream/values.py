"""What single values inside a chunk say: texts, ids, indexes, arguments, JSON."""

from __future__ import annotations

import json

from pydantic_core import from_json, to_json

from dragent_stream.fields import Fields

__all__ = ["arguments_of", "first_text", "index_of", "is_json", "json_text", "text_of"]

_LONG_NUMBER = 20  # digits; Python refuses to read thousands of them


def text_of(value: object) -> str:
    """A non-blank string, or empty; some providers send ids as numbers."""
    if isinstance(value, str):
        return "" if value.isspace() else value
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    inner = getattr(value, "value", None)  # an enum of NAT's
    return inner if isinstance(inner, str) else ""


def first_text(fields: Fields, *keys: str) -> str:
    """The first of these fields that is a string and not empty."""
    for key in keys:
        if isinstance(value := fields.get(key), str) and value:
            return value
    return ""


def index_of(value: object) -> int | None:
    """An index, also one spelled as a string."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < _LONG_NUMBER else None


def arguments_of(value: object) -> str:
    """The arguments of a call as text; an object as its JSON."""
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return json_text(value)


def is_json(text: str) -> bool:
    """The text is one JSON value, as a browser's `JSON.parse` sees it."""
    try:
        from_json(text, allow_inf_nan=False)
    except (TypeError, ValueError):
        pass
    else:
        return True
    try:  # the fast parser refuses lone surrogates and deep nesting
        json.loads(text, parse_constant=_no_number)
    except RecursionError:
        return True  # whoever wrote it was able to
    except ValueError:
        return False
    return True


def _no_number(word: str) -> None:
    raise ValueError(word)


def json_text(value: object) -> str:
    """A tool's input or output as text: a string as it is, anything else as strict JSON.

    NaN becomes null, bytes base64, sets lists, dates ISO 8601, models their fields, what nobody knows its `str()`.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return to_json(
            value, inf_nan_mode="null", bytes_mode="base64", serialize_unknown=True, by_alias=True, fallback=str
        ).decode()
    except ValueError:
        pass
    try:
        return json.dumps(value, default=str, skipkeys=True)  # lone surrogates: escaped here, replaced by the ledger
    except (ValueError, RecursionError):
        return json.dumps(str(value))  # it contains itself
