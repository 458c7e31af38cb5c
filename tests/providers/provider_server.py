"""A model provider on a real socket: gives scripted answers in the provider's own protocol and keeps what it was asked."""

from __future__ import annotations

import json
import struct
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


class ProviderServer:
    """`with ProviderServer([answer, …]) as server:` each request takes the next answer, a list of events.

    Attributes:
        requests: The JSON bodies that came, in order.
        url: The server's address without a path.
    """

    def __init__(self, answers: list[bytes], content_type: str = "text/event-stream") -> None:
        self.requests: list[Json] = []
        waiting = iter(answers)
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                body = next(waiting)
                self.send_response(200)
                self.send_header("content-type", content_type)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ProviderServer:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def sse(events: list[Json], *, named: bool = False) -> bytes:
    """An SSE body; `named`: each event's type in its `event` field, as Anthropic and OpenAI's Responses do."""
    return b"".join(
        (f"event: {event['type']}\n" if named else "").encode() + b"data: " + json.dumps(event).encode() + b"\n\n"
        for event in events
    )


def aws_event_stream(events: list[tuple[str, Json]]) -> bytes:
    """The frames of `application/vnd.amazon.eventstream`."""
    return b"".join(_aws_frame(kind, json.dumps(payload).encode()) for kind, payload in events)


def _aws_frame(kind: str, payload: bytes) -> bytes:
    headers = b"".join(
        _aws_header(*header)
        for header in ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event"))
    )
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    frame = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + payload
    return frame + struct.pack("!I", zlib.crc32(frame))


def _aws_header(name: str, value: str) -> bytes:
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()


def pieces(text: str, size: int = 5) -> Iterator[str]:
    """A text in pieces."""
    return (text[at : at + size] for at in range(0, len(text), size))
