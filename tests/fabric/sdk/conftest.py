"""Real runtimes of the installed SDK around the scripted target."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from nemo_fabric import Fabric, FabricConfig, Runtime

from dragent_stream.fabric import write_descriptor

HERE = Path(__file__).parent
SDK = metadata.version("nemo-fabric-runtime")
DEADLINES = tuple(map(int, SDK.split(".")[:2])) >= (0, 5)
"""Whether this SDK tells an adapter the deadline of a turn."""

Start = Callable[..., AbstractAsyncContextManager[Runtime]]


@asynccontextmanager
async def runtime(directory: Path, *, timeout: float | None = None, **descriptor: Any) -> AsyncGenerator[Runtime, None]:
    """A started runtime of the adapter that the descriptor describes."""
    path = write_descriptor(directory, "test.adapter", overwrite=True, **descriptor)
    config = FabricConfig.from_mapping(
        {
            "metadata": {"name": "test"},
            "harness": {"adapter_id": "test.adapter"},
            "discovery": {"local_paths": [str(path)]},
            "environment": {"artifacts": str(directory / "artifacts")},
            "runtime": {} if timeout is None else {"timeout_seconds": timeout},
        }
    )
    async with await Fabric().start_runtime(config, base_dir=directory) as started:
        yield started


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
def start(host: str, tmp_path: Path) -> Start:
    """Starts a runtime of the scripted target: `async with start(timeout=2) as runtime`."""

    def begin(*, timeout: float | None = None) -> AbstractAsyncContextManager[Runtime]:
        env = {"DRAGENT_HOST": host, "DRAGENT_RUNS": str(tmp_path / "runs")}
        if host == "common":
            return runtime(
                tmp_path, timeout=timeout, module="scripted_target", python=sys.executable, pythonpath=HERE, env=env
            )
        return runtime(tmp_path, timeout=timeout, script=HERE / "scripted_target.py", env=env)

    return begin
