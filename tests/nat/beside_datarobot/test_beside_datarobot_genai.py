"""Beside datarobot-genai 0.31.0, which pins ag-ui-protocol 0.1.15 and registers an agent of the same name."""

import sys
from importlib import metadata
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from nat.data_models.config import Config
from nat.utils.data_models.schema_validator import validate_schema
from nat_agents import configuration
from nat_events import judged
from nat_scenarios import call, calls, text
from nat_server import serve, user_says

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_pins_of_both_are_met() -> None:
    assert metadata.version("datarobot-genai") == "0.31.0"
    assert metadata.version("ag-ui-protocol") == "0.1.15"


@pytest.mark.parametrize("kind", ["dragent_per_user_tool_calling_agent", "dragent_tool_calling_agent"])
async def test_an_agent_runs(kind: str) -> None:
    async with serve(lambda url: configuration(url, _type=kind)) as server:
        server.play(
            calls(call("c1", "add", '{"a":1,', '"b":2}')), calls(call("c2", "mul", '{"a":3,"b":4}')), text("12.")
        )
        run_input = user_says("compute")
        assert judged(await server.run(run_input), run_input) == [
            "call c1 add",
            'end c1 {"a":1,"b":2}',
            "result c1 3",
            "call c2 mul",
            'end c2 {"a":3,"b":4}',
            "result c2 12",
            "text 12.",
            "finished",
        ]


async def test_datarobots_own_agent_keeps_its_name() -> None:
    config = validate_schema(configuration("http://127.0.0.1:9/v1"), Config)
    assert type(config.workflow).__module__.startswith("datarobot_genai.")
