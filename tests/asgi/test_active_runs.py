"""Admitting, finding and draining runs."""

import anyio
import pytest

from dragent_stream.asgi.runs import ActiveRuns, Run, RunRefusedError


def run(run_id: str = "r", thread_id: str = "t", owner: str | None = None) -> Run:
    return Run(thread_id, run_id, lambda: None, owner)


def test_a_run_is_active_for_the_block_also_when_it_fails() -> None:
    runs = ActiveRuns(1)
    with pytest.raises(ValueError), runs.streaming(run()):
        assert len(runs) == 1
        raise ValueError
    assert len(runs) == 0
    runs.check("t", "r")


def test_a_run_that_streams_already_is_refused_on_its_thread_only() -> None:
    runs = ActiveRuns(9)
    with runs.streaming(run()):
        with pytest.raises(RunRefusedError, match="streamed already") as caught:
            runs.check("t", "r")
        assert caught.value.status == 409
        runs.check("other", "r")


def test_the_limit_is_named() -> None:
    runs = ActiveRuns(1)
    with runs.streaming(run()), pytest.raises(RunRefusedError, match="its limit of 1 runs") as caught:
        runs.check("t", "other")
    assert caught.value.status == 503


def test_a_run_is_found_by_its_owner_alone() -> None:
    runs = ActiveRuns(9)
    with runs.streaming(mine := run(owner="ann")):
        assert runs.find("r", owner="ann") == [mine]
        assert runs.find("r", owner="bob") == []
        assert runs.find("r") == []


async def test_draining_waits_for_the_runs_and_admits_none() -> None:
    runs = ActiveRuns(9)
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(5), runs.streaming(run()):
            tasks.start_soon(runs.drain, 60)
            while not runs.draining:
                await anyio.lowlevel.checkpoint()
            with pytest.raises(RunRefusedError, match="shutting down"):
                runs.check("t", "other")


async def test_runs_that_outlast_the_grace_are_stopped() -> None:
    runs = ActiveRuns(9)
    stopped = anyio.Event()
    with runs.streaming(Run("t", "r", stopped.set)):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runs.drain, 0.01)
            with anyio.fail_after(5):
                await stopped.wait()
            tasks.cancel_scope.cancel()
