"""What a client is told of a failure: a reference, under which the log has the exception with its traceback."""

import logging

from dragent_stream.error_text import error_code, error_text
from dragent_stream.errors import UpstreamError
from dragent_stream.options import ConverterOptions

__all__ = [
    "AgentFailedError",
    "InputError",
    "ServerStoppingError",
    "TooManyRunsError",
    "as_told",
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


def as_told(error: BaseException, options: ConverterOptions) -> AgentFailedError:
    """The error for the client, and its traceback for the log; one that is told already stays as it is."""
    if isinstance(error, AgentFailedError):
        return error
    if options.expose_errors:  # masked, it is logged with its reference
        logger.error("a run failed", exc_info=error)
    return AgentFailedError(error_text(error, options), error_code(error))
