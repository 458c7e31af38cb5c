"""Check a stream of AG-UI events, as dicts read from the wire, against everything a correct producer must do.

The verify rules of the JavaScript client are here (V), the shapes its schema refuses (S), what its reducer does with
ids (I), and the duties that no client checks but some client suffers from (D). `RULES` says each rule in a sentence. A
stream without a violation is accepted by `@ag-ui/client` 1.0.0 and shown as it was meant; judged with its request, also
by 0.0.59.

Pure, and in memory bound to the number of ids, not to the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from dragent_stream.event_shapes import shape_problems

__all__ = ("RULES", "EventChecker", "Violation", "check_events")

RULES: Mapping[str, str] = {
    # what verifyEvents of @ag-ui/client 1.0.0 rejects the run for
    "V1": "The first event is RUN_STARTED or RUN_ERROR.",
    "V2": "No RUN_STARTED while a run is active.",
    "V3": "After RUN_ERROR only RUN_STARTED.",
    "V4": "After RUN_FINISHED only RUN_STARTED (RUN_ERROR is accepted by clients, and falls under D2).",
    "V5": "TEXT_MESSAGE_START does not name an open message.",
    "V6": "TEXT_MESSAGE_CONTENT and _END name an open message.",
    "V7": "TOOL_CALL_START does not name an open call.",
    "V8": "TOOL_CALL_ARGS and _END name an open call.",
    "V9": "A step is not started twice, and is finished once by the same owner.",
    "V10": "REASONING_START and REASONING_MESSAGE_START do not name what is open already.",
    "V11": "REASONING_MESSAGE_CONTENT and _END name an open reasoning message, REASONING_END an open span.",
    "V12": "RUN_FINISHED comes when nothing is open.",
    "V13": "Each subagent is started once, below a started one, and finished once.",
    "V14": "subagentRunId agrees with the owner of the message, call or span.",
    # what its schema refuses or strips
    "S1": "The type is an event of AG-UI 1.0.",
    "S2": "Required fields are there.",
    "S3": "Fields hold what the schema says; ids and names are not empty.",
    "S4": "Optional fields without a value are left out, not null.",
    "S5": "No field that the protocol does not have.",
    "S6": "The event can be written as UTF-8 JSON.",
    # what its reducer makes of ids: messages are found by id alone, over all roles and the whole thread
    "I1": "A message or reasoning id is new in the thread.",
    "I2": "A result's messageId is new in the thread.",
    "I3": "No id names both a message and a tool call.",
    "I4": "A tool call id is never opened again.",
    "I5": "parentMessageId names an assistant message, known or yet to come.",
    "I6": "A message takes neither text nor calls after the result of one of its calls.",
    "I7": "Calls open at the same time share one parentMessageId.",
    "I8": "An encrypted value comes after the message or call it belongs to.",
    "I9": "threadId and runId are the request's, the same at both ends, and a runId is used once.",
    "I10": "Interrupt ids are unique in the run.",
    "I11": "A messages snapshot keeps the messages and calls that are open.",
    # what a producer owes although no client checks it
    "D1": "RUN_STARTED carries the protocolVersion, 'major.minor'.",
    "D2": "A run ends with one terminal event, RUN_FINISHED or RUN_ERROR.",
    "D3": "No *_CHUNK events.",
    "D4": "No empty delta, and no message without a delta.",
    "D5": "A result comes after its call's TOOL_CALL_END.",
    "D6": "A call gets at most one result.",
    "D7": "A result names a call of the thread.",
    "D8": "A call the agent runs has its result when the run finishes.",
    "D9": "A call the client runs gets no result.",
    "D10": "pendingToolCallIds are exactly the unanswered calls of the run.",
    "D11": "What only a 1.0 client reads goes only to a client that said it is one.",
    "D12": "Usage has one entry per provider and model, and its parts do not exceed the totals.",
    "D13": "The metadata key 'ag-ui' is reserved.",
    "D14": "A cancelled run has no result.",
}

_TERMINAL = frozenset({"RUN_FINISHED", "RUN_ERROR"})
_VERSION = re.compile(r"(\d+)\.(\d+)")
_Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule.

    Attributes:
        index: The position of the event, from 0; the number of events where the end of the stream is meant.
        rule: A key of `RULES`.
        message: What is wrong, with the ids concerned.
    """

    index: int
    rule: str
    message: str


@dataclass(slots=True)
class _Message:
    role: str
    owner: str | None = None
    announced: bool = True
    """False while only a tool call's parentMessageId has named it: a text may still open under this id."""
    answered: bool = False
    """One of its calls has its result: the turn is over."""
    deltas: int = 0


@dataclass(slots=True)
class _Call:
    name: str
    parent: str | None
    owner: str | None
    run: int
    open: bool = True
    results: int = 0


@dataclass(slots=True)
class _Run:
    """What belongs to one run and is forgotten with it."""

    number: int = 0
    thread_id: str | None = None
    run_id: str | None = None
    texts: dict[str, _Message] = field(default_factory=dict[str, _Message])
    reasoning: dict[str, _Message] = field(default_factory=dict[str, _Message])
    spans: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    calls: dict[str, _Call] = field(default_factory=dict[str, _Call])
    open_calls: dict[str, _Call] = field(default_factory=dict[str, _Call])
    steps: dict[tuple[str | None, str], None] = field(default_factory=dict[tuple["str | None", str], None])
    subagents: dict[str, bool] = field(default_factory=dict[str, bool])


class EventChecker:
    """Check one stream, event by event.

    Args:
        lifecycle: Whether the stream is whole runs; False for a stretch of events without RUN_STARTED and terminal.
        run_input: The RunAgentInput as it came over the wire. With it the ids, the thread's history, the frontend tools
            and the client's protocol version are judged too.
    """

    def __init__(self, *, lifecycle: bool = True, run_input: _Event | None = None) -> None:
        self._lifecycle = lifecycle
        self._input = run_input
        self._index = 0
        self._found: list[Violation] = []
        self._active = not lifecycle
        self._ended: str | None = None
        self._run = _Run()
        self._thread_id: str | None = None
        self._run_ids: set[str] = set()
        self._messages: dict[str, _Message] = {}
        self._calls: dict[str, _Call] = {}
        self._spans: set[str] = set()
        self._frontend: frozenset[str] = frozenset()
        if run_input is not None:
            self._frontend = frozenset(_strings(run_input.get("tools"), "name"))
            self._know(run_input.get("messages"))
        self._steps: Mapping[str, Callable[[_Event], None]] = {
            "RUN_STARTED": self._run_started,
            "RUN_FINISHED": self._run_finished,
            "RUN_ERROR": self._run_error,
            "STEP_STARTED": self._step_started,
            "STEP_FINISHED": self._step_finished,
            "TEXT_MESSAGE_START": self._text_start,
            "TEXT_MESSAGE_CONTENT": self._text_content,
            "TEXT_MESSAGE_END": self._text_end,
            "TOOL_CALL_START": self._call_start,
            "TOOL_CALL_ARGS": self._call_args,
            "TOOL_CALL_END": self._call_end,
            "TOOL_CALL_RESULT": self._call_result,
            "REASONING_START": self._span_start,
            "REASONING_END": self._span_end,
            "REASONING_MESSAGE_START": self._reasoning_start,
            "REASONING_MESSAGE_CONTENT": self._reasoning_content,
            "REASONING_MESSAGE_END": self._reasoning_end,
            "REASONING_ENCRYPTED_VALUE": self._encrypted_value,
            "MESSAGES_SNAPSHOT": self._snapshot,
            "ACTIVITY_SNAPSHOT": self._activity,
            "SUBAGENT_STARTED": self._subagent_started,
            "SUBAGENT_FINISHED": self._subagent_ended,
            "SUBAGENT_ERROR": self._subagent_ended,
        }

    def feed(self, event: _Event) -> list[Violation]:
        """Take the next event and return what is wrong with it."""
        for rule, message in shape_problems(event):
            self._say(rule, message)
        kind = event.get("type")
        if isinstance(kind, str):
            self._judge(kind, event)
        self._index += 1
        return self._hand_over()

    def finish(self) -> list[Violation]:
        """Say that the stream has ended and return what is missing."""
        if self._active and self._lifecycle:
            self._say("D2", "the stream ends without RUN_FINISHED or RUN_ERROR")
        elif self._active:
            self._say_open("the events end")
        elif self._ended is None:
            self._say("V1", "the stream has no events")
        self._active = False
        return self._hand_over()

    def _hand_over(self) -> list[Violation]:
        found, self._found = self._found, []
        return found

    def _say(self, rule: str, message: str) -> None:
        self._found.append(Violation(self._index, rule, message))

    # the run

    def _judge(self, kind: str, event: _Event) -> None:
        if self._lifecycle and not self._active and kind != "RUN_STARTED":
            if self._ended == "RUN_ERROR":
                self._say("V3", f"{kind} after RUN_ERROR")
                return
            if self._ended == "RUN_FINISHED":
                rule = "D2" if kind == "RUN_ERROR" else "V4"
                self._say(rule, f"{kind} after RUN_FINISHED")
                self._ended = kind if kind == "RUN_ERROR" else self._ended
                return
            if kind != "RUN_ERROR":
                self._say("V1", f"the first event is {kind}, not RUN_STARTED")
                self._active = True
        if kind.endswith("_CHUNK"):
            self._say("D3", f"{kind} is expanded by guesses in the client; send START, CONTENT or ARGS, END")
        if event.get("delta") == "":
            self._say("D4", f"{kind} has an empty delta")
        metadata = event.get("metadata")
        if isinstance(metadata, Mapping) and "ag-ui" in metadata:
            self._say("D13", f"{kind} uses the reserved metadata key 'ag-ui'")
        if kind.startswith("SUBAGENT_"):
            self._gate(kind)
        step = self._steps.get(kind)
        if step is not None:
            step(event)

    def _run_started(self, event: _Event) -> None:
        if self._active and (self._lifecycle or self._run.run_id is not None):
            self._say("V2", "RUN_STARTED while a run is active")
            return
        thread_id, run_id = _text(event, "threadId"), _text(event, "runId")
        self._active, self._ended = True, None
        self._run = _Run(number=self._run.number + 1, thread_id=thread_id, run_id=run_id)
        version = event.get("protocolVersion")
        if not (isinstance(version, str) and _VERSION.fullmatch(version)):
            self._say("D1", f"RUN_STARTED has the protocolVersion {version!r}, expected '1.0'")
        echoed = event.get("input")
        if isinstance(echoed, Mapping):
            self._know(cast("_Event", echoed).get("messages"))
        if self._input is not None and self._run.number == 1:
            for key, got in (("threadId", thread_id), ("runId", run_id)):
                asked = self._input.get(key)
                if asked and got != asked:
                    self._say("I9", f"RUN_STARTED has the {key} {got!r}, the request {asked!r}")
        if self._thread_id is not None and thread_id != self._thread_id:
            self._say("I9", f"a run of thread {thread_id!r} in the stream of thread {self._thread_id!r}")
        self._thread_id = thread_id
        if run_id is not None and run_id in self._run_ids:
            self._say("I9", f"runId {run_id!r} was used before")
        self._run_ids.add(run_id or "")

    def _run_finished(self, event: _Event) -> None:
        self._say_open("RUN_FINISHED")
        for key, started in (("threadId", self._run.thread_id), ("runId", self._run.run_id)):
            if started is not None and event.get(key) != started:
                self._say("I9", f"RUN_FINISHED has the {key} {event.get(key)!r}, RUN_STARTED {started!r}")
        self._usage(event)
        outcome = event.get("outcome")
        self._outcome(event, cast("_Event", outcome) if isinstance(outcome, Mapping) else {})
        self._end("RUN_FINISHED")

    def _outcome(self, event: _Event, outcome: _Event) -> None:
        kind = outcome.get("type")
        unanswered = [call_id for call_id, call in self._run.calls.items() if not call.results]
        if kind == "cancelled":
            self._gate("the outcome 'cancelled'")
            if event.get("result") is not None:
                self._say("D14", "a cancelled run carries a result")
        elif kind == "interrupt":
            ids = _strings(outcome.get("interrupts"), "id")
            for repeated in sorted({interrupt_id for interrupt_id in ids if ids.count(interrupt_id) > 1}):
                self._say("I10", f"interrupt id {repeated!r} stands twice")
        pending = outcome.get("pendingToolCallIds")
        if isinstance(pending, Sequence) and not isinstance(pending, str):
            self._gate("pendingToolCallIds")
            named = list(cast("Sequence[object]", pending))
            if sorted(map(str, named)) != sorted(unanswered):
                self._say("D10", f"pendingToolCallIds are {named}, unanswered are {unanswered}")
        if self._input is not None and kind in (None, "success"):
            for call_id in unanswered:
                name = self._run.calls[call_id].name
                if name not in self._frontend:
                    self._say("D8", f"call {call_id!r} of {name!r} has no result when the run finishes")

    def _run_error(self, event: _Event) -> None:
        self._usage(event)
        self._end("RUN_ERROR")

    def _end(self, kind: str) -> None:
        self._active, self._ended = False, kind

    def _say_open(self, when: str) -> None:
        run = self._run
        for what, ids in (
            ("steps", [name for _, name in run.steps]),
            ("text messages", list(run.texts)),
            ("reasoning messages", list(run.reasoning)),
            ("reasoning spans", list(run.spans)),
            ("tool calls", list(run.open_calls)),
            ("subagents", [name for name, active in run.subagents.items() if active]),
        ):
            if ids:
                self._say("V12", f"{when} while {what} are open: {', '.join(ids)}")

    def _usage(self, event: _Event) -> None:
        seen: set[tuple[str | None, str | None]] = set()
        for entry in _mappings(event.get("usage")):
            key = _text(entry, "provider"), _text(entry, "model")
            if key in seen:
                self._say("D12", f"two usage entries for provider {key[0]!r} and model {key[1]!r}")
            seen.add(key)
            counts = {name: value for name, value in entry.items() if isinstance(value, int) and value >= 0}
            spent, given, total = (counts.get(name) for name in ("inputTokens", "outputTokens", "totalTokens"))
            if total is not None and total < (spent or 0) + (given or 0):
                self._say("D12", f"totalTokens {total} is less than inputTokens and outputTokens together")
            for whole, parts in (
                ("inputTokens", ("cachedInputTokens", "cacheWriteInputTokens")),
                ("outputTokens", ("reasoningTokens",)),
            ):
                for part in parts:
                    if whole in counts and part in counts and counts[part] > counts[whole]:
                        self._say("D12", f"{part} {counts[part]} exceeds {whole} {counts[whole]}")

    def _gate(self, what: str) -> None:
        if self._input is None:
            return
        version = _VERSION.match(str(self._input.get("protocolVersion", "")))
        if version is None or int(version[1]) < 1:
            self._say("D11", f"{what} is fatal on clients before 1.0, and the request names no protocolVersion >= 1.0")

    # steps and subagents

    def _step_started(self, event: _Event) -> None:
        key = _text(event, "subagentRunId"), _text(event, "stepName") or ""
        if key in self._run.steps:
            self._say("V9", f"step {key[1]!r} is already active")
        self._run.steps[key] = None

    def _step_finished(self, event: _Event) -> None:
        owner, name = key = _text(event, "subagentRunId"), _text(event, "stepName") or ""
        if key in self._run.steps:
            del self._run.steps[key]
        elif any(open_name == name for _, open_name in self._run.steps):
            self._say("V9", f"step {name!r} was started by another owner than {owner or 'the parent agent'!r}")
        else:
            self._say("V9", f"step {name!r} was not started")

    def _subagent_started(self, event: _Event) -> None:
        run_id = _text(event, "subagentRunId")
        if run_id is None:
            return
        if run_id in self._run.subagents:
            self._say("V13", f"subagent {run_id!r} was started before in this run")
        parent = _text(event, "parentSubagentRunId")
        if parent is not None and parent not in self._run.subagents:
            self._say("V13", f"subagent {run_id!r} is started below {parent!r}, which was not started")
        self._run.subagents[run_id] = True

    def _subagent_ended(self, event: _Event) -> None:
        run_id = _text(event, "subagentRunId")
        if run_id is None:
            return
        if not self._run.subagents.get(run_id):
            self._say("V13", f"subagent {run_id!r} is not active")
        self._run.subagents[run_id] = False

    def _owned(self, event: _Event, owner: str | None, what: str) -> None:
        tag = _text(event, "subagentRunId")
        if tag is not None and tag != owner:
            self._say(
                "V14", f"subagentRunId {tag!r} does not match the owner of {what}, {owner or 'the parent agent'!r}"
            )

    # text

    def _text_start(self, event: _Event) -> None:
        message_id = _text(event, "messageId")
        if message_id is None:
            return
        if message_id in self._run.texts:
            self._say("V5", f"message {message_id!r} is already open")
            return
        self._run.texts[message_id] = self._open_message(event, message_id, _text(event, "role") or "assistant")

    def _open_message(self, event: _Event, message_id: str, role: str) -> _Message:
        """Open a text or a reasoning message, and judge its id."""
        known = self._messages.get(message_id)
        if message_id in self._calls:
            self._say("I3", f"message {message_id!r} has the id of a tool call")
        if known is not None:
            self._owned(event, known.owner, f"message {message_id!r}")
        if known is not None and not known.announced and role == "assistant":
            known.announced = True
            self._still_its_turn(message_id)
            return known
        if known is not None:
            self._say("I1", f"{role} message {message_id!r} has the id of an earlier {known.role} message")
        elif message_id in self._spans and role != "reasoning":
            self._say("I1", f"{role} message {message_id!r} has the id of a reasoning span")
        message = self._messages[message_id] = _Message(role, _text(event, "subagentRunId"))
        return message

    def _still_its_turn(self, message_id: str) -> None:
        if self._messages[message_id].answered:
            self._say("I6", f"message {message_id!r} goes on after the result of one of its calls")

    def _text_content(self, event: _Event) -> None:
        message_id = _text(event, "messageId") or ""
        message = self._run.texts.get(message_id)
        if message is None:
            self._say("V6", f"no text message {message_id!r} is open")
            return
        self._owned(event, message.owner, f"message {message_id!r}")
        self._still_its_turn(message_id)
        message.deltas += bool(event.get("delta"))

    def _text_end(self, event: _Event) -> None:
        self._end_message(event, self._run.texts, "V6", "text")

    def _end_message(self, event: _Event, open_ones: dict[str, _Message], rule: str, what: str) -> None:
        message_id = _text(event, "messageId") or ""
        message = open_ones.pop(message_id, None)
        if message is None:
            self._say(rule, f"no {what} message {message_id!r} is open")
            return
        self._owned(event, message.owner, f"message {message_id!r}")
        if not message.deltas:
            self._say("D4", f"{what} message {message_id!r} ends without a delta")

    # reasoning

    def _span_start(self, event: _Event) -> None:
        span_id = _text(event, "messageId")
        if span_id is None:
            return
        if span_id in self._run.spans:
            self._say("V10", f"reasoning span {span_id!r} is already open")
        elif span_id in self._spans:
            self._say("I1", f"reasoning span {span_id!r} was used before")
        known = self._messages.get(span_id)
        if known is not None and known.role != "reasoning":
            self._say("I1", f"reasoning span {span_id!r} has the id of an earlier {known.role} message")
        self._spans.add(span_id)
        self._run.spans[span_id] = _text(event, "subagentRunId")

    def _span_end(self, event: _Event) -> None:
        span_id = _text(event, "messageId") or ""
        if span_id not in self._run.spans:
            self._say("V11", f"no reasoning span {span_id!r} is open")
            return
        self._owned(event, self._run.spans.pop(span_id), f"reasoning span {span_id!r}")

    def _reasoning_start(self, event: _Event) -> None:
        message_id = _text(event, "messageId")
        if message_id is None:
            return
        if message_id in self._run.reasoning:
            self._say("V10", f"reasoning message {message_id!r} is already open")
            return
        self._run.reasoning[message_id] = self._open_message(event, message_id, "reasoning")

    def _reasoning_content(self, event: _Event) -> None:
        message_id = _text(event, "messageId") or ""
        message = self._run.reasoning.get(message_id)
        if message is None:
            self._say("V11", f"no reasoning message {message_id!r} is open")
            return
        self._owned(event, message.owner, f"message {message_id!r}")
        message.deltas += bool(event.get("delta"))

    def _reasoning_end(self, event: _Event) -> None:
        self._end_message(event, self._run.reasoning, "V11", "reasoning")

    def _encrypted_value(self, event: _Event) -> None:
        entity, kind = _text(event, "entityId"), event.get("subtype")
        if kind not in ("tool-call", "message"):
            return
        call, message = self._calls.get(entity or ""), self._messages.get(entity or "")
        owner = call if kind == "tool-call" else message
        if owner is None:
            self._say("I8", f"an encrypted value for {entity!r}, which has not begun")
        else:
            self._owned(event, owner.owner, repr(entity))

    # tool calls

    def _call_start(self, event: _Event) -> None:
        call_id = _text(event, "toolCallId")
        if call_id is None:
            return
        known = self._calls.get(call_id)
        if known is not None and known.open:
            self._say("V7", f"call {call_id!r} is already open")
            return
        if known is not None:
            self._say("I4", f"call {call_id!r} was closed before; a client appends to its arguments or shows it twice")
        if call_id in self._messages:
            self._say("I3", f"call {call_id!r} has the id of a message")
        parent, owner = _text(event, "parentMessageId") or None, _text(event, "subagentRunId")
        if parent is not None:
            holder = self._messages.get(parent)
            if parent in self._calls or parent == call_id:
                self._say("I3", f"parentMessageId {parent!r} of call {call_id!r} is the id of a call")
            if holder is None:
                self._messages[parent] = _Message("assistant", owner, announced=False)
            else:
                self._owned(event, holder.owner, f"message {parent!r}")
                owner = holder.owner
                self._still_its_turn(parent)
                if holder.role != "assistant":
                    self._say("I5", f"parentMessageId {parent!r} of call {call_id!r} is a {holder.role} message")
        # one open call of this owner speaks for all: they were compared when they opened
        other_id = next((other_id for other_id, other in self._run.open_calls.items() if other.owner == owner), None)
        if other_id is not None and (parent is None or self._run.open_calls[other_id].parent != parent):
            self._say("I7", f"calls {other_id!r} and {call_id!r} are open together without one parentMessageId")
        call = _Call(_text(event, "toolCallName") or "", parent, owner, self._run.number)
        self._calls[call_id] = self._run.calls[call_id] = self._run.open_calls[call_id] = call

    def _open_call(self, event: _Event) -> _Call | None:
        call_id = _text(event, "toolCallId") or ""
        call = self._run.open_calls.get(call_id)
        if call is None:
            self._say("V8", f"no tool call {call_id!r} is open")
            return None
        self._owned(event, call.owner, f"call {call_id!r}")
        return call

    def _call_args(self, event: _Event) -> None:
        self._open_call(event)

    def _call_end(self, event: _Event) -> None:
        call = self._open_call(event)
        if call is not None:
            call.open = False
            del self._run.open_calls[_text(event, "toolCallId") or ""]

    def _call_result(self, event: _Event) -> None:
        message_id, call_id = _text(event, "messageId"), _text(event, "toolCallId") or ""
        if not isinstance(event.get("content"), str):
            self._gate("TOOL_CALL_RESULT with content parts")
        if message_id is not None:
            if message_id in self._calls or message_id == call_id:
                self._say("I3", f"result message {message_id!r} has the id of a tool call")
            elif message_id in self._messages or message_id in self._spans:
                self._say("I2", f"result message {message_id!r} has the id of an earlier message")
            self._messages[message_id] = _Message("tool", _text(event, "subagentRunId"))
        call = self._calls.get(call_id)
        if call is None:
            self._say("D7", f"a result for call {call_id!r}, which the thread does not have")
            return
        self._owned(event, call.owner, f"call {call_id!r}")
        if call.open and call.run == self._run.number:
            self._say("D5", f"the result of call {call_id!r} comes before its TOOL_CALL_END")
        if call.results:
            self._say("D6", f"call {call_id!r} has its result already")
        if call.name in self._frontend and call.run:
            self._say("D9", f"call {call_id!r} of the client's tool {call.name!r} gets a result from the agent")
        call.results += 1
        if call.parent is not None and call.parent in self._messages:
            self._messages[call.parent].answered = True

    # history

    def _snapshot(self, event: _Event) -> None:
        ids = set(_strings(event.get("messages"), "id"))
        for message_id in self._run.texts.keys() | self._run.reasoning.keys():
            if message_id not in ids:
                self._say("I11", f"the snapshot drops message {message_id!r}, which is still open")
        held = {
            call_id
            for message in _mappings(event.get("messages"))
            for call_id in _strings(message.get("toolCalls"), "id")
        }
        for call_id in self._run.open_calls:
            if call_id not in held:
                self._say("I11", f"the snapshot drops call {call_id!r}, which is still open")
        self._know(event.get("messages"))

    def _know(self, messages: object) -> None:
        """Take messages of the history, so that their ids count as used."""
        for message in _mappings(messages):
            message_id, role = _text(message, "id"), _text(message, "role") or ""
            if message_id is None:
                continue
            owner = _text(message, "subagentRunId")
            known = self._messages.setdefault(message_id, _Message(role, owner))
            known.announced = True
            for call in _mappings(message.get("toolCalls")):
                call_id, function = _text(call, "id"), call.get("function")
                if call_id is not None and call_id not in self._calls:
                    name = _text(cast("_Event", function), "name") if isinstance(function, Mapping) else None
                    self._calls[call_id] = _Call(name or "", message_id, owner, run=0, open=False)
            answered = self._calls.get(_text(message, "toolCallId") or "") if role == "tool" else None
            if answered is not None:
                answered.results = max(answered.results, 1)
                if answered.parent in self._messages:
                    self._messages[answered.parent].answered = True

    def _activity(self, event: _Event) -> None:
        message_id = _text(event, "messageId")
        if message_id is None:
            return
        known = self._messages.setdefault(message_id, _Message("activity", _text(event, "subagentRunId")))
        if known.role != "activity":
            self._say("I1", f"activity {message_id!r} has the id of an earlier {known.role} message")


def check_events(
    events: Iterable[_Event], *, lifecycle: bool = True, run_input: _Event | None = None
) -> list[Violation]:
    """Check a whole stream.

    Args:
        events: AG-UI events as dicts read from the wire.
        lifecycle: See `EventChecker`.
        run_input: See `EventChecker`.

    Returns:
        The violations in the order of the events; empty for a good stream.
    """
    checker = EventChecker(lifecycle=lifecycle, run_input=run_input)
    found = [violation for event in events for violation in checker.feed(event)]
    return found + checker.finish()


def _text(event: _Event, key: str) -> str | None:
    value = event.get(key)
    return value if isinstance(value, str) else None


def _mappings(value: object) -> list[_Event]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return []
    return [cast("_Event", entry) for entry in cast("Sequence[object]", value) if isinstance(entry, Mapping)]


def _strings(value: object, key: str) -> list[str]:
    return [text for entry in _mappings(value) if (text := _text(entry, key)) is not None]
