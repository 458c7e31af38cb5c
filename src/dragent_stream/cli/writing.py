"""Write what a verb makes: to standard output, or to a file that appears only when it is whole."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from dragent_stream.errors import ConversionError

__all__ = ("Write", "begun", "check_apart", "output")

Write = Callable[[bytes], object]


@contextmanager
def output(path: str | None) -> Generator[Write]:
    """Open an output.

    Args:
        path: A file; None or `-` for standard output.

    Yields:
        What writes bytes. A file takes its name when the block ends without an exception, so that a reader never sees
        half of it.
    """
    if path is None or path == "-":
        yield sys.stdout.buffer.write
        sys.stdout.buffer.flush()
        return
    target = Path(path)
    if not target.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "no such directory", str(target.parent))
    beside = begun(target, os.getpid())
    try:
        with beside.open("wb") as file:
            yield file.write
        beside.replace(target)
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()


def check_apart(source: str, target: str | None) -> None:
    """Refuse an output that would take the place of its input.

    Raises:
        ConversionError: Both are the same file.
    """
    if source == "-" or target is None or target == "-":
        return
    given, made = Path(source), Path(target)
    if given.exists() and made.exists() and given.samefile(made):
        raise ConversionError(f"{target} is the input, which the output would replace; name another file with -o")


def begun(target: Path, process: int) -> Path:
    """Where a process writes what will be named `target`."""
    return target.with_name(f".{target.name}.{process}.part")
