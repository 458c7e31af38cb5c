"""Convert a recorded NAT run with two parallel tools, print the AG-UI events as they were timed, and check them."""

import asyncio
import json
from pathlib import Path

from dragent_stream import ConverterOptions, replay_trace, stream_agui_sse
from dragent_stream.check import check_events

RECORDING = Path(__file__).with_name("parallel.jsonl")
REQUEST = {"threadId": "thread-1", "runId": "run-1", "protocolVersion": "1.0", "messages": []}


async def main() -> None:
    """Play the recording as the stream it was, through the converter."""
    print(f"$ dragent-stream replay {RECORDING.name}")
    events = []
    count = iter(range(1, 1000))
    options = ConverterOptions(new_id=lambda: f"id-{next(count)}")
    async for frame in stream_agui_sse(replay_trace(RECORDING, speed=1.0), REQUEST, options=options):
        event = json.loads(frame.removeprefix(b"data: "))
        events.append(event)
        rest = {key: value for key, value in event.items() if key != "type"}
        print(f"  {event['type']:<22} {json.dumps(rest, ensure_ascii=False)}", flush=True)

    assert check_events(events, run_input=REQUEST) == []
    results = {event["toolCallId"]: event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"}
    assert results == {"call_P0": "3", "call_P1": "12"}, results
    text = "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
    assert text == "Sum 3, product 12.", text
    print(f"{len(events)} events, a valid AG-UI run: two parallel calls, each with its own result, and the answer once")


if __name__ == "__main__":
    asyncio.run(main())
