"""The command `dragent-stream`. Needs the extra `cli`.

Exit codes: 0; 1 where `validate` found violations; 2 for bad input or usage; 130 after Ctrl-C. No input ends in a
traceback: a message names the file, the line and the remedy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ("main",)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        args: The arguments after the command's name; those of the process where None.
    """
    from dragent_stream.errors import DragentStreamError, missing_extra

    try:
        from dragent_stream.cli.app import run
    except ImportError as error:
        return _complain(str(missing_extra("cli", error)))
    try:
        code = run(sys.argv[1:] if args is None else args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # the reader has what it wanted (`| head`); the interpreter must not flush into the closed pipe on its way out
        _point_stdout_nowhere()
        return 0
    except DragentStreamError as error:
        return _complain(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain(f"{where}{error.strerror or error}")
    return code


def _complain(message: str) -> int:
    sys.stderr.write(f"dragent-stream: {message}\n")
    return 2


def _point_stdout_nowhere() -> None:
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
