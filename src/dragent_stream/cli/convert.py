"""Convert traces to AG-UI: one to an output, or a whole directory over a process pool."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal

from dragent_stream.cli.reading import Problem, not_understood, open_recording
from dragent_stream.cli.screen import warnings_to
from dragent_stream.cli.signals import unheard
from dragent_stream.cli.writing import Write, begun, output
from dragent_stream.errors import ConversionError, DragentStreamError, TraceFormatError
from dragent_stream.trace import convert_trace

__all__ = ("Format", "Job", "Outcome", "Plan", "convert_file", "convert_many", "convert_one", "plan_jobs")

Format = Literal["jsonl", "sse"]

_TRACES = (".jsonl", ".ndjson", ".sse")
_MADE = (".agui.jsonl", ".agui.sse")
_FAILED = '{"type":"RUN_ERROR"'
_MARKER = ".dragent-stream.json"
_BATCH = 16
"""Files per task of the pool: a task costs about as much as a small file."""


def convert_one(
    path: str,
    write: Write,
    *,
    to: Format = "jsonl",
    run: bool = True,
    thread_id: str | None = None,
    run_id: str | None = None,
    on_problem: Problem,
) -> int:
    """Convert one trace.

    Args:
        path: A file, or `-`.
        write: Takes the output, event by event.
        to: Lines of JSON, or SSE frames.
        run: Whether to write RUN_STARTED and the terminal event.
        thread_id: The thread's id.
        run_id: The run's id.
        on_problem: Called with each line that cannot be read, and where nothing was understood.

    Returns:
        The number of events.

    Raises:
        TraceFormatError: The whole file is no trace.
        OSError: It cannot be read.
    """
    before, after = (b"data: ", b"\n\n") if to == "sse" else (b"", b"\n")
    events = 0
    with open_recording(path) as recording:
        if recording.kind == "events":
            raise TraceFormatError(
                "holds AG-UI events already", source=recording.name, remedy="check it with: dragent-stream validate"
            )
        wire = convert_trace(
            recording.lines,
            run=run,
            thread_id=thread_id,
            run_id=run_id,
            name=recording.name,
            on_problem=on_problem,
        )
        for event in wire:
            write(before + event.encode() + after)
            events += 1
            if event.startswith(_FAILED) and (problem := not_understood(json.loads(event), recording.name)):
                on_problem(problem)
    return events


@dataclass(frozen=True, slots=True)
class Job:
    """One file of a bulk conversion; ids are derived from `thread_id`, so the same job gives the same bytes."""

    source: str
    target: str
    to: Format
    run: bool
    thread_id: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended: the events written, the lines (or the file) that could not be read, and what was left out."""

    source: str
    events: int
    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def convert_file(job: Job) -> Outcome:
    """Do one job. Pure but for its two files, and picklable, so any pool or engine can run it.

    A trace with unreadable lines becomes `<target>.partial`; the next run tries it again.
    """
    problems: list[str] = []
    warnings: list[str] = []
    events = 0
    try:
        Path(job.target).parent.mkdir(parents=True, exist_ok=True)
        with warnings_to(lambda text: warnings.append(f"{job.source}: {text}")), output(str(_unproven(job))) as write:
            events = convert_one(
                job.source,
                write,
                to=job.to,
                run=job.run,
                thread_id=job.thread_id,
                run_id=job.thread_id,
                on_problem=lambda error: problems.append(str(error)),
            )
        if not problems:
            os.replace(_unproven(job), job.target)
    except DragentStreamError as error:
        problems.append(str(error))
    except OSError as error:
        problems.append(f"{error.filename or job.source}: {error.strerror or error}")
    return Outcome(job.source, events, tuple(problems), tuple(warnings))


def _unproven(job: Job) -> Path:
    """The output's name until everything has turned out readable."""
    return Path(f"{job.target}.partial")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done for a directory.

    Attributes:
        jobs: In the order of their paths.
        done: How many traces were done before.
        left_out: Files that may be whole completions, which are converted only by name.
    """

    jobs: list[Job]
    done: int
    left_out: list[Path]


def plan_jobs(directory: Path, target: Path, *, to: Format, run: bool) -> Plan:
    """Find the traces of a directory and its folders that are still to convert.

    A trace is done when its output is there and not older. The output directory remembers the options it was made with.
    A link to nothing is a job, too, so that it is told with the failures.

    Raises:
        ConversionError: There is no trace, or the output directory is the input or was made with other options.
    """
    inside = target.resolve()
    if inside == directory.resolve():
        raise ConversionError(
            f"{target} is the directory of the traces; name another one, such as {directory / 'agui'}"
        )
    made_with = {"to": to, "run": run}
    marker = target / _MARKER
    if marker.is_file():
        try:
            before = json.loads(marker.read_text("utf-8"))
        except ValueError:
            before = None
        if before != made_with:
            raise ConversionError(
                f"{target} was made with other options ({before}); name another directory, or delete {marker.name} there"
            )
    nested = directory.resolve() in inside.parents
    sources: list[Path] = []
    left_out: list[Path] = []
    for path in sorted(directory.rglob("*")):
        there = path.is_file() or (path.is_symlink() and not path.exists())
        if not there or path.name.endswith(_MADE) or (nested and inside in path.resolve().parents):
            continue
        if path.suffix in _TRACES:
            sources.append(path)
        elif path.suffix == ".json" and path.name != _MARKER:
            left_out.append(path)
    if not sources:
        named = f"; convert {left_out[0]} by its name" if left_out else ""
        raise ConversionError(f"{directory} holds no trace (no file ends in {', '.join(_TRACES)}){named}")
    target.mkdir(parents=True, exist_ok=True)
    marker.write_text(json.dumps(made_with) + "\n", "utf-8")
    jobs: list[Job] = []
    done = 0
    for source in sources:
        relative = source.relative_to(directory)
        name = relative.with_suffix("") if relative.suffix == ".jsonl" else relative
        made = target / f"{name}.agui.{to}"
        if made.is_file() and source.exists() and made.stat().st_mtime_ns >= source.stat().st_mtime_ns:
            done += 1
        else:
            jobs.append(Job(str(source), str(made), to, run, name.as_posix()))
    return Plan(jobs, done, left_out)


def convert_many(jobs: Iterable[Job], workers: int, on_outcome: Callable[[Outcome], None]) -> None:
    """Do jobs over a pool of processes; in this process where `workers` is 1.

    Args:
        jobs: The jobs; they are taken as the pool has room for them.
        workers: Processes.
        on_outcome: Called with each outcome, in the order the jobs end.

    Raises:
        ConversionError: A process was killed. As after any other exception, Ctrl-C included, whole outputs stay, what was
            begun is removed, and no process is left.
    """
    if workers == 1:
        for job in jobs:
            on_outcome(convert_file(job))
        return
    waiting = iter(jobs)
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker)
    running: dict[Future[list[Outcome]], list[Job]] = {}
    started: set[BaseProcess] = set()
    try:
        while True:
            for batch in _batches(waiting, workers * 2 - len(running)):
                with unheard():
                    running[pool.submit(_convert_batch, batch)] = batch
            started.update(multiprocessing.active_children())
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                for outcome in future.result():
                    on_outcome(outcome)
                del running[future]
    except BaseException as error:
        _abandon(pool, started.union(multiprocessing.active_children()) - others, running.values())
        if isinstance(error, BrokenProcessPool):
            raise ConversionError(
                "a process of --jobs was killed, perhaps for want of memory; run it again, with fewer jobs: "
                "it goes on behind the outputs that are whole"
            ) from None
        raise
    pool.shutdown()


def _abandon(pool: ProcessPoolExecutor, workers: Iterable[BaseProcess], batches: Iterable[list[Job]]) -> None:
    """End the workers at once, in the middle of whatever they do, and remove what they have begun."""
    workers = list(workers)
    for worker in workers:
        worker.kill()
    pool.shutdown(cancel_futures=True)
    for worker in workers:
        worker.join()
        for job in itertools.chain.from_iterable(batches):
            begun(_unproven(job), worker.pid or 0).unlink(missing_ok=True)


def _batches(jobs: Iterator[Job], count: int) -> Iterator[list[Job]]:
    for _ in range(count):
        batch = list(itertools.islice(jobs, _BATCH))
        if not batch:
            return
        yield batch


def _convert_batch(batch: list[Job]) -> list[Outcome]:
    return [convert_file(job) for job in batch]


def _begin_worker() -> None:
    """End this process with the one that started it, however that ends."""
    if parent := multiprocessing.parent_process():
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
