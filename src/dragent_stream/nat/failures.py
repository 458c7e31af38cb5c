"""What a client is told of a failure: a reference, under which the log has the exception with its traceback."""

import logging
import secrets

from dragent_stream.errors import UpstreamError

__all__ = [
    "AgentFailedError",
    "InputError",
    "ServerStoppingError",
    "TooManyRunsError",
    "as_told",
    "told",
]

logger = logging.getLogger("dragent_stream.nat")


class AgentFailedError(UpstreamError):
    """A failure in the words that a client may read."""

    def __init__(self, message: str, code: str = "STREAM_ERROR") -> None:
        super().__init__(message, code)


class InputError(AgentFailedError):
    """The workflow cannot take what it was given; says what it takes."""


class ServerStoppingError(AgentFailedError):
    """The run was stopped because the server goes down."""


class TooManyRunsError(AgentFailedError):
    """The server runs its limit already, or keeps state for its limit of users."""


def as_told(error: BaseException, *, expose: bool, what: str) -> AgentFailedError:
    """The error for the client. The exception is logged, with its traceback; one that is told already stays as it is.

    Args:
        error: What was raised.
        expose: Tell its text instead of a reference.
        what: What failed, for the log.
    """
    if isinstance(error, AgentFailedError):
        return error
    if expose:
        logger.error("%s failed", what, exc_info=error)
        return AgentFailedError(_text(error))
    reference = secrets.token_hex(4)
    logger.error("%s failed (reference %s)", what, reference, exc_info=error)
    return AgentFailedError(f"The agent failed. Reference: {reference}")


def told(error: BaseException, *, expose: bool = False, what: str) -> str:
    """The words of `as_told`, for `ConverterOptions.public_error`."""
    return str(as_told(error, expose=expose, what=what))


def _text(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__  # its __str__ fails
