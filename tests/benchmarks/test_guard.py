"""The guard of the benchmarks runs and reports; what it measures is judged by CI, not here."""

import subprocess
import sys
from pathlib import Path

GUARD = Path(__file__).parents[2] / "benchmarks" / "guard.py"


def test_the_guard_reports_each_ratio_beside_its_limit():
    done = subprocess.run(
        [sys.executable, GUARD, "--rounds", "1", "--size", "512", "--report-only"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "| A ours: dicts in: x floor" in done.stdout
    assert "| growth of text, dicts in: exponent" in done.stdout
