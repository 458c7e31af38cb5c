"""The command `dragent-stream`. Needs the extra `cli`.

Exit codes: 0; 1 where `validate` found violations; 2 for bad input or usage, and where nothing of the input was
understood; 130 after Ctrl-C, 143 after SIGTERM. No input ends in a traceback: a message names the file, the line and the
remedy. A reader of standard output that goes away (`| head`) ends every verb without a word; the code is then that of
what was found so far.
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
    from dragent_stream.cli.signals import heard, interrupted

    with heard():
        try:
            from dragent_stream.cli.app import run
        except KeyboardInterrupt as stop:
            return interrupted(stop)
        except ImportError as error:
            from dragent_stream.errors import missing_extra

            sys.stderr.write(f"dragent-stream: {missing_extra('cli', error)}\n")
            return 2
        return run(sys.argv[1:] if args is None else args)
