"""What a user of `nat start dragent_stream` is told when something is missing."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nat.data_models.config import Config
from nat.runtime.loader import PluginTypes, discover_and_register_plugins
from nat.utils.data_models.schema_validator import validate_schema
from nat_agents import configuration

from dragent_stream.nat.frontend import FrontEndError, check_agent

discover_and_register_plugins(PluginTypes.CONFIG_OBJECT)
EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "nat"


def environment() -> dict[str, str]:
    here = str(Path(__file__).parent)
    return {**os.environ, "PYTHONPATH": here, "PYTHONWARNINGS": "ignore"}


def started(tmp_path: Path, config: dict[str, Any], *arguments: str) -> subprocess.Popen[str]:
    """`nat start dragent_stream` with the test functions of this folder."""
    file = tmp_path / "workflow.yaml"
    with file.open("w") as out:
        json.dump(config, out)  # JSON is YAML
    program = "import nat_agents, sys; from nat.cli.main import run_cli; sys.argv[0] = 'nat'; sys.exit(run_cli())"
    command = [sys.executable, "-c", program, "start", "dragent_stream", "--config_file", str(file), *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), cwd=tmp_path
    )


def said(tmp_path: Path, config: dict[str, Any], *arguments: str) -> str:
    process = started(tmp_path, config, *arguments)
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0, output
    return output


def config_with(**workflow: Any) -> dict[str, Any]:
    return configuration("http://127.0.0.1:9/v1", **workflow)


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_an_agent_without_tools_is_refused() -> None:
    with pytest.raises(ValueError, match="tool_names is empty: name at least one function or function group"):
        validate_schema(config_with(tool_names=[]), Config)


@pytest.mark.parametrize(
    ("workflow", "says"),
    [
        ({"tool_names": ["add", "divide"]}, "tool_names has 'divide', but there is no such function"),
        ({"llm_name": "gpt"}, "llm_name is 'gpt', but llms has model, inner_model"),
    ],
)
def test_what_is_missing_is_named_with_what_there_is(workflow: dict[str, Any], says: str) -> None:
    with pytest.raises(FrontEndError, match=says):
        check_agent(validate_schema(config_with(**workflow), Config))


def test_a_taken_port_is_named_with_the_remedy(tmp_path: Path, taken: int) -> None:
    output = said(tmp_path, config_with(), "--host", "127.0.0.1", "--port", str(taken))
    assert f"cannot listen on 127.0.0.1:{taken}" in output
    assert "--port" in output
    assert "Traceback" not in output


def test_the_example_serves_one_checked_run_and_stops_cleanly() -> None:
    done = subprocess.run(
        [sys.executable, "check.py"], cwd=EXAMPLE, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "one valid run: 3 model turns, 4 tool calls" in done.stdout
