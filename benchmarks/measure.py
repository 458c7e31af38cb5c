"""Clocks and arithmetic of the benchmarks: CPU time, medians of interleaved rounds, growth exponents, tables."""

import asyncio
import gc
import math
import statistics
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence


async def drain(items: AsyncIterable[object]) -> int:
    """Read a stream to its end; how many items it gave."""
    count = 0
    async for _ in items:
        count += 1
    return count


def cpu_ns(job: Callable[[], Awaitable[object]], runner: asyncio.Runner) -> int:
    """CPU nanoseconds of one run of `job` in this process, garbage of earlier runs collected before it starts."""

    async def timed() -> int:
        started = time.process_time_ns()
        await job()
        return time.process_time_ns() - started

    gc.collect()
    return runner.run(timed())


def interleaved(
    jobs: Mapping[str, tuple[int, Callable[[], Awaitable[object]]]], *, rounds: int = 7
) -> dict[str, float]:
    """Median CPU nanoseconds per item of each job; every round runs every job once, so that noise meets all of them.

    Args:
        jobs: By name, the number of items of one run and the run itself.
        rounds: How often; one more goes before as a warm-up.
    """
    samples: dict[str, list[float]] = {name: [] for name in jobs}
    with asyncio.Runner() as runner:
        gc.freeze()
        for turn in range(rounds + 1):
            for name, (count, job) in jobs.items():
                spent = cpu_ns(job, runner) / count
                if turn:
                    samples[name].append(spent)
        gc.unfreeze()
    return {name: statistics.median(values) for name, values in samples.items()}


def exponent(costs: Mapping[int, float]) -> float:
    """The slope of log(total cost) over log(size) by least squares: 1 is linear, 2 quadratic."""
    xs = [math.log(size) for size in costs]
    ys = [math.log(cost) for cost in costs.values()]
    return statistics.linear_regression(xs, ys).slope


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A markdown table, first column left, the others right."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        first, *rest = row
        return (
            "| "
            + " | ".join([first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(rest, widths[1:], strict=True))])
            + " |"
        )

    rule = "| " + " | ".join(["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]) + " |"
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:])])
