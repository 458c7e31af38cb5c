"""Measure the converter beside the template floor, in one run: cost per chunk, growth, memory, import.

`python benchmarks/convert.py [--rounds N] [--json FILE]`. Cost: CPU nanoseconds per chunk, medians of interleaved
rounds. Growth: the exponent of the total cost over the size, 1.00 is linear. Memory: what one open stream holds.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import workloads
from drivers import floor, ours
from measure import drain, exponent, interleaved, table
from worker import open_stream_bytes

from dragent_stream.step_adaptor import StepConverter

FLOOR = "template floor"
SIZES = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000)
# What is aimed at, as multiples of the floor for workload A, convert + encode.
AIMS = {"ours: SSE bytes in, 16 KiB reads": 2.5}


def costs(rounds: int, streams: Mapping[str, Sequence[workloads.Chunk]]) -> dict[tuple[str, str, str], float]:
    """Median CPU ns per chunk by row, workload and stage."""
    jobs: dict[Any, tuple[int, Callable[[], Any]]] = {}
    chunks = {name: list(items) for name, items in streams.items()}
    for row, runs in (floor.rows(chunks) | ours.rows(chunks)).items():
        for (workload, stage), start in runs.items():
            jobs[(row, workload, stage)] = (len(chunks[workload]), lambda start=start: drain(start()))
    return interleaved(jobs, rounds=rounds)


def cost_table(found: Mapping[tuple[str, str, str], float], workload: str) -> str:
    """One workload: ns per chunk of convert (ag_ui objects) and convert + encode, the latter in floors."""
    base = found[(FLOOR, workload, "encode")]
    rows: list[list[str]] = []
    for row in dict.fromkeys(row for row, _, _ in found):
        convert = found.get((row, workload, "convert"))
        encode = found[(row, workload, "encode")]
        aim = f"<= {AIMS[row]}" if workload == "A" and row in AIMS else ""
        rows.append([row, f"{convert:,.0f}" if convert else "", f"{encode:,.0f}", f"{encode / base:.2f}", aim])
    return table([workloads.TITLES[workload], "convert, ns/chunk", "convert + encode", "x floor", "aim"], rows)


def _steps(steps: Sequence[workloads.Chunk]) -> int:
    converter = StepConverter()
    return sum(len(converter.feed(step)) for step in steps) + len(converter.finish())


def _run_of(row: str, chunks: Sequence[workloads.Chunk]) -> Callable[[], Any]:
    start = ours.rows({"A": list(chunks)})[row][("A", "encode")]
    return lambda: drain(start())


async def _steps_job(steps: Sequence[workloads.Chunk]) -> int:
    return _steps(steps)


def growth(rounds: int, sizes: Sequence[int] = SIZES) -> dict[str, tuple[float, dict[int, float]]]:
    """By series: the exponent, and CPU ns per item by size."""
    series: dict[str, dict[int, tuple[int, Callable[[], Any]]]] = {}
    for title, row in (("text, dicts in", "ours: dicts in"), ("text, NAT objects in", "ours: NAT objects in")):
        series[title] = {size: (size, _run_of(row, workloads.text(size))) for size in sizes}
    series["text, SSE bytes in"] = {
        size: (size, _run_of("ours: SSE bytes in, 16 KiB reads", workloads.text(size))) for size in sizes
    }
    for title, make in (
        ("arguments of one call in 4-byte fragments, up to 1 MiB", lambda size: workloads.long_arguments(size * 4)),
        ("64 interleaved calls", lambda size: workloads.interleaved_calls(64, size // 64)),
        ("interleaved calls of 200 fragments, 1 to 64", lambda size: workloads.interleaved_calls(size // 200, 200)),
    ):
        reach = tuple(min(size, 12_800) for size in sizes) if title.startswith("interleaved") else sizes
        if title.startswith("arguments"):
            reach = (*sizes, sizes[-1] * 4096 // 1000)
        made = {size: make(size) for size in reach}
        series[title] = {len(c): (len(c), _run_of("ours: dicts in", c)) for c in made.values()}
    steps = {size: workloads.token_steps(size) for size in sizes if size <= 8_000}
    series["intermediate steps (LLM_NEW_TOKEN), up to 8k"] = {
        len(items): (len(items), lambda items=items: _steps_job(items)) for items in steps.values()
    }
    found = interleaved(
        {(title, size): job for title, jobs in series.items() for size, job in jobs.items()}, rounds=rounds
    )
    result: dict[str, tuple[float, dict[int, float]]] = {}
    for title, jobs in series.items():
        each = {size: found[(title, size)] for size in jobs}
        result[title] = (exponent({size: cost * size for size, cost in each.items()}), each)
    return result


def memory() -> dict[str, float]:
    """Bytes per open stream, by row."""
    chunks = {"open": workloads.text(4_000)}
    rows = floor.rows(chunks) | ours.rows(chunks)
    with asyncio.Runner() as runner:
        return {row: runner.run(open_stream_bytes(runs[("open", "encode")])) for row, runs in rows.items()}


def imports() -> dict[str, dict[str, float]]:
    """CPU seconds and modules of a fresh interpreter: `ag_ui.core` alone, and the library."""
    code = (
        "import {}, sys, json, resource; u = resource.getrusage(resource.RUSAGE_SELF);"
        "print(json.dumps([u.ru_utime + u.ru_stime, len(sys.modules)]))"
    )
    found: dict[str, dict[str, float]] = {}
    for name in ("ag_ui.core", "dragent_stream", "dragent_stream.run"):
        runs = [
            json.loads(
                subprocess.run([sys.executable, "-c", code.format(name)], check=True, capture_output=True).stdout
            )
            for _ in range(5)
        ]
        found[name] = {"cpu_s": sorted(run[0] for run in runs)[2], "modules": runs[0][1]}
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    held = memory()  # first: what later runs leave in caches is not the streams'
    found = costs(options.rounds, {name: make() for name, make in workloads.STREAMS.items()})
    grown = growth(max(3, options.rounds // 2))
    loaded = imports()

    print(f"CPython {platform.python_version()}, {os.cpu_count()} cores; CPU time, median of {options.rounds} rounds\n")
    for workload in workloads.STREAMS:
        print(cost_table(found, workload), end="\n\n")
    rows = [
        [title, f"{slope:.3f}", f"{min(each):,} to {max(each):,}", f"{each[min(each)]:,.0f}", f"{each[max(each)]:,.0f}"]
        for title, (slope, each) in grown.items()
    ]
    print(
        table(["growth (aim: exponent <= 1.05)", "exponent", "items", "ns each, smallest", "largest"], rows), end="\n\n"
    )
    print(
        table(["open stream (aim: <= 3 KiB)", "KiB"], [[row, f"{b / 1024:.1f}"] for row, b in held.items()]), end="\n\n"
    )
    print(table(["import", "CPU s", "modules"], [[n, f"{c['cpu_s']:.2f}", c["modules"]] for n, c in loaded.items()]))

    if options.json:
        by_row: dict[str, Any] = {}
        for (row, workload, stage), cost in found.items():
            by_row.setdefault(row, {}).setdefault(workload, {})[stage] = cost
        result = {
            "python": platform.python_version(),
            "cpu_ns_per_chunk": by_row,
            "growth": {title: {"exponent": slope, "ns": each} for title, (slope, each) in grown.items()},
            "bytes_per_open_stream": held,
            "import": loaded,
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
