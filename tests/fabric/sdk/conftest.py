"""Real runtimes of the installed SDK around the scripted target."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from fabric_runtime import HERE, runtime
from nemo_fabric import Runtime


@pytest.fixture(params=["common", "binding"])
def host(request: pytest.FixtureRequest) -> str:
    """Who serves the adapter: Fabric's common host, or ours."""
    return request.param


@pytest.fixture
def runs(tmp_path: Path) -> Callable[[], list[str]]:
    """What the target was asked to do, one entry for each run of it."""
    path = tmp_path / "runs"
    return lambda: path.read_text("utf-8").splitlines() if path.exists() else []


@pytest.fixture
def start(host: str, tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Runtime]]:
    """Starts a runtime of the scripted target: `async with start(timeout=2) as runtime`."""

    def begin(*, timeout: float | None = None, turn_timeout: float = 0) -> AbstractAsyncContextManager[Runtime]:
        env = {"DRAGENT_HOST": host, "DRAGENT_RUNS": str(tmp_path / "runs")}
        if turn_timeout:
            env["DRAGENT_TURN_TIMEOUT"] = str(turn_timeout)
        if host == "common":
            return runtime(
                tmp_path, timeout=timeout, module="scripted_target", python=sys.executable, pythonpath=HERE, env=env
            )
        return runtime(tmp_path, timeout=timeout, script=HERE / "scripted_target.py", env=env)

    return begin
