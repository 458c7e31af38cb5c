"""Run the tests beside this file, as a project of yours would; the exit code says whether they hold."""

import sys
from pathlib import Path

import pytest

sys.exit(
    pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", str(Path(__file__).parent), str(Path(__file__).parent)])
)
