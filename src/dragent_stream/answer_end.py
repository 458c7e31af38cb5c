"""When an answer is over: the one rule of all who read the bytes of answers, and what to say where one is not.

An answer is over at a finish reason, with a whole message, at an error, and at `[DONE]` behind its chunks. Content that
follows begins the next answer; whatever else follows (usage, comments, another `[DONE]`) belongs to the one that is
over. An answer that is not over when the bytes end is cut.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Mapping
from typing import Any, Final, cast

from dragent_stream.errors import AnswerError

__all__ = ["AnswerEnd", "cut_off", "holds_content", "no_answer", "no_chunks"]

_CONTENT: Final = (
    "content",
    "tool_calls",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "reasoning_text",
    "thinking",
    "thinking_blocks",
    "refusal",
    "function_call",
    "text",
)
_ADDRESS: Final = "check the endpoint's URL, and what stands in front of it"
_KINDS: Final = (
    # what it begins with, what that is, the remedy
    ((b"\x1f\x8b", b"\x28\xb5\x2f\xfd"), "compressed data", "decode its Content-Encoding before it comes here"),
    ((b"<?xml",), "an XML document", _ADDRESS),
    ((b"<",), "an HTML page", _ADDRESS),
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


class AnswerEnd:
    """How far the answers of one stream have come.

    Attributes:
        begun: There was a chunk.
        known: There was one with choices, or an error.
        over: The answer that was begun is over.
        done: `[DONE]` ended it.
        dones: How many `[DONE]` there were.
    """

    __slots__ = ("begun", "done", "dones", "known", "over")

    def __init__(self) -> None:
        self.over = False
        self.done = False
        self.dones = 0
        self.begun = False
        self.known = False

    def take(self, chunk: Mapping[str, Any]) -> None:
        """Note a chunk."""
        try:  # nearly every chunk changes nothing, which one glance tells
            (choice,) = chunk["choices"]
            if not (choice["finish_reason"] or self.over or "error" in chunk) and self.known and choice["delta"]:
                return
        except (KeyError, TypeError, ValueError):
            pass
        self.begun = True
        offered = _choices(chunk)
        self.known = self.known or bool(offered) or "choices" in chunk
        if chunk.get("error") or any(map(_ends, offered)):
            self.over = self.known = True
        elif self.over and any(map(_holds_content, offered)):
            self.over = self.done = False

    def take_content(self) -> None:
        """Note a chunk that holds content and nothing else."""
        self.over = self.done = False

    def take_done(self) -> None:
        """Note `[DONE]`."""
        self.dones += 1
        if self.known:
            self.over = self.done = True

    def take_cut(self, chunk: Mapping[str, Any]) -> None:
        """Note a chunk that breaks off, as far as it has come."""
        self.begun = self.known = True
        if holds_content(chunk):
            self.over = self.done = False


def holds_content(chunk: Mapping[str, Any]) -> bool:
    """A choice of the chunk holds text, a thought, or a piece of a call."""
    return any(map(_holds_content, _choices(chunk)))


def cut_off(stray: bytes) -> AnswerError:
    """The failure of an answer that is not over; `stray` is the beginning of what came and was none of its chunks."""
    kind, _ = _kind(stray)
    instead = f"; {kind} came instead" if kind else ""
    return AnswerError(f"the answer ended without finish_reason and without [DONE]{instead}")


def no_answer(stray: bytes, holds: str) -> AnswerError:
    """The failure of a body in which no answer was begun; `holds` is what there was of it, in words."""
    kind, remedy = _kind(stray)
    if kind:
        return AnswerError(f"the body of the answer is {kind}, no stream of chat chunks; {remedy}", "UNKNOWN_CHUNKS")
    return AnswerError(
        f"the body of the answer {holds}; look into the log of the endpoint, or of the proxy in front of it",
        "EMPTY_ANSWER",
    )


def no_chunks() -> AnswerError:
    """The failure of a body whose objects are no chunks."""
    return AnswerError(
        "the body of the answer holds JSON without choices, no chat completion; is the URL that of an endpoint that"
        " ends in /chat/completions?",
        "UNKNOWN_CHUNKS",
    )


def _kind(stray: bytes) -> tuple[str, str]:
    """(what a line that is no part of a chat stream looks like, the remedy); its content is told to nobody."""
    if not stray:
        return "", ""
    for beginnings, kind, remedy in _KINDS:
        if stray.lstrip().lower().startswith(beginnings):
            return kind, remedy
    try:
        is_text = not _CONTROL.search(getincrementaldecoder("utf-8")().decode(stray))  # its end may be cut
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        return "binary data", "decode its Content-Encoding before it comes here, or check the endpoint's URL"
    return "text", _ADDRESS


def _choices(chunk: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    choices = chunk.get("choices")
    if isinstance(choices, list):
        return [cast("dict[str, Any]", each) for each in cast("list[object]", choices) if isinstance(each, dict)]
    return [chunk] if "delta" in chunk and choices is None else []


def _ends(choice: Mapping[str, Any]) -> bool:
    is_whole = choice.get("delta") is None and isinstance(choice.get("message"), dict)
    return is_whole or bool(choice.get("finish_reason"))


def _holds_content(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta")  # a message beside it repeats what came
    said = (choice.get("message") or choice) if delta is None else delta
    return isinstance(said, dict) and any(map(cast("dict[str, Any]", said).get, _CONTENT))
