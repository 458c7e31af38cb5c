"""Decide to which tool call of a model turn a tool-call delta belongs.

Neither index nor id identifies a call: providers omit, repeat, change and reuse both. What decides, in this order:

1. an index in use belongs to the call that took it last, unless the delta names a call of its own: a new id with a name;
2. an id that was seen belongs to its call; where index and id disagree, the index wins (both calls may carry one id);
3. a new id without a name continues a call whose arguments are unfinished (poolsideai/pool#9), and starts one, held
   until its name comes, where they are complete;
4. a fragment with neither id nor name on an unknown index continues the unfinished call;
5. a name on a call whose arguments are complete starts the next call, if what follows is not the same arguments again:
   a delivery repeated word for word is dropped, any other text is passed on;
6. fragments that each repeat the arguments so far are snapshots: one that begins with all that came is, where the two
   together are no JSON; where they may be, it waits for the next one;
7. `{}` that comes whole may stand for arguments that are still to come: a value after it, under the call's own id or
   none, takes its place (unslothai/unsloth#10275, veryfront/veryfront-code#982).

The name of a call may come late, in pieces, or again with every delta. Blank ids and names count as absent.
Sources: vercel/ai `streaming-tool-call-tracker`, BerriAI/litellm#16194, ai-dynamo/dynamo#4723, sgl-project/sglang#38198.
"""

from __future__ import annotations

import json
import re
from enum import Enum, auto
from typing import Any

from pydantic_core import from_json

from dragent_stream.chunk_record import ToolCallDelta
from dragent_stream.values import is_json

__all__ = ["CallState", "ToolCall", "TurnCalls"]

_STRUCTURE = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')
_LITERALS = frozenset({"null", "true", "false"})
_THOUGHT_SUFFIX = "__thought__"  # LiteLLM packs Gemini's signature into the id: BerriAI/litellm#16895


class CallState(Enum):
    """How far the ledger has shown a call: HELD → OPEN → ENDED; a call that is never shown stays HELD."""

    HELD = auto()
    OPEN = auto()
    ENDED = auto()


class ToolCall:
    """One tool call: its identity, its arguments so far, and how far the ledger has shown it.

    Attributes:
        index: The index under which it was announced, or None.
        ids: Every id the provider gave it; `provider_id` is the first.
        name: The tool's name; empty until it is known.
        parts: The argument fragments, as they came.
        blank: No argument text has come, but for white space.
        closed: The arguments are one complete JSON value, as far as brackets tell.
        held: A fragment that begins with all arguments so far and may be a snapshot of them.
        custom: The tool takes free text; its pieces become the one string of a JSON object.
    """

    __slots__ = (
        "_depth",
        "_escaped",
        "_in_string",
        "_scanned",
        "answered",
        "before",
        "blank",
        "closed",
        "custom",
        "echo",
        "frontend",
        "growing",
        "guess",
        "held",
        "held_result",
        "ids",
        "index",
        "name",
        "parts",
        "passed",
        "provider_id",
        "renamed",
        "running",
        "signature",
        "signed",
        "state",
        "turn",
        "wire_id",
        "writer",
    )

    def __init__(self, index: int | None, call_id: str, name: str) -> None:
        self.index = index
        self.before: ToolCall | None = None  # the one that had the index
        self.provider_id = call_id
        self.ids = {call_id} if call_id else set[str]()
        self.name = name
        self.signature = ""
        self.custom = False
        self.start_over()
        self.echo = ""  # what came after complete arguments and may be the same arguments again
        self.renamed: ToolCallDelta | None = None  # a name that came after complete arguments
        # The ledger's part.
        self.state = CallState.HELD
        self.wire_id = ""
        self.frontend = False
        self.running = False
        self.passed = False
        self.answered = False
        self.held_result: Any = None
        self.guess: tuple[str, Any] | None = None  # a result that may be this call's, and the id that it names
        self.signed = ""
        self.turn: Any = None
        self.writer: Any = None

    def start_over(self) -> None:
        """Forget the arguments: what has come was not them."""
        self.parts: list[str] = []
        self.blank = True
        self.closed = False
        self.held = ""
        self.growing = False
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._scanned = 0  # how many parts have been looked through

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        if len(self.parts) > 1:
            self._scan()
            self.parts = ["".join(self.parts)]
            self._scanned = 1
        return self.parts[0] if self.parts else ""

    @property
    def placeholder(self) -> bool:
        """All that has come is an empty object in one piece; the arguments may follow it."""
        return self.closed and len(self.parts) == 1 and self.parts[0].strip() == "{}"

    @property
    def complete(self) -> bool:
        """The arguments are complete; the JSON literals count, a number may go on."""
        return self.closed or (len(self.parts) == 1 and self.parts[0].strip() in _LITERALS)

    @property
    def is_json(self) -> bool:
        """The arguments are JSON, so that the call can be ended. One without arguments gets an empty object."""
        return self.blank or is_json(self.arguments)

    def new_in(self, fragment: str) -> str:
        """What a fragment adds to the arguments; empty if that is not known yet."""
        if self.held:
            held, self.held = self.held, ""
            self.growing = len(fragment) > len(held) and fragment.startswith(held)
            if not self.growing:
                return held + fragment
        if self.growing:
            so_far = self.arguments
            return fragment[len(so_far) :] if fragment.startswith(so_far) else fragment
        if not self.blank and len(self.parts) == 1 and len(fragment) > len(self.parts[0]):
            so_far = self.parts[0]
            if fragment.startswith(so_far):
                self.growing = not _begins_json(so_far + fragment)
                if self.growing:
                    return fragment[len(so_far) :]
                self.held = fragment
                return ""
        return fragment

    def release(self) -> str:
        """What the held fragment adds, as nothing follows it: whatever makes the arguments JSON."""
        held, self.held = self.held, ""
        if held and not is_json(self.arguments + held) and is_json(held):
            return held[len(self.arguments) :]
        return held

    def append(self, text: str) -> None:
        """Take one fragment; linear in its length."""
        self.parts.append(text)
        if self.blank:
            self.blank = text.isspace()
        # Inside an object or a list only its mark of closing can complete the arguments.
        if not self.closed and ("}" in text or "]" in text or self._depth == 0):
            self._scan()

    def _scan(self) -> None:
        """Look through what has come since the last time."""
        text = "".join(self.parts[self._scanned :])
        self._scanned = len(self.parts)
        at, end = 0, len(text)
        while at < end and not self.closed:
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_IN_STRING if self._in_string else _STRUCTURE).search(text, at)
            if found is None:
                return
            at = found.end()
            mark = text[at - 1]
            if mark == "\\":
                self._escaped = True
            elif mark == '"':
                self._in_string = not self._in_string
            elif mark in "{[":
                self._depth += 1
            else:
                self._depth -= 1
            self.closed = self._depth <= 0 and not self._in_string

    def learn(self, delta: ToolCallDelta) -> None:
        """Take what a continuing delta says about the call itself: another id, the name or a piece of it."""
        if delta.id:
            self.provider_id = self.provider_id or delta.id
            self.ids.add(delta.id)
        if delta.index is not None and self.index is None:
            self.index = delta.index
        if delta.signature:
            self.signature = delta.signature
        if delta.name and self.state is CallState.HELD and delta.name != self.name:
            # Pieces are joined; a name that begins with what is known is the name so far, repeated.
            if not self.name or (self.blank and delta.name.startswith(self.name)):
                self.name = delta.name
            elif self.blank:
                self.name += delta.name


class TurnCalls:
    """The tool calls of one model turn.

    Attributes:
        calls: In the order in which they were announced.
        by_index: The call that took each index last.
        dropped: How many deltas were repeated deliveries.
    """

    __slots__ = ("_by_id", "_waiting", "by_index", "calls", "dropped")

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self.dropped = 0
        self.by_index: dict[int, ToolCall] = {}
        self._by_id: dict[str, ToolCall] = {}
        self._waiting: list[ToolCall] = []  # calls that were not complete when last looked at

    @property
    def unfinished(self) -> ToolCall | None:
        """The last call that waits for more of its arguments."""
        while self._waiting and self._waiting[-1].complete:
            self._waiting.pop()
        return self._waiting[-1] if self._waiting else None

    def add(self, call: ToolCall) -> None:
        """Take a call that no delta announced."""
        self.calls.append(call)
        self._waiting.append(call)

    def place(self, delta: ToolCallDelta) -> tuple[ToolCall, str] | None:
        """The call of this delta and the argument text it brings; None where it brings nothing (yet).

        A call that was not known before is new in `calls`. The text has not been appended to the call.
        """
        if delta.index is not None and not delta.id and not delta.name and not delta.signature:
            call = self.by_index.get(delta.index)
            if call is not None and not call.closed:
                return call, call.new_in(delta.arguments)
        call = None if delta.apart else self._owner(delta)
        if call is None:
            if not (delta.id or delta.name or delta.arguments):
                return None
            return self._open(delta), delta.arguments
        if call.complete and call.name:
            return self._after_complete(call, delta)
        call.learn(delta)
        if delta.id:
            self._by_id.setdefault(delta.id, call)
        if call.index is not None:
            self.by_index.setdefault(call.index, call)
        return call, call.new_in(delta.arguments)

    def taken(self, call: ToolCall) -> ToolCall | None:
        """The call before this one on the same index, if its arguments are complete: nothing more comes for it."""
        return call.before if call.before is not None and call.before.complete else None

    def continues(self, delta: ToolCallDelta) -> bool:
        """The delta belongs to this turn, although the model has said that its calls are over."""
        if delta.index is None:
            return bool(delta.id) and delta.id in self._by_id
        there = self.by_index.get(delta.index)
        return there is None or (not there.closed and (delta.id in there.ids if delta.id else not delta.name))

    def leftover(self) -> list[tuple[ToolCall, str]]:
        """Calls that were announced again and broke off while they repeated an earlier one's arguments."""
        found: list[tuple[ToolCall, str]] = []
        for call in self.calls[:]:
            if call.renamed and call.echo:
                found.append((self._open(call.renamed), call.echo))
                call.echo = ""
        return found

    def _open(self, delta: ToolCallDelta) -> ToolCall:
        call = ToolCall(delta.index, delta.id, delta.name)
        call.signature = delta.signature
        call.custom = delta.custom
        self.add(call)
        if delta.index is not None:
            call.before = self.by_index.get(delta.index)
            self.by_index[delta.index] = call
        if delta.id:
            self._by_id[delta.id] = call
        return call

    def _owner(self, delta: ToolCallDelta) -> ToolCall | None:
        """The call that this delta continues (or repeats), None where it starts a new one."""
        known = self._by_id.get(delta.id) if delta.id else None
        if delta.index is None:
            return self._owner_without_index(delta, known)
        there = self.by_index.get(delta.index)
        if there is None:
            return self._owner_on_new_index(delta, known)
        if not delta.id:
            names_another = delta.name and there.name and not there.blank and not there.complete
            return None if names_another and delta.name not in (there.name, there.name[-len(delta.name) :]) else there
        if delta.id in there.ids or not there.name or _extends(delta.id, there):
            return there
        if known is not None and known.index == delta.index:
            return known
        if not delta.name:
            return None if there.complete else there
        return there if _is_echo(delta, there) or (not there.ids and there.name == delta.name and there.blank) else None

    def _owner_on_new_index(self, delta: ToolCallDelta, known: ToolCall | None) -> ToolCall | None:
        if known is not None and (known.index is None or not delta.name or _is_echo(delta, known)):
            return known
        return None if delta.id or delta.name else self.unfinished

    def _owner_without_index(self, delta: ToolCallDelta, known: ToolCall | None) -> ToolCall | None:
        if known is not None:
            return known
        last = self.calls[-1] if self.calls else None
        if not delta.id and not delta.name:
            return self.unfinished or last
        if last is None or last.complete:
            # Only a repeated delivery of the last call could still be meant: no id, the same name.
            return last if last and not delta.id and delta.name == last.name else None
        if not delta.name or not last.name:
            return last
        return last if _is_echo(delta, last) else None

    def _after_complete(self, call: ToolCall, delta: ToolCallDelta) -> tuple[ToolCall, str] | None:
        own = delta.id in call.ids if delta.id else not delta.name
        if delta.id:
            call.ids.add(delta.id)
        if delta.signature:
            call.signature = delta.signature
        if delta.name and delta.name != call.name:
            return self._open(delta), delta.arguments
        if delta.name:
            call.renamed = delta
        text = call.echo + delta.arguments
        call.echo = ""
        if not text:
            return (call, "") if delta.signature else None
        whole = call.arguments
        if text == whole or _same_value(text, whole):
            call.renamed = None
            self.dropped += 1
            return None
        if whole.startswith(text) and not text.isspace():
            call.echo = text
            return None
        if own and call.placeholder and call.state is CallState.HELD and _opens_value(text):
            call.start_over()
            self._waiting.append(call)
            call.renamed = None
            return call, text
        renamed = call.renamed
        if renamed is not None and _opens_value(text):
            call.renamed = None
            return self._open(renamed), text
        if call.closed and not text.isspace() and not text.strip("}] \t\r\n") and call.is_json:
            self.dropped += 1  # surplus marks of closing, which would make them none
            return None
        return call, text


def _begins_json(text: str) -> bool:
    try:
        from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return False
    return True


def _opens_value(text: str) -> bool:
    return text.lstrip().startswith(("{", "["))


def _same_value(text: str, whole: str) -> bool:
    """The same arguments, spelled with other white space."""
    if not (_opens_value(text) and text.rstrip().endswith(("}", "]"))):
        return False
    try:
        return json.loads(text) == json.loads(whole)
    except (ValueError, RecursionError):
        return False


def _extends(call_id: str, call: ToolCall) -> bool:
    return bool(call.provider_id) and call_id.startswith(call.provider_id + _THOUGHT_SUFFIX)


def _is_echo(delta: ToolCallDelta, call: ToolCall) -> bool:
    """The delta repeats the name of a call in the middle of its arguments."""
    in_arguments = not call.blank and not call.complete and delta.arguments and not _opens_value(delta.arguments)
    return bool(in_arguments) and delta.name == call.name
