"""Message content: a string, a number, or a list of typed parts, read as answer text, thought and encrypted reasoning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from dragent_stream.fields import Fields, fields_of
from dragent_stream.values import first_text, json_text

__all__ = ["result_text", "text_and_reasoning"]


def text_and_reasoning(content: object) -> tuple[str, str]:
    """The answer text and the thought in a `content`: a string, a number, or a list of typed parts."""
    if isinstance(content, str):
        return content, ""
    if isinstance(content, bool) or content is None:
        return "", ""
    if isinstance(content, int | float):
        return str(content), ""
    text: list[str] = []
    thought: list[str] = []
    for item in cast("Iterable[object]", content) if isinstance(content, list | tuple) else (content,):
        if isinstance(item, str):
            text.append(item)
        elif part := fields_of(item):
            if part.get("type") in ("thinking", "reasoning"):
                thought.append(_nested_text(part))
            elif part.get("type") in ("text", "output_text", "refusal", None):
                text.append(first_text(part, "text", "refusal"))
    return "".join(text), "".join(thought)


def result_text(content: object) -> str:
    """What a tool gave, as text: a text as it is, parts of text joined, anything else as JSON; nothing is left out."""
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        parts = [_part_text(part) for part in cast("Iterable[object]", content)]
        if None not in parts:
            return "".join(cast("list[str]", parts))
    return json_text(cast("object", content))


def _part_text(part: object) -> str | None:
    """The text of a part that is nothing but text."""
    if isinstance(part, str):
        return part
    fields = fields_of(part)
    if fields and fields.get("type") in ("text", "output_text", "input_text") and isinstance(fields.get("text"), str):
        return fields["text"]
    return None


def _nested_text(part: Fields) -> str:
    for key in ("thinking", "reasoning", "text", "summary", "content"):
        value = part.get(key)
        if isinstance(value, list | tuple):
            entries = [fields_of(entry) or {"text": entry} for entry in cast("Iterable[object]", value)]
            return "".join(first_text(entry, "text", "thinking", "summary") for entry in entries)
        if isinstance(value, str) and value:
            return value
    return ""
