"""A scripted model behind the OpenAI chat completions API, on a loopback socket.

It is a real HTTP server, so that a client library, its retries and its broken connections are part of the test. Only
the standard library is used: the module runs in any environment.

```python
async with ScriptedModel([["Hel", "lo"], [tool_call_chunk("{}", call_id="c", name="f"), finish_chunk("tool_calls")]]) as model:
    client = openai.AsyncOpenAI(base_url=model.base_url, api_key="none")
```

Routes: `POST /v1/chat/completions` takes the next turn; `GET /v1/models` and `GET /v1/models/{id}` take none and are not
among the requests; everything else is a 404.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeAlias, cast

from dragent_stream.testing.script import Cut, Entry, Fail, Hold, Pause, Raw, ScriptError, Turn, read_script, read_turn

__all__ = ("Cut", "Fail", "Hold", "ModelRequest", "Pause", "Raw", "ScriptError", "ScriptedModel", "Turn")


_MODEL = {"id": "test-model", "object": "model", "created": 0, "owned_by": "dragent_stream"}


@dataclass(eq=False, slots=True)
class ModelRequest:
    """One request that the model received.

    Attributes:
        path: The path of the URL, such as `/v1/chat/completions`.
        headers: The headers, names in lower case.
        body: The decoded JSON body.
        disconnected: Set when the client closed the connection before the answer was complete.
        answered: Set when the whole answer was written.
        chunks_sent: How many chunks were written.
    """

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    chunks_sent: int = 0

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the request."""
        return self.body.get("messages", [])


class ScriptedModel:
    """An OpenAI-compatible model that answers as its script says.

    Attributes:
        requests: Every request, in the order of arrival.
        arrivals: A queue of the same requests, for a test that waits for the next one.
    """

    def __init__(
        self, turns: Iterable[Turn] | Callable[[ModelRequest], Turn | Awaitable[Turn]], *, port: int = 0
    ) -> None:
        """Prepare the script.

        Args:
            turns: The answers in the order in which they are asked for, or a function from the request to its answer
                (needed where requests arrive at the same time). A request past the script's end is answered with an
                HTTP 500 that says so, and that openai's client does not repeat.
            port: The port on the loopback address; 0 takes a free one.

        Raises:
            ScriptError: What a turn holds is no chunk and none of the entries above.
        """
        self.requests: list[ModelRequest] = []
        self.arrivals: asyncio.Queue[ModelRequest] = asyncio.Queue()
        self._turns = turns if callable(turns) else read_script(turns)
        self._taken = 0
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        """The URL that an OpenAI client takes as its `base_url`.

        Raises:
            RuntimeError: Outside of `async with`.
        """
        if self._server is None:
            raise RuntimeError("the scripted model is not running: enter it with `async with` first")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._server = None

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method, request, problem = await _read_request(reader)
            if refusal := problem or _routed(method, request.path):
                await _write_json(writer, *refusal)
                return
            self.requests.append(request)
            self.arrivals.put_nowait(request)
            try:
                turn = await self._turn_for(request)
            except ScriptError as error:
                await _write_json(writer, *_refusal(500, str(error), "script_error"), "x-should-retry: false\r\n")
                return
            # A client that waits for an answer sends nothing, so the end of its side means that it has gone.
            gone = asyncio.ensure_future(reader.read())
            answer = asyncio.ensure_future(_answer(request, turn, writer))
            try:
                await asyncio.wait({gone, answer}, return_when=asyncio.FIRST_COMPLETED)
                if answer.done():
                    answer.result()
                else:
                    request.disconnected.set()
            finally:
                gone.cancel()
                answer.cancel()
                await asyncio.gather(gone, answer, return_exceptions=True)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _turn_for(self, request: ModelRequest) -> list[Entry]:
        self._taken += 1
        if callable(self._turns):
            turn = self._turns(request)
            return read_turn(await turn if isinstance(turn, Awaitable) else turn, self._taken)
        if self._taken > len(self._turns):
            raise ScriptError(f"the script has {len(self._turns)} turns, and this is request {self._taken}")
        return self._turns[self._taken - 1]


_Refusal: TypeAlias = tuple[int, Mapping[str, Any]]


def _refusal(status: int, message: str, kind: str = "invalid_request_error") -> _Refusal:
    return status, {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _routed(method: str, path: str) -> _Refusal | None:
    """What a request gets that asks for no completion; None for one that does."""
    route = path.partition("?")[0].rstrip("/")
    if route == "/v1/chat/completions":
        return None if method == "POST" else _refusal(405, f"{method} is not allowed here; POST a chat completion")
    if method == "GET" and route == "/v1/models":
        return 200, {"object": "list", "data": [_MODEL]}
    if method == "GET" and route.startswith("/v1/models/"):
        return 200, _MODEL | {"id": route.removeprefix("/v1/models/")}
    return _refusal(404, f"no route {method} {route or '/'}; the scripted model has POST /v1/chat/completions")


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, ModelRequest, _Refusal | None]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in head[1:]:
        name, _, value = line.partition(":")
        if name:
            headers[name.lower()] = value.strip()
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path = head[0].split(" ")[:2]
    try:
        body: object = json.loads(content or b"{}")
    except ValueError:
        body = None
    request = ModelRequest(path=path, headers=headers, body={})
    if not isinstance(body, dict):
        return method, request, _refusal(400, "the body is no JSON object")
    request.body = cast("dict[str, Any]", body)
    return method, request, None


async def _answer(request: ModelRequest, turn: list[Entry], writer: asyncio.StreamWriter) -> None:
    if turn and isinstance(turn[0], Fail):
        await _write_json(writer, *_refusal(turn[0].status, turn[0].message, "server_error"))
    elif request.body.get("stream"):
        await _stream(request, turn, writer)
    else:
        for entry in turn:
            await _wait(entry)
        await _write_json(writer, 200, _completion([entry for entry in turn if isinstance(entry, Mapping)]))
    request.answered.set()


async def _stream(request: ModelRequest, turn: list[Entry], writer: asyncio.StreamWriter) -> None:
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    )
    for entry in turn:
        await _wait(entry)
        if isinstance(entry, Cut):
            await writer.drain()
            raise ConnectionAbortedError
        if isinstance(entry, Raw):
            _write_part(writer, entry.data)
            await writer.drain()
        if isinstance(entry, Mapping):
            _write_part(writer, b"data: " + json.dumps(entry).encode() + b"\n\n")
            request.chunks_sent += 1
            await writer.drain()
    _write_part(writer, b"data: [DONE]\n\n")
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _wait(entry: object) -> None:
    if isinstance(entry, Pause):
        await asyncio.sleep(entry.seconds)
    elif isinstance(entry, Hold):
        await (entry.until or asyncio.Event()).wait()


def _write_part(writer: asyncio.StreamWriter, part: bytes) -> None:
    writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")


async def _write_json(writer: asyncio.StreamWriter, status: int, body: Mapping[str, Any], more: str = "") -> None:
    content = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n{more}"
    writer.write(head.encode() + b"connection: close\r\n\r\n" + content)
    await writer.drain()


def _completion(chunks: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Put the chunks of one answer together, for a request without `stream`."""
    content, reason, usage = "", "stop", None
    calls: list[dict[str, Any]] = []
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices", []):
            delta = choice.get("delta", {})
            content += delta.get("content") or ""
            reason = choice.get("finish_reason") or reason
            for part in delta.get("tool_calls", []):
                function = part.get("function", {})
                if function.get("name"):
                    call = {"id": part.get("id"), "type": "function", "function": {"name": "", "arguments": ""}}
                    calls.append(call | {"index": part.get("index")})
                call = next(call for call in reversed(calls) if call["index"] == part.get("index"))
                call["function"]["name"] += function.get("name") or ""
                call["function"]["arguments"] += function.get("arguments") or ""
    message: dict[str, Any] = {"role": "assistant", "content": content or None}
    if calls:
        message["tool_calls"] = [{key: value for key, value in call.items() if key != "index"} for call in calls]
    answer: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "test-model",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
    }
    return answer if usage is None else answer | {"usage": usage}
