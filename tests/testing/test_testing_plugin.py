import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dragent_stream.options import ConverterOptions
from dragent_stream.testing.plugin import AguiReplay, AssertAgui

EXAMPLE = Path(__file__).parents[2] / "examples" / "replay_in_tests"


def test_a_trace_is_replayed_in_one_line(agui_replay: AguiReplay) -> None:
    events = agui_replay("../traces/nat1.9_plain.jsonl")
    assert events[0] == {"type": "RUN_STARTED", "threadId": "thread", "runId": "run", "protocolVersion": "1.0"}
    assert events[1] == {"type": "TEXT_MESSAGE_START", "messageId": "id-1", "role": "assistant"}
    assert events[-1]["type"] == "RUN_FINISHED"


def test_a_path_is_looked_for_beside_the_test_and_in_the_root(agui_replay: AguiReplay) -> None:
    assert agui_replay("tests/traces/nat1.9_plain.jsonl") == agui_replay("../traces/nat1.9_plain.jsonl")


def test_a_path_that_is_nowhere_is_told_with_both_places(agui_replay: AguiReplay, request: Any) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl") as missing:
        agui_replay("none.jsonl")
    assert str(request.path.parent) in str(missing.value)
    assert str(request.config.rootpath) in str(missing.value)


def test_lines_are_taken_too(agui_replay: AguiReplay) -> None:
    lines = ['{"choices": [{"index": 0, "delta": {"content": "hi"}}]}']
    events = agui_replay(lines, run=False, options=ConverterOptions(new_id=lambda: "mine"))
    assert [event["messageId"] for event in events] == ["mine"] * 3


def test_good_events_pass(agui_replay: AguiReplay, assert_agui: AssertAgui) -> None:
    assert_agui(agui_replay("../traces/nat1.9_parallel.jsonl"))
    assert_agui(agui_replay("../traces/nat1.9_parallel.jsonl", run=False), lifecycle=False)


def test_bad_events_fail_with_each_violation(agui_replay: AguiReplay, assert_agui: AssertAgui) -> None:
    events = agui_replay("../traces/nat1.9_plain.jsonl")
    with pytest.raises(AssertionError) as failed:
        assert_agui(events[1:])
    assert str(failed.value) == (
        "1 AG-UI violation(s):\n  event 0: V1: the first event is TEXT_MESSAGE_START, not RUN_STARTED"
    )


def test_the_request_is_judged_too(agui_replay: AguiReplay, assert_agui: AssertAgui) -> None:
    events = agui_replay("../traces/nat1.9_plain.jsonl", thread_id="t", run_id="r")
    assert_agui(events, run_input={"threadId": "t", "runId": "r"})
    with pytest.raises(AssertionError, match="I9"):
        assert_agui(events, run_input={"threadId": "other", "runId": "r"})


def test_the_plugin_adds_no_import_to_a_session_of_pytest() -> None:
    code = (
        "import sys, json, pytest, dragent_stream; before = set(sys.modules)\n"
        "import dragent_stream.testing.plugin\n"
        "print(json.dumps(sorted(m for m in set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    added = {name for name in json.loads(done.stdout) if name.partition(".")[0] not in sys.stdlib_module_names}
    assert added == {"dragent_stream.testing", "dragent_stream.testing.plugin"}


def test_the_example_holds() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE / "run.py")], capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_example_would_notice_a_change(tmp_path: Path) -> None:
    for path in EXAMPLE.iterdir():
        if path.is_file():
            text = path.read_text("utf-8")
            (tmp_path / path.name).write_text(
                text.replace("18 degrees, dry.", "rain.") if path.suffix == ".py" else text
            )
    done = subprocess.run([sys.executable, str(tmp_path / "run.py")], capture_output=True, encoding="utf-8")
    assert done.returncode == 1, done.stdout + done.stderr
