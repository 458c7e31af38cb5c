"""What may be put on a terminal: text without control characters, and the two consoles."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from rich.console import Console

__all__ = ("error_console", "printable", "say", "screen", "warnings_to")

_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def printable(text: str) -> str:
    """Replace what would steer the terminal or cannot be encoded: a recording is foreign text."""
    return _UNFIT.sub("\ufffd", text)


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        """Let the verb end as it does for every other output; rich would end the process with 1."""
        raise BrokenPipeError


def screen() -> Console:
    """Return the console of standard output, which takes text as it is: no markup, no emoji codes."""
    return _Screen(file=sys.stdout, markup=False, emoji=False, highlight=False)


def error_console() -> Console:
    """Return the console of standard error."""
    return Console(file=sys.stderr, markup=False, emoji=False, highlight=False)


def say(message: str) -> None:
    """Write one line to standard error; nothing happens where nobody listens any more."""
    with suppress(BrokenPipeError):
        sys.stderr.write(f"dragent-stream: {printable(message)}\n")


class _Taken(logging.Handler):
    def __init__(self, take: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        self._take(self.format(record))


@contextmanager
def warnings_to(take: Callable[[str], object]) -> Generator[None]:
    """Give what the library logs, warnings and worse, to `take` while the block runs: chunks that it skipped, say."""
    logger = logging.getLogger("dragent_stream")
    before = logger.handlers
    logger.handlers = [_Taken(take)]
    try:
        yield
    finally:
        logger.handlers = before
