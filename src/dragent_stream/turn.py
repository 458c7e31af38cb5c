"""One answer of the model, and the messages that are open in it.

```
turn    OPEN ──the model says why it stopped──▶ STOPPED ──something else begins──▶ OVER
        STOPPED ──the same answer goes on──▶ OPEN     (some providers say "stop" with every chunk)
message started ──deltas──▶ ended
```
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Literal, TypeAlias, TypeVar

from dragent_stream.plain_chunks import UndecidedError, Writers
from dragent_stream.snapshots import GrowingText
from dragent_stream.tool_calls import ToolCall, TurnCalls

__all__ = ["OpenMessage", "Owner", "Place", "Turn", "opening_writer"]

E = TypeVar("E")


class Place:
    """Where a LangChain message comes from.

    Attributes:
        message: The message's id; empty for chat chunks.
        lane: The graph, or part of one, whose steps are counted together.
        step: The step of that graph; None where it is not known.
    """

    __slots__ = ("lane", "message", "step")

    def __init__(self, message: str = "", step: int | None = None, lane: str = "") -> None:
        self.message = message
        self.step = step
        self.lane = lane

    def is_after(self, other: Place) -> bool:
        """What came from the other place is over, as the graph is a step further."""
        return self.step is not None and other.step is not None and self.lane == other.lane and self.step > other.step


class OpenMessage(Generic[E]):
    """A started text, reasoning message or call, and what writes its deltas.

    Attributes:
        id: The id on the wire.
        high: The first half of a surrogate pair whose second half has not come yet.
    """

    __slots__ = ("high", "id", "reasoning", "write")

    def __init__(self, message_id: str, write: Callable[[str], E], *, reasoning: bool = False) -> None:
        self.id = message_id
        self.write = write
        self.reasoning = reasoning
        self.high = ""


Owner: TypeAlias = tuple[Literal["message", "tool-call"], str]
"""What encrypted reasoning belongs to: a message or a call, by its id."""


class Turn(Generic[E]):
    """One answer of the model.

    Attributes:
        message_id: The id of its message, which is the parent of its calls.
        place: Of a LangChain message; the empty one for chat chunks.
        announced: A text message has taken `message_id`.
        said: The answer text as it comes.
        thought: The same of the reasoning.
        encrypted: Values that wait for something to belong to.
        owners: Its messages and calls that have no encrypted value yet, the best first: clients keep one for each.
        owner: The one that got the last value.
        executed: One of its calls is being executed, or was.
        unshown: Calls that were announced and have not begun on the wire.
        over: Nothing belongs to it any more.
        stopped: The model has said why it stopped; the turn goes on if the same answer does (BerriAI/litellm#2195).
        finish_id: The id of the chunk that said so.
    """

    __slots__ = (
        "_resolver",
        "announced",
        "encrypted",
        "encrypted_before",
        "executed",
        "finish_id",
        "message_id",
        "over",
        "owner",
        "owners",
        "place",
        "reasoning",
        "said",
        "stopped",
        "text",
        "thought",
        "unshown",
    )

    def __init__(self, message_id: str, place: Place) -> None:
        self.message_id = message_id
        self.place = place
        self.announced = False
        self.text: OpenMessage[E] | None = None
        self.reasoning: OpenMessage[E] | None = None
        self.said = GrowingText()
        self.thought = GrowingText()
        self.encrypted: tuple[str, ...] = ()
        self.encrypted_before: tuple[str, ...] = ()
        self.owners: tuple[Owner, ...] = ()
        self.owner: Owner | None = None
        self._resolver: TurnCalls | None = None
        self.executed = False
        self.unshown: list[ToolCall] = []
        self.over = False
        self.stopped = False
        self.finish_id = ""

    @property
    def resolver(self) -> TurnCalls:
        """Says to which call a delta belongs."""
        if self._resolver is None:
            self._resolver = TurnCalls()
        return self._resolver

    @property
    def calls(self) -> Sequence[ToolCall]:
        """The turn's calls, in the order in which they were announced."""
        return self._resolver.calls if self._resolver else ()

    @property
    def calls_complete(self) -> bool:
        """No call of the turn waits for more of its arguments."""
        return self._resolver is None or self._resolver.unfinished is None


def opening_writer(
    text: GrowingText, write: Callable[[str], E], writers: Writers[E], kinds: Sequence[str]
) -> Callable[[str], E]:
    """What writes the first deltas of a message on the short way, until they can be no snapshots any more.

    Args:
        text: The message as it comes.
        write: Writes a delta.
        writers: Where `write` takes this writer's place.
        kinds: Under these names.

    Raises:
        UndecidedError: From the writer: the delta may be a snapshot, so it must be read in full.
    """

    def write_opening(delta: str) -> E:
        if not text.add(delta):
            raise UndecidedError
        if not text.watching:
            for kind in kinds:
                writers[kind] = write
        return write(delta)

    return write_opening
