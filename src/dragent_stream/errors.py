"""The exceptions of this library.

```
DragentStreamError
├── ConversionError       the caller misused a converter (a bad option, a foreign ledger, a bad run input)
├── UpstreamError         the upstream reported a failure inside its stream
│   └── AnswerError       what came is no complete answer
├── RecordedError         a recorded upstream raised it
├── TraceFormatError      a recording cannot be read; names the source, the line and the remedy
├── SSEError              an SSE stream cannot be read
└── MissingExtraError     an edge was imported without its extra (also an ImportError)
```
"""

from __future__ import annotations

__all__ = [
    "AnswerError",
    "ConversionError",
    "DragentStreamError",
    "MissingExtraError",
    "RecordedError",
    "SSEError",
    "TraceFormatError",
    "UpstreamError",
    "missing_extra",
]


class DragentStreamError(Exception):
    """Everything this library raises on purpose."""


class ConversionError(DragentStreamError):
    """The caller asked a converter for something that cannot be done."""


class UpstreamError(DragentStreamError):
    """The upstream reported a failure inside its stream (an `error` object, `finish_reason: "error"`).

    Attributes:
        code: What `RUN_ERROR.code` says about it.
        private: The text may hold what is not for clients (a log, a traceback): they get the code and a reference.
    """

    def __init__(self, message: str, code: str = "STREAM_ERROR", *, private: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.private = private


class AnswerError(UpstreamError):
    """What came is no complete answer; the text is ours and holds nothing of the user's.

    Its code is `EMPTY_ANSWER` (nothing was said), `UNKNOWN_CHUNKS` (nothing was understood), `INCOMPLETE_TOOL_CALL` (a
    call's arguments are no JSON), `length` or `content_filter` (the model's own word), or `STREAM_ERROR` (it was cut off).
    """


class RecordedError(DragentStreamError):
    """What the upstream of a recording raised; its own type is not known here."""


class TraceFormatError(DragentStreamError):
    """A line of a recording cannot be read.

    Attributes:
        source: The file's name, or what stands for it.
        line: The line's number, from 1; 0 where the whole file is meant.
        remedy: What the reader of the message can do.
    """

    def __init__(self, problem: str, *, source: str = "<trace>", line: int = 0, remedy: str = "") -> None:
        place = f"{source}:{line}" if line else source
        super().__init__(f"{place}: {problem}" + (f" ({remedy})" if remedy else ""))
        self.source = source
        self.line = line
        self.remedy = remedy


class SSEError(DragentStreamError):
    """An SSE stream cannot be read: a frame above the size limit, or data that is no JSON where JSON is due."""


class MissingExtraError(DragentStreamError, ImportError):
    """An edge was imported without the packages of its extra."""


def missing_extra(extra: str, error: ImportError) -> MissingExtraError:
    """The error to raise where an edge's package is absent; it names the extra that brings it."""
    return MissingExtraError(
        f"{error.name or error} is not installed; it comes with the extra: pip install 'dragent-stream[{extra}]'",
        name=error.name,
    )
