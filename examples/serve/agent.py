"""An agent is a function from the run input to a stream of chunks. Serve it: `dragent-stream serve agent:agent`.

This one needs no model and no key: it answers from a clock, with two tool calls, the way a model would.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

ZONES = {"Oslo": 1, "Lima": -5}


def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


async def agent(run_input: Any) -> AsyncIterator[dict[str, Any]]:
    for word in ("Let me look ", "at two ", "clocks."):
        yield chunk({"content": word})
        await asyncio.sleep(0.05)
    # Both calls at once, their arguments in fragments, as providers send them.
    for index, city in enumerate(ZONES):
        function = {"name": "clock", "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": f"call_{city}", "function": function}]})
    for part in range(2):
        for index, city in enumerate(ZONES):
            arguments = json.dumps({"city": city})
            half = arguments[:8] if part == 0 else arguments[8:]
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": half}}]})
            await asyncio.sleep(0.05)
    yield chunk({}, "tool_calls")
    # A tool's result is a message of the role "tool".
    times = {city: datetime.now(UTC) + timedelta(hours=hours) for city, hours in ZONES.items()}
    for city, now in times.items():
        await asyncio.sleep(0.2)
        yield chunk({"role": "tool", "tool_call_id": f"call_{city}", "content": f"{now:%H:%M}"})
    for city, now in times.items():
        yield chunk({"content": f"It is {now:%H:%M} in {city}. "})
        await asyncio.sleep(0.05)
    yield chunk({}, "stop")
