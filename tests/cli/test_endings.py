"""How the process itself ends: broken pipe, Ctrl-C, SIGTERM, a missing extra, an ASCII terminal."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any

import pytest

# A shell script has Ctrl-C ignored in what it starts with `&`, this test run perhaps among it; a terminal has not.
START = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
CLI = [sys.executable, "-c", f"{START} from dragent_stream.cli import main; sys.exit(main())"]
SIGNALS = [(signal.SIGINT, 130, b"interrupted"), (signal.SIGTERM, 143, b"terminated")]

LONG = json.dumps({"choices": [{"index": 0, "delta": {"content": "x" * 4000}}]}).encode() + b"\n"
HELLO = {"id": "c", "choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}]}


@contextmanager
def started(*args: object, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    with subprocess.Popen([*CLI, *map(str, args)], **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def taken(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi"}}],
}
BROKEN = b'{"type":"RUN_STARTED","threadId":"t","runId":"r"}\n{"type":"TEXT_MESSAGE_END","messageId":"m"}\n'


@pytest.mark.parametrize(
    "args",
    [
        ["convert", "-"],
        ["replay", "-", "--speed", "9"],
        ["validate", "-"],
        ["validate", "--rules"],
        ["show", "-"],
        ["assemble", "-"],
        ["synthesize", "-"],
        ["--version"],
        ["--help"],
    ],
    ids=" ".join,
)
def test_a_reader_that_goes_away_is_no_error_of_any_verb(args: list[str], traces: Path) -> None:
    given = json.dumps(COMPLETION).encode() if args[0] == "synthesize" else (traces / "nat1.9_plain.jsonl").read_bytes()
    with started(*args) as process:
        taken(process.stdout).close()
        with suppress(BrokenPipeError):
            taken(process.stdin).write(given)
            taken(process.stdin).close()
        assert process.wait(30) == 0
        assert taken(process.stderr).read() == b""


@pytest.mark.parametrize(
    ("verb", "given", "code"), [("validate", BROKEN, 1), ("convert", b"{\n" + json.dumps(HELLO).encode() + b"\n{}", 2)]
)
def test_what_was_found_before_the_reader_went_away_still_counts(verb: str, given: bytes, code: int) -> None:
    with started(verb, "-") as process:
        taken(process.stdout).close()
        taken(process.stdin).write(given)
        taken(process.stdin).close()
        assert process.wait(30) == code


@pytest.mark.parametrize(("sent", "code", "word"), SIGNALS)
@pytest.mark.parametrize("verb", ["convert", "validate", "replay"])
def test_a_signal_ends_a_verb_with_its_code_and_one_line(
    verb: str, sent: signal.Signals, code: int, word: bytes
) -> None:
    with started(verb, "-") as process:
        # more than is looked at before converting starts: the first events, or the wait for the next line, are under way
        taken(process.stdin).write(LONG * 60)
        taken(process.stdin).flush()
        if verb == "convert":
            taken(process.stdout).read(1)
        else:
            _wait_until_reading(process.pid)
        process.send_signal(sent)
        assert process.wait(30) == code
        assert taken(process.stderr).read() == b"dragent-stream: " + word + b"\n"


def test_a_full_pipe_that_nobody_reads_does_not_hold_up_the_end() -> None:
    with started("convert", "-") as process:
        writer = Thread(target=_write_all, args=(taken(process.stdin), LONG * 400))
        writer.start()
        taken(process.stdout).read(1)
        _wait_until_full(taken(process.stdout).fileno())
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        writer.join()


def _write_all(stream: IO[bytes], data: bytes) -> None:
    with suppress(BrokenPipeError):
        stream.write(data)
        stream.close()


def test_a_signal_in_the_middle_of_a_replay_ends_it(tmp_path: Path) -> None:
    trace = tmp_path / "slow.jsonl"
    lines = [{"dragent_trace": 1}, {"t": 0.0, "chunk": HELLO}, {"t": 3600.0, "chunk": HELLO}]
    trace.write_text("\n".join(map(json.dumps, lines)))
    with started("replay", trace, "--speed", "1") as process:
        assert taken(process.stdout).read(len("● assistant\n  Hello".encode())).endswith(b"Hello")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert taken(process.stderr).read() == b"dragent-stream: interrupted\n"


def _many_traces(folder: Path) -> tuple[Path, Path]:
    """A folder of traces that keeps two processes busy for long, the first of them short; and where to put the outputs."""
    traces = folder / "traces"
    traces.mkdir()
    (traces / "a.jsonl").write_text(json.dumps(HELLO))
    long = traces / "b.jsonl"
    long.write_bytes(LONG * 2000)
    for number in range(100):
        os.link(long, traces / f"b{number}.jsonl")
    return traces, folder / "made"


@pytest.mark.parametrize(
    ("stopped", "sent", "code", "word"), [("the terminal", *SIGNALS[0]), ("the process alone", *SIGNALS[1])]
)
def test_a_signal_ends_a_bulk_conversion_with_all_its_workers(
    tmp_path: Path, stopped: str, sent: signal.Signals, code: int, word: bytes
) -> None:
    traces, made = _many_traces(tmp_path)
    with started("convert", traces, "-o", made, "--jobs", 2, start_new_session=True) as process:
        while not (begun := [*made.glob(".*.part")]) or not (made / "a.agui.jsonl").exists():
            assert process.poll() is None
            os.sched_yield()
        workers = {int(path.name.split(".")[-2]) for path in begun}
        if stopped == "the terminal":
            os.killpg(process.pid, sent)
        else:
            process.send_signal(sent)
        assert process.wait(30) == code
        said = taken(process.stderr).read().decode()  # to its end: no worker holds the pipe any more
    assert said == f"dragent-stream: {word.decode()}; what is whole in {made} is kept, run it again to go on\n"
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)
    assert {path.suffix for path in made.iterdir()} <= {".jsonl", ".json"}
    whole = json.loads((made / "a.agui.jsonl").read_text().splitlines()[-1])
    assert whole["type"] == "RUN_FINISHED"


def test_a_killed_worker_is_told_and_leaves_nothing_half(tmp_path: Path) -> None:
    traces, made = _many_traces(tmp_path)
    with started("convert", traces, "-o", made, "--jobs", 2) as process:
        while not (begun := [*made.glob(".*.part")]):
            assert process.poll() is None
            os.sched_yield()
        os.kill(int(begun[0].name.split(".")[-2]), signal.SIGKILL)
        assert process.wait(30) == 2
        said = taken(process.stderr).read()
    assert b"a process of --jobs was killed" in said
    assert b"Traceback" not in said
    assert {path.suffix for path in made.iterdir()} <= {".jsonl", ".json"}


@contextmanager
def _endpoint() -> Iterator[str]:
    """An endpoint that streams one chunk and never ends."""
    over = Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(
                b"data: "
                + json.dumps({**HELLO, "choices": [{"index": 0, "delta": {"content": "Hel"}}]}).encode()
                + b"\n\n"
            )
            self.wfile.flush()
            over.wait()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            over.set()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("sent", "code", "word"), SIGNALS)
def test_what_a_recording_had_received_is_in_its_file(
    tmp_path: Path, sent: signal.Signals, code: int, word: bytes
) -> None:
    body, trace = tmp_path / "body.json", tmp_path / "trace.jsonl"
    body.write_text('{"model": "m", "messages": []}')
    with _endpoint() as url, started("record", url, "--body", body, "-o", trace) as process:
        while not trace.exists() or trace.read_bytes().count(b"\n") < 2:
            assert process.poll() is None
            os.sched_yield()
        process.send_signal(sent)
        assert process.wait(30) == code
        assert taken(process.stderr).read() == b"dragent-stream: " + word + b"\n"
    _, chunk, closed = map(json.loads, trace.read_text().splitlines())
    assert chunk["chunk"]["choices"][0]["delta"] == {"content": "Hel"}
    assert "closed" in closed


@pytest.mark.parametrize(("sent", "code", "word"), SIGNALS)
def test_a_server_is_ended_in_order(traces: Path, sent: signal.Signals, code: int, word: bytes) -> None:
    with started("serve", traces / "nat1.9_plain.jsonl", "--port", 0) as process:
        assert b" at http://127.0.0.1:" in taken(process.stderr).readline()
        process.send_signal(sent)
        assert process.wait(30) == code
        assert taken(process.stderr).read() == b"dragent-stream: " + word + b"\n"


def test_an_ignored_ctrl_c_stays_ignored(traces: Path) -> None:
    ignoring = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); from dragent_stream.cli import main;"
    code = f"{ignoring} sys.exit(main())"
    with subprocess.Popen([sys.executable, "-c", code, "convert", "-"], stdin=-1, stdout=-1, stderr=-1) as process:
        taken(process.stdin).write(json.dumps(HELLO).encode() + b"\n")
        taken(process.stdin).flush()
        _wait_until_reading(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")
    assert b"RUN_FINISHED" in out


def _wait_until_reading(pid: int) -> None:
    """Wait until the process has taken all that was written to its standard input."""
    with open(f"/proc/{pid}/fd/0", "rb") as pipe:
        while _waiting_in(pipe.fileno()):
            os.sched_yield()


def _wait_until_full(pipe: int) -> None:
    """Wait until whoever writes into a pipe has to wait for its reader."""
    import fcntl

    size = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    while _waiting_in(pipe) < size - 8192:
        os.sched_yield()


def _waiting_in(pipe: int) -> int:
    import fcntl
    import struct
    import termios

    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0\0\0\0"))[0]


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
