"""What a test of a stream needs: chunk builders, and (by name of the module) the pytest plugin.

The names are looked up on first use, because pytest imports this package in every session of every user.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragent_stream.testing.chunks import (
        Chunk,
        error_chunk,
        finish_chunk,
        reasoning_chunk,
        text_chunk,
        tool_call_chunk,
        usage_chunk,
    )

__all__ = (
    "Chunk",
    "error_chunk",
    "finish_chunk",
    "reasoning_chunk",
    "text_chunk",
    "tool_call_chunk",
    "usage_chunk",
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("dragent_stream.testing.chunks"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
