"""STEP_* and SUBAGENT_*: V9, V13."""

from __future__ import annotations

from dragent_stream.check.stream import Event, Stream, text_of

__all__ = ("step_finished", "step_started", "subagent_ended", "subagent_started")


def step_started(stream: Stream, event: Event) -> None:
    """STEP_STARTED: V9."""
    key = text_of(event, "subagentRunId"), text_of(event, "stepName") or ""
    if key in stream.run.steps:
        stream.say("V9", f"step {key[1]!r} is already active")
    stream.run.steps[key] = None


def step_finished(stream: Stream, event: Event) -> None:
    """STEP_FINISHED: V9."""
    owner, name = key = text_of(event, "subagentRunId"), text_of(event, "stepName") or ""
    if key in stream.run.steps:
        del stream.run.steps[key]
    elif any(open_name == name for _, open_name in stream.run.steps):
        stream.say("V9", f"step {name!r} was started by another owner than {owner or 'the parent agent'!r}")
    else:
        stream.say("V9", f"step {name!r} was not started")


def subagent_started(stream: Stream, event: Event) -> None:
    """SUBAGENT_STARTED: V13."""
    run_id = text_of(event, "subagentRunId")
    if run_id is None:
        return
    if run_id in stream.run.subagents:
        stream.say("V13", f"subagent {run_id!r} was started before in this run")
    parent = text_of(event, "parentSubagentRunId")
    if parent is not None and parent not in stream.run.subagents:
        stream.say("V13", f"subagent {run_id!r} is started below {parent!r}, which was not started")
    stream.run.subagents[run_id] = True


def subagent_ended(stream: Stream, event: Event) -> None:
    """SUBAGENT_FINISHED and SUBAGENT_ERROR: V13."""
    run_id = text_of(event, "subagentRunId")
    if run_id is None:
        return
    if not stream.run.subagents.get(run_id):
        stream.say("V13", f"subagent {run_id!r} is not active")
    stream.run.subagents[run_id] = False
