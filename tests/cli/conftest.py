"""The command line, run in this process."""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from dragent_stream.cli import main

TRACES = Path(__file__).parent.parent / "traces"


@dataclass
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Run `cli("convert", path, stdin=b"...")`."""

    def run(*args: object, stdin: bytes = b"") -> Ended:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        capsysbinary.readouterr()
        code = main([str(arg) for arg in args])
        out, err = capsysbinary.readouterr()
        assert b"Traceback" not in err, err.decode()
        return Ended(code, out.decode("utf-8", "surrogateescape"), err.decode("utf-8", "surrogateescape"))

    return run


@pytest.fixture
def traces() -> Path:
    return TRACES
