"""Run by `make test-ray`: a local Ray gives the bytes that this process gives, and names the trace it cannot read."""

import shutil
import subprocess
import sys
from pathlib import Path

from dragent_stream.trace import convert_trace

HERE = Path(__file__).parent
TRACES = HERE.parents[1] / "tests" / "traces"
NAMES = ("nat1.9_plain.jsonl", "nat1.9_parallel.jsonl", "nat1.9_one_tool.jsonl")


def run(folder: Path, out: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, HERE / "convert_on_ray.py", folder, "-o", out], capture_output=True, text=True, check=False
    )


def test_ray_writes_what_one_process_writes_and_goes_on_past_a_bad_trace(tmp_path):
    folder, out = tmp_path / "traces", tmp_path / "events"
    folder.mkdir()
    for name in NAMES:
        shutil.copy(TRACES / name, folder)
    (folder / "broken.jsonl").write_text('{"dragent_trace": 99}\n')

    done = run(folder, out)

    assert done.returncode == 1, done.stderr
    assert "broken.jsonl" in done.stderr
    for name in NAMES:
        lines = (TRACES / name).read_bytes().splitlines(keepends=True)
        expected = "".join(f"{event}\n" for event in convert_trace(lines, thread_id=name, run_id=name, name=name))
        assert (out / name).read_text() == expected


def test_an_empty_folder_is_named(tmp_path):
    done = run(tmp_path, tmp_path / "out")

    assert (done.returncode, done.stderr) == (2, f"no *.jsonl trace in {tmp_path}\n")
