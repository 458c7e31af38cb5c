"""What RUN_ERROR says of an exception.

What the upstream reports inside its stream, and what this library finds wrong with an answer, is meant for whoever asked.
An exception is not: it may name hosts, users and secrets. Clients get a reference for it, under which the log has the rest.
"""

from __future__ import annotations

import logging

from dragent_stream.errors import ConversionError, SSEError, UpstreamError
from dragent_stream.options import ConverterOptions

__all__ = ["error_code", "error_text", "may_be_told", "plain_text"]

logger = logging.getLogger("dragent_stream")

_UNKNOWN = "STREAM_ERROR"


def error_text(exc: BaseException, options: ConverterOptions, code: str = "") -> str:
    """The message of RUN_ERROR; never empty (a dropped connection often has no text).

    Args:
        exc: What was raised.
        options: `public_error` and `expose_errors` count.
        code: Of RUN_ERROR, where `exc` has none that is known here; stands beside the reference.
    """
    if options.public_error is not None:
        return options.public_error(exc)
    if may_be_told(exc, options):
        return plain_text(exc)
    reference = options.new_id()[:8]
    code = code or error_code(exc)
    said = "" if code == _UNKNOWN else f" ({code})"
    logger.error("the upstream failed%s (reference %s)", said, reference, exc_info=exc)
    return f"The agent failed{said}. Reference: {reference}"


def may_be_told(exc: BaseException, options: ConverterOptions) -> bool:
    """Whether the text of an exception may reach whoever asked."""
    if options.expose_errors:
        return True
    return isinstance(exc, UpstreamError | ConversionError | SSEError) and not getattr(exc, "private", False)


def plain_text(exc: BaseException) -> str:
    """The text of an exception; its type's name where there is none."""
    try:
        return str(exc) or type(exc).__name__
    except Exception:
        return type(exc).__name__  # its __str__ fails


def error_code(exc: BaseException) -> str:
    """The code of RUN_ERROR. A foreign exception's own may be anything: an HTTP status, a close code, a method."""
    return exc.code if isinstance(exc, UpstreamError) else _UNKNOWN
