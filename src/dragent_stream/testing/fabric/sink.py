"""A strict stand-in for the listener that Fabric's SDK opens for one turn: tests without the native wheel.

`FakeSink` accepts one `fabric.openai_stream/v1alpha1` stream on 127.0.0.1 and answers each mistake with the status that
the SDK (0.2.0 to 0.5.0) answers: 404, 401, 415, 411, 417 and 409 for the head, 400 and 413 for the records. What the SDK
puts up with and the contract does not promise (a body before the 100, two records in one HTTP chunk, a missing line
feed) is let pass and written down in `violations`; a sink that leaves the list empty works with every host.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn, Self, cast

__all__ = ("FakeSink",)

_LIMIT = 1024 * 1024
_CHUNK_KEYS = {"type", "sequence", "runtime_id", "invocation_id", "request_id", "chunk"}


class _Refusal(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class FakeSink:
    """One turn's listener.

    ```python
    async with FakeSink() as sink:
        result = await adapter_under_test(sink.payload(input="hello"))
        await sink.wait_closed()
        sink.assert_complete()
        assert [chunk["choices"][0]["delta"] for chunk in sink.chunks] == [...]
    ```

    Attributes:
        chunks: The chunks of all accepted records, in order.
        records: All accepted records, the end record included.
        statuses: The answer to every connection, in order of answering; 0 for a connection that broke off.
        error: Why the claimed stream was refused; None while it is not.
        violations: What the SDK tolerates and the contract forbids.
        ended: The end record has come.
    """

    def __init__(
        self,
        *,
        runtime_id: str = "runtime-fake",
        invocation_id: str = "invocation-fake",
        request_id: str = "request-fake",
        drop_after: int | None = None,
        answer: int | None = None,
    ) -> None:
        """Prepare a listener.

        Args:
            runtime_id: What the records must say; so with the next two.
            invocation_id: See `runtime_id`.
            request_id: See `runtime_id`.
            drop_after: Break the connection after this many records; 0 breaks it right after the 100.
            answer: Answer every valid head with this status instead of 100.
        """
        self.ids = {"runtime_id": runtime_id, "invocation_id": invocation_id, "request_id": request_id}
        self.token = secrets.token_urlsafe(32)
        self.port = 0
        self.chunks: list[dict[str, Any]] = []
        self.records: list[dict[str, Any]] = []
        self.statuses: list[int] = []
        self.error: str | None = None
        self.violations: list[str] = []
        self.ended = False
        self._drop_after = drop_after
        self._answer = answer
        self._claimed = False
        self._closed = asyncio.Event()
        self._reading = asyncio.Event()
        self._reading.set()
        self._arrived = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def stream(self) -> dict[str, Any]:
        """The `stream` object of the invocation."""
        return {
            "protocol_version": "fabric.openai_stream/v1alpha1",
            "profile": "openai.chat_completions.chunk/v1",
            "host": "127.0.0.1",
            "port": self.port,
            "token": self.token,
            **self.ids,
        }

    def payload(self, input: Any = "", *, deadline_millis: int | None = None, **request: Any) -> dict[str, Any]:
        """The payload of an `invoke_openai_stream` request, as the host of SDK 0.5.0 sends it.

        Args:
            input: The request's input.
            deadline_millis: The invocation's deadline in Unix milliseconds; left out where None, as before 0.5.0.
            request: More members of the request, e.g. `context`.
        """
        context: dict[str, Any] = {
            **self.ids,
            "environment": {
                "environment_id": "environment-fake",
                "provider": "local",
                "control_location": "in_env_control",
                "ownership": "caller_owned",
            },
            "artifacts": {},
        }
        if deadline_millis is not None:
            context["deadline_millis"] = deadline_millis
        return {"runtime_context": context, "request": {"input": input, **request}, "stream": self.stream}

    def pause(self) -> None:
        """Stop reading, like a consumer that is busy."""
        self._reading.clear()

    def resume(self) -> None:
        """Read on."""
        self._reading.set()

    async def wait_records(self, count: int) -> None:
        """Wait until so many records have been accepted."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.records) >= count)

    async def wait_closed(self) -> None:
        """Wait until the claimed connection has been answered or has broken off."""
        await self._closed.wait()

    def assert_complete(self) -> None:
        """Assert that one whole stream came in strict form and was answered with 200."""
        assert self.error is None, self.error
        assert self.ended, "no end record came"
        assert self.statuses[-1:] == [200], f"the connections were answered {self.statuses}"
        assert not self.violations, "; ".join(self.violations)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        claimed = False
        status = 0
        try:
            head = await _read_head(reader)
            self._check_head(head)
            if self._claimed:
                raise _Refusal(409, "the invocation has its stream already")
            if self._answer is not None:
                raise _Refusal(self._answer, "refused on purpose")
            self._claimed = claimed = True
            self._look_for_impatience(reader)
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await writer.drain()
            await self._read_body(reader)
            if not self.ended:
                raise _Refusal(400, "the stream ended without an end record")
            status = 200
        except _Refusal as refusal:
            status = refusal.status
            if claimed:
                self.error = str(refusal)
        except asyncio.LimitOverrunError:
            status, self.error = 400, "a line between the records is too long"
        except (ConnectionError, asyncio.IncompleteReadError):
            if claimed:
                self.error = "the connection broke off before the end"
        finally:
            self.statuses.append(status)
            if status:
                reason = {200: "OK", 400: "Bad Request"}.get(status, "Rejected")
                writer.write(f"HTTP/1.1 {status} {reason}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            if claimed:
                self._closed.set()

    def _look_for_impatience(self, reader: asyncio.StreamReader) -> None:
        # What was sent together with the head is here by now; asyncio offers no public look at it.
        if getattr(reader, "_buffer", b""):
            self.violations.append("the body was sent before the 100 Continue")

    def _check_head(self, head: bytes) -> None:
        try:
            request, *lines = head.decode("ascii").split("\r\n")
            method, target, _version = request.split(" ", 2)
            headers = {name.strip().lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
        except ValueError:
            raise _Refusal(400, "the request's head cannot be read") from None
        if method != "POST" or target.partition("?")[0] != "/openai-stream":
            raise _Refusal(404, "not POST /openai-stream")
        if headers.get("authorization") != f"Bearer {self.token}":
            raise _Refusal(401, "wrong bearer token")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/x-ndjson":
            raise _Refusal(415, "not application/x-ndjson")
        if headers.get("transfer-encoding", "").rpartition(",")[2].strip().lower() != "chunked":
            raise _Refusal(411, "not chunked")
        if headers.get("expect", "").lower() != "100-continue":
            raise _Refusal(417, "no Expect: 100-continue")
        if headers.get("connection", "").lower() != "close" or "host" not in headers:
            self.violations.append("the head lacks Host or Connection: close")

    async def _read_body(self, reader: asyncio.StreamReader) -> None:
        buffer = bytearray()
        while True:
            if self._drop_after is not None and len(self.records) >= self._drop_after:
                raise ConnectionAbortedError
            await self._reading.wait()
            size_line = await reader.readuntil(b"\n")
            digits = size_line.partition(b";")[0].strip()
            try:
                size = int(digits, 16)
            except ValueError:
                raise _Refusal(400, "an HTTP chunk has no size") from None
            if size < 0:
                raise _Refusal(400, "an HTTP chunk has no size")
            if size_line != b"%X\r\n" % size:
                self.violations.append("an HTTP chunk's size is not written in upper-case hex and CRLF alone")
            if size == 0:
                break
            buffer += await self._read_piece(reader, size, len(buffer))
            if await reader.readexactly(2) != b"\r\n":
                raise _Refusal(400, "an HTTP chunk is not closed")
            if buffer.count(b"\n") != 1 or not buffer.endswith(b"\n"):
                self.violations.append("an HTTP chunk holds more or less than one record")
            *lines, rest = bytes(buffer).split(b"\n")
            for line in lines:
                await self._take(line, terminated=True)
            buffer[:] = rest
            if len(buffer) > _LIMIT + buffer.endswith(b"\r"):
                raise _Refusal(413, "a record exceeds 1 MiB")
        if await reader.readuntil(b"\n") not in (b"\r\n", b"\n"):
            self.violations.append("the body has trailers")
            while await reader.readuntil(b"\n") not in (b"\r\n", b"\n"):
                pass
        if buffer.strip():
            await self._take(bytes(buffer), terminated=False)

    async def _read_piece(self, reader: asyncio.StreamReader, size: int, before: int) -> bytes:
        piece = b""
        while len(piece) < size:
            piece += await reader.readexactly(min(size - len(piece), 1 << 16))
            if b"\n" not in piece and before + len(piece) > _LIMIT + 1:
                raise _Refusal(413, "a record exceeds 1 MiB")
        return piece

    async def _take(self, line: bytes, *, terminated: bool) -> None:
        payload = line.removesuffix(b"\r")
        if len(payload) > _LIMIT:
            raise _Refusal(413, "a record exceeds 1 MiB")
        if terminated and len(line) + 1 > _LIMIT:
            self.violations.append("a record exceeds 1 MiB with its line feed, which hosts count")
        if not payload.strip():
            self.violations.append("a line is blank")
            return
        if not terminated or payload != line:
            self.violations.append("a record does not end in a line feed alone")
        record = self._record(payload)
        self.records.append(record)
        if record["type"] == "chunk":
            self.chunks.append(record["chunk"])
        else:
            self.ended = True
        async with self._arrived:
            self._arrived.notify_all()

    def _record(self, payload: bytes) -> dict[str, Any]:
        try:
            value: object = json.loads(payload.decode(), parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise _Refusal(400, "a record is no JSON in UTF-8") from None
        if not isinstance(value, dict):
            raise _Refusal(400, "a record is no mapping")
        record = cast("dict[str, Any]", value)
        for name in ("runtime_id", "request_id", "invocation_id"):
            if record.get(name) != self.ids[name]:
                raise _Refusal(400, f"a record has another {name}")
        sequence = record.get("sequence")
        if type(sequence) is not int or sequence != len(self.records):
            raise _Refusal(400, f"the sequence is not {len(self.records)}")
        keys = set(record)
        if record.get("type") == "chunk":
            if keys != _CHUNK_KEYS:
                raise _Refusal(400, "a chunk record has other members")
            if self.ended:
                raise _Refusal(400, "a chunk came after the end")
            _check_chunk(record["chunk"])
        elif record.get("type") == "end":
            if self.ended or keys != _CHUNK_KEYS - {"chunk"}:
                raise _Refusal(400, "the end record is wrong")
        else:
            raise _Refusal(400, "a record has an unknown type")
        return record


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.LimitOverrunError, TimeoutError):
        raise _Refusal(400, "the request's head is too long or did not come") from None
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            raise
        raise _Refusal(400, "the request's head is not whole") from None
    return head[:-4]


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


# Written apart from the rules that the library's own sink checks, so that one mistake does not pass both.


def _check_chunk(chunk: object) -> None:
    value = _mapping(chunk, "the chunk")
    _require(value.get("object") == "chat.completion.chunk", "object")
    for name in ("id", "model"):
        _require(isinstance(value.get(name), str) and bool(value[name].strip()), name)
    _require(type(value.get("created")) is int and 0 <= value["created"] < 2**64, "created")
    _nullable(value, "usage", dict)
    _require(isinstance(value.get("choices"), list), "choices")
    for item in value["choices"]:
        choice = _mapping(item, "a choice")
        _require(type(choice.get("index")) is int and 0 <= choice["index"] < 2**32, "index")
        _nullable(choice, "finish_reason", str)
        _nullable(choice, "logprobs", dict)
        delta = _mapping(choice.get("delta"), "a delta")
        for name in ("content", "refusal", "role"):
            _nullable(delta, name, str)
        _nullable(delta, "function_call", dict)
        _nullable(delta, "tool_calls", list)
        for call in delta.get("tool_calls") or ():
            _mapping(call, "a tool call")


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    _require(isinstance(value, dict), what)
    return cast("Mapping[str, Any]", value)


def _nullable(value: Mapping[str, Any], name: str, kind: type) -> None:
    _require(value.get(name) is None or isinstance(value[name], kind), name)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise _Refusal(400, f"the chunk is invalid: {what}")
