"""Serve an agent, talk to it as a client would, stop one run in the middle, and check what came: exits non-zero if not.

python examples/serve/run.py
"""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from dragent_stream.check import check_events
from dragent_stream.sse import SSEDecoder


def run_input(run_id: str) -> dict[str, Any]:
    said = {"id": f"{run_id}-question", "role": "user", "content": "What time is it in Oslo and Lima?"}
    return {"threadId": "example", "runId": run_id, "protocolVersion": "1.0", "messages": [said]}


async def events_of(client: httpx.AsyncClient, run_id: str, stop_at: str = "") -> list[dict[str, Any]]:
    """The events of one run; the run is stopped when the first event of the type `stop_at` comes."""
    events: list[dict[str, Any]] = []
    decoder = SSEDecoder()
    async with client.stream("POST", "/agui", json=run_input(run_id)) as response:
        response.raise_for_status()
        async for data in response.aiter_bytes():
            for frame in decoder.feed(data):
                events.append(json.loads(frame.data))
                if stop_at == events[-1]["type"]:
                    stop_at = ""
                    (await client.post(f"/agui/{run_id}/stop")).raise_for_status()
    return events


async def talk(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        whole = await events_of(client, "whole")
        assert not list(check_events(whole))
        assert whole[-1]["type"] == "RUN_FINISHED"
        results = {event["toolCallId"] for event in whole if event["type"] == "TOOL_CALL_RESULT"}
        assert results == {"call_Oslo", "call_Lima"}
        text = "".join(event["delta"] for event in whole if event["type"] == "TEXT_MESSAGE_CONTENT")
        assert re.search(r"It is \d\d:\d\d in Oslo\. It is \d\d:\d\d in Lima\.", text)
        print(f"a whole run: {len(whole)} events, {text!r}")

        stopped = await events_of(client, "stopped", stop_at="TEXT_MESSAGE_CONTENT")
        assert not list(check_events(stopped))
        assert stopped[-1]["outcome"] == {"type": "cancelled"}
        print(f"a stopped run: {len(stopped)} events, the last one says {stopped[-1]['outcome']}")

        refused = await client.post("/agui", json={"threadId": "example", "runId": "3"})
        assert refused.status_code == 422
        print(f"a bad request: {refused.json()['error']['message']}")


def main() -> None:
    verb = Path(sys.executable).with_name("dragent-stream")
    command = [verb, "serve", "agent:agent", "--port", "0"]
    server = subprocess.Popen(
        command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert server.stdout
        found = None
        while found is None and (line := server.stdout.readline()):
            found = re.search(r"http://[0-9.]+:\d+", line)
        assert found, "the server did not start"
        asyncio.run(talk(found[0]))
    finally:
        server.terminate()
        server.wait(20)
    print("all as it should be")


if __name__ == "__main__":
    main()
