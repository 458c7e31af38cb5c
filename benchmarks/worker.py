"""One process that measures one peer in the peer's own environment, told what to run over standard input.

`python benchmarks/worker.py DRIVER` imports `drivers/DRIVER.py`, prints the runs it knows as one JSON line and then
answers each line `{"row", "workload", "stage"}` with `{"ns", "events"}`; `{"memory": row}` with `{"bytes"}` per open
stream. A driver has `rows(chunks) -> {row name: {(workload, stage): () -> async iterator}}`.
"""

import asyncio
import gc
import importlib
import json
import logging
import sys
import time
import tracemalloc
import warnings
from collections.abc import AsyncIterator, Callable
from typing import Any

import workloads
from measure import drain

Runs = dict[tuple[str, str], Callable[[], AsyncIterator[Any]]]

OPEN_STREAMS = 200


async def timed(start: Callable[[], AsyncIterator[Any]]) -> tuple[int, int]:
    """CPU nanoseconds and number of items of one run."""
    started = time.process_time_ns()
    count = await drain(start())
    return time.process_time_ns() - started, count


async def open_stream_bytes(start: Callable[[], AsyncIterator[Any]]) -> float:
    """Bytes held per stream, measured over `OPEN_STREAMS` that have all given twenty items and wait for the next."""

    async def opened() -> AsyncIterator[Any]:
        running = start()
        for _ in range(20):
            await anext(running)
        return running

    kept = [await opened()]  # what the first stream of a process allocates for all of them
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept += [await opened() for _ in range(OPEN_STREAMS)]
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for running in kept:
        await running.aclose()  # pyright: ignore[reportAttributeAccessIssue]
    return (after - before) / OPEN_STREAMS


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # a peer that prints must not speak into the protocol
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    driver = importlib.import_module(f"drivers.{sys.argv[1]}")
    chunks = {name: make() for name, make in workloads.STREAMS.items()}
    chunks["open"] = workloads.text(4_000)
    rows: dict[str, Runs] = driver.rows(chunks)
    counts = {name: len(items) for name, items in chunks.items()}

    def answer(value: object) -> None:
        print(json.dumps(value), file=answers, flush=True)

    answer([[row, *run] for row, runs in rows.items() for run in runs if run[0] in workloads.STREAMS])
    gc.collect()
    gc.freeze()
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            order = json.loads(line)
            gc.collect()
            if "memory" in order:
                answer({"bytes": runner.run(open_stream_bytes(rows[order["memory"]][("open", "encode")]))})
                continue
            run = rows[order["row"]][(order["workload"], order["stage"])]
            spent, events = runner.run(timed(run))
            answer({"ns": spent / counts[order["workload"]], "events": events})


if __name__ == "__main__":
    main()
