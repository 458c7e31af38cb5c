"""Start the agent, ask it one question, show the AG-UI run, and check it. No model and no key is needed.

The model is a script on a loopback port; everything else is real: `nat start`, HTTP, the agent, its tools.
"""

import asyncio
import json
import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dragent_stream.testing.chunks import finish_chunk, text_chunk, tool_call_chunk, usage_chunk
from dragent_stream.testing.model import ScriptedModel

HERE = Path(__file__).parent
QUESTION = {
    "threadId": "thread-1",
    "runId": "run-1",
    "messages": [{"id": "m1", "role": "user", "content": "How warm is it in Bergen and Athens, in Fahrenheit?"}],
}


def call(call_id: str, name: str, arguments: str, index: int) -> list[dict[str, Any]]:
    """The deltas of one tool call, its arguments in two pieces."""
    half = len(arguments) // 2
    first = tool_call_chunk("", call_id=call_id, name=name, index=index)
    return [first, tool_call_chunk(arguments[:half], index=index), tool_call_chunk(arguments[half:], index=index)]


SCRIPT = [
    [
        *map(text_chunk, ("Let me ", "look.")),
        *call("call_1", "weather", '{"city": "Bergen"}', 0),
        *call("call_2", "weather", '{"city": "Athens"}', 1),
        finish_chunk("tool_calls"),
        usage_chunk(120, 40),
    ],
    [
        *call("call_3", "convert", '{"celsius": 11}', 0),
        *call("call_4", "convert", '{"celsius": 29}', 1),
        finish_chunk("tool_calls"),
        usage_chunk(190, 44),
    ],
    [*map(text_chunk, ("Bergen has 51.8 °F, ", "Athens 84.2 °F.")), finish_chunk(), usage_chunk(260, 18)],
]


def ask(port: int) -> Iterator[dict[str, Any]]:
    """The events of one run, as they arrive."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/agui", json.dumps(QUESTION).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        for line in response:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def shown(port: int) -> list[dict[str, Any]]:
    """Print one run and return its events."""
    events: list[dict[str, Any]] = []
    for event in ask(port):
        events.append(event)
        rest = {key: value for key, value in event.items() if key not in ("type", "threadId", "runId", "messageId")}
        print(f"  {event['type']:<22} {json.dumps(rest, ensure_ascii=False)}", flush=True)
    return events


def is_up(port: int) -> bool:
    """Whether the server answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def check(events: list[dict[str, Any]]) -> None:
    """One ordered run: every call has its own result, the text stands there once, all usage is summed."""
    kinds = [event["type"] for event in events]
    assert (kinds[0], kinds[-1]) == ("RUN_STARTED", "RUN_FINISHED"), kinds
    results = {event["toolCallId"]: event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"}
    assert results == {"call_1": "11", "call_2": "29", "call_3": "51.8", "call_4": "84.2"}, results
    text = "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
    assert text == "Let me look.Bergen has 51.8 °F, Athens 84.2 °F.", text
    assert events[-1]["usage"][0]["totalTokens"] == 672, events[-1]


async def main() -> None:
    """Serve the model and the agent, ask, check."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with ScriptedModel(SCRIPT) as model:
        command = [sys.executable, "serve.py", "--config_file", "workflow.yaml", "--port", str(port)]
        environment = {**os.environ, "MODEL_URL": model.base_url, "PYTHONWARNINGS": "ignore"}
        print("$ nat start dragent_stream --config_file workflow.yaml", flush=True)
        server = await asyncio.create_subprocess_exec(
            *command, cwd=HERE, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output = asyncio.ensure_future(server.stdout.read() if server.stdout else asyncio.sleep(0, b""))
        try:
            async with asyncio.timeout(180):
                while not await asyncio.to_thread(is_up, port):
                    if server.returncode is not None:
                        raise SystemExit((await output or b"").decode())
                    await asyncio.sleep(0.2)
            print(f"$ curl -d @question.json http://127.0.0.1:{port}/agui", flush=True)
            check(await asyncio.to_thread(shown, port))
        finally:
            if server.returncode is None:
                server.send_signal(2)
            async with asyncio.timeout(60):
                await server.wait()
        assert server.returncode == 0, (await output or b"").decode()
    print("one valid run: 3 model turns, 4 tool calls, each with its own result")


if __name__ == "__main__":
    asyncio.run(main())
