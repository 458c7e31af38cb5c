"""RUN_STARTED, RUN_FINISHED, RUN_ERROR: V2, V12, I9, I10, D1, D8, D10 to D12, D14, D16."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from dragent_stream.check.history import know
from dragent_stream.check.stream import VERSION, Event, Run, Stream, mappings, strings, text_of

__all__ = ("run_error", "run_finished", "run_started", "say_open")


def run_started(stream: Stream, event: Event) -> None:
    """RUN_STARTED: V2, I9, D1."""
    if stream.active and (stream.lifecycle or stream.run.run_id is not None):
        stream.say("V2", "RUN_STARTED while a run is active")
        return
    thread_id, run_id = text_of(event, "threadId"), text_of(event, "runId")
    stream.active, stream.ended = True, None
    stream.run = Run(number=stream.run.number + 1, thread_id=thread_id, run_id=run_id)
    version = event.get("protocolVersion")
    if not (isinstance(version, str) and VERSION.fullmatch(version)):
        stream.say("D1", f"RUN_STARTED has the protocolVersion {version!r}, expected '1.0'")
    echoed = event.get("input")
    if isinstance(echoed, Mapping):
        know(stream, cast("Event", echoed).get("messages"))
    if stream.input is not None and stream.run.number == 1:
        for key, got in (("threadId", thread_id), ("runId", run_id)):
            asked = stream.input.get(key)
            if asked and got != asked:
                stream.say("I9", f"RUN_STARTED has the {key} {got!r}, the request {asked!r}")
    if stream.thread_id is not None and thread_id != stream.thread_id:
        stream.say("I9", f"a run of thread {thread_id!r} in the stream of thread {stream.thread_id!r}")
    stream.thread_id = thread_id
    if run_id is not None and run_id in stream.run_ids:
        stream.say("I9", f"runId {run_id!r} was used before")
    stream.run_ids.add(run_id or "")


def run_finished(stream: Stream, event: Event) -> None:
    """RUN_FINISHED: V12, I9, I10, D8, D10 to D12, D14, D16."""
    say_open(stream, "RUN_FINISHED")
    for key, started in (("threadId", stream.run.thread_id), ("runId", stream.run.run_id)):
        if started is not None and event.get(key) != started:
            stream.say("I9", f"RUN_FINISHED has the {key} {event.get(key)!r}, RUN_STARTED {started!r}")
    _usage(stream, event)
    outcome = event.get("outcome")
    _outcome(stream, event, cast("Event", outcome) if isinstance(outcome, Mapping) else {})
    _end(stream, "RUN_FINISHED")


def _outcome(stream: Stream, event: Event, outcome: Event) -> None:
    kind = outcome.get("type")
    unanswered = [call_id for call_id, call in stream.run.calls.items() if not call.results]
    if kind == "cancelled":
        stream.gate("the outcome 'cancelled'")
        if event.get("result") is not None:
            stream.say("D14", "a cancelled run carries a result")
    elif kind == "interrupt":
        ids = strings(outcome.get("interrupts"), "id")
        for repeated in sorted({interrupt_id for interrupt_id in ids if ids.count(interrupt_id) > 1}):
            stream.say("I10", f"interrupt id {repeated!r} stands twice")
    pending = outcome.get("pendingToolCallIds")
    if isinstance(pending, Sequence) and not isinstance(pending, str):
        stream.gate("pendingToolCallIds")
        named = list(cast("Sequence[object]", pending))
        if sorted(map(str, named)) != sorted(unanswered):
            stream.say("D10", f"pendingToolCallIds are {named}, unanswered are {unanswered}")
    succeeds = kind in (None, "success")
    if stream.content and succeeds and not stream.run.said and event.get("result") is None:
        stream.say("D16", "the run succeeds and has shown nothing")
    if stream.input is not None and succeeds:
        for call_id in unanswered:
            name = stream.run.calls[call_id].name
            if name not in stream.frontend:
                stream.say("D8", f"call {call_id!r} of {name!r} has no result when the run finishes")


def run_error(stream: Stream, event: Event) -> None:
    """RUN_ERROR: D12."""
    _usage(stream, event)
    _end(stream, "RUN_ERROR")


def _end(stream: Stream, kind: str) -> None:
    stream.active, stream.ended = False, kind
    for call in stream.run.open_calls.values():
        call.arguments.clear()


def say_open(stream: Stream, when: str) -> None:
    """What is open and must not be: V12."""
    run = stream.run
    for what, ids in (
        ("steps", [name for _, name in run.steps]),
        ("text messages", list(run.texts)),
        ("reasoning messages", list(run.reasoning)),
        ("reasoning spans", list(run.spans)),
        ("tool calls", list(run.open_calls)),
        ("subagents", [name for name, active in run.subagents.items() if active]),
    ):
        if ids:
            stream.say("V12", f"{when} while {what} are open: {', '.join(ids)}")


def _usage(stream: Stream, event: Event) -> None:
    seen: set[tuple[str | None, str | None]] = set()
    for entry in mappings(event.get("usage")):
        key = text_of(entry, "provider"), text_of(entry, "model")
        if key in seen:
            stream.say("D12", f"two usage entries for provider {key[0]!r} and model {key[1]!r}")
        seen.add(key)
        counts = {name: value for name, value in entry.items() if isinstance(value, int) and value >= 0}
        spent, given, total = (counts.get(name) for name in ("inputTokens", "outputTokens", "totalTokens"))
        if total is not None and total < (spent or 0) + (given or 0):
            stream.say("D12", f"totalTokens {total} is less than inputTokens and outputTokens together")
        for whole, parts in (
            ("inputTokens", ("cachedInputTokens", "cacheWriteInputTokens")),
            ("outputTokens", ("reasoningTokens",)),
        ):
            for part in parts:
                if whole in counts and part in counts and counts[part] > counts[whole]:
                    stream.say("D12", f"{part} {counts[part]} exceeds {whole} {counts[whole]}")
