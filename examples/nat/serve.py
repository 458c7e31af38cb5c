"""`nat start dragent_stream` with the tools of this folder."""

import sys

import tools  # noqa: F401
from nat.cli.main import run_cli

if __name__ == "__main__":
    sys.argv[1:] = ["start", "dragent_stream", *sys.argv[1:]]
    run_cli()
