"""Play a recording in the terminal at its own pace: messages growing, calls filling up, results coming in."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from dragent_stream.cli.reading import TimedEvent
from dragent_stream.cli.screen import printable

__all__ = ("Conversation", "play")

_STYLES = {
    "assistant": "bold blue",
    "reasoning": "magenta",
    "call": "bold dark_orange",
    "step": "dim",
    "error": "bold red",
}
_FRAMES_PER_SECOND = 20
_SHOWN = 4000
"""Characters of one entry that are drawn while it grows; the end of it, as the terminal shows the end."""


@dataclass(slots=True)
class _Entry:
    kind: str
    label: str
    parts: list[str] = field(default_factory=list[str])
    open: bool = True
    result: str | None = None

    def text(self) -> str:
        joined = "".join(self.parts)
        self.parts = [joined]
        return joined


class Conversation:
    """What a person sees of a run, event by event."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._open: dict[tuple[str, str], _Entry] = {}
        self._ending: tuple[str, str] = ("the run has no end", "bold red")

    def feed(self, event: dict[str, object]) -> None:
        """Take the next event."""
        kind = str(event.get("type", ""))
        message_id, call_id = str(event.get("messageId", "")), str(event.get("toolCallId", ""))
        match kind:
            case "TEXT_MESSAGE_START":
                self._begin("text", message_id, _Entry("assistant", str(event.get("role") or "assistant")))
            case "REASONING_MESSAGE_START":
                self._begin("reasoning", message_id, _Entry("reasoning", "reasoning"))
            case "TOOL_CALL_START":
                self._begin("call", call_id, _Entry("call", str(event.get("toolCallName", ""))))
            case "STEP_STARTED":
                name = str(event.get("stepName", ""))
                self._begin("step", name, _Entry("step", name))
            case "TEXT_MESSAGE_CONTENT":
                self._grow("text", message_id, event)
            case "REASONING_MESSAGE_CONTENT":
                self._grow("reasoning", message_id, event)
            case "TOOL_CALL_ARGS":
                self._grow("call", call_id, event)
            case "TEXT_MESSAGE_END":
                self._close("text", message_id)
            case "REASONING_MESSAGE_END":
                self._close("reasoning", message_id)
            case "TOOL_CALL_END":
                self._close("call", call_id)
            case "STEP_FINISHED":
                self._close("step", str(event.get("stepName", "")))
            case "TOOL_CALL_RESULT":
                entry = self._open.get(("call", call_id))
                if entry is not None:
                    entry.result = str(event.get("content", ""))
            case "RUN_FINISHED":
                self._ending = ("finished", "green")
            case "RUN_ERROR":
                self._ending = ("failed", "bold red")
                self._entries.append(
                    _Entry("error", str(event.get("code") or "error"), [str(event.get("message", ""))], open=False)
                )
            case _:
                pass

    def _begin(self, kind: str, key: str, entry: _Entry) -> None:
        self._open[kind, key] = entry
        self._entries.append(entry)

    def _grow(self, kind: str, key: str, event: dict[str, object]) -> None:
        entry = self._open.get((kind, key))
        if entry is not None:
            entry.parts.append(str(event.get("delta", "")))

    def _close(self, kind: str, key: str) -> None:
        entry = self._open.get((kind, key))
        if entry is not None:
            entry.open = False

    def end_line(self) -> Text:
        """Say how the run ended."""
        return Text(*self._ending)

    def draw(self, *, whole: bool = False) -> Group:
        """Draw the conversation; `whole` where nothing may be left out."""
        return Group(*(_draw(entry, whole) for entry in self._entries))

    def texts(self, first: int) -> Iterator[tuple[str, bool]]:
        """Each entry from `first` on as plain text, and whether it is whole: an entry only grows until it is."""
        for entry in islice(self._entries, first, None):
            whole = not entry.open and (entry.kind != "call" or entry.result is not None)
            yield _draw(entry, True, growing=not whole).plain, whole


def _draw(entry: _Entry, whole: bool, growing: bool = False) -> Text:
    """Draw an entry: `whole` where nothing may be left out, `growing` without what stands there only for a while."""
    said = entry.text()
    if not whole and len(said) > _SHOWN:
        said = "…" + said[-_SHOWN:]
    line = Text()
    style = _STYLES[entry.kind]
    line.append("● " if entry.kind != "call" else "▸ ", style)
    line.append(printable(entry.label), style)
    if entry.kind == "call":
        line.append(" " + printable(said))
        if entry.result is not None:
            line.append("\n  ✓ ", "green").append(printable(entry.result) or "(empty)")
        elif not entry.open and not growing:
            line.append("  at work …", "dim")
    elif entry.kind != "step":
        line.append("\n  " + printable(said).replace("\n", "\n  "), "italic dim" if entry.kind == "reasoning" else "")
    elif not entry.open:
        line.append(" done", "dim")
    if not growing and entry.open and entry.kind in ("assistant", "reasoning", "call") and entry.result is None:
        line.append("▌", "dim")
    return line


class _Tail:
    """The last lines of something, as many as the screen has room for."""

    def __init__(self, body: Group, foot: Table) -> None:
        self._body, self._foot = body, foot

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._body, options.update(height=None), pad=False)
        for line in lines[-max(console.height - 3, 1) :]:
            yield from line
            yield Segment.line()
        yield self._foot


def play(events: Iterable[TimedEvent], console: Console, *, speed: float = 1.0) -> Conversation:
    """Play events.

    Args:
        events: The recording. Where it has no clock, 50 events make a second.
        console: Where to; if it is no terminal, what is said is written as it grows, once.
        speed: 2 plays twice as fast; 0 without pauses.

    Returns:
        The conversation at the end.
    """
    recording = list(events)
    conversation = Conversation()
    if not console.is_terminal:
        pipe = _Pipe(conversation, console)
        for _ in _paced(recording, conversation, speed):
            pipe.write()
        pipe.end()
        return conversation
    scale = _scale(recording)
    total = max((timed.time for timed in recording), default=0.0) * scale

    def picture(done: int, at: float) -> _Tail:
        foot = Table.grid(padding=(0, 1), expand=True)
        foot.add_column(ratio=1)
        foot.add_column(no_wrap=True)
        bar = ProgressBar(total=max(len(recording), 1), completed=done)
        clocked = f"{at:6.2f} s of {total:.2f} s" if scale == 1.0 else "no clock"
        foot.add_row(bar, Text(f"{clocked}  ·  {done}/{len(recording)} events  ·  x{speed:g}", "dim"))
        return _Tail(conversation.draw(), foot)

    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        for done, at in _paced(recording, conversation, speed):
            live.update(picture(done, at), refresh=True)
    console.print(conversation.draw(whole=True))
    console.print(conversation.end_line())
    return conversation


def _scale(recording: list[TimedEvent]) -> float:
    """Seconds per unit of the recording's time."""
    return 1.0 if any(timed.clock for timed in recording) else 0.02


def _paced(recording: list[TimedEvent], conversation: Conversation, speed: float) -> Iterator[tuple[int, float]]:
    """Feed the conversation at the recorded pace; gives (events so far, seconds of the recording) for every picture."""
    scale, begun, drawn = _scale(recording), time.monotonic(), 0.0
    for done, timed in enumerate(recording, 1):
        at = timed.time * scale
        if speed > 0:
            while (left := begun + at / speed - time.monotonic()) > 0:
                if left > 1 / _FRAMES_PER_SECOND:
                    yield done - 1, min((time.monotonic() - begun) * speed, at)
                time.sleep(min(left, 1 / _FRAMES_PER_SECOND))
        conversation.feed(timed.event)
        if time.monotonic() - drawn >= 1 / _FRAMES_PER_SECOND or done == len(recording):
            drawn = time.monotonic()
            yield done, at


class _Pipe:
    """Writes a conversation to what cannot be redrawn: entry after entry, each as far as it has grown."""

    def __init__(self, conversation: Conversation, console: Console) -> None:
        self._conversation = conversation
        self._console = console
        self._entry = 0
        self._written = 0

    def write(self) -> None:
        """Write what has come since the last time."""
        for text, whole in self._conversation.texts(self._entry):
            self._put(text[self._written :])
            self._written = len(text)
            if not whole:
                break
            self._next()
        self._console.file.flush()

    def end(self) -> None:
        """Write what never became whole, and how the run ended."""
        for entry in islice(self._conversation.draw(whole=True).renderables, self._entry, None):
            self._put(str(entry)[self._written :])
            self._next()
        self._put(f"{self._conversation.end_line()}\n")

    def _put(self, text: str) -> None:
        self._console.file.write(text)

    def _next(self) -> None:
        self._put("\n")
        self._entry, self._written = self._entry + 1, 0
