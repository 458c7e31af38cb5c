"""Message content: a string, a number, or a list of typed parts, read as answer text, thought and encrypted reasoning.

Parts of the providers (OpenAI's Responses, Anthropic, Bedrock Converse, Gemini, Mistral, OpenRouter) and LangChain's own
(`output_version="v1"`) are told apart by their type. Parts of a call repeat what the message's calls say and are passed
over, as are images, audio and what servers do with their own tools.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from dragent_stream.fields import Fields, fields_of
from dragent_stream.values import first_text, json_text

__all__ = ["Content", "PartKey", "plain_text", "read_content", "result_text", "text_and_reasoning"]

PartKey: TypeAlias = tuple[object, object]
"""Which part a piece belongs to: the part's index in the message, and the index of a summary inside it."""


@dataclass(slots=True)
class Content:
    """What a content says.

    Attributes:
        text: The answer.
        thoughts: Pieces of thought, none of them empty, with the part that each belongs to.
        encrypted: Signatures and encrypted or redacted reasoning, with their part; bytes are base64.
    """

    text: str = ""
    thoughts: list[tuple[PartKey, str]] = field(default_factory=list[tuple[PartKey, str]])
    encrypted: list[tuple[PartKey, str]] = field(default_factory=list[tuple[PartKey, str]])


def read_content(content: object) -> Content:
    """The answer text, the thoughts and the encrypted reasoning of a content."""
    if isinstance(content, str):
        return Content(content)
    if isinstance(content, bool) or content is None:
        return Content()
    if isinstance(content, int | float):
        return Content(str(content))
    found = Content()
    items = cast("Iterable[object]", content) if isinstance(content, list | tuple) else (content,)
    for position, item in enumerate(items):
        if isinstance(item, str):
            found.text += item
        elif part := fields_of(item):
            _read_part(part, part.get("index", position), found)
    return found


def text_and_reasoning(content: object) -> tuple[str, str]:
    """The answer text and the thought of a content."""
    if isinstance(content, str):
        return content, ""
    found = read_content(content)
    return found.text, "".join(thought for _, thought in found.thoughts)


def _read_part(part: Fields, index: object, found: Content) -> None:
    kind = part.get("type")
    if not isinstance(kind, str | None):
        return
    if kind == "non_standard" and (inner := fields_of(part.get("value"))):
        _read_part(inner, index, found)
        return
    if kind == "reasoning_content":  # Bedrock Converse; one level deeper
        part = fields_of(part.get("reasoning_content")) or {}
        part = fields_of(part.get("reasoning_text")) or fields_of(part.get("reasoningText")) or part
    elif kind in ("text", "output_text", "refusal", None) and part.get("thought") is not True:
        found.text += first_text(part, "text", "refusal")
    elif kind not in _THOUGHTS and part.get("thought") is not True:
        return
    if kind not in ("text", "output_text", "refusal", None) or part.get("thought") is True:
        found.thoughts += [((index, at), text) for at, text in _thoughts(part) if text]
    if value := _encrypted(part) or _encrypted(fields_of(part.get("extras")) or {}):
        found.encrypted.append(((index, None), value))


_THOUGHTS = frozenset(
    {
        "reasoning",
        "reasoning.encrypted",
        "reasoning.summary",
        "reasoning.text",
        "redacted_thinking",
        "thinking",
    }
)


def _thoughts(part: Fields) -> Iterable[tuple[object, str]]:
    for key in ("thinking", "reasoning", "text", "summary", "content"):
        value = part.get(key)
        if isinstance(value, list | tuple) and value:
            for position, entry in enumerate(cast("Iterable[object]", value)):
                fields = fields_of(entry) or {"text": entry}
                yield fields.get("index", position), first_text(fields, "text", "thinking", "summary")
            return
        if isinstance(value, str) and value:
            yield None, value
            return


def _encrypted(part: Fields) -> str:
    for key in (
        "signature",
        "thought_signature",
        "thoughtSignature",
        "encrypted_content",
        "redacted_content",
        "redactedContent",
        "data",
    ):
        value: object = part.get(key)
        if isinstance(value, str) and value:
            return value
        if value and not isinstance(value, str | dict | list | tuple | int | float):
            return _bytes_text(value)
    return ""


def _bytes_text(value: object) -> str:
    """Bytes as base64, also those that a recording held: they know their JSON, which is base64 for URLs."""
    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode()
    text = json_text(value)
    return text[1:-1].translate(_FROM_URL) if text[:1] == '"' else ""


_FROM_URL = str.maketrans("-_", "+/")


def result_text(content: object) -> str:
    """What a tool gave, as text: a text as it is, parts of text joined, anything else as JSON; nothing is left out."""
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        parts = [plain_text(part) for part in cast("Iterable[object]", content)]
        if None not in parts:
            return "".join(cast("list[str]", parts))
    return json_text(cast("object", content))


def plain_text(part: object) -> str | None:
    """The text of a part that is nothing but text."""
    if isinstance(part, str):
        return part
    fields = fields_of(part)
    if fields and fields.get("type") in ("text", "output_text", "input_text") and isinstance(fields.get("text"), str):
        return fields["text"]
    return None
