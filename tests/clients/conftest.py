"""A loopback server of ready-made SSE bodies, and the real AG-UI clients of npm."""

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

Outcome = dict[str, Any]
"""What `replay.mjs` says about one stream: `{version: {messages, events, error, finished, warnings}}`."""


class _Bodies(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Stream)
        self.bodies: dict[str, bytes] = {}
        self.requests: dict[str, list[dict[str, Any]]] = {}

    def serve(self, path: str, body: bytes) -> str:
        self.bodies[path] = body
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class _Stream(BaseHTTPRequestHandler):
    server: _Bodies

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.setdefault(self.path, []).append(request)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(self.server.bodies[self.path])

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def bodies() -> Iterator[_Bodies]:
    with _Bodies() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def replay_clients() -> Callable[[list[dict[str, Any]]], list[Outcome]]:
    """Run `[{"url", "input"}, ...]` through every client version."""
    script = ROOT / "scripts" / "node"
    node = str(script) if script.is_file() else shutil.which("node")
    if node is None or not (HERE / "node_modules").is_dir():
        pytest.fail("the npm clients are not installed; run `make test-clients`")

    def replay(jobs: list[dict[str, Any]]) -> list[Outcome]:
        done = subprocess.run(
            [node, "replay.mjs"], cwd=HERE, input=json.dumps(jobs), capture_output=True, encoding="utf-8", timeout=120
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return replay
