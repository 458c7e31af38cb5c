"""Starts real runtimes of the installed SDK."""

from __future__ import annotations

import json
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


def configuration(
    directory: Path, *, timeout: float | None = None, streaming: bool = True, adapter: str = "test.adapter", **more: Any
) -> FabricConfig:
    """The configuration of the adapter that `more` describes, or of the installed one that `adapter` names."""
    fields: dict[str, Any] = {
        "metadata": {"name": "test"},
        "harness": {"adapter_id": adapter, **more.pop("harness", {})},
        "environment": {"artifacts": str(directory / "artifacts")},
        "runtime": {} if timeout is None else {"timeout_seconds": timeout},
        **more.pop("config", {}),
    }
    if more:
        path = write_descriptor(directory, adapter, overwrite=True, **more)
        if not streaming:
            descriptor = json.loads(path.read_text("utf-8"))
            descriptor["capabilities"]["streaming"] = False
            path.write_text(json.dumps(descriptor), "utf-8")
        fields["discovery"] = {"local_paths": [str(path)]}
    return FabricConfig.from_mapping(fields)


@asynccontextmanager
async def runtime(directory: Path, **described: Any) -> AsyncGenerator[Runtime, None]:
    """A started runtime; see `configuration`."""
    async with await Fabric().start_runtime(configuration(directory, **described), base_dir=directory) as started:
        yield started


def stderr_of(directory: Path) -> str:
    """What the adapters of a directory's runtimes wrote to stderr, one file a turn."""
    return "".join(path.read_text("utf-8") for path in sorted((directory / "artifacts").glob("**/stderr.txt")))
