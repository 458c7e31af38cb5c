"""How a turn failed: Fabric's own word for it, and what a client reads.

Fabric's texts hold the adapter's stderr with tracebacks and exception texts, so they go to the log, and the client gets the
code and a reference under which the log has the rest.
"""

from __future__ import annotations

import logging
import re
import secrets
from dataclasses import replace
from typing import Any

from dragent_stream.errors import UpstreamError
from dragent_stream.fabric.contract import FabricStreamError, field
from dragent_stream.options import DEFAULT_OPTIONS, ConverterOptions

__all__ = ["STREAMING_UNSUPPORTED", "TurnCancelledError", "fabric_code", "masked", "result_error", "turn_error"]

logger = logging.getLogger("dragent_stream.fabric")

STREAMING_UNSUPPORTED = "lifecycle_openai_stream_unsupported"
"""What the host says of an adapter whose descriptor claims streaming and whose code has none."""

_UNKNOWN = "STREAM_ERROR"
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# "adapter lifecycle invoke failed for runtime `runtime-1-2` (host_timeout): …", in 0.2 to 0.5.
_IN_TEXT = re.compile(r"adapter lifecycle \w+ failed for runtime `[^`]*` \(([A-Za-z0-9_.-]{1,64})\):")


class TurnCancelledError(UpstreamError):
    """The turn's result says `cancelled`."""

    def __init__(self) -> None:
        super().__init__("the turn was cancelled", "abort")


def fabric_code(error: BaseException) -> str:
    """Fabric's code for an exception of its SDK; the codes of host and runtime stand in the text alone.

    An exception of the SDK without any (`FabricStateError`: the runtime has failed, or is in use) gives its own name.
    """
    code = getattr(error, "code", None)
    if isinstance(code, str) and _CODE.fullmatch(code) and code != _UNKNOWN:
        return code
    if found := _IN_TEXT.match(_text(error)):
        return found[1]
    name = type(error).__name__
    return re.sub("(?<!^)(?=[A-Z])", "_", name).lower() if name.startswith("Fabric") else _UNKNOWN


def turn_error(error: Exception) -> UpstreamError:
    """An exception of the SDK as a failure of the run, with Fabric's code; raise it from the exception."""
    return UpstreamError(_text(error), fabric_code(error))


def result_error(result: Any) -> UpstreamError | None:
    """The failure that a `RunResult` states; None for one that succeeded."""
    status = str(field(result, "status") or "")
    if status == "succeeded":
        return None
    if status == "cancelled":
        return TurnCancelledError()
    error = field(result, "error")
    code, message = field(error, "code"), field(error, "message")
    return UpstreamError(
        message if isinstance(message, str) and message else f"the turn's result has the status {status!r}",
        code if isinstance(code, str) and _CODE.fullmatch(code) else _UNKNOWN,
    )


def masked(options: ConverterOptions | None) -> ConverterOptions:
    """Options under which no text of Fabric, of its adapter or of a provider reaches the client unasked."""
    options = options or DEFAULT_OPTIONS
    return options if options.public_error else replace(options, public_error=_reference)


def _reference(error: BaseException) -> str:
    if isinstance(error, FabricStreamError):
        return error.message  # this library's own words
    reference = secrets.token_hex(4)
    code = fabric_code(error)
    said = "" if code == _UNKNOWN else f" ({code})"
    logger.error("a turn failed%s (reference %s)", said, reference, exc_info=error)
    return f"The agent failed{said}. Reference: {reference}"


def _text(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__  # its __str__ fails
