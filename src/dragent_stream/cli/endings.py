"""How a verb ends: its exit code, and the lines that say why. No input ends in a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec

import typer

from dragent_stream.cli.screen import say
from dragent_stream.cli.signals import abandon_stdout, interrupted
from dragent_stream.errors import DragentStreamError, TraceFormatError

__all__ = ("Problems", "verb")

P = ParamSpec("P")


def verb(function: Callable[P, None]) -> Callable[P, None]:
    """End a verb with an exit code and a message, whatever happens; typer would print tracebacks or lose the code."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            abandon_stdout()  # the reader has what it wanted (`| head`)
        except KeyboardInterrupt as stop:
            raise typer.Exit(interrupted(stop)) from None
        except DragentStreamError as error:
            say(str(error))
            raise typer.Exit(2) from None
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            say(f"{where}{error.strerror or error}")
            raise typer.Exit(2) from None

    return guarded


class Problems:
    """What was wrong with an input; the block ends the verb with the code for it.

    A reader of standard output that goes away ends the block there: the code is that of what was found so far.

    Attributes:
        count: Lines that could not be read; each is said, and the code is 2.
        violations: Broken rules; the code is 1.
    """

    def __init__(self) -> None:
        self.count = 0
        self.violations = 0

    def __call__(self, error: TraceFormatError) -> None:
        """Count and say what could not be read."""
        self.count += 1
        say(str(error))

    def __enter__(self) -> Problems:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, BrokenPipeError):
            return
        code = 2 if self.count else 1 if self.violations else 0
        if code:
            try:
                sys.stdout.flush()
            except BrokenPipeError:
                abandon_stdout()
            raise typer.Exit(code)
