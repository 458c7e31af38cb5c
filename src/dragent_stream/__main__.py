"""`python -m dragent_stream`: the command line."""

import sys

from dragent_stream.cli import main

if __name__ == "__main__":
    sys.exit(main())
