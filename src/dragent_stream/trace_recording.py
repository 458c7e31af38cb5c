"""Record a stream as it passes: what came, when, and how it ended, as the lines of a trace (see `trace`)."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import IO, Any, cast

from pydantic_core import to_jsonable_python

from dragent_stream.answer_body import READS, BodyChunks
from dragent_stream.errors import SSEError, UpstreamError
from dragent_stream.options import DEFAULT_OPTIONS
from dragent_stream.step_adaptor import AgentStep
from dragent_stream.stream_converter import ChunkSource, Upstream
from dragent_stream.trace_values import write_chunk, write_line, write_step

__all__ = ["TRACE_VERSION", "record_chunks"]

TRACE_VERSION = 1


async def record_chunks(
    chunks: ChunkSource, file: str | PathLike[str] | IO[str], **metadata: Any
) -> AsyncGenerator[Any, None]:
    """Pass a chunk stream through and write it to a trace as it goes.

    What the consumer sees is the upstream's own: the same objects, its exception, its end. `AgentStep`s are recorded as
    steps, bytes as the chunks they hold. A replay of the trace converts to the events that the stream converts to. The
    upstream is closed when the consumer leaves.

    Args:
        chunks: The chunks; see `ChunkSource`.
        file: A path, or an open text file, which stays open.
        **metadata: Written into the header beside the version. Put no secrets here.

    Yields:
        The chunks, unchanged.
    """
    with ExitStack() as stack:
        out = stack.enter_context(_open(file)) if isinstance(file, str | PathLike) else file
        trace = _TraceWriter(out, metadata)
        try:
            async with Upstream(chunks, DEFAULT_OPTIONS.close_timeout) as upstream:
                async for chunk in upstream:
                    trace.take(chunk)
                    yield chunk
        except Exception as exc:
            trace.failed(exc)
            raise
        except BaseException as gone:
            trace.write("closed", type(gone).__name__)
            raise
        trace.ended()


def _open(path: str | PathLike[str]) -> IO[str]:
    return Path(path).open("w", encoding="utf-8", newline="\n")


class _TraceWriter:
    """Writes the header and one line for each thing that happens."""

    __slots__ = ("_bodies", "_out", "_start", "_unreadable")

    def __init__(self, out: IO[str], metadata: dict[str, Any]) -> None:
        self._out = out
        self._start = time.monotonic()
        self._bodies = BodyChunks()
        self._unreadable = False
        header = to_jsonable_python(metadata, bytes_mode="base64", serialize_unknown=True, fallback=str)
        out.write(write_line({"dragent_trace": TRACE_VERSION, **header}) + "\n")

    def write(self, kind: str, value: Any) -> None:
        """One line; `value` is JSON."""
        t = round(time.monotonic() - self._start, 4)
        try:
            line = write_line({"t": t, kind: value})
        except (TypeError, ValueError, RecursionError):  # a number of thousands of digits, an object without an end
            line = write_line({"t": t, kind: {"$recorded": {"type": "object"}}})
        self._out.write(line + "\n")
        self._out.flush()  # what was received is in the file, also when the process dies

    def take(self, chunk: object) -> None:
        """What the upstream brings."""
        if isinstance(chunk, READS):
            self._take_body(bytes(cast("bytes", chunk)))
        elif isinstance(chunk, AgentStep):
            self.write("step", write_step(chunk.step))
        else:
            self.write("chunk", write_chunk(chunk))

    def failed(self, exc: Exception) -> None:
        """The upstream raised, or its bytes cannot be read."""
        try:
            message = str(exc)
        except Exception:
            message = ""  # its __str__ fails
        error = {"type": type(exc).__name__, "message": message}
        self.write("error", error | ({"code": exc.code} if isinstance(exc, UpstreamError) else {}))

    def ended(self) -> None:
        """The upstream is at its end."""
        try:
            held = [] if self._unreadable else self._bodies.end()
        except SSEError as exc:
            self.failed(exc)
            return
        for chunk in held:
            self.write("chunk", chunk)
        if self._unreadable:
            return
        if self._bodies.problem:
            self.failed(self._bodies.problem)
        else:
            self.write("end", True)

    def _take_body(self, data: bytes) -> None:
        if self._unreadable:
            return  # the run has failed with the bytes before
        try:
            held = self._bodies.read(data)
        except SSEError as exc:
            self._unreadable = True
            self.failed(exc)
            return
        for chunk in held:
            self.write("chunk", chunk)
