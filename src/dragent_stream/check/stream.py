"""What a stream has said so far: what is open, which ids are known, and the request it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from dragent_stream.check.rules import Violation

__all__ = ("VERSION", "Call", "Event", "Message", "Run", "Stream", "mappings", "strings", "text_of")

VERSION = re.compile(r"(\d+)\.(\d+)")
Event = Mapping[str, Any]


@dataclass(slots=True)
class Message:
    """A message of the thread."""

    role: str
    owner: str | None = None
    announced: bool = True
    """False while only a tool call's parentMessageId has named it: a text may still open under this id."""
    answered: bool = False
    """One of its calls has its result: the turn is over."""
    deltas: int = 0


@dataclass(slots=True)
class Call:
    """A tool call of the thread; `run` is the number of its run, 0 for the history's."""

    name: str
    parent: str | None
    owner: str | None
    run: int
    open: bool = True
    results: int = 0
    arguments: list[str] = field(default_factory=list[str])
    """The deltas so far, while it is open."""


@dataclass(slots=True)
class Run:
    """What belongs to one run and is forgotten with it."""

    number: int = 0
    thread_id: str | None = None
    run_id: str | None = None
    said: bool = False
    """An event came that shows something or changes state."""
    texts: dict[str, Message] = field(default_factory=dict[str, Message])
    reasoning: dict[str, Message] = field(default_factory=dict[str, Message])
    spans: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    open_calls: dict[str, Call] = field(default_factory=dict[str, Call])
    steps: dict[tuple[str | None, str], None] = field(default_factory=dict[tuple["str | None", str], None])
    subagents: dict[str, bool] = field(default_factory=dict[str, bool])


@dataclass(slots=True)
class Stream:
    """One stream of events, as far as it has come; the rules read it, change it, and `say` what is broken.

    Attributes:
        lifecycle: The stream is whole runs.
        input: The request as it came over the wire, or None.
        content: A run that succeeds must have shown something.
        index: The position of the event that is judged.
        found: What was said since it was handed over.
        active: A run goes on.
        ended: The terminal event of the last run, or None.
        run: What belongs to the run.
        thread_id: The thread of the runs.
        run_ids: The runs so far.
        messages: Every message of the thread by its id.
        calls: Every call of the thread by its id.
        spans: The ids of the reasoning spans.
        frontend: The names of the tools that the client runs.
    """

    lifecycle: bool
    input: Event | None
    content: bool
    active: bool
    index: int = 0
    found: list[Violation] = field(default_factory=list[Violation])
    ended: str | None = None
    run: Run = field(default_factory=Run)
    thread_id: str | None = None
    run_ids: set[str] = field(default_factory=set[str])
    messages: dict[str, Message] = field(default_factory=dict[str, Message])
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    spans: set[str] = field(default_factory=set[str])
    frontend: frozenset[str] = frozenset()

    def say(self, rule: str, message: str) -> None:
        """The event breaks a rule."""
        self.found.append(Violation(self.index, rule, message))

    def gate(self, what: str) -> None:
        """What only a 1.0 client reads is there: D11."""
        if self.input is None:
            return
        version = VERSION.match(str(self.input.get("protocolVersion", "")))
        if version is None or int(version[1]) < 1:
            self.say("D11", f"{what} is fatal on clients before 1.0, and the request names no protocolVersion >= 1.0")

    def owned(self, event: Event, owner: str | None, what: str) -> None:
        """The event's subagentRunId must be that of the owner: V14."""
        tag = text_of(event, "subagentRunId")
        if tag is not None and tag != owner:
            self.say(
                "V14", f"subagentRunId {tag!r} does not match the owner of {what}, {owner or 'the parent agent'!r}"
            )


def text_of(event: Event, key: str) -> str | None:
    """The string under a key, or None."""
    value = event.get(key)
    return value if isinstance(value, str) else None


def mappings(value: object) -> list[Event]:
    """The objects of a list; none where the value is no list."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return []
    return [cast("Event", entry) for entry in cast("Sequence[object]", value) if isinstance(entry, Mapping)]


def strings(value: object, key: str) -> list[str]:
    """The strings under a key of the objects of a list."""
    return [text for entry in mappings(value) if (text := text_of(entry, key)) is not None]
