"""What RUN_ERROR says of an exception.

What the upstream reports inside its stream, and what this library finds wrong with an answer, is meant for whoever asked.
An exception is not: it may name hosts, users and secrets. Clients get a reference for it, under which the log has the rest.
"""

from __future__ import annotations

import logging

from dragent_stream.errors import ConversionError, SSEError, UpstreamError
from dragent_stream.options import ConverterOptions

__all__ = ["error_code", "error_text"]

logger = logging.getLogger("dragent_stream")


def error_text(exc: BaseException, options: ConverterOptions) -> str:
    """The message of RUN_ERROR; never empty (a dropped connection often has no text)."""
    if options.public_error is not None:
        return options.public_error(exc)
    if options.expose_errors or isinstance(exc, UpstreamError | ConversionError | SSEError):
        try:
            return str(exc) or type(exc).__name__
        except Exception:
            return type(exc).__name__  # its __str__ fails
    reference = options.new_id()[:8]
    logger.error("the upstream failed (reference %s)", reference, exc_info=exc)
    return f"The agent failed. Reference: {reference}"


def error_code(exc: BaseException) -> str:
    """The code of RUN_ERROR. A foreign exception's own may be anything: an HTTP status, a close code, a method."""
    return exc.code if isinstance(exc, UpstreamError) else "STREAM_ERROR"
