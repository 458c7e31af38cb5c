"""A tool's content parts as AG-UI's, for clients that speak 1.0."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from dragent_stream.content_parts import plain_text
from dragent_stream.fields import Fields, fields_of
from dragent_stream.values import first_text
from dragent_stream.well_formed import well_formed

__all__ = ["agui_parts"]


def agui_parts(content: object) -> list[dict[str, Any]] | None:
    """A tool's content parts as AG-UI's, for clients that speak 1.0.

    None where there is nothing but text, and where a part has no counterpart in AG-UI. Read are the image, audio, video and file parts of LangChain, Chat Completions, Anthropic and MCP.
    """
    if not isinstance(content, list | tuple):
        return None
    parts: list[dict[str, Any]] = []
    only_text = True
    for item in cast("Iterable[object]", content):
        if (text := plain_text(item)) is not None:
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
