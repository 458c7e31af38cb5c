"""How a turn failed, in Fabric's own word for it.

Fabric's texts hold the adapter's stderr with tracebacks and exception texts, so they are private: a client gets the code and
a reference under which the log has the rest.
"""

from __future__ import annotations

import re
from typing import Any

from dragent_stream.error_text import plain_text
from dragent_stream.errors import UpstreamError
from dragent_stream.fabric.contract import field

__all__ = ["STREAMING_UNSUPPORTED", "TurnCancelledError", "fabric_code", "result_error", "turn_error"]

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
    if found := _IN_TEXT.match(plain_text(error)):
        return found[1]
    name = type(error).__name__
    return re.sub("(?<!^)(?=[A-Z])", "_", name).lower() if name.startswith("Fabric") else _UNKNOWN


def turn_error(error: Exception) -> UpstreamError:
    """An exception of the SDK as a failure of the run, with Fabric's code; raise it from the exception."""
    return UpstreamError(plain_text(error), fabric_code(error), private=True)


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
        private=True,
    )
