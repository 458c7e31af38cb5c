"""A browser, and a server whose agent the test leads by the hand. Without Playwright nothing here is collected."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from dragent_stream.asgi import AgentStep, create_app
from dragent_stream.testing.chunks import finish_chunk, reasoning_chunk, text_chunk, tool_call_chunk, usage_chunk

if find_spec("playwright") is None:
    collect_ignore_glob = ["test_*.py"]

SCREENSHOTS = Path(__file__).parents[2] / "docs" / "screenshots"
ANSWER = (
    "Streams arrive as **deltas**. Three things to know:\n\n- text opens, flows and closes\n"
    "- calls carry their `arguments`\n- one terminal event ends it all\n\n```python\nasync for event in run:\n    print(event)\n```\n"
)


class GuidedServer:
    """The app in a thread. The agent acts on the last word of the user, and waits at its gates for the test."""

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = {}
        self.closed = threading.Event()
        self.url = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._server: uvicorn.Server | None = None

    def __enter__(self) -> GuidedServer:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server
        self._server.should_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive()

    def open(self, gate: str) -> None:
        assert self._loop
        self._loop.call_soon_threadsafe(lambda: self.gates.setdefault(gate, asyncio.Event()).set())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        app = create_app(self._agent, page=True, title="Guided agent", shutdown_grace=0.1)
        self._server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="on"))
        self._server.capture_signals = nullcontext  # type: ignore[method-assign]
        serving = asyncio.create_task(self._server.serve())
        while not self._server.started:
            await asyncio.sleep(0.01)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}/"
        self._ready.set()
        await serving

    async def _gate(self, name: str) -> None:
        await self.gates.setdefault(name, asyncio.Event()).wait()

    async def _agent(self, run_input: Any) -> AsyncIterator[Any]:
        self.closed.clear()
        asked = str(run_input.messages[-1].content).rpartition(" ")[2]
        try:
            async for item in getattr(self, f"_{asked}")():
                yield item
        finally:
            self.closed.set()

    async def _hello(self) -> AsyncIterator[Any]:
        yield reasoning_chunk("The user greets me. ")
        yield reasoning_chunk("I should explain streams.")
        yield text_chunk(ANSWER[:20])
        await self._gate("more")
        for at in range(20, len(ANSWER), 5):
            yield text_chunk(ANSWER[at : at + 5])
        yield finish_chunk()
        yield usage_chunk(42, 61)

    async def _weather(self) -> AsyncIterator[Any]:
        yield text_chunk("Let me look at both cities.")
        for index, (call_id, city) in enumerate([("call_a", "Oslo"), ("call_b", "Lima")]):
            yield tool_call_chunk('{"city": ', call_id=call_id, name="weather", index=index)
            yield tool_call_chunk(f'"{city[:2]}', index=index)
        await self._gate("arguments")
        for index, city in enumerate(["Oslo", "Lima"]):
            yield tool_call_chunk(f'{city[2:]}"}}', index=index)
        yield finish_chunk("tool_calls")
        for city in ("Oslo", "Lima"):
            yield _step("TOOL_START", city, input=f'{{"city": "{city}"}}')
        await self._gate("second")
        yield _step("TOOL_END", "Lima", output='{"sky": "clear", "celsius": 21}')
        await self._gate("first")
        yield _step("TOOL_END", "Oslo", output='{"sky": "snow", "celsius": -3}')
        for word in ("Oslo has snow at -3 °C, ", "Lima is clear at 21 °C."):
            yield text_chunk(word, id="2")
        yield finish_chunk(id="2")

    async def _forever(self) -> AsyncIterator[Any]:
        yield text_chunk("One, two, three")
        await asyncio.Event().wait()

    async def _fail(self) -> AsyncIterator[Any]:
        yield text_chunk("I will try")
        raise RuntimeError("the database password is wrong")


def _step(kind: str, city: str, **data: str) -> AgentStep:
    return AgentStep(
        {
            "event_type": kind,
            "UUID": city,
            "name": "weather",
            "function_ancestry": {"function_name": "root"},
            "data": {"input": f'{{"city": "{city}"}}', **data},
        }
    )


@pytest.fixture
def server() -> Iterator[GuidedServer]:
    with GuidedServer() as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("no chromium here: make test-browser installs it as root; else apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any, server: GuidedServer) -> Iterator[Any]:
    """Opens the page; at the end no script may have failed and nothing may have been asked of another host."""
    problems: list[str] = []
    contexts: list[Any] = []

    def open_it(**options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 720}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: problems.append(f"script: {error}"))
        page.on("console", lambda message: message.type == "error" and problems.append(f"console: {message.text}"))
        page.on(
            "request",
            lambda request: request.url.startswith((server.url, "data:", "blob:")) or problems.append(request.url),
        )
        page.goto(server.url)
        return page

    open_it.problems = problems  # type: ignore[attr-defined]
    yield open_it
    for context in contexts:
        context.close()
    assert problems == []
