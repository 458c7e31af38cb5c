"""What a conversion may be told: ids, frontend tools, think tags, nested output, error text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from uuid import uuid4

__all__ = ["DEFAULT_OPTIONS", "ConverterOptions", "random_id"]


def random_id() -> str:
    """A fresh id: a random UUID in its usual spelling."""
    return str(uuid4())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConverterOptions:
    """Options of one conversion; the defaults suit a server.

    Attributes:
        new_id: Gives every message, reasoning span, result and unnamed call its id. Give a counter for equal bytes
            on every run.
        frontend_tools: Names of the tools that the client executes. Their TOOL_CALL_START is held until the arguments
            are complete, and they never get a TOOL_CALL_RESULT.
        think_tags: Read `<think>…</think>` inside the content as reasoning.
        nested: What becomes of the output of models inside tools and sub-agents: shown as reasoning, or hidden.
        expose_errors: Let RUN_ERROR carry the text of an exception. Off, it carries a reference, under which the log has
            the exception. What the upstream itself reports inside its stream is shown either way.
        public_error: Gives the message that RUN_ERROR carries for an error; decides in place of `expose_errors`.
        close_timeout: Seconds that a closing upstream is given before it is left behind.
    """

    new_id: Callable[[], str] = random_id
    frontend_tools: frozenset[str] = frozenset()
    think_tags: bool = False
    nested: Literal["reasoning", "hide"] = "reasoning"
    expose_errors: bool = False
    public_error: Callable[[BaseException], str] | None = None
    close_timeout: float = 5.0


DEFAULT_OPTIONS = ConverterOptions()
