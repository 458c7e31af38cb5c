"""Starts real runtimes of the installed SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from nemo_fabric import Fabric, FabricConfig, Runtime

from dragent_stream.fabric import write_descriptor

HERE = Path(__file__).parent
SDK = metadata.version("nemo-fabric-runtime")
DEADLINES = tuple(map(int, SDK.split(".")[:2])) >= (0, 5)
"""Whether this SDK tells an adapter the deadline of a turn."""


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
