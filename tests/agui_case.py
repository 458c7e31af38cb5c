"""Run a recorded case (tests/cases/FORMAT.md) through the converters and compare what came out with what it expects."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ag_ui.encoder import EventEncoder

from dragent_stream.events import EventWriter, ModelEvents, WireEvents
from dragent_stream.ledger import RunLedger
from dragent_stream.options import ConverterOptions
from dragent_stream.step_adaptor import AgentStep
from dragent_stream.stream_converter import ChunkConverter
from dragent_stream.trace import convert_trace

CASES = Path(__file__).parent / "cases"

# Cases marked doubtful in which this library decides otherwise; ARCHITECTURE.md says why.
DECIDED_OTHERWISE: dict[str, str] = {}

Event = dict[str, Any]


def load_cases(*keys: str) -> list[dict[str, Any]]:
    """The cases that have one of these inputs."""
    cases = [json.loads(path.read_text("ascii")) for path in sorted(CASES.glob("*.json"))]
    assert len(cases) > 60
    return [case for case in cases if any(key in case for key in keys)]


def case_id(case: dict[str, Any]) -> str:
    return f"{case['id']} {case['title']}"


def counted_ids() -> Callable[[], str]:
    count = itertools.count(1)
    return lambda: f"id-{next(count)}"


def options_of(case: dict[str, Any]) -> ConverterOptions:
    return ConverterOptions(new_id=counted_ids(), think_tags=case.get("option") == "think_tags")


def typed(value: Any) -> Any:
    """Undo the spelling of values that JSON does not have."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$datetime" in value:
        return datetime.fromisoformat(value["$datetime"])
    if "$float" in value:
        return float(value["$float"])
    if "$bytes_b64" in value:
        return base64.b64decode(value["$bytes_b64"])
    if "$set" in value:
        return set(value["$set"])
    return {key: typed(item) for key, item in value.items()}


def feed_of(case: dict[str, Any]) -> list[Any]:
    """The case's input as one list of what arrives: chunks, reads of an SSE body, AgentSteps, exceptions."""
    if "sse" in case:
        return [base64.b64decode(read) for read in case["sse"]["reads_b64"]]
    if "steps" in case:
        return [AgentStep(typed(step)) for step in case["steps"]]
    if "feed" in case:
        return [_fed(item) for item in case["feed"]]
    chunks = list(case["chunks"])
    if repeat := case.get("repeat"):
        at = repeat["chunk"]
        chunks[at : at + 1] = [chunks[at]] * repeat["times"]
    return chunks


def _fed(item: dict[str, Any]) -> Any:
    if "chunk" in item:
        return item["chunk"]
    if "step" in item:
        return AgentStep(typed(item["step"]))
    return RuntimeError(item["message"])


def convert(feed: Iterable[Any], writer: EventWriter[Any], options: ConverterOptions) -> list[Event]:
    """One whole run, as wire JSON."""
    ledger = RunLedger(writer, options=options, thread_id="t", run_id="r")
    converter = ChunkConverter(ledger)
    events = ledger.start_run()
    for item in feed:
        events += converter.fail(item) if isinstance(item, Exception) else converter.feed(item)
    events += converter.finish() + ledger.finish_run()
    return [wire(event) for event in events]


def wire(event: Any) -> Event:
    frame = event.decode() if isinstance(event, bytes) else EventEncoder().encode(event)
    assert frame.startswith("data: ") and frame.endswith("\n\n")
    if isinstance(event, bytes):
        assert frame.count("\n") == 2 and frame.isascii()
    return json.loads(frame[6:])


def delta(finish: str | None = None, *, chunk_id: str = "c", **fields: Any) -> dict[str, Any]:
    """A chunk of one choice."""
    return {"id": chunk_id, "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def both_writers(case: dict[str, Any], feed: list[Any] | None = None) -> list[Event]:
    """Convert through both writers; they must say the same."""
    items = feed_of(case) if feed is None else feed
    by_model = convert(items, ModelEvents(), options_of(case))
    by_wire = convert(items, WireEvents(), options_of(case))
    assert by_wire == by_model
    return by_wire


def trace_lines(case: dict[str, Any]) -> list[str | bytes]:
    """The case as a recording."""
    if "sse" in case:
        return [base64.b64decode(read) for read in case["sse"]["reads_b64"]]
    lines: list[str | bytes] = ['{"dragent_trace": 1}']
    for item in feed_of(case):
        if isinstance(item, AgentStep):
            lines.append(json.dumps({"t": 0, "step": item.step}, default=_jsonable))
        elif isinstance(item, Exception):
            lines.append(json.dumps({"t": 0, "error": {"type": "RuntimeError", "message": str(item)}}))
        else:
            lines.append(json.dumps({"t": 0, "chunk": item}))
    return [*lines, json.dumps({"t": 0, "end": True})]


def _jsonable(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return sorted(value) if isinstance(value, set) else base64.b64encode(value).decode()


def by_trace(case: dict[str, Any]) -> list[Event]:
    return [json.loads(event) for event in convert_trace(trace_lines(case), options=options_of(case))]


@dataclass
class Upstream:
    """An upstream that does what a case says, and remembers what became of it."""

    actions: list[dict[str, Any]]
    pulled: int = 0
    closed: int = 0
    tokens: list[str] = field(default_factory=list)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._run()

    async def _run(self) -> AsyncIterator[Any]:
        variable: ContextVar[int] = ContextVar("variable")
        token = None
        try:
            for action in self.actions:
                if "sleep" in action:
                    await asyncio.sleep(action["sleep"])
                elif "raise" in action:
                    names = {"asyncio.CancelledError": asyncio.CancelledError, "RuntimeError": RuntimeError}
                    raise names[action["raise"]](action.get("message", ""))
                elif "contextvar_set" in action:
                    token = variable.set(1)
                elif "chunk" in action:
                    self.pulled += 1
                    yield action["chunk"]
        finally:
            self.closed += 1
            if token is not None:
                variable.reset(token)  # raises in another context


# What a run says, and whether it is what the case expects.

_COLLAPSED = ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT", "TOOL_CALL_ARGS")


def order_of(events: list[Event]) -> list[str]:
    kinds = [e["type"] for e in events if e["type"] not in ("RUN_STARTED", "RUN_FINISHED", "REASONING_ENCRYPTED_VALUE")]
    return [kind for i, kind in enumerate(kinds) if not (kind in _COLLAPSED and i and kinds[i - 1] == kind)]


def texts(events: list[Event], kind: str = "TEXT_MESSAGE") -> dict[str, str]:
    found = {event["messageId"]: "" for event in events if event["type"] == f"{kind}_START"}
    for event in events:
        if event["type"] == f"{kind}_CONTENT":
            found[event["messageId"]] += event["delta"]
    return found


def calls(events: list[Event]) -> list[dict[str, Any]]:
    found = {
        event["toolCallId"]: {
            "id": event["toolCallId"],
            "name": event["toolCallName"],
            "args": "",
            "complete": False,
            "parent": event.get("parentMessageId"),
        }
        for event in events
        if event["type"] == "TOOL_CALL_START"
    }
    for event in events:
        if event["type"] == "TOOL_CALL_ARGS":
            found[event["toolCallId"]]["args"] += event["delta"]
        elif event["type"] == "TOOL_CALL_END":
            found[event["toolCallId"]]["complete"] = True
    return list(found.values())


def assert_expected(case: dict[str, Any], events: list[Event]) -> None:
    """Everything the case says about its outcome."""
    expect = case["expect"]
    _assert_texts(expect, events)
    _assert_calls(expect, events)
    if expect.get("reasoning") is not None:
        assert list(texts(events, "REASONING_MESSAGE").values()) == expect["reasoning"]
    errors = [event for event in events if event["type"] == "RUN_ERROR"]
    if expect["error"] is None:
        assert not errors
    else:
        (error,) = errors
        assert error["code"] if expect["error"].get("code") in ("*", None) else error["code"] == expect["error"]["code"]
        assert expect["error"].get("message_contains", "") in error["message"]
    if expect.get("order") is not None:
        assert order_of(events) == expect["order"]
    if "allowed_orders" in expect:
        assert order_of(events) in expect["allowed_orders"]
    for constraint in expect.get("constraints", ()):
        _assert_constraint(constraint, events)
    if "usage" in expect:
        (usage,) = events[-1]["usage"]
        wanted = expect["usage"]
        assert usage.get("inputTokens") == wanted["input_tokens"]
        assert usage.get("outputTokens") == wanted["output_tokens"]
        assert usage.get("totalTokens") == wanted["total_tokens"]
    if terminal := expect.get("terminal"):
        assert events[-1]["type"] == terminal
    for wanted in expect.get("encrypted", ()):
        entities = [
            event["entityId"]
            for event in events
            if event["type"] == "REASONING_ENCRYPTED_VALUE"
            and (event["subtype"], event["encryptedValue"]) == (wanted["subtype"], wanted["value"])
        ]
        assert entities == [wanted.get("entity", entities[0])]
    _assert_results(expect, events)


def _assert_texts(expect: dict[str, Any], events: list[Event]) -> None:
    said = list(texts(events).values())
    if "text_any" in expect:
        assert said in expect["text_any"]
    elif "text_set" in expect:
        assert sorted(said) == sorted(expect["text_set"])
    elif expect.get("text") is not None:
        assert said == expect["text"]


def _assert_calls(expect: dict[str, Any], events: list[Event]) -> None:
    wanted_calls = expect.get("tool_calls")
    if wanted_calls is None:
        return
    found = calls(events)
    assert len(found) == len(wanted_calls)
    messages = list(texts(events))
    for call, wanted in zip(found, wanted_calls, strict=True):
        assert call["id"] and (wanted["id"] == "*" or call["id"] == wanted["id"])
        assert call["name"] == wanted["name"]
        assert call["complete"] is wanted.get("complete", True)
        if "args_any" in wanted:
            assert call["args"] in wanted["args_any"]
        elif wanted.get("args") is not None:
            assert call["args"] == wanted["args"]
        if "args_json" in wanted:
            assert json.loads(call["args"]) == wanted["args_json"]
        if "args_json_contains" in wanted:
            assert json.loads(call["args"]).items() >= wanted["args_json_contains"].items()
        if "args_len" in wanted:
            assert len(call["args"]) == wanted["args_len"]
            assert hashlib.sha256(call["args"].encode()).hexdigest() == wanted["args_sha256"]
        if "parent" in wanted:
            assert call["parent"] == messages[wanted["parent"] - 1]
    if expect.get("same_parent"):
        assert len({call["parent"] for call in found}) == 1


def _assert_results(expect: dict[str, Any], events: list[Event]) -> None:
    if "results" not in expect:
        return
    found = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
    ids = [call["id"] for call in calls(events)]
    assert len(found) == len(expect["results"])
    for result, wanted in zip(found, expect["results"], strict=True):
        call_id = ids[int(wanted["id"][1:]) - 1] if wanted["id"].startswith("#") else wanted["id"]
        assert result["toolCallId"] == call_id
        assert wanted.get("content_contains", "") in result["content"]
        if "json_contains" in wanted:
            assert json.loads(result["content"]).items() >= wanted["json_contains"].items()


def _assert_constraint(constraint: str, events: list[Event]) -> None:
    left, right = (_places(side.strip(), events) for side in constraint.split("<"))
    assert left and right and max(left) < min(right), constraint


def _places(side: str, events: list[Event]) -> list[int]:
    kind, _, ordinal = side.partition("#")
    if not ordinal:
        return [i for i, event in enumerate(events) if event["type"] == kind]
    group = next(group for group in ("TEXT_MESSAGE", "TOOL_CALL", "REASONING") if kind.startswith(group))
    key = "toolCallId" if group == "TOOL_CALL" else "messageId"
    ids = [event[key] for event in events if event["type"] == f"{group}_START"]
    wanted = ids[int(ordinal) - 1]
    return [i for i, event in enumerate(events) if event["type"] == kind and event[key] == wanted]


def splits(text: str, cuts: Iterable[int]) -> Iterator[str]:
    """The pieces of a text, cut at these places."""
    places = sorted({0, len(text), *(cut for cut in cuts if 0 < cut < len(text))})
    for start, end in itertools.pairwise(places):
        yield text[start:end]
