"""The adapter's side of the wire: one invocation's chunks as chunked NDJSON to the listener that the SDK opened.

For processes without the common host of Fabric. Strict form only: POST, bearer token, `Expect: 100-continue` answered
before anything runs, one record in one HTTP chunk in one write, one end record, 200 before anybody is told that it
worked. The socket is closed on every path, because an open one can hang the consumer for ever (the SDK on Python
3.12.1 and later waits for it). Nothing is retried and nothing is replayed: the target ran once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from dragent_stream.fabric.contract import (
    CHUNK_PROFILE,
    INVALID_CHUNK,
    INVALID_SINK,
    STREAM_HOST,
    STREAM_PATH,
    STREAM_PROTOCOL,
    TRANSPORT_FAILED,
    FabricStreamError,
    RecordEncoder,
    chunk_problem,
    encode_chunk,
)

__all__ = ["OpenAIStreamSink", "StreamTransport"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTransport:
    """Where one invocation's records go: the `stream` object of an `invoke_openai_stream` request.

    Attributes:
        port: The listener's port on 127.0.0.1.
        token: The bearer token of this one turn; left out of the repr.
        runtime_id: Stands in every record, as do the next two.
        invocation_id: See `runtime_id`.
        request_id: See `runtime_id`.
    """

    port: int
    token: str = dataclass_field(repr=False)
    runtime_id: str
    invocation_id: str
    request_id: str

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """Read the payload of an `invoke_openai_stream` request; unknown members are ignored.

        Raises:
            FabricStreamError: The transport is absent, of another protocol, or of another invocation (code
                `lifecycle_invalid_stream_sink`).
        """
        stream, context = payload.get("stream"), payload.get("runtime_context")
        if not isinstance(stream, Mapping) or not isinstance(context, Mapping):
            raise FabricStreamError(INVALID_SINK, "the invocation names no stream transport")
        stream, context = cast("Mapping[str, Any]", stream), cast("Mapping[str, Any]", context)
        wanted = {"protocol_version": STREAM_PROTOCOL, "profile": CHUNK_PROFILE, "host": STREAM_HOST}
        for name, value in wanted.items():
            if stream.get(name) != value:
                raise FabricStreamError(INVALID_SINK, f"stream.{name} must be {value!r}")
        port, token = stream.get("port"), stream.get("token")
        if type(port) is not int or not 0 < port <= 65535:
            raise FabricStreamError(INVALID_SINK, "stream.port must be a port number")
        if not isinstance(token, str) or not token.strip() or not token.isascii() or not token.isprintable():
            raise FabricStreamError(INVALID_SINK, "stream.token must be a printable ASCII string")
        ids: dict[str, str] = {}
        for name in ("runtime_id", "invocation_id", "request_id"):
            value = stream.get(name)
            if not isinstance(value, str) or not value.strip() or value != context.get(name):
                raise FabricStreamError(INVALID_SINK, f"stream.{name} must be the invocation's {name}")
            ids[name] = value
        return cls(port=port, token=token, **ids)


class OpenAIStreamSink:
    """One open `fabric.openai_stream/v1alpha1` connection.

    ```python
    async with await OpenAIStreamSink.connect(transport) as sink:  # the listener answered 100: now run the target
        await sink.emit(chunk)
        await sink.finish()  # the listener answered 200: now report the result
    ```

    Leaving the block without `finish` closes the socket without an end record, which the consumer sees as a failure.

    Attributes:
        finished: The end record was written and accepted.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        records: RecordEncoder,
        *,
        timeout: float = 10.0,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._records = records
        self._timeout = timeout
        self._ended = False
        self.finished = False

    @classmethod
    async def connect(cls, transport: StreamTransport, *, timeout: float = 10.0) -> Self:
        """Open the connection and wait until the listener lets the body come.

        Args:
            transport: Where to.
            timeout: Seconds for the connection, and again for each of the listener's two answers.

        Raises:
            FabricStreamError: No connection, or another answer than 100 (code `lifecycle_stream_transport_failed`).
        """
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(STREAM_HOST, transport.port)
                writer.write(_request_head(transport))
                await writer.drain()
            status = await _read_status(reader, timeout)
            if status != 100:
                raise FabricStreamError(TRANSPORT_FAILED, f"the stream's listener answered {status} instead of 100")
        except BaseException as error:
            if writer is not None:
                await _close(writer)
            if isinstance(error, OSError | TimeoutError):
                raise FabricStreamError(
                    TRANSPORT_FAILED, f"the stream's listener cannot be reached ({type(error).__name__})"
                ) from None
            raise
        records = RecordEncoder(
            runtime_id=transport.runtime_id,
            invocation_id=transport.invocation_id,
            request_id=transport.request_id,
        )
        return cls(reader, writer, records, timeout=timeout)

    @property
    def chunk_limit(self) -> int:
        """Bytes that one chunk's JSON may have here."""
        return self._records.chunk_limit

    async def emit(self, chunk: Mapping[str, Any]) -> None:
        """Send one chunk; waits while the consumer is slow.

        Safe to call from several tasks. A refused chunk writes nothing and takes no number, so that the caller may
        repair it and go on.

        Raises:
            FabricStreamError: An invalid or too large chunk, or a lost connection.
        """
        value = chunk if isinstance(chunk, dict) else dict(chunk)
        problem = chunk_problem(value)
        if problem is not None:
            raise FabricStreamError(INVALID_CHUNK, problem)
        await self.emit_encoded(encode_chunk(value))

    async def emit_encoded(self, encoded: bytes) -> None:
        """Send one chunk given as its JSON, which the caller vouches for. Otherwise like `emit`."""
        if self._ended:
            raise FabricStreamError(TRANSPORT_FAILED, "a chunk came after the end of the stream")
        await self._write(self._records.chunk(encoded))

    async def finish(self) -> None:
        """Send the end record, wait for the listener's 200 and close the socket.

        Raises:
            FabricStreamError: The connection was lost, or the listener refused the stream. The socket is closed then too.
        """
        if self._ended:
            return
        self._ended = True
        try:
            await self._write(self._records.end(), last=True)
            status = await _read_status(self._reader, self._timeout)
            if status != 200:
                raise FabricStreamError(TRANSPORT_FAILED, f"the stream's listener answered {status} instead of 200")
            self.finished = True
        except (OSError, TimeoutError) as error:
            raise self._lost(error) from None
        finally:
            await self.aclose()

    async def unless_lost(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that emits; it is cancelled as soon as the listener closes or refuses, even in its silence.

        Raises:
            FabricStreamError: The listener did (code `lifecycle_stream_transport_failed`).
        """
        task = asyncio.ensure_future(work)
        # Between the 100 and the end record a listener has nothing to say: whatever can be read is its end.
        heard = asyncio.ensure_future(self._reader.read(1))
        try:
            await asyncio.wait({task, heard}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self._lost(ConnectionAbortedError())
            return task.result()
        finally:
            for future in (task, heard):
                future.cancel()
            await asyncio.gather(task, heard, return_exceptions=True)

    async def aclose(self) -> None:
        """Close the socket, whatever state the stream is in."""
        self._ended = True
        await _close(self._writer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _write(self, line: bytes, *, last: bool = False) -> None:
        # One buffer: three small writes would be three packets, and a delayed ACK between them costs 40 ms.
        # The number was taken when the line was made, so a cancelled wait below cannot make two records share it.
        self._writer.write(b"%X\r\n%b\r\n%b" % (len(line), line, b"0\r\n\r\n" if last else b""))
        try:
            await self._writer.drain()
        except OSError as error:
            raise self._lost(error) from None

    def _lost(self, error: BaseException) -> FabricStreamError:
        return FabricStreamError(TRANSPORT_FAILED, f"the stream's connection was lost ({type(error).__name__})")


def _request_head(transport: StreamTransport) -> bytes:
    return (
        f"POST {STREAM_PATH} HTTP/1.1\r\n"
        f"Host: {STREAM_HOST}:{transport.port}\r\n"
        f"Authorization: Bearer {transport.token}\r\n"
        "Content-Type: application/x-ndjson\r\n"
        "Transfer-Encoding: chunked\r\n"
        "Expect: 100-continue\r\n"
        "Connection: close\r\n\r\n"
    ).encode("ascii")


async def _read_status(reader: asyncio.StreamReader, timeout: float) -> int:
    try:
        async with asyncio.timeout(timeout):
            head = await reader.readuntil(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1])
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError, ValueError):
        raise FabricStreamError(
            TRANSPORT_FAILED, "the stream's listener closed the connection without a whole answer"
        ) from None


async def _close(writer: asyncio.StreamWriter) -> None:
    # What is still buffered here belongs to a stream that failed, and its reader may never read again.
    if writer.transport.get_write_buffer_size():
        writer.transport.abort()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
