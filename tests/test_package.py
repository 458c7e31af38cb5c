"""The package as a whole: what importing it costs, what it brings along, and what it calls public."""

from __future__ import annotations

import json
import subprocess
import sys

import dragent_stream

HEAVY = {
    "anyio",
    "asyncio",
    "greenlet",
    "httpx",
    "langchain_core",
    "nat",
    "nemo_fabric",
    "openai",
    "rich",
    "starlette",
    "typer",
}


def loaded(code: str) -> set[str]:
    script = f"import sys, json; {code}; print(json.dumps(sorted(sys.modules)))"
    return set(json.loads(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout))


def test_importing_the_converter_costs_no_more_than_ag_ui_and_a_tenth() -> None:
    ours, base = loaded("from dragent_stream import stream_agui_run"), loaded("import ag_ui.core")
    assert len(ours) <= 1.1 * len(base)
    assert not HEAVY & (ours - base)


def test_the_package_alone_loads_nothing() -> None:
    assert {name for name in loaded("import dragent_stream") if name.startswith("dragent_stream.")} == set()


def test_every_public_name_exists_and_is_documented() -> None:
    assert sorted(dragent_stream.__all__) == dragent_stream.__all__
    for name in dragent_stream.__all__:
        assert getattr(dragent_stream, name).__doc__


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(dragent_stream, "no_such_name")
