"""One run of an agent: its chunks, its steps and what LangChain tells, in one order, as events.

Everything is put into one queue as it happens; one ledger turns it into events. NAT's `generate_streaming_response` is
not used: it delivers steps a tick late, and nobody cancels its producer when the client goes.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from dragent_stream.ledger import RunLedger
from dragent_stream.nat.callbacks import AgentObserver, ToolResult
from dragent_stream.nat.failures import as_told
from dragent_stream.nat.imports import IntermediateStep
from dragent_stream.options import DEFAULT_OPTIONS, ConverterOptions
from dragent_stream.step_adaptor import StepConverter
from dragent_stream.stream_converter import ChunkConverter
from dragent_stream.usage import read_usage

__all__ = ["AgentRun", "is_told_exactly", "run_options"]

E = TypeVar("E")

run_options: ContextVar[ConverterOptions] = ContextVar("dragent_stream_run_options", default=DEFAULT_OPTIONS)
"""The options of the runs in this context."""

ROOT_FUNCTION = "<workflow>"


class AgentRun(AgentObserver, Generic[E]):
    """Takes what happens in a run and gives its events.

    Args:
        ledger: The run.
        owns_run: Start and finish the run, too. False where the run has another owner, who writes to the same ledger:
            what happens is then converted at once, because what the owner writes next comes after it.
    """

    def __init__(self, ledger: RunLedger[E], *, owns_run: bool = True) -> None:
        self.ledger = ledger
        self.chunks: ChunkConverter[E] = ChunkConverter(ledger)
        self._owns_run = owns_run
        self._steps: StepConverter[E] = StepConverter(ledger, lifecycle=False)
        self._queue: asyncio.Queue[Callable[[], list[E]] | None] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        # The end of a model turn as LangChain reports it, and what it reports before the turn's last chunks are out.
        self._turn_end: dict[str, Any] | None = None
        self._turns = 0
        self._model_calls = 0
        self._has_model_steps = False
        self._waiting: dict[str, BaseException] = {}  # failed calls whose answer the model has not been told yet

    async def events(self, produce: Callable[[], Awaitable[None]]) -> AsyncGenerator[list[E], None]:
        """The events of the run, as many at a time as there are. Closing it cancels the producer.

        Args:
            produce: Runs the agent, in a task of its own, and puts what happens. What it raises ends the run.
        """
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        producer = asyncio.create_task(self._produce(produce))
        try:
            if self._owns_run:
                yield self.ledger.start_run()
            while (entry := await self._queue.get()) is not None:
                events = entry()
                while not self._queue.empty() and (entry := self._queue.get_nowait()) is not None:
                    events += entry()
                if events:
                    yield events
                if entry is None:
                    break
        finally:
            producer.cancel()
            await asyncio.wait({producer})

    async def _produce(self, produce: Callable[[], Awaitable[None]]) -> None:
        try:
            await produce()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.put(lambda error=error: self._end_turn() + self.fail(error))
        else:
            self.put(self._finish)
        self._queue.put_nowait(None)

    def fail(self, error: BaseException) -> list[E]:
        """The run has failed: its one RUN_ERROR."""
        return self.chunks.fail(as_told(error, self.ledger.options))

    def put(self, entry: Callable[[], list[E]]) -> None:
        """Something has happened; the entry gives its events when its turn comes."""
        # Tools that run in threads push their steps from there.
        if threading.get_ident() != self._thread and self._loop is not None:
            self._loop.call_soon_threadsafe(self._take, entry)
        else:
            self._take(entry)

    def _take(self, entry: Callable[[], list[E]]) -> None:
        if self._owns_run:
            self._queue.put_nowait(entry)
        elif events := entry():
            self._queue.put_nowait(lambda: events)

    def put_chunk(self, chunk: Any) -> None:
        """The agent has given a chunk."""
        self.put(lambda: self.chunks.feed(chunk))

    def put_step(self, step: IntermediateStep) -> None:
        """NAT has pushed a step; may be called in any thread."""
        self.put(lambda: self._step(step))

    def _step(self, step: IntermediateStep) -> list[E]:
        self._has_model_steps = self._has_model_steps or is_model_step(step)
        return [] if is_told_exactly(step, self.ledger) else self._steps.feed(step)

    def _finish(self) -> list[E]:
        events = self._end_turn()
        for tool_call_id, error in self._waiting.items():
            events += self.ledger.tool_result(tool_call_id, _error_text(error))
        events += self.chunks.finish()
        return events + self._steps.finish() + self.ledger.finish_run() if self._owns_run else events

    # What LangChain tells; see `AgentObserver`.

    def model_starts(self, results: Sequence[ToolResult]) -> bool:
        """Every result is known now, as the model sees it: also of tools that failed or do not exist.

        A tool of the client does not exist here. Its call ends the run; the client asks again with the result.
        """

        def entry() -> list[E]:
            self.ledger.exact_results = True
            self._waiting.clear()
            events = self._end_turn(goes_on=True)
            for result in results:
                events += self.ledger.tool_result(result.tool_call_id, result.content)
            return events

        self.put(entry)
        if self._model_calls and any(result.name in self.ledger.options.frontend_tools for result in results):
            self.put(self._finish)
            self._queue.put_nowait(None)
            return False
        self._model_calls += 1
        return True

    def model_ended(self, finish_reason: str, usage: object, model: str) -> None:
        """Kept until the next thing happens: LangGraph has not handed out the turn's last chunks yet."""

        def entry() -> list[E]:
            self._turns += 1
            choice = {"index": 0, "delta": {}, "finish_reason": finish_reason or None}
            self._turn_end = {"id": f"turn-{self._turns}", "model": model, "choices": [choice], "usage": usage}
            return []

        self.put(entry)

    def nested_model_ended(self, usage: object, model: str) -> None:
        """Counted, unless the profiler's steps tell it too."""

        def entry() -> list[E]:
            if not self._has_model_steps and (counts := read_usage(usage)):
                self.ledger.usage.from_step(counts, model=model, nested=True)
            return []

        self.put(entry)

    def tool_starts(self, tool_call_id: str) -> None:
        """The call's arguments are complete, and so is the turn."""
        self.put(lambda: self._end_turn() + self.ledger.tool_started(tool_call_id))

    def tool_ended(self, tool_call_id: str, name: str, content: str) -> None:
        """The result, whatever the tool's name is."""
        self.put(lambda: self.ledger.tool_result(tool_call_id, content))

    def tool_failed(self, tool_call_id: str, error: BaseException) -> None:
        """Answered when the model is told, in the words that the model is told."""

        def entry() -> list[E]:
            self._waiting[tool_call_id] = error
            return []

        self.put(entry)

    def _end_turn(self, *, goes_on: bool = False) -> list[E]:
        end, self._turn_end = self._turn_end, None
        if end is None:
            return []
        choice = end["choices"][0]
        if goes_on and choice["finish_reason"] == "length":
            choice["finish_reason"] = "stop"  # the agent asks again for what was cut off (truncation_retry)
        return self.chunks.feed(end)


def is_model_step(step: IntermediateStep) -> bool:
    """Whether the step (of the profiler) is one of a model's call."""
    return step.payload.event_type.value.startswith("LLM_")


def is_told_exactly(step: IntermediateStep, ledger: RunLedger[Any]) -> bool:
    """Whether chunks and callbacks tell what the step tells.

    The root agent's LLM steps would bring its text again; their start comes before the results that the model is told,
    and their end before the turn's last chunks are out.
    """
    return ledger.exact_results and is_model_step(step) and step.function_ancestry.function_name == ROOT_FUNCTION


def _error_text(error: BaseException) -> str:
    return f"Error: {str(error) or type(error).__name__}"
