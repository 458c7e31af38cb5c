"""What the tests of the Fabric edge share. Those in `sdk` need the SDK: `make test-fabric`."""

from __future__ import annotations

from typing import Any

import pytest


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
