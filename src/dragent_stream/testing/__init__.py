"""What a test of a stream needs: chunk builders, a run of an agent, and (by name of the module) the pytest plugin.

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
    from dragent_stream.testing.runs import AguiRun, RanCall, assert_agui, run_agent

__all__ = (
    "AguiRun",
    "Chunk",
    "RanCall",
    "assert_agui",
    "error_chunk",
    "finish_chunk",
    "reasoning_chunk",
    "run_agent",
    "text_chunk",
    "tool_call_chunk",
    "usage_chunk",
)

_OF_RUNS = frozenset({"AguiRun", "RanCall", "assert_agui", "run_agent"})


def __getattr__(name: str) -> Any:
    if name in __all__:
        room = "runs" if name in _OF_RUNS else "chunks"
        return getattr(import_module(f"dragent_stream.testing.{room}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
