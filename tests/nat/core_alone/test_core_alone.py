"""NAT without our extra: its command works as if we were not there, until one of our components is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

NAT = Path(sys.executable).with_name("nat")
TOLD = "langchain_core is not installed; it comes with the extra: pip install 'dragent-stream[nat]'"


def nat(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([NAT, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("verb", [["--help"], ["start", "--help"]])
def test_the_command_says_nothing_of_us(verb: list[str]) -> None:
    done = nat(*verb)
    assert done.returncode == 0
    assert "Commands:" in done.stdout
    assert "Traceback" not in done.stderr
    assert "dragent" not in "".join(line for line in done.stderr.splitlines() if "site-packages" not in line)


@pytest.mark.parametrize(
    ("verb", "front_end", "workflow"),
    [
        (["start", "dragent_stream"], "dragent_stream", "dragent_tool_calling_agent"),
        (["start", "dragent_stream"], "fastapi", "chat_completion"),
        (["run", "--input", "hi"], "fastapi", "dragent_per_user_tool_calling_agent"),
        (["validate"], "fastapi", "per_user_tool_calling_agent"),
    ],
)
def test_one_line_names_the_extra_to_who_asks_for_ours(
    tmp_path: Path, verb: list[str], front_end: str, workflow: str
) -> None:
    config = tmp_path / "workflow.yaml"
    config.write_text(
        f"general: {{front_end: {{_type: {front_end}, port: 8123}}}}\n"
        "llms: {model: {_type: openai, api_key: none, model_name: m}}\n"
        f"workflow: {{_type: {workflow}, llm_name: model}}\n"
    )
    done = nat(*verb, "--config_file", config)
    assert done.returncode == 1
    assert done.stderr.endswith(f"Error: {TOLD}\n")
    assert "dragent_stream/nat" not in done.stderr  # no line of a traceback is ours


def test_an_import_by_hand_raises_and_names_the_extra() -> None:
    program = "import dragent_stream.nat.register"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == f"dragent_stream.errors.MissingExtraError: {TOLD}"
