"""The command `dragent-stream`. Needs the extra `cli`.

Exit codes: 0; 1 where `validate` found violations; 2 for bad input or usage; 130 after Ctrl-C. No input ends in a
traceback: a message names the file, the line and the remedy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ("main",)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        args: The arguments after the command's name; those of the process where None.
    """
    try:
        from dragent_stream.cli.app import run
    except KeyboardInterrupt:
        return 130
    except ImportError as error:
        from dragent_stream.errors import missing_extra

        sys.stderr.write(f"dragent-stream: {missing_extra('cli', error)}\n")
        return 2
    return run(sys.argv[1:] if args is None else args)
