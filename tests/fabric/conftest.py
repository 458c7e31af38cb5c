"""What the tests of the Fabric edge share. Where the SDK is not installed, only what needs none of it is collected."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest

try:
    metadata.version("nemo-fabric-runtime")
except metadata.PackageNotFoundError:
    collect_ignore = ["sdk"]


@pytest.fixture
def chunk() -> dict[str, Any]:
    """A valid chunk."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": "hello"}, "finish_reason": None}],
    }
