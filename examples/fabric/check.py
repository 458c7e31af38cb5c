"""Describe the agent, start it in a real Fabric runtime, turn its stream into AG-UI runs; exits non-zero if one is wrong.

python examples/fabric/check.py    (needs nemo-fabric-runtime; `make test-fabric` has it)
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from ag_ui.encoder import EventEncoder
from nemo_fabric import Fabric, FabricConfig, Runtime

from dragent_stream.check import check_events
from dragent_stream.fabric import convert_fabric_stream, wait_fabric_drains, write_descriptor

HERE = Path(__file__).parent


async def run(runtime: Runtime, question: str) -> list[dict[str, Any]]:
    """One turn as one AG-UI run, as a server would send it."""
    run_input = {"threadId": "example", "runId": question, "protocolVersion": "1.0"}
    stream = runtime.invoke_openai_stream(input=question)
    events = [json.loads(EventEncoder().encode(event)[6:]) async for event in convert_fabric_stream(stream, run_input)]
    assert check_events(events) == [], check_events(events)
    return events


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        descriptor = write_descriptor(directory, "example.echo", module="agent", python=sys.executable, pythonpath=HERE)
        config = FabricConfig.from_mapping(
            {
                "metadata": {"name": "example"},
                "harness": {"adapter_id": "example.echo"},
                "discovery": {"local_paths": [str(descriptor)]},
                "environment": {"artifacts": f"{directory}/artifacts"},
            }
        )
        async with await Fabric().start_runtime(config, base_dir=directory) as runtime:
            answered = await run(runtime, "what is new?")
            assert "".join(event.get("delta", "") for event in answered) == "You asked: what is new?"
            assert answered[-1]["type"] == "RUN_FINISHED"

            failed = await run(runtime, "fail")
            assert failed[-1]["code"] == "target_failed"
            assert failed[-1]["message"].startswith("The agent failed (target_failed). Reference: ")

            # The client leaves after the first event; the turn runs out in the background, and the next one works.
            leaving = convert_fabric_stream(runtime.invoke_openai_stream(input="never read"))
            await anext(leaving)
            await leaving.aclose()
            await wait_fabric_drains()
            assert (await run(runtime, "again"))[-1]["type"] == "RUN_FINISHED"
    for event in answered:
        print(json.dumps(event))


if __name__ == "__main__":
    asyncio.run(main())
