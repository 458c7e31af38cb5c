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


def test_importing_the_converter_costs_hardly_more_than_ag_ui() -> None:
    base = loaded("import ag_ui.core")
    more = loaded("from dragent_stream import stream_agui_run") - base
    # of the standard library every Python has its own modules below the same names, so counts are compared, not numbers
    assert len(more) <= 0.25 * len(base)
    assert len({name for name in more if not name.startswith("dragent_stream")}) <= 0.05 * len(base)
    assert not HEAVY & more


def test_the_package_alone_loads_nothing() -> None:
    assert {name for name in loaded("import dragent_stream") if name.startswith("dragent_stream.")} == set()


def test_every_public_name_exists_and_is_documented() -> None:
    assert sorted(dragent_stream.__all__) == dragent_stream.__all__
    for name in dragent_stream.__all__:
        assert getattr(dragent_stream, name).__doc__


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(dragent_stream, "no_such_name")
