"""Message content: a string, a number, or a list of typed parts, read as answer text, thought and encrypted reasoning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from dragent_stream.fields import Fields, fields_of
from dragent_stream.values import first_text, json_text
from dragent_stream.well_formed import well_formed

__all__ = ["agui_parts", "result_text", "text_and_reasoning"]


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


def agui_parts(content: object) -> list[dict[str, Any]] | None:
    """A tool's content parts as AG-UI's, for clients that speak 1.0.

    None where there is nothing but text, and where a part has no counterpart in AG-UI. Read are the image, audio, video and file parts of LangChain, Chat Completions, Anthropic and MCP.
    """
    if not isinstance(content, list | tuple):
        return None
    parts: list[dict[str, Any]] = []
    only_text = True
    for item in cast("Iterable[object]", content):
        if (text := _part_text(item)) is not None:
            parts.append({"type": "text", "text": well_formed(text)})
        elif (fields := fields_of(item)) and (media := _media(fields)):
            only_text = False
            parts.append(media)
        else:
            return None
    return None if only_text else parts


_KINDS = {"image": "image", "image_url": "image", "audio": "audio", "input_audio": "audio", "video": "video"}
_DOCUMENTS = frozenset({"file", "document", "input_file"})


def _media(part: Fields) -> dict[str, Any] | None:
    kind = str(part.get("type"))
    kind = "document" if kind in _DOCUMENTS else _KINDS.get(kind, "")
    holder = next(
        (found for key in ("image_url", "input_audio", "source", "file") if (found := fields_of(part.get(key)))), part
    )
    url = first_text(holder, "url", "file_url", "uri") or (first_text(part, "image_url") if kind == "image" else "")
    data = first_text(holder, "base64", "data", "file_data")
    mime_type = first_text(holder, "mime_type", "mimeType", "media_type") or _FORMATS.get(str(holder.get("format")), "")
    if url.startswith("data:"):
        head, _, data = url.removeprefix("data:").partition(",")
        mime_type, url = head.removesuffix(";base64"), ""
    if not kind or not (url or (data and mime_type)):
        return None
    source = {"type": "data", "value": data, "mimeType": mime_type} if data else {"type": "url", "value": url}
    return {"type": kind, "source": source}


_FORMATS = {"wav": "audio/wav", "mp3": "audio/mpeg", "png": "image/png", "jpeg": "image/jpeg"}


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
