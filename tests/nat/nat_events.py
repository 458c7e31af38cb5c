"""Judge a run and read it at a glance."""

import json
from collections.abc import Mapping
from typing import Any

from ag_ui_validate.pytest_plugin import validate_agui

from dragent_stream.check import check_events


def judged(events: list[dict[str, Any]], run_input: Mapping[str, Any]) -> list[str]:
    """The run as lines, after both judges have found nothing."""
    report = validate_agui(events)
    assert report.summary.errors == 0, [(d.rule, d.event_index, d.message) for d in report.diagnostics]
    violations = check_events(events, run_input=run_input)
    assert not violations, violations
    return told(events)


def told(events: list[dict[str, Any]]) -> list[str]:
    """One line for each thing that is complete, in the order of completion; consecutive deltas are joined."""
    lines: list[str] = []
    text: dict[str, str] = {}
    for event in events:
        kind = event["type"]
        key = event.get("messageId") or event.get("toolCallId") or ""
        if kind in ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT", "TOOL_CALL_ARGS"):
            text[key] = text.get(key, "") + event["delta"]
        elif kind == "RUN_ERROR":
            lines.append(f"error {event.get('code')}")
        elif kind == "RUN_FINISHED":
            lines.append("finished")
        elif kind == "TEXT_MESSAGE_END":
            lines.append(f"text {text.get(key, '')}")
        elif kind == "REASONING_MESSAGE_END":
            lines.append(f"thought {text.get(key, '')}")
        elif kind == "TOOL_CALL_START":
            lines.append(f"call {key} {event['toolCallName']}")
        elif kind == "TOOL_CALL_END":
            lines.append(f"end {key} {text.get(key, '')}")
        elif kind == "TOOL_CALL_RESULT":
            lines.append(f"result {event['toolCallId']} {event['content']}")
        elif kind in ("STEP_STARTED", "STEP_FINISHED"):
            lines.append(f"{kind.lower()} {event['stepName']}")
    return lines


def calls_with_results(events: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """For each call its arguments and its result."""
    arguments: dict[str, str] = {}
    results: dict[str, str] = {}
    for event in events:
        if event["type"] == "TOOL_CALL_START":
            arguments[event["toolCallId"]] = ""
        elif event["type"] == "TOOL_CALL_ARGS":
            arguments[event["toolCallId"]] += event["delta"]
        elif event["type"] == "TOOL_CALL_RESULT":
            assert event["toolCallId"] not in results, "a call has one result"
            results[event["toolCallId"]] = event["content"]
    assert arguments.keys() == results.keys()
    return {key: (arguments[key], results[key]) for key in arguments}


def arguments_of(call: str) -> Any:
    return json.loads(call)
