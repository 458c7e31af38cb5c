"""RunLedger: what is open in one run, and the legal order of what may come next. Both delivery paths write through it.

```
run    NEW ──start_run──▶ RUNNING ──finish_run / fail_run / cancel_run──▶ ENDED   (nothing is written after ENDED)
turn   reasoning? text? calls*  ──finish reason / a step / text after complete calls / the end──▶ over; the next one begins
       with the next content; LangChain messages are turns of their own, and several may be open at once
call   HELD ──name and arguments known (frontend tools: all of them; never at `{}`)──▶ OPEN ──end of turn──▶ ENDED ──▶ answered
       OPEN ──end of turn, arguments that are no JSON──▶ stays OPEN, and the run ends as RUN_ERROR
```

Order inside a turn: reasoning closes when text or a call begins; text closes when the first call opens; text between
argument fragments opens a message of its own; calls end at the end of the turn; a RESULT follows its END. A call whose
arguments are incomplete is never ended, whatever the label of its end: END would make clients execute it (CopilotKit
runs a call that has no result, whatever comes after it).

Every message has a fresh id: clients find messages by id alone and append to whatever has it. A call keeps the
provider's id unless the thread used it before. The calls of a turn share a parent, the id of the turn's message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from json.encoder import encode_basestring_ascii as quote
from typing import Any, Final, Generic, cast

from ag_ui.core import BaseEvent
from typing_extensions import TypeVar

from dragent_stream.chunk_record import ToolCallDelta
from dragent_stream.content_parts import result_text
from dragent_stream.errors import AnswerError
from dragent_stream.events import RESULT_PARTS, EventWriter, ModelEvents
from dragent_stream.finish_reasons import Finish
from dragent_stream.options import DEFAULT_OPTIONS, ConverterOptions
from dragent_stream.plain_chunks import TEXT, THOUGHT, UndecidedError, Writers
from dragent_stream.snapshots import GrowingText
from dragent_stream.tool_calls import CallState, ToolCall
from dragent_stream.turn import OpenMessage, Owner, Place, Turn, opening_writer
from dragent_stream.usage import UsageTotals
from dragent_stream.well_formed import well_formed

__all__ = ["RunLedger"]

logger = logging.getLogger("dragent_stream")

E = TypeVar("E", default=BaseEvent)

_REPLACEMENT = "\ufffd"
_CHAT: Final = Place()
_UNMATCHED_RESULT = "dragent_stream.tool_result"  # CUSTOM for a result whose call cannot have one


class _Fragments(Generic[E]):
    """Writes the fragments of an open call, and withdraws itself when its arguments are complete."""

    __slots__ = ("_call", "_emit", "_hot", "_index")

    def __init__(self, call: ToolCall, index: int, hot: Writers[E]) -> None:
        self._call = call
        self._emit: Callable[[str], E] = call.writer.write
        self._index = index
        self._hot = hot

    def write(self, text: str) -> E:
        call = self._call
        call.append(text)
        if call.closed:
            self._hot.pop(self._index, None)
        return self._emit(text)


def _second_fragment(first: str, write: Callable[[str], E], index: int, hot: Writers[E]) -> Callable[[str], E]:
    """What writes the second fragment of a call, which shows whether each repeats the arguments so far."""

    def write_second(text: str) -> E:
        if len(text) > len(first) and text.startswith(first):
            raise UndecidedError
        hot[index] = write
        return write(text)

    return write_second


class RunLedger(Generic[E]):
    """Everything that is open in one run.

    Args:
        events: The writer of the events; ag_ui objects by default.
        options: See `ConverterOptions`.
        thread_id: The thread's id; a fresh one where empty.
        run_id: The run's id; a fresh one where empty.
        protocol_version: What the client's request stated, e.g. "1.0"; None for clients before 1.0.
        used_call_ids: Tool-call ids that the thread's history holds; a call that brings one gets a fresh id.
        unanswered_call_ids: Those among them that have no result yet; a result for one may come in this run.

    Attributes:
        finished: A terminal event was written; nothing is written after it.
        heard: The run has shown a text, a thought or a call.
        ended_well: The model has said "stop", so an answer without a word is one.
        silence: The failure that the run ends with if it has shown nothing; None where nothing is expected.
        exact_results: Results come from `tool_result` alone; the steps' ends give none.
        hot: What may go on without a decision: the text or the thought of a turn that has no call yet, open calls by
            their index. Whatever may change what comes next empties it.
        place: Where what comes next belongs to: a LangChain message, or the chat chunks.
        chunk_id: The id of the chunk being converted; tells two answers apart after a "stop".
        chunks_seen: The chunk path has delivered something, so it owns the text of the root agent.
        steps_seen: Steps arrive in this run, so results are to be expected.
        dropped: Tool-call deltas that belonged nowhere: repeated deliveries, fragments of calls without a name.
    """

    __slots__ = (
        "_answered",
        "_calls",
        "_chunks_over",
        "_cut_call",
        "_cut_ids",
        "_events",
        "_idle",
        "_new_id",
        "_open_turns",
        "_out",
        "_results_streamed",
        "_side",
        "_speaks_1_0",
        "_started",
        "_steps",
        "_turn",
        "_unanswered",
        "_usage",
        "_used_call_ids",
        "_workflow_over",
        "chunk_id",
        "chunks_seen",
        "dropped",
        "ended_well",
        "exact_results",
        "finished",
        "heard",
        "hot",
        "options",
        "place",
        "run_id",
        "silence",
        "steps_seen",
        "thread_id",
    )

    def __init__(
        self,
        events: EventWriter[E] | None = None,
        *,
        options: ConverterOptions | None = None,
        thread_id: str = "",
        run_id: str = "",
        protocol_version: str | None = None,
        used_call_ids: Iterable[str] = (),
        unanswered_call_ids: Iterable[str] = (),
    ) -> None:
        self.options = options or DEFAULT_OPTIONS
        self.thread_id = well_formed(thread_id)
        self.run_id = well_formed(run_id)
        self.finished = False
        self.heard = False
        self.ended_well = False
        self.silence: AnswerError | None = None
        self.exact_results = False
        self.hot: Writers[E] = {}
        self.chunk_id = ""
        self.chunks_seen = False
        self.steps_seen = False
        self.dropped = 0
        self._usage: UsageTotals | None = None
        self._events = events or cast("EventWriter[E]", ModelEvents())
        self._new_id = self.options.new_id
        self._speaks_1_0 = _at_least_1_0(protocol_version)
        self._out: list[E] = []
        self._turn: Turn[E] | None = None
        self.place = _CHAT
        self._open_turns: dict[str, Turn[E]] | None = None  # of LangChain messages, by their id
        self._cut_call: ToolCall | None = None  # the first one whose arguments are no JSON, and which was not ended
        self._cut_ids: set[str] | None = None  # of all of them
        self._side: tuple[OpenMessage[E], ...] = ()  # messages of the step path
        self._steps: tuple[str, ...] = ()
        self._calls: dict[ToolCall, None] = {}  # shown or announced, and not answered yet
        self._idle: dict[ToolCall, None] = {}  # those among them that no step executes
        self._used_call_ids = set(used_call_ids) or None
        self._unanswered = frozenset(unanswered_call_ids)
        self._results_streamed = False
        self._answered: dict[str, int] = {}  # the hash of the result, by each id of its call
        self._started = False
        self._chunks_over = False
        self._workflow_over = False

    @property
    def usage(self) -> UsageTotals:
        """What the model calls of the run used."""
        if self._usage is None:
            self._usage = UsageTotals()
        return self._usage

    def drain(self) -> list[E]:
        """The events written since the last call."""
        out, self._out = self._out, []
        return out

    def keep(self, events: list[E]) -> None:
        """Put drained events back, in front: they are part of a conversion that is still going on."""
        self._out[:0] = events

    # The run.

    def start_run(self) -> list[E]:
        """RUN_STARTED, once."""
        if not self._started:
            self._started = True
            self.thread_id = self.thread_id or self._new_id()
            self.run_id = self.run_id or self._new_id()
            self._out.append(self._events.run_started(self.thread_id, self.run_id))
        return self.drain()

    def finish_run(self) -> list[E]:
        """Close everything and write RUN_FINISHED; nothing if the run has ended.

        RUN_ERROR instead where a call's arguments are no JSON, and where nothing was said although something should be.
        """
        if self.finished:
            return self.drain()
        self.close()
        if failure := self._failure():
            return self.fail_run(str(failure), failure.code)
        outcome: dict[str, Any] = {"type": "success"}
        pending = [call.wire_id for call in self._calls if call.frontend and call.state is CallState.ENDED]
        if pending and self._speaks_1_0:
            outcome["pendingToolCallIds"] = pending
        self._out.append(
            self._events.run_finished(self.thread_id, self.run_id, outcome=outcome, usage=self.usage.entries())
        )
        self._end()
        return self.drain()

    def _failure(self) -> AnswerError | None:
        """Why this run is no success, although nobody said that it failed."""
        if self._cut_call:
            name = well_formed(self._cut_call.name)
            text = f"the arguments of the call of {name!r} are no complete JSON, so it was not ended"
            if not name:
                text = "a tool call came without the tool's name, so it is not shown"
            return AnswerError(text, "INCOMPLETE_TOOL_CALL")
        return None if self.heard else self.silence

    def fail_run(self, message: str, code: str = "STREAM_ERROR") -> list[E]:
        """Close what may be closed and write RUN_ERROR; nothing if the run has ended."""
        if not self.finished:
            self._close_for_error()
            text = well_formed(message) or "the run failed without a message"
            self._out.append(self._events.run_error(text, code, usage=self.usage.entries()))
            self._end()
        return self.drain()

    def cancel_run(self) -> list[E]:
        """End a run that was stopped on purpose.

        RUN_FINISHED with outcome `cancelled` for a client that speaks 1.0; RUN_ERROR with code `abort` for older ones,
        and where a call's arguments are incomplete, so that the run cannot close in order (spec 1.0, cancellation).
        """
        if self.finished:
            return self.drain()
        turns = self._all_turns()
        in_order = not self._cut_call and all(turn.over or all(call.is_json for call in turn.calls) for turn in turns)
        if not (self._speaks_1_0 and in_order):
            return self.fail_run("the run was stopped", "abort")
        self.close()
        self._out.append(
            self._events.run_finished(
                self.thread_id, self.run_id, outcome={"type": "cancelled"}, usage=self.usage.entries()
            )
        )
        self._end()
        return self.drain()

    def chunks_ended(self) -> None:
        """The chunk path is at its end; a workflow that ended before it ends the run now."""
        self._chunks_over = True
        if self._cut_call or (self.silence and not self.heard and not self.steps_seen) or self._workflow_over:
            self.keep(self.finish_run())

    def workflow_ended(self) -> None:
        """The step path, which owns this run's lifecycle, is at its end; the run ends when the chunk path has, too."""
        self._workflow_over = True
        if self._chunks_over or not self.chunks_seen:
            self.keep(self.finish_run())

    def close(self) -> None:
        """Close everything that is open, in order, and answer the calls that the run went past."""
        self.end_turns()
        for message in self._side:
            self.close_message(message)
        self._go_past(self._calls)
        self._close_steps()

    def _end(self) -> None:
        self.finished = True
        self.hot.clear()

    def _close_for_error(self) -> None:
        for turn in self._all_turns():
            if not turn.over:
                self._close_turn(turn, failed=True)
        for message in self._side:
            self.close_message(message)
        self._show_unmatched()
        self._close_steps()

    def _all_turns(self) -> Iterable[Turn[E]]:
        """The turns that may be open, oldest first."""
        turns = list(self._open_turns.values()) if self._open_turns else []
        if self._turn and self._turn not in turns:
            turns.append(self._turn)
        return turns

    def _show_unmatched(self) -> None:
        """Show results that wait for the END of a call that cannot be ended."""
        for call in self._calls:
            if call.held_result is not None and not self.finished:
                self._unmatched_result(call.wire_id or call.provider_id, call.held_result)
                call.held_result = None

    # The turn.

    def enter(self, place: Place) -> None:
        """What follows belongs to this LangChain message, or to the chat chunks where the place has none.

        A message stays open until it says that it is over, or its graph is a step further: parallel nodes take turns.
        """
        turn = self._turn
        if place.message == (turn or self).place.message:
            return
        self.hot.clear()
        turns = self._open_turns = self._open_turns or {}
        for earlier in list(turns.values()):
            if place.is_after(earlier.place):
                self._end_turn(earlier)
        self.place = place
        self._turn = turns.get(place.message)
        if turn and not turn.place.message:
            self._end_turn(turn)

    def new_text(self, delta: str, *, repeats: bool = False) -> str:
        """What is new in a delta of the answer text: providers may send all of it again.

        Args:
            delta: As the provider sent it.
            repeats: It stands where some repeat the whole text: beside a call, or beside the reason why they stop.
        """
        turn = self._turn
        if repeats and turn and not turn.over and turn.said.is_repeated_by(delta):
            return ""
        return self._new_in(self._speaking_turn(text=True).said, delta) if delta and not self.finished else ""

    def new_thought(self, delta: str) -> str:
        """What is new in a delta of a thought."""
        return self._new_in(self._speaking_turn().thought, delta) if delta and not self.finished else ""

    def _new_in(self, text: GrowingText, delta: str) -> str:
        new = text.take(delta)
        if text.pending:
            self.hot.clear()  # what is held comes before whatever else may go on
        return new

    def has_said(self, text: str) -> bool:
        """The answer that is open, or was the last, is this text."""
        return self._turn is not None and self._turn.said.is_all(text)

    def has_called(self, call_id: str) -> bool:
        """The last answer has made a call of this id."""
        return self._turn is not None and any(call_id in call.ids for call in self._turn.calls)

    def released_text(self) -> str:
        """What a delta that may have been a snapshot adds, as something else follows it."""
        turn = self._turn
        return turn.said.release() if turn and turn.said.pending and not turn.over else ""

    def _release_thought(self, turn: Turn[E]) -> None:
        if turn.thought.pending and turn.reasoning and (rest := turn.thought.release()):
            self.write(turn.reasoning, rest)

    def text(self, delta: str) -> None:
        """Answer text of the model."""
        if not delta or self.finished:
            return
        turn = self._speaking_turn(text=True)
        self._close_reasoning(turn)
        message = turn.text
        if message is None:
            # The turn's own message, unless calls have already named it as their parent.
            own = not turn.announced and not turn.calls
            turn.announced = True
            message = turn.text = self.open_text(turn.message_id if own else self._new_id())
            self._give_encrypted(turn, ("message", message.id))
        self.write(message, delta)
        self._hold_only(turn, (TEXT,), message, turn.said)

    def reasoning(self, delta: str, *, new: bool = False) -> None:
        """A thought of the model; `new`: another one. Open text stays open: one answer is one message."""
        if not delta or self.finished:
            return
        turn = self._speaking_turn()
        if new:
            self._close_reasoning(turn)
        if turn.reasoning is None:
            turn.reasoning = self.open_reasoning()
            self._give_encrypted(turn, ("message", turn.reasoning.id), best=True)
        self.write(turn.reasoning, delta)
        self._hold_only(turn, THOUGHT, turn.reasoning, turn.thought)

    def _hold_only(self, turn: Turn[E], kinds: Sequence[str], message: OpenMessage[E], so_far: GrowingText) -> None:
        """Let this message go on without a decision, and nothing else."""
        self.hot.clear()
        if not (turn.calls or message.high or turn.said.pending or turn.thought.pending):
            write = opening_writer(so_far, message.write, self.hot, kinds) if so_far.watching else message.write
            self.hot.update(dict.fromkeys(kinds, write))

    def encrypted(self, value: str) -> None:
        """Encrypted reasoning; it belongs to the turn's thought, else to its first text or call, which may yet come.

        A second value (redacted thinking behind a signed thought) belongs to what comes next: clients keep one for each.
        """
        if self.finished:
            return
        turn = self._turn
        if turn is None or turn.over or turn.stopped:
            turn = self._next_turn()
        value = well_formed(value)
        if value in turn.encrypted_before:
            return  # repeated with every delta
        turn.encrypted_before += (value,)
        turn.encrypted += (value,)
        self._give_encrypted(turn)

    def _give_encrypted(self, turn: Turn[E], owner: Owner | None = None, *, best: bool = False) -> None:
        """Write the values that have an owner, after a new one has come; a thought is the best."""
        if owner:
            turn.owners = (owner, *turn.owners) if best else (*turn.owners, owner)
        while turn.encrypted and turn.owners:
            value, turn.encrypted = turn.encrypted[0], turn.encrypted[1:]
            turn.owner, turn.owners = turn.owners[0], turn.owners[1:]
            self._out.append(self._events.encrypted_value(*turn.owner, value))

    def tool_call(self, delta: ToolCallDelta) -> None:
        """One tool-call delta of the model."""
        if self.finished:
            return
        turn = self._calling_turn(delta)
        resolver = turn.resolver
        known, dropped = len(resolver.calls), resolver.dropped
        placed = resolver.place(delta)
        if resolver.dropped != dropped:
            self.dropped += resolver.dropped - dropped
        if placed is None:
            return
        call, text = placed
        if len(resolver.calls) > known:
            self.hot.clear()
            self._show_announced(turn, before=call)
            self._announce(turn, call)
            if taken := resolver.taken(call):
                self._end_call(taken)
        self._take(call, text)
        self._hold_call(turn, call)

    def _announce(self, turn: Turn[E], call: ToolCall) -> None:
        call.turn = turn
        turn.unshown.append(call)
        self._calls[call] = self._idle[call] = None

    def _hold_call(self, turn: Turn[E], call: ToolCall) -> None:
        """Let this call go on without a decision as long as its arguments are open."""
        index, writer, hot = call.index, call.writer, self.hot
        if index is None or turn.resolver.by_index.get(index) is not call or call.state is not CallState.OPEN:
            return
        decides = call.blank or call.growing or call.held or call.custom
        if decides or call.closed or call.held_result is not None or writer.high:
            hot.pop(index, None)
        elif index not in hot:
            write = _Fragments(call, index, hot).write
            hot[index] = write if len(call.parts) > 1 else _second_fragment(call.parts[0], write, index, hot)

    def finish_answer(self, reason: Finish) -> None:
        """The model said why it stopped.

        What is complete is ended. The rest waits: some providers say so with every chunk, and the answer goes on
        (BerriAI/litellm#31634).
        """
        turn = self._turn
        if self.finished:
            return
        if reason == "content_filter":
            self.keep(self.fail_run("the model's answer was stopped by a content filter", reason))
        elif reason == "length":
            self._reached_length(turn)
        elif reason == "stop":
            self.ended_well = True
        elif reason == "calls" and (turn is None or not turn.calls):
            logger.warning("the model's answer ended in tool calls, but none came")
        if turn is None or turn.over or self.finished:
            return
        self._close_reasoning(turn)
        self._show_announced(turn)
        for call in turn.calls:
            if call.closed:
                self._end_call(call)
        turn.stopped, turn.finish_id = True, self.chunk_id
        self.hot.clear()

    def _reached_length(self, turn: Turn[E] | None) -> None:
        limit = "the model reached its length limit"
        if turn is None or (turn.over and self.chunk_id != turn.finish_id):
            self.keep(self.fail_run(f"{limit} before it said anything", "length"))
        elif not turn.over and not all(call.is_json for call in turn.calls):
            self.keep(self.fail_run(f"{limit} inside the arguments of a tool call", "length"))
        elif not turn.over and not turn.announced and not turn.calls:
            self.keep(self.fail_run(f"{limit} before it answered", "length"))

    def end_turn(self) -> None:
        """The model's answer is over: close its messages and end its calls."""
        if self._turn is not None:
            self._end_turn(self._turn)

    def end_turns(self) -> None:
        """Every answer is over, also those of messages that were open beside the last one."""
        for turn in self._all_turns():
            self._end_turn(turn)

    def _end_turn(self, turn: Turn[E]) -> None:
        if turn.over:
            return
        self.hot.clear()
        self._close_turn(turn)
        for call in turn.calls:
            if call.state is not CallState.ENDED:
                self._cut(call)

    def _cut(self, call: ToolCall) -> None:
        """The arguments of a call that is over are no JSON: it is not ended, and neither is its run."""
        self._cut_call = self._cut_call or call
        self._cut_ids = (self._cut_ids or set()) | call.ids
        self._forget(call)
        if call.held_result is not None:
            self._unmatched_result(call.wire_id or call.provider_id, call.held_result)

    def _close_turn(self, turn: Turn[E], *, failed: bool = False) -> None:
        """Close its messages, and end its calls where their arguments are JSON.

        Free text is complete only where the model has said that it stopped, or the tool was executed.
        """
        self._close_speech(turn)
        self._show_leftover(turn)
        self._show_announced(turn)
        for call in turn.calls:
            if not call.custom or (not failed and (turn.stopped or turn.executed)):
                self._end_call(call)
        if turn.owner:
            for value in turn.encrypted:
                self._out.append(self._events.encrypted_value(*turn.owner, value))
        turn.over = True
        if self._open_turns:
            self._open_turns.pop(turn.place.message, None)

    def _next_turn(self) -> Turn[E]:
        self.end_turn()
        place = self.place
        if not place.message:
            if self._usage:
                self._usage.call_ended()
            self._go_past_earlier()
        turn: Turn[E] = Turn(self._new_id(), place)
        if place.message:
            self._open_turns = self._open_turns or {}
            self._open_turns[place.message] = turn
        self._turn = turn
        return turn

    def _speaking_turn(self, *, text: bool = False) -> Turn[E]:
        """The turn that text or a thought belongs to; it follows complete calls in a new turn."""
        turn = self._turn
        if turn is None or turn.over:
            return self._next_turn()
        if turn.stopped:
            if not text or turn.calls or self.chunk_id != turn.finish_id:
                return self._next_turn()
            turn.stopped = False
        if turn.calls:
            if turn.calls_complete:
                return self._next_turn()
            self._show_announced(turn)
        return turn

    def _calling_turn(self, delta: ToolCallDelta) -> Turn[E]:
        turn = self._turn
        if turn is None or turn.over:
            return self._next_turn()
        if turn.stopped:
            if self.chunk_id != turn.finish_id or (turn.calls and not turn.resolver.continues(delta)):
                return self._next_turn()
            turn.stopped = False
        return turn

    # Messages.

    def open_text(self, message_id: str) -> OpenMessage[E]:
        """Start a text message."""
        self.heard = True
        self._out.append(self._events.text_start(message_id))
        return OpenMessage(message_id, self._events.text_writer(message_id))

    def open_reasoning(self) -> OpenMessage[E]:
        """Start a reasoning span with its message, under a fresh id."""
        message_id = self._new_id()
        self.heard = True
        self._out.extend(self._events.reasoning_start(message_id))
        return OpenMessage(message_id, self._events.reasoning_writer(message_id), reasoning=True)

    def open_side(self, *, reasoning: bool) -> OpenMessage[E]:
        """Start a message beside the turn's own: a model call of the step path."""
        if reasoning:
            message = self.open_reasoning()
        else:
            turn = self._turn if self._turn and not self._turn.over else self._next_turn()
            own = not turn.announced and not turn.calls
            turn.announced = True
            message = self.open_text(turn.message_id if own else self._new_id())
        self._side += (message,)
        return message

    def write(self, message: OpenMessage[E], delta: str) -> None:
        """Write one delta; halves of a surrogate pair are joined, lone ones replaced."""
        if message.high or not delta.isascii():
            delta = message.high + delta
            message.high = ""
            if "\ud800" <= delta[-1] <= "\udbff":
                message.high, delta = delta[-1], delta[:-1]
            delta = well_formed(delta)
        if delta:
            self._out.append(message.write(delta))

    def close_message(self, message: OpenMessage[E]) -> None:
        """End a text or reasoning message."""
        if self._side:
            self._side = tuple(other for other in self._side if other is not message)
        if message.high:
            self._out.append(message.write(_REPLACEMENT))
        if message.reasoning:
            self._out.extend(self._events.reasoning_end(message.id))
        else:
            self._out.append(self._events.text_end(message.id))

    def _close_reasoning(self, turn: Turn[E]) -> None:
        if turn.reasoning:
            self._release_thought(turn)
            self.close_message(turn.reasoning)
            turn.reasoning = None

    def _close_speech(self, turn: Turn[E]) -> None:
        self._close_reasoning(turn)
        if turn.text:
            if turn.said.pending and (rest := turn.said.release()):
                self.write(turn.text, rest)
            self.close_message(turn.text)
            turn.text = None

    # Calls.

    def calls_of_turn(self) -> Iterator[ToolCall]:
        """The calls that no step executes yet, oldest first: what a starting tool may belong to."""
        return (call for call in self._idle if call.name and not call.frontend)

    def whole_call(self, name: str, arguments: str) -> ToolCall:
        """Show a complete call that only the step path knows."""
        turn = self._turn if self._turn and not self._turn.over else self._next_turn()
        call = ToolCall(None, "", name)
        turn.resolver.add(call)
        self.hot.clear()
        self._announce(turn, call)
        self._take(call, arguments)
        self._end_call(call)
        return call

    def tool_left(self, call: ToolCall) -> None:
        """The step that was taken for this call's was another's."""
        call.running = False
        if call in self._calls:
            self._idle[call] = None

    def _forget(self, call: ToolCall) -> None:
        del self._calls[call]
        self._idle.pop(call, None)

    def step_runs(self, call: ToolCall) -> None:
        """A step executes this call, and it is no other step's."""
        self._idle.pop(call, None)
        self._tool_runs(call)

    def _tool_runs(self, call: ToolCall) -> None:
        """A call is being executed: its arguments are complete, and so is the model's turn."""
        call.running = True
        call.turn.executed = True
        if call.state is not CallState.ENDED and call.is_json:
            self._end_turn(call.turn)

    def answer(self, call: ToolCall, content: Any) -> None:
        """The result of a call, as text or as content parts; it waits for the call's END."""
        call.running = False
        if call.answered or call.frontend or self.finished or call not in self._calls:
            return
        call.turn.executed = True
        if call.state is CallState.ENDED or call.custom or call.is_json:
            self._end_turn(call.turn)  # a tool has run, so the model has said all it had to say
        if call.state is not CallState.ENDED:
            call.held_result = content
            self.hot.clear()
            return
        if call.answered or call not in self._calls:
            return  # ending it has given the result that was waiting, or it was never shown
        call.answered = True
        call.held_result = None
        if call.guess:
            self._unmatched_result(*call.guess)
            call.guess = None
        self._forget(call)
        self._answered.update(dict.fromkeys(call.ids, hash(result_text(content))))
        self._result(call.wire_id, content)

    def _result(self, call_id: str, content: Any) -> None:
        content = well_formed(content) if isinstance(content, str) else content
        self._out.append(self._events.call_result(self._new_id(), call_id, content))

    @property
    def takes_parts(self) -> bool:
        """The client reads results that are content parts (spec 1.0)."""
        return self._speaks_1_0 and RESULT_PARTS

    def tools_over(self) -> None:
        """The model is asked again, so every tool has ended: one that gave no result failed."""
        self._go_past(self._calls)

    def tool_started(self, tool_call_id: str) -> list[E]:
        """The model's call of this id is being executed."""
        self.steps_seen = True
        if call := self._call_of(tool_call_id):
            self._tool_runs(call)  # its step may come after this
        return self.drain()

    def tool_result(self, tool_call_id: str, content: Any) -> list[E]:
        """The result of the model's call of this id; a call that was never shown (a nested agent's) has none."""
        self.steps_seen = True
        if call := self._call_of(tool_call_id):
            self.answer(call, content)
        elif self._cut_ids and tool_call_id in self._cut_ids and not self.finished:
            self._unmatched_result(tool_call_id, content)
        return self.drain()

    def streamed_result(self, tool_call_id: str, content: Any, name: str = "") -> None:
        """A result that stands in the stream itself, so that it is shown whatever call it names.

        One for a call of the thread's history is that call's; one for an unknown call, or for none, is the one open
        call's (of the tool's name, where that is known), else a CUSTOM event.
        """
        self.steps_seen = True
        if self.finished:
            return
        self._results_streamed = True
        if (call := self._call_of(tool_call_id)) and self._is_frontend(call):
            self._unmatched_result(tool_call_id, content)
        elif call:
            self.answer(call, content)
        elif (told := self._answered.get(tool_call_id)) is not None:
            if told == hash(result_text(content)):
                self.dropped += 1
            else:
                self._unmatched_result(tool_call_id, content)
        elif self._cut_ids and tool_call_id in self._cut_ids:
            self._unmatched_result(tool_call_id, content)
        elif tool_call_id in self._unanswered:
            self._unanswered -= {tool_call_id}
            self._result(tool_call_id, content)
        else:
            named = not tool_call_id and name
            waiting = [call for call in self._calls if self._may_be_answered(call) and (not named or call.name == name)]
            if len(waiting) != 1:
                self._unmatched_result(tool_call_id, content)
                return
            call = waiting[0]
            if named:
                self.answer(call, content)
                return
            wanted = call.wire_id or call.provider_id
            logger.warning("a tool result names the call %r; it is meant for the open call %r", tool_call_id, wanted)
            call.turn.executed = True
            call.guess = tool_call_id, content  # until its own result comes, or the run goes on without

    def _may_be_answered(self, call: ToolCall) -> bool:
        return bool(call.name) and not call.frontend and call.held_result is None and not call.guess and call.is_json

    def _unmatched_result(self, tool_call_id: str, content: Any) -> None:
        logger.warning("a tool result names the call %r, which cannot have one; it is sent as CUSTOM", tool_call_id)
        content = well_formed(content) if isinstance(content, str) else content
        self.custom(_UNMATCHED_RESULT, {"toolCallId": well_formed(tool_call_id), "content": content})

    def _call_of(self, tool_call_id: str) -> ToolCall | None:
        return next((call for call in self._calls if tool_call_id in call.ids and call.held_result is None), None)

    def _may_show(self, call: ToolCall) -> bool:
        """What the client runs is shown when it can be run, and not before."""
        return not self._is_frontend(call) or (call.complete and call.is_json)

    def _is_frontend(self, call: ToolCall) -> bool:
        return call.name in self.options.frontend_tools

    def _take(self, call: ToolCall, text: str) -> None:
        """Append to a call and show what may be shown."""
        if text and call.frontend and call.state is CallState.OPEN:
            self.dropped += 1  # the client has it whole
            text = ""
        if call.custom and text:
            text = ("" if call.parts else '{"input":"') + quote(text)[1:-1]
        if text:
            call.append(text)
        if call.state is CallState.OPEN:
            if text:
                self.write(call.writer, text)
        elif call.state is CallState.ENDED:
            self.dropped += bool(text)
        elif call.name and not call.blank and not call.placeholder and self._may_show(call):
            self._show(call)
        self._sign(call)
        if call.held_result is not None and call.complete:
            self._end_call(call)

    def _show(self, call: ToolCall) -> None:
        """START, and the arguments so far."""
        self.heard = True
        turn: Turn[E] | None = call.turn
        if turn:
            self._close_reasoning(turn)
            if turn.text and not any(other.state is not CallState.HELD for other in turn.calls):
                self._close_speech(turn)
        call.frontend = self._is_frontend(call)
        call.state = CallState.OPEN
        wanted = well_formed(call.provider_id)
        used = self._used_call_ids = self._used_call_ids or set()
        call.wire_id = wanted if wanted and wanted not in used else self._new_id()
        used.update((wanted, call.wire_id))
        self._out.append(
            self._events.call_start(call.wire_id, well_formed(call.name), turn.message_id if turn else None)
        )
        self._sign(call)
        if turn and not call.signature:
            self._give_encrypted(turn, ("tool-call", call.wire_id))
        writer = OpenMessage(call.wire_id, self._events.arguments_writer(call.wire_id))
        call.writer = writer
        if call.parts:
            self.write(writer, call.arguments)

    def _sign(self, call: ToolCall) -> None:
        """Write the signature of a call that is shown; it may come with any delta."""
        if call.signature != call.signed and call.state is not CallState.HELD:
            call.signed = call.signature
            self._out.append(self._events.encrypted_value("tool-call", call.wire_id, well_formed(call.signature)))

    def _show_announced(self, turn: Turn[E], before: ToolCall | None = None) -> None:
        """Something else begins, so the names of the calls so far are whole."""
        if not turn.unshown:
            return
        unshown, turn.unshown = turn.unshown, []
        for call in unshown:
            if call is before or not call.name:
                turn.unshown.append(call)
            elif call.state is CallState.HELD and not self._is_frontend(call):
                self._show(call)

    def _end_call(self, call: ToolCall) -> None:
        """END, unless the arguments are no JSON: END means that they are complete."""
        if call.state is CallState.ENDED:
            return
        if call.state is CallState.HELD and not call.name:
            self.dropped += 1  # AG-UI has no call without a name
            self._forget(call)
            call.state = CallState.ENDED
            if not call.blank:
                self._cut_call = self._cut_call or call
            return
        if not (call.custom or call.is_json):
            return
        if call.state is CallState.HELD:
            self._show(call)
        writer: OpenMessage[E] = call.writer
        if call.custom:
            rest = '"}' if call.parts else '{"input":""}'
        else:
            rest = "{}" if call.blank else ""  # arguments go back to the provider in the next turn, where "" is no JSON
        if rest:
            call.append(rest)
            self.write(writer, rest)
        if writer.high:
            self._out.append(writer.write(_REPLACEMENT))
        self._out.append(self._events.call_end(call.wire_id))
        call.state = CallState.ENDED
        if call.held_result is not None:
            self.answer(call, call.held_result)

    def _show_leftover(self, turn: Turn[E]) -> None:
        if not turn.calls:
            return
        for call in turn.calls:
            if call.held:
                self._take(call, call.release())
        for call, text in turn.resolver.leftover():
            self._announce(turn, call)
            self._take(call, text)

    def _go_past(self, calls: Iterable[ToolCall]) -> None:
        """Answer backend calls that the run has left behind; without steps nobody here executes them."""
        if self.steps_seen:
            for call in list(calls):
                guess, call.guess = call.guess, None
                if guess and call.state is not CallState.ENDED:
                    self._end_turn(call.turn)
                if call.state is CallState.ENDED:
                    self.answer(call, guess[1] if guess else "")

    def _go_past_earlier(self) -> None:
        """Answer the calls that the run has left behind: a call beside them was executed, or it is for the second time.

        A call that text follows at once may still be executed: its step comes after both.
        """
        if not self.steps_seen:
            return
        over = [call for call in self._calls if (call.passed or call.turn.executed) and not call.running]
        if self._results_streamed:  # they name their calls, and may come late
            over = [call for call in over if call.guess]
        self._go_past(over)
        for call in self._calls:
            call.passed = call.passed or call.state is CallState.ENDED

    # Steps and custom events.

    def _close_steps(self) -> None:
        """STEP_FINISHED for every open step, the last one first."""
        for name in reversed(self._steps):
            self._out.append(self._events.step_finished(well_formed(name)))
        self._steps = ()

    def step_started(self, name: str) -> bool:
        """STEP_STARTED; False if a step of this name is open (AG-UI allows one)."""
        if self.finished or name in self._steps:
            return False
        self._steps += (name,)
        self._out.append(self._events.step_started(well_formed(name)))
        return True

    def step_finished(self, name: str) -> None:
        """STEP_FINISHED of an open step."""
        if name in self._steps and not self.finished:
            self._steps = tuple(step for step in self._steps if step != name)
            self._out.append(self._events.step_finished(well_formed(name)))

    def custom(self, name: str, value: Any) -> None:
        """CUSTOM; the value is JSON."""
        if not self.finished:
            self._out.append(self._events.custom(well_formed(name), value))


def _at_least_1_0(version: str | None) -> bool:
    major = (version or "").partition(".")[0]
    return major.isascii() and major.isdecimal() and major.strip("0") != ""
