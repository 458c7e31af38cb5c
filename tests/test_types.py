"""A user's program is clean under pyright and mypy at their strictest, without an annotation for our sake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "typed" / "user_program.py"


def run(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run([sys.executable, "-m", *map(str, command)], cwd=cwd, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_users_program_is_clean_under_pyright_strict(tmp_path: Path) -> None:
    config = {"typeCheckingMode": "strict", "include": [str(PROGRAM)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    run("pyright", "--project", tmp_path, "--pythonpath", sys.executable, cwd=tmp_path)


def test_a_users_program_is_clean_under_mypy_strict(tmp_path: Path) -> None:
    run("mypy", "--strict", "--config-file=", "--cache-dir", tmp_path / "cache", PROGRAM, cwd=tmp_path)
