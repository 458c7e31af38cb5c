"""`fabric init` records an interpreter, says what comes next, and names the option that helps."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

Cli = Any


def descriptor(directory: Path, adapter_id: str) -> Any:
    return json.loads((directory / f"{adapter_id}.fabric-adapter.json").read_text("utf-8"))


def test_a_module_is_run_by_this_interpreter_unless_another_is_named(cli: Cli, tmp_path: Path) -> None:
    ended = cli("fabric", "init", "acme", "--module", "json", "-o", tmp_path)
    assert ended.code == 0
    assert ended.out == f"{tmp_path / 'acme.fabric-adapter.json'}\n"
    assert descriptor(tmp_path, "acme")["runner"] == {"module": "json", "python": sys.executable}
    assert f"Python is {sys.executable}" in ended.err
    assert "discovery.local_paths" in ended.err and "check_adapter" in ended.err
    cli("fabric", "init", "acme", "--module", "json", "--python", "py", "-o", tmp_path, "--force")
    assert descriptor(tmp_path, "acme")["runner"]["python"] == "py"


def test_a_portable_descriptor_names_nothing_of_this_machine(cli: Cli, tmp_path: Path) -> None:
    ended = cli("fabric", "init", "acme", "--module", "json", "--portable", "-o", tmp_path)
    assert descriptor(tmp_path, "acme")["runner"] == {"module": "json"}
    assert "[tool.hatch.build.targets.wheel.shared-data]" in ended.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--module", "json"), "--force replaces it"),
        ((), "give either --module"),
        (("--module", "json", "--script", "x.py"), "give either --module"),
        (("--script", "x.py", "--portable"), "--portable goes with --module alone"),
        (("--module", "no module", "--force"), "an importable name"),
    ],
)
def test_a_wrong_call_names_the_remedy(cli: Cli, tmp_path: Path, more: tuple[str, ...], said: str) -> None:
    cli("fabric", "init", "acme", "--module", "json", "-o", tmp_path)
    ended = cli("fabric", "init", "acme", *more, "-o", tmp_path)
    assert ended.code == 2
    assert said in ended.err.replace("\n", " ")
