"""What is under test: a small function of our own that reads a run's events for a support desk."""

from collections.abc import Iterable
from typing import Any


def tools_used(events: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The result of each tool that the run used, by the tool's name."""
    names: dict[str, str] = {}
    results: dict[str, str] = {}
    for event in events:
        if event["type"] == "TOOL_CALL_START":
            names[event["toolCallId"]] = event["toolCallName"]
        elif event["type"] == "TOOL_CALL_RESULT":
            results[names[event["toolCallId"]]] = event["content"]
    return results
