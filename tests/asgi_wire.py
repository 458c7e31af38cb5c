"""One request to an ASGI application, carried out the way a server does, every message in sight."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Self
from urllib.parse import unquote

import anyio


class Exchange:
    """A request and what the application sends for it; `async with` starts it and waits for its end."""

    def __init__(
        self,
        app: Any,
        method: str = "POST",
        target: str = "/agui",
        body: bytes | Mapping[str, Any] = b"",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        raw_path, _, query = target.partition("?")
        self.app = app
        self.sent: list[dict[str, Any]] = []
        self.writable = asyncio.Event()
        self.writable.set()
        self.broken = False
        self._changed = asyncio.Event()
        self._gone = asyncio.Event()
        self._body = [body if isinstance(body, bytes) else json.dumps(body).encode()]
        given = {"content-type": "application/json", "host": "test", **(headers or {})}
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(raw_path),
            "raw_path": raw_path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in given.items() if value],
            "client": ("127.0.0.1", 1),
            "server": ("test", 80),
        }

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.app(self.scope, self._receive, self._send))
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.fail_after(5):
            await asyncio.wait((self.task,))
        if not self.task.cancelled():
            self.task.result()

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            part = self._body.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._body)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        await self.writable.wait()
        if self.broken:
            raise OSError("the client is gone")
        self.sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self._gone.set()
        self._changed.set()

    def disconnect(self) -> None:
        self._gone.set()

    async def until(self, seen: Callable[[bytes], bool]) -> None:
        """Wait until the body so far satisfies the predicate."""
        with anyio.fail_after(5):
            while not seen(self.body):
                self._changed.clear()
                await self._changed.wait()

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def complete(self) -> bool:
        return bool(self.sent) and self.sent[-1]["type"] == "http.response.body" and not self.sent[-1].get("more_body")

    @property
    def events(self) -> list[dict[str, Any]]:
        frames = [frame for frame in self.body.split(b"\n\n") if frame and not frame.startswith(b":")]
        assert all(frame.startswith(b"data: ") for frame in frames)
        return [json.loads(frame[len("data: ") :]) for frame in frames]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


async def exchange(app: Any, *args: Any, **more: Any) -> Exchange:
    """A whole request."""
    async with Exchange(app, *args, **more) as done:
        pass
    return done


def run_input(**fields: Any) -> dict[str, Any]:
    """A run input as a 1.0 client sends it; give None to leave a field out."""
    whole = {
        "threadId": "thread",
        "runId": "run",
        "protocolVersion": "1.0",
        "state": {},
        "messages": [{"id": "m1", "role": "user", "content": "hello"}],
        "tools": [],
        "context": [],
        "forwardedProps": {},
        **fields,
    }
    return {name: value for name, value in whole.items() if value is not None}
