"""The failure that a chunk reports, in any provider's shape.

Beside a choice only `error`, `object: "error"` and MiniMax's `base_resp` count; what has no choice is also an error if it
looks like the body of one: `{"detail"}` (FastAPI, RFC 9457), `{"code", "msg"}`, `{"error_code", "error_msg"}` (Baidu),
`{"errors": […]}`, `{"message", "code" | "type"}`.
Sources: block/goose#8031 (flat errors), CherryHQ/cherry-studio#11287 and RooCodeInc/Roo-Code#9105 (`base_resp`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from dragent_stream.errors import UpstreamError
from dragent_stream.fields import Fields, fields_of
from dragent_stream.values import first_text, text_of

__all__ = ["looks_like_error", "read_error"]

_TEXTS = ("message", "msg", "detail", "error_msg", "errorMessage", "status_msg", "error_description", "reason", "title")
_CODES = (
    "code",
    "type",
    "error_code",
    "status_code",
    "status",
    "__type",
    "err_code",
    "errcode",
    "request_id",
    "errorCode",
)
_GATEWAY = frozenset({"message", "requestId", "request_id", "timestamp", "path"})  # all that a gateway says
_GOOD = frozenset({"", "0", "200", "ok", "success", "succeeded"})


def read_error(fields: Fields) -> UpstreamError | None:
    """The error of a chunk or of a choice; None where it reports none."""
    if error := fields.get("error"):
        return _upstream_error(fields if error is True else error)
    if fields.get("object") == "error":
        return _upstream_error(fields)
    if (status := fields_of(fields.get("base_resp"))) and text_of(status.get("status_code")).lower() not in _GOOD:
        return _upstream_error(status)
    if "choices" in fields or "delta" in fields or not looks_like_error(fields):
        return None
    errors = fields.get("errors")
    first = next(iter(cast("Iterable[object]", errors)), None) if isinstance(errors, list | tuple) else None
    return _upstream_error(first or fields)


def looks_like_error(fields: Fields) -> bool:
    """A mapping without choices is the body of an error."""
    if fields.get("error") or fields.get("object") == "error" or fields_of(fields.get("base_resp")):
        return True
    if fields.get("errors") and isinstance(fields["errors"], list | tuple):
        return True
    if fields.keys() & {"content", "role", "data", "id"}:
        return False
    if fields.get("detail") and isinstance(fields["detail"], str | list | tuple | dict):
        return True
    if fields.get("success") is False or (fields.keys() <= _GATEWAY and isinstance(fields.get("message"), str)):
        return True
    said = first_text(fields, *_TEXTS)
    codes = [text_of(fields[key]).lower() for key in _CODES if key in fields]
    return bool(said and codes) and not all(code in _GOOD for code in codes)


def _upstream_error(error: object) -> UpstreamError:
    if isinstance(error, list | tuple) and error:
        error = cast("list[object]", error)[0]
    if isinstance(error, str):
        return UpstreamError(error)
    details = fields_of(cast("object", error)) or {}
    message = first_text(details, *_TEXTS)
    if not message and isinstance(nested := details.get("detail"), list | tuple):
        message = "; ".join(_each_text(cast("Iterable[object]", nested)))
    if not message and (inner := fields_of(details.get("detail")) or fields_of(details.get("error"))):
        message = first_text(inner, *_TEXTS)
    if not message:
        code = next((text for key in _CODES if (text := text_of(details.get(key)))), "")
        message = (
            f"the upstream reported an error ({code})" if code else "the upstream reported an error without a message"
        )
    return UpstreamError(message)


def _each_text(items: Iterable[object]) -> Iterable[str]:
    """The texts of FastAPI's validation errors."""
    for item in items:
        if isinstance(item, str):
            yield item
        elif (fields := fields_of(item)) and (text := first_text(fields, *_TEXTS)):
            yield text
