"""What grows over the chunks of a stream: single fields, texts, and the keys of one call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from dragent_stream.tool_calls import ToolCall

__all__ = ("CallParts", "Fields", "argument_text", "joined", "mapping_or_empty", "merged_usage", "replace_field")

Fields: TypeAlias = dict[str, Any]


class CallParts:
    """The keys of one call while it grows; the turn's call holds the text."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._kind = "function"
        self._parts: list[str] = []

    def feed(self, fields: Mapping[str, Any], text_key: str) -> None:
        """Take a piece of an old `function_call`."""
        for key, value in fields.items():
            if key == text_key:
                self._parts.append(argument_text(value))
            elif key == "name":
                replace_field(self._fields, key, str(value or ""), keep_first=True)
            else:
                replace_field(self._fields, key, value)

    def finish(self, text_key: str) -> Fields:
        """The whole `function_call`."""
        return {"name": "", **self._fields, text_key: joined(self._parts)}

    def feed_call(self, delta: Mapping[str, Any], kind: str, body: Mapping[str, Any]) -> None:
        """Take an entry of `tool_calls`, whose body is under its kind."""
        self._kind = kind if body else self._kind
        for key, value in delta.items():
            if key == kind and body:
                known: object = self._fields.get(kind)
                fields = cast("Fields", known) if isinstance(known, dict) else {}
                self._fields[kind] = fields
                for name, item in body.items():
                    replace_field(fields, name, item)
            elif key in ("id", "type"):
                replace_field(self._fields, key, value if value is None else str(value), keep_first=True)
            elif key != "index":
                replace_field(self._fields, key, value)

    def finish_call(self, call: ToolCall) -> Fields:
        """The whole call, with the name and the text that the turn's call holds."""
        body = mapping_or_empty(self._fields.get(self._kind))
        if not body and not call.name and not call.arguments and self._fields.get("type") not in (None, self._kind):
            return self._fields  # a call of another type, which has neither function nor custom tool
        text_key = "input" if self._kind == "custom" else "arguments"
        whole = {**body, "name": call.name, text_key: joined([call.arguments])}
        return {**self._fields, "type": self._fields.get("type") or self._kind, self._kind: whole}


def replace_field(fields: Fields, key: str, value: object, *, keep_first: bool = False) -> None:
    """Set a key; null never replaces a value, and with `keep_first` only a blank one is replaced."""
    if key not in fields or (value is not None and not (keep_first and fields[key])):
        fields[key] = value


def merged_usage(known: Mapping[str, Any], later: Mapping[str, Any]) -> Fields:
    """The usage after a later word on it: what that leaves out, or has only a placeholder for, stays.

    A total that only one half was known for becomes the sum of both.
    """
    merged = dict(known)
    for key, value in later.items():
        before: object = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = merged_usage(cast("Fields", before), cast("Fields", value))
        elif value or before is None:
            merged[key] = value
    spent, given, total = (merged.get(key) for key in ("prompt_tokens", "completion_tokens", "total_tokens"))
    if isinstance(spent, int) and isinstance(given, int) and isinstance(total, int) and total < spent + given:
        merged["total_tokens"] = spent + given
    return merged


def joined(parts: list[str]) -> str:
    """The whole text; the two halves of a character that were sent apart become that character."""
    text = "".join(parts)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text


def argument_text(value: object) -> str:
    """Arguments as text; what is none is encoded as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)


def mapping_or_empty(value: object) -> Mapping[str, Any]:
    """The value where it is an object."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
