"""Take at a glance the chunk that nearly every chunk is: one more piece of text, of a thought, or of a call's arguments.

This is the path of nearly every token, so it only looks: a key that it does not know, with a value, makes the chunk
unusual, and whatever is unusual is left to `ChunkReader.read`, which reads the same chunk to the same effect. What may
go on without a decision is the ledger's to say: it offers a writer for it, or none.

Not looked for, because each look costs every token a thirtieth: usage and errors inside a choice and usage in `x_groq`,
which come with a finish reason; another model name, which the chunk that has the usage repeats.
"""

# A membership test and a subscript cost half of what a call of `get` costs. Narrowing to dict leaves its items unknown.
# ruff: noqa: RUF019
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from dragent_stream.well_formed import well_formed

__all__ = ["NO_CHOICE", "TEXT", "THOUGHT", "Glance", "UndecidedError", "Writers"]

E = TypeVar("E")

Writers: TypeAlias = dict[str | int, Callable[[str], E]]
"""What may go on without a decision, and what writes its next delta.

Text by the key `content`, a thought by `reasoning_content` and `reasoning`, the arguments of a call by its index.
"""

TEXT: Final = "content"
THOUGHT: Final = ("reasoning_content", "reasoning")

NO_CHOICE: Final = -1


class UndecidedError(Exception):
    """A writer leaves its delta to the full read: it may be no increment."""


_is_ascii = str.isascii  # a TypeError for what is no string


class Glance(Generic[E]):
    """Looks at the chunks of one stream.

    Attributes:
        choice_index: The `index` of the choice that is followed; `NO_CHOICE` before one was read.
        writers: The ledger's `Writers`. They are given text that is well-formed and never empty.
    """

    __slots__ = ("choice_index", "writers")

    def __init__(self, writers: Writers[E]) -> None:
        self.choice_index = NO_CHOICE
        self.writers = writers

    def event(self, chunk: Any) -> E | None:
        """The event of a plain chunk; None where the chunk must be read in full.

        Args:
            chunk: A mapping or a pydantic object of the shape of a chat.completion.chunk, or anything else.
        """
        try:
            if type(chunk) is dict:
                fields = chunk
                (choice,) = fields["choices"]
                delta = choice["delta"]
            elif type(chunk) is bytes:
                return None
            else:
                fields = chunk.__dict__
                (choice,) = fields["choices"]
                choice = choice.__dict__
                delta = choice["delta"]
                if chunk.__pydantic_extra__ or delta.__pydantic_extra__:
                    fields, delta = _fields(chunk), _fields(delta)
                else:
                    delta = delta.__dict__
            if (
                choice["index"] != self.choice_index
                or ("finish_reason" in choice and choice["finish_reason"])
                or ("usage" in fields and fields["usage"])
                or ("error" in fields and fields["error"])
            ):
                return None
            if len(delta) == 1 and "content" in delta:
                kind: Any = "content"
                text = delta["content"]
            else:
                if len(delta) == 1:
                    kind = "tool_calls" if "tool_calls" in delta else next(iter(delta))
                else:
                    kind = ""
                    for key, value in delta.items():
                        if value and (key != "role" or value != "assistant"):
                            if kind:
                                return None
                            kind = key
                text = delta[kind]
                if kind == "tool_calls":
                    (call,) = text
                    if type(call) is not dict:
                        call = _fields(call)
                    function = call["function"]
                    if type(function) is not dict:
                        function = _fields(function)
                    kind = call["index"]
                    text = function["arguments"]
                    if type(kind) is not int:
                        return None
                    if len(call) > 2 and (
                        ("id" in call and call["id"]) or len(call) != 2 + ("id" in call) + ("type" in call)
                    ):
                        return None
                    if len(function) > 1 and (len(function) > 2 or "name" not in function or function["name"]):
                        return None
            if not text or not (_is_ascii(text) or well_formed(text) is text):
                return None
            write = self.writers[kind]
        except (AttributeError, LookupError, TypeError, ValueError):
            return None
        try:
            return write(text)
        except UndecidedError:
            return None


def _fields(value: Any) -> dict[str, Any]:
    """The fields of a pydantic object, those among them that its class does not declare."""
    extra = value.__pydantic_extra__
    return {**value.__dict__, **extra} if extra else value.__dict__
