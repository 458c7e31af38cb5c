"""Describe the agent, start it in a real Fabric runtime, turn its stream into AG-UI runs; exits non-zero if one is wrong.

python examples/fabric/check.py    (needs nemo-fabric-runtime; `make test-fabric` has it)
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from ag_ui.core import RunAgentInput
from ag_ui.encoder import EventEncoder
from nemo_fabric import Fabric, FabricConfig, Runtime

from dragent_stream import stream_agui_sse
from dragent_stream.check import check_events
from dragent_stream.fabric import (
    FabricSource,
    convert_fabric_stream,
    fabric_source,
    wait_fabric_drains,
    write_descriptor,
)

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

            # The target raises: the client reads a code and a reference, and the log has the rest.
            failed = await run(runtime, "fail")
            assert failed[-1]["code"] == "target_failed"
            assert failed[-1]["message"].startswith("The agent failed (target_failed). Reference: ")

            # The client leaves after the first event; the turn runs out in the background, and the next one works.
            leaving = convert_fabric_stream(runtime.invoke_openai_stream(input="never read"))
            await anext(leaving)
            await leaving.aclose()
            await wait_fabric_drains()
            assert (await run(runtime, "again"))[-1]["type"] == "RUN_FINISHED"

        # As an agent of an application: requests at once, each thread on a runtime of its own.
        def start() -> Awaitable[Runtime]:
            return Fabric().start_runtime(config, base_dir=directory)

        async with fabric_source(start, prepare=last_question, max_runtimes=2) as agent:
            runs = await asyncio.gather(*[ask(agent, thread) for thread in ("one", "two", "three")])
            assert runs == [f"You asked: who is {thread}?" for thread in ("one", "two", "three")]
    for event in answered:
        print(json.dumps(event))


def last_question(run_input: RunAgentInput) -> Any:
    """What the agent is asked; without it, it would get the whole conversation as chat messages."""
    return run_input.messages[-1].content


async def ask(agent: FabricSource, thread: str) -> str:
    """The answer of one run, as `create_app(agent)` would stream it."""
    question = {"id": "1", "role": "user", "content": f"who is {thread}?"}
    fields = {"threadId": thread, "runId": "1", "messages": [question]}
    empty = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    run_input = RunAgentInput.model_validate({**fields, **empty})
    frames = [json.loads(frame[6:]) async for frame in stream_agui_sse(agent(run_input), run_input)]
    assert check_events(frames) == [], check_events(frames)
    return "".join(event.get("delta", "") for event in frames)


if __name__ == "__main__":
    asyncio.run(main())
