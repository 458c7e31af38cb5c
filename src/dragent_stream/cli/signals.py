"""How a signal ends the command: whatever is under way is cleaned up, one line is said, and the code is the shell's.

Both signals become `KeyboardInterrupt`, so that who cleans up after Ctrl-C cleans up after SIGTERM. A signal that the
parent process has had ignored (`nohup`, `&` in a script) stays ignored.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType

__all__ = ("abandon_stdout", "heard", "interrupted", "raise_if_heard", "unheard")

_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_heard: list[int] = []


@contextmanager
def heard() -> Generator[None]:
    """Turn the signals into `KeyboardInterrupt` while the block runs; does nothing outside of the main thread."""
    _heard.clear()
    before: dict[int, object] = {}
    with suppress(ValueError):  # not the main thread
        for number in _WORDS:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                before[number] = signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


def _raise(number: int, frame: FrameType | None) -> None:
    _heard.append(number)
    raise KeyboardInterrupt


def raise_if_heard() -> None:
    """Raise `KeyboardInterrupt` where a signal has come and somebody has ended quietly because of it, as a server does."""
    if _heard:
        raise KeyboardInterrupt


def interrupted(stop: KeyboardInterrupt) -> int:
    """Say in one line what ended the command and give its exit code: 130 after Ctrl-C, 143 after SIGTERM.

    What standard output takes without waiting is still written: a pager that was stopped with us reads no more.
    """
    number = _heard[-1] if _heard else signal.SIGINT
    detail = f"; {stop}" if str(stop) else ""
    with suppress(OSError):
        sys.stderr.write(f"dragent-stream: {_WORDS[signal.Signals(number)]}{detail}\n")
    with suppress(OSError, ValueError):
        out = sys.stdout.fileno()
        os.set_blocking(out, False)
        try:
            sys.stdout.flush()
        finally:
            os.set_blocking(out, True)
            abandon_stdout()
    return 128 + number


def abandon_stdout() -> None:
    """Nobody reads standard output any more: what is still buffered goes nowhere, and the interpreter's end cannot fail."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def unheard() -> Generator[None]:
    """Start child processes to which Ctrl-C of the terminal means nothing; this process decides for them."""
    mask = getattr(signal, "pthread_sigmask", None)  # Windows has none
    before = mask(signal.SIG_BLOCK, {signal.SIGINT}) if mask else None
    try:
        yield
    finally:
        if mask:
            mask(signal.SIG_SETMASK, before)
