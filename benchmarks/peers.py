"""Measure dragent_stream beside its peers and the template floor, interleaved in one run: `make bench`.

Each peer runs in its own process and its own venv (`.venvs/bench-*`, made here with uv, versions pinned, one Python for
all). Every round runs every peer once on every workload, so that what else the machine does meets all of them; what
counts is CPU time, the median over the rounds, and the ratios. Prints markdown tables; writes `peers.json`, `peers.svg`.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chart
from measure import table
from workloads import STREAMS, TITLES

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = "datarobot-genai 0.31 + EventEncoder"
FLOOR = "template floor"


@dataclass(frozen=True, slots=True)
class Peer:
    """One measured process.

    Attributes:
        name: Of its venv, and of the import-cost row.
        driver: The module under `drivers/`.
        requirements: What is installed, pinned.
        bridge: The statement whose import cost is measured; what a server must import for the bridge alone.
        prefix: Put before the names of the driver's rows.
        only: The rows that are run; all where empty.
    """

    name: str
    driver: str
    requirements: tuple[str, ...]
    bridge: str = ""
    prefix: str = ""
    only: tuple[str, ...] = ()


# What is aimed at: how many times as fast as the reference, convert + encode, by row and workload.
AIMS = (
    ("ours: dicts in", "A", 10.0),
    ("ours: NAT objects in", "A", 6.0),
    ("ours: SSE bytes in, 16 KiB reads", "A", 6.0),
    ("ours: NAT objects in, ag_ui events, event_json()", "A", 2.5),
    ("ours: dicts in", "B", 5.0),
    ("ours: SSE bytes in, 16 KiB reads", "B", 5.0),
    ("ours: NAT objects in", "B", 5.0),
)

_DATAROBOT = ("datarobot-genai[dragent]==0.31.0",)
_OURS = ("-e", str(ROOT))

PEERS = (
    Peer("ours", "floor", _OURS),
    Peer("ours", "ours", _OURS, "import dragent_stream.run"),
    Peer(
        "datarobot-genai",
        "datarobot_genai",
        _DATAROBOT,
        "import datarobot_genai.dragent.plugins.datarobot_dragent_normalization",
    ),
    Peer(
        "datarobot-genai",
        "ours",
        _DATAROBOT,
        prefix="[datarobot-genai's venv] ",
        only=("ours: NAT objects in", "ours: NAT objects in, ag_ui batches, get_stream_data()"),
    ),
    Peer(
        "pydantic-ai",
        "pydantic_ai",
        ("pydantic-ai-slim[ag-ui,openai]==2.68.0",),
        "import pydantic_ai.ui.ag_ui",
    ),
    Peer(
        "ag-ui-langgraph",
        "ag_ui_langgraph",
        ("ag-ui-langgraph==0.0.47", "langchain-core==1.8.3", "langgraph==1.2.24", "fastapi"),
        "import ag_ui_langgraph",
    ),
    Peer("agent-framework", "agent_framework", ("agent-framework-ag-ui==1.7.0",), "import agent_framework_ag_ui"),
    Peer(
        "llama-index",
        "llama_index",
        ("llama-index-protocols-ag-ui==0.6.0", "llama-index-core==0.14.25", "fastapi"),
        "import llama_index.protocols.ag_ui.agent, llama_index.protocols.ag_ui.utils",
    ),
)


def python_of(peer: Peer) -> Path:
    """The interpreter of the peer's venv, which is made (again) if its stamp does not say what is wanted."""
    venv = ROOT / ".venvs" / f"bench-{peer.name}"
    python = venv / "bin" / "python"
    wanted = json.dumps([platform.python_version(), *peer.requirements])
    stamp = venv / "bench-stamp"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    uv = shutil.which("uv", path=f"{ROOT / '.tools' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv is None:
        sys.exit("benchmarks: uv is needed to set up the peers; `make setup` puts it into .tools")
    print(f"setting up {venv.relative_to(ROOT)}", file=sys.stderr)
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", base, venv], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *peer.requirements], check=True)
    stamp.write_text(wanted)
    return python


class Worker:
    """A running `worker.py`; the runs it offers, and one measurement at a time."""

    def __init__(self, peer: Peer, python: Path) -> None:
        self.peer = peer
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": "0"}
        self._process = subprocess.Popen(
            [python, ROOT / "benchmarks" / "worker.py", peer.driver],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if not os.environ.get("BENCH_DEBUG") else None,
            text=True,
            env=environment,
        )
        offered = [tuple(run) for run in self._answer()]
        self.runs = [run for run in offered if not peer.only or run[0] in peer.only]
        self.rows = list(dict.fromkeys(row for row, _, _ in self.runs))

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Let the worker do one thing."""
        assert self._process.stdin
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            _, errors = self._process.communicate()
            sys.exit(f"benchmarks: the worker of {self.peer.name} ended:\n{(errors or '')[-2000:]}")
        return json.loads(line)


def measure(workers: Sequence[Worker], rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Median CPU ns per chunk by row, workload and stage."""
    samples: dict[tuple[str, str, str], list[float]] = {}
    for turn in range(rounds + 1):
        print(f"round {turn} of {rounds}{' (warm-up)' if not turn else ''}", file=sys.stderr)
        for worker in workers:
            for row, workload, stage in worker.runs:
                result = worker.ask({"row": row, "workload": workload, "stage": stage})
                if turn:
                    samples.setdefault((worker.peer.prefix + row, workload, stage), []).append(result["ns"])
    found: dict[str, dict[str, dict[str, float]]] = {}
    for (row, workload, stage), values in samples.items():
        found.setdefault(row, {}).setdefault(workload, {})[stage] = statistics.median(values)
    return found


def import_costs(peers: Sequence[Peer], rounds: int = 3) -> dict[str, dict[str, float]]:
    """CPU seconds, modules and MiB of a fresh interpreter that imports each bridge, and `ag_ui.core` alone."""
    statements = [("ag_ui.core alone", peers[0], "import ag_ui.core")]
    statements += [(peer.name, peer, peer.bridge) for peer in peers if peer.bridge]
    code = (
        "import sys, time, resource, json; {}; usage = resource.getrusage(resource.RUSAGE_SELF);"
        "print(json.dumps([usage.ru_utime + usage.ru_stime, len(sys.modules), usage.ru_maxrss / 1024]))"
    )
    samples: dict[str, list[list[float]]] = {}
    for _ in range(rounds):
        for name, peer, statement in statements:
            done = subprocess.run(
                [python_of(peer), "-W", "ignore", "-c", code.format(statement)],
                check=True,
                capture_output=True,
                text=True,
                env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            )
            samples.setdefault(name, []).append(json.loads(done.stdout.splitlines()[-1]))
    return {
        name: dict(zip(("cpu_s", "modules", "mib"), map(statistics.median, zip(*values, strict=True)), strict=True))
        for name, values in samples.items()
    }


def report(costs: dict[str, dict[str, dict[str, float]]]) -> str:
    """One table per workload: ns per chunk, and the two ratios that are read."""
    parts: list[str] = []
    for workload in STREAMS:
        reference = costs.get(REFERENCE, {}).get(workload, {}).get("encode")
        floor = costs[FLOOR][workload]["encode"]
        rows: list[list[str]] = []
        for row, by_workload in costs.items():
            stages = by_workload.get(workload)
            if not stages:
                continue
            convert = f"{stages['convert']:,.0f}" if "convert" in stages else ""
            encode = stages["encode"]
            speed = f"{reference / encode:.2f}" if reference else ""
            rows.append([row, convert, f"{encode:,.0f}", f"{encode / floor:.2f}", speed])
        header = [TITLES[workload], "convert, ns/chunk", "convert + encode", "x floor", "speed (datarobot-genai = 1)"]
        parts.append(table(header, rows))
    return "\n\n".join(parts)


def aims(costs: dict[str, dict[str, dict[str, float]]]) -> str:
    """What was aimed at, and what this run measured."""
    rows: list[list[str]] = []
    for row, workload, aim in AIMS:
        is_ = costs[REFERENCE][workload]["encode"] / costs[row][workload]["encode"]
        rows.append([f"{workload} {row}", f">= {aim:g}", f"{is_:.2f}", "" if is_ >= aim else "missed"])
    return table([f"times as fast as {REFERENCE}", "aim", "is", ""], rows)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--only", nargs="*", help="names of the peers to run beside ours", default=None)
    arguments.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = arguments.parse_args()
    peers = [peer for peer in PEERS if options.only is None or peer.name in ("ours", *options.only)]
    workers = [Worker(peer, python_of(peer)) for peer in peers]
    costs = measure(workers, options.rounds)
    memory: dict[str, float] = {}
    for worker in workers:
        for row in worker.rows:
            memory[worker.peer.prefix + row] = worker.ask({"memory": row})["bytes"]
        worker.close()
    imports = import_costs(peers)

    print(f"CPython {platform.python_version()}, {os.cpu_count()} cores; CPU time, median of {options.rounds} rounds\n")
    print(report(costs))
    print()
    if REFERENCE in costs:
        print(aims(costs), end="\n\n")
    print(table(["open stream", "KiB"], [[row, f"{size / 1024:.1f}"] for row, size in memory.items()]))
    print()
    rows = [[n, f"{c['cpu_s']:.2f}", f"{c['modules']:.0f}", f"{c['mib']:.0f}"] for n, c in imports.items()]
    print(table(["import", "CPU s", "modules", "MiB"], rows))

    options.out.mkdir(parents=True, exist_ok=True)
    result = {
        "python": platform.python_version(),
        "rounds": options.rounds,
        "cpu_ns_per_chunk": costs,
        "bytes_per_open_stream": memory,
        "import": imports,
    }
    (options.out / "peers.json").write_text(json.dumps(result, indent=1) + "\n")
    bars = {row: by_workload["A"]["encode"] for row, by_workload in costs.items() if "A" in by_workload}
    (options.out / "peers.svg").write_text(
        chart.bars("CPU per chunk, 10,000 text chunks, chunk in to SSE bytes out", bars)
    )
    print(f"\nwritten: {options.out / 'peers.json'}, peers.svg", file=sys.stderr)


if __name__ == "__main__":
    main()
