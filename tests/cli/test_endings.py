"""How the process itself ends: broken pipe, Ctrl-C, a missing extra, an ASCII terminal."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CLI = [sys.executable, "-c", "import sys; from dragent_stream.cli import main; sys.exit(main())"]


def test_a_reader_that_goes_away_is_no_error(traces: Path) -> None:
    with subprocess.Popen(
        [*CLI, "convert", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write((traces / "nat1.9_plain.jsonl").read_bytes())
        process.stdin.close()
        assert process.wait(30) == 0
        assert process.stderr.read() == b""


@pytest.mark.parametrize("verb", ["convert", "validate", "replay"])
def test_ctrl_c_ends_in_130_without_a_word(verb: str) -> None:
    with subprocess.Popen(
        [*CLI, verb, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        # more than is looked at before converting starts: the first events, or the wait for the next line, are under way
        process.stdin.write(b'{"choices": [{"index": 0, "delta": {"content": "' + b"x" * 4000 + b'"}}]}\n' * 60)
        process.stdin.flush()
        if verb == "convert":
            process.stdout.read(1)
        else:
            _wait_until_reading(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert b"Traceback" not in process.stderr.read()


def _wait_until_reading(pid: int) -> None:
    """Wait until the process has taken all that was written to its standard input."""
    import fcntl
    import struct
    import termios
    import time

    deadline = time.monotonic() + 30
    with open(f"/proc/{pid}/fd/0", "rb") as pipe:
        while struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0\0\0\0"))[0]:
            assert time.monotonic() < deadline
            os.sched_yield()


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_the_extra_its_name_is_told(package: str, traces: Path) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from dragent_stream.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "convert", str(traces / "nat1.9_plain.jsonl")],
        capture_output=True,
        encoding="utf-8",
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'dragent-stream[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_terminal_that_knows_only_ascii_is_no_error(traces: Path) -> None:
    done = subprocess.run(
        [*CLI, "replay", str(traces / "nat1.9_plain.jsonl")],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Hello there" in done.stdout
