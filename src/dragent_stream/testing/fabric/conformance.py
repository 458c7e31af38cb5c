"""`check_adapter`: an adapter against the rules of Fabric's native OpenAI streaming, in one line of its author's tests.

The rules are those that the contract asks an adapter to verify (empty and many chunks, invalid and oversized ones, an early
close, the explicit end record, a separate result, one invocation), and what costs a runtime in practice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from dragent_stream.testing.fabric.hosts import AdapterHost, CountedSource, HostError, host_for
from dragent_stream.testing.fabric.sink import FakeSink

__all__ = ["ADAPTER_RULES", "check_adapter"]

Json = dict[str, Any]
_NOT_GIVEN: Any = object()

ADAPTER_RULES: Mapping[str, str] = {
    "start": "The adapter starts.",
    "many": "A turn streams its chunks, at least one, and succeeds.",
    "chunks": "Each chunk is an openai.chat_completions.chunk/v1 and fits one record, on a strict wire.",
    "end": "The stream ends with an end record that the listener accepts, before the result is told.",
    "result": "A turn's result is an AgentRunResult: status and output, an error if and only if it failed.",
    "once": "The target runs exactly once a turn.",
    "again": "A runtime takes one turn after the other.",
    "invoke": "A turn can be invoked without a stream.",
    "empty": "A target that says nothing is a stream of an end record, and succeeds.",
    "invalid": "A chunk that Fabric refuses as invalid costs the turn at most, never the runtime.",
    "oversized": "A chunk that exceeds one record costs the turn at most, never the runtime.",
    "deadline": "A turn is over within Fabric's margin after its deadline, and the runtime goes on.",
    "early close": "A consumer that leaves ends the turn, and the target is not run again.",
    "stop": "The adapter stops, and its process ends.",
}
"""What is checked, by name."""


def check_adapter(
    adapter: Any,
    *,
    input: Any = "hello",
    empty: Any = _NOT_GIVEN,
    invalid: Any = _NOT_GIVEN,
    oversized: Any = _NOT_GIVEN,
    slow: Any = _NOT_GIVEN,
    runs: Callable[[], int] | None = None,
    config: Mapping[str, Any] | None = None,
    deadline: float = 1.0,
    timeout: float = 30.0,
) -> None:
    """Run an adapter through the rules of `ADAPTER_RULES`; works in plain tests and in async ones.

    Args:
        adapter: What Fabric is to run: the path of a descriptor (`*.fabric-adapter.json`), whose process is started as
            Fabric starts it; or, in this process, a source as for `serve_adapter`, or a class or an object with `start`,
            `invoke`, `invoke_openai_stream` and `stop` (needs the extra `[fabric]`).
        input: A turn's input that the adapter answers with at least one chunk.
        empty: An input to which its target says nothing; without it the rule is not checked.
        invalid: An input for which its target makes a chunk that Fabric refuses. Without it an adapter of the common
            host in this process is refused its first chunk; a source and a process are not checked.
        oversized: The same with a chunk above 1 MiB.
        slow: An input on which it takes longer than `deadline`; then the turn must fail. Without it `input` is used.
        runs: How often the target has run so far; a source is counted without it, the others are not checked.
        config: The `config` of the start payload.
        deadline: Seconds until the deadline of the turn that has one; Fabric leaves as many again.
        timeout: Seconds that any operation may take.

    Raises:
        AssertionError: Names each rule that is broken, and how.
    """
    counted = CountedSource(adapter) if _is_source(adapter) and runs is None else None
    check = _Check(
        host_for(counted or adapter),
        input=input,
        runs=(lambda: counted.calls) if counted else runs,
        config=dict(config or {}),
        deadline=deadline,
        timeout=timeout,
    )
    optional = {"empty": empty, "invalid": invalid, "oversized": oversized, "slow": slow}
    _run(check.run({name: value for name, value in optional.items() if value is not _NOT_GIVEN}))
    if check.broken:
        rules = "rule" if len(check.broken) == 1 else "rules"
        broken = "\n".join(f"- {rule}: {how}" for rule, how in check.broken)
        raise AssertionError(f"the adapter breaks {len(check.broken)} {rules} of Fabric's streaming:\n{broken}")


def _is_source(adapter: Any) -> bool:
    return callable(adapter) and not isinstance(adapter, type) and not hasattr(adapter, "invoke_openai_stream")


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run it in a loop of its own, in a thread of its own: the test may have a loop. What swallows its end is left."""

    def run() -> None:
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(work)
            if rest := asyncio.all_tasks(loop):
                for task in rest:
                    task.cancel()
                loop.run_until_complete(asyncio.wait(rest, timeout=1))
        finally:
            loop.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(run).result()


class _Stuck(Exception):
    """Nothing more can be asked of this runtime."""


class _Check:
    """One runtime of the adapter, and what it has broken so far."""

    def __init__(
        self,
        host: AdapterHost,
        *,
        input: Any,
        runs: Callable[[], int] | None,
        config: Json,
        deadline: float,
        timeout: float,
    ) -> None:
        self.broken: list[tuple[str, str]] = []
        self._host = host
        self._input = input
        self._runs = runs
        self._config = config
        self._deadline = deadline
        self._timeout = timeout

    async def run(self, optional: Json) -> None:
        """Check everything; the rule that cannot be survived comes last."""
        try:
            await self._start()
            await self._answers("many")
            if self.broken:
                return  # everything else asks the same of it
            await self._answers("again")
            await self._invoke()
            if "empty" in optional:
                await self._empty(optional["empty"])
            for rule, code in (("invalid", _INVALID), ("oversized", _OVERSIZED)):
                if rule in optional:
                    await self._survives(rule, optional[rule])
                elif self._host.refuses:
                    self._host.refuse = code
                    await self._survives(rule, self._input)
                    self._host.refuse = None
            await self._keeps_deadline(optional)
            await self._early_close()
            await self._stop()
        except _Stuck:
            pass
        finally:
            await self._host.close()

    def _break(self, rule: str, how: str) -> None:
        self.broken.append((rule, how))

    async def _ask(self, rule: str, operation: str, payload: Json) -> Json:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._host.ask(operation, payload)
        except TimeoutError:
            self._break(rule, f"{operation} did not end within {self._timeout:g} s")
        except HostError as error:
            self._break(rule, str(error))
        raise _Stuck

    async def _start(self) -> None:
        context = {"runtime_id": FakeSink().ids["runtime_id"]}
        context = {**FakeSink().payload()["runtime_context"], **context}
        payload = {"agent_name": "conformance", "base_dir": "/", "config": self._config, "runtime_context": context}
        outcome = await self._ask("start", "start", {**payload, "capability_plan": {}})
        if outcome.get("status") != "succeeded":
            self._break("start", _error(outcome))
            raise _Stuck

    async def _stop(self) -> None:
        outcome = await self._ask("stop", "stop", {"runtime_id": FakeSink().ids["runtime_id"]})
        if outcome.get("status") != "succeeded":
            self._break("stop", _error(outcome))

    async def _turn(self, rule: str, input: Any, *, deadline_in: float | None = None) -> tuple[Json | None, FakeSink]:
        """(the result, the listener) of one streamed turn; no result where the operation failed."""
        ran = self._runs() if self._runs else 0
        async with FakeSink() as sink:
            due = None if deadline_in is None else int((time.time() + deadline_in) * 1000)
            outcome = await self._ask(rule, "invoke_openai_stream", sink.payload(input, deadline_millis=due))
            told_at = list(sink.statuses)
            if outcome.get("status") != "succeeded":
                self._break(rule, f"the turn failed as a whole, which costs the runtime: {_error(outcome)}")
                return None, sink
        if sink.error is not None:
            self._break("end" if "end" in sink.error.split() else "chunks", sink.error)
        elif not sink.ended or told_at != [200]:
            self._break("end", f"the result was told with the listener's answers at {told_at}, not at [200]")
        for violation in sink.violations:
            self._break("chunks", violation)
        if self._runs and (count := self._runs() - ran) != 1:
            self._break("once", f"the target ran {count} times in one turn")
        result: object = outcome.get("output")
        for problem in _result_problems(result):
            self._break("result", problem)
        return (cast("Json", result) if isinstance(result, dict) else None), sink

    async def _answers(self, rule: str) -> None:
        result, sink = await self._turn(rule, self._input)
        if result is None:
            raise _Stuck
        if not sink.chunks:
            self._break(rule, f"no chunk came for the input {self._input!r}; check_adapter(input=...) names one")
        if result.get("status") != "succeeded":
            self._break(rule, f"the turn did not succeed: {result.get('status')}, {_error(result)}")

    async def _invoke(self) -> None:
        payload = FakeSink().payload(self._input)
        outcome = await self._ask("invoke", "invoke", {name: payload[name] for name in ("runtime_context", "request")})
        if outcome.get("status") != "succeeded":
            self._break("invoke", _error(outcome))
        for problem in _result_problems(outcome.get("output")) if outcome.get("status") == "succeeded" else ():
            self._break("invoke", problem)

    async def _empty(self, input: Any) -> None:
        result, sink = await self._turn("empty", input)
        if result is not None and (sink.chunks or result.get("status") != "succeeded"):
            self._break("empty", f"{len(sink.chunks)} chunks came, and the turn ended as {result.get('status')}")

    async def _survives(self, rule: str, input: Any) -> None:
        result, _ = await self._turn(rule, input)
        if result is None:
            raise _Stuck
        await self._answers(rule)

    async def _keeps_deadline(self, optional: Json) -> None:
        begun = time.monotonic()
        before = len(self.broken)
        result, _ = await self._turn("deadline", optional.get("slow", self._input), deadline_in=self._deadline)
        took = time.monotonic() - begun
        if result is None:
            if "lifecycle_invalid_request" in self.broken[-1][1]:
                del self.broken[before:]  # packages of Fabric 0.2 to 0.4 know no deadline
                return
            raise _Stuck
        if took > 2 * self._deadline:
            self._break("deadline", f"the turn took {took:.1f} s with a deadline at {self._deadline:g} s")
        if "slow" in optional and result.get("status") == "succeeded":
            self._break("deadline", f"the input {optional['slow']!r} did not take until the deadline")
        await self._answers("deadline")

    async def _early_close(self) -> None:
        ran = self._runs() if self._runs else 0
        async with FakeSink(drop_after=1) as sink:
            await self._ask("early close", "invoke_openai_stream", sink.payload(self._input))
        if self._runs and (count := self._runs() - ran) != 1:
            self._break("early close", f"the target ran {count} times")


_INVALID = "lifecycle_invalid_openai_stream_event"
_OVERSIZED = "lifecycle_openai_stream_event_too_large"


def _result_problems(result: object) -> list[str]:
    if not isinstance(result, dict):
        return [f"the result is a {type(result).__name__}, not an object"]
    fields = cast("Json", result)
    problems = [f"the result has no {name}" for name in ("status", "output") if name not in fields]
    if unknown := set(fields) - {"status", "output", "error", "usage", "artifacts", "extensions"}:
        problems.append(f"the result has {', '.join(sorted(unknown))}, which Fabric refuses")
    if fields.get("status") not in ("succeeded", "failed", "cancelled"):
        problems.append(f"the status is {fields.get('status')!r}")
    error: object = fields.get("error")
    if fields.get("status") == "failed" and not isinstance(error, dict):
        problems.append("the result failed without an error")
    if fields.get("status") == "succeeded" and error is not None:
        problems.append("the result succeeded with an error")
    if isinstance(error, dict) and not all(
        str(cast("Json", error).get(name) or "").strip() for name in ("code", "message")
    ):
        problems.append("the error has no code or no message")
    return problems


def _error(failed: Json) -> str:
    error = cast("Json", failed.get("error") or {})
    return f"{error.get('code')}: {error.get('message')}"
