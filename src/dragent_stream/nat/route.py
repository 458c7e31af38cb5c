"""POST /agui: one run of a NAT workflow as one ordered AG-UI event stream.

Chunks, steps and callbacks reach one queue in the order in which they happen, and one ledger turns them into events.
NAT's own `generate_streaming_response` is not used: it delivers steps a tick late, and nobody cancels its producer when
the client goes.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from dragent_stream.asgi_response import EventStreamResponse
from dragent_stream.errors import ConversionError
from dragent_stream.events import WireEvents
from dragent_stream.nat.callbacks import AgentObserver, ToolResult, observe
from dragent_stream.nat.client_tools import client_tools
from dragent_stream.nat.identity import IdentityError, request_user
from dragent_stream.nat.imports import ChatRequest, Context, GlobalTypeConverter, IntermediateStep, SessionManager
from dragent_stream.nat.messages import chat_request
from dragent_stream.nat.workflow import raw_chunks
from dragent_stream.options import DEFAULT_OPTIONS, ConverterOptions
from dragent_stream.response import DRAgentEventResponse
from dragent_stream.run import ledger_for
from dragent_stream.step_adaptor import StepConverter
from dragent_stream.stream_converter import ChunkConverter
from dragent_stream.usage import read_usage

__all__ = ["AguiRoute", "NatRun"]

logger = logging.getLogger("dragent_stream.nat")

ROOT_FUNCTION = "<workflow>"


class AguiRoute:
    """The endpoint. One instance serves all requests of one workflow.

    Args:
        session_manager: NAT's sessions of the workflow.
        options: Of every run; the request's frontend tools are added.
        keep_alive: Seconds of silence after which a comment is sent.
    """

    def __init__(
        self, session_manager: SessionManager, *, options: ConverterOptions | None = None, keep_alive: float = 15.0
    ) -> None:
        self._session_manager = session_manager
        self._options = options or DEFAULT_OPTIONS
        self._keep_alive = keep_alive

    async def __call__(self, request: Request) -> Any:
        """Answer one request: 400 for what is no run input, 401 for an unknown user, else the run as SSE."""
        try:
            run_input: Any = await request.json()
        except ValueError:
            return _refusal(400, "the body is no JSON: send a RunAgentInput")
        if not isinstance(run_input, Mapping):
            return _refusal(400, "the body is no object: send a RunAgentInput")
        try:
            payload = chat_request(run_input)
            user_id = request_user(request, self._session_manager)
        except ConversionError as error:
            return _refusal(400, str(error))
        except ValueError as error:
            return _refusal(400, f"the run input does not fit a NAT ChatRequest: {error}")
        except IdentityError as error:
            return _refusal(401, str(error))
        run = NatRun(self._session_manager, request, payload, run_input, user_id, self._options)
        return EventStreamResponse(
            run.frames(), keep_alive=self._keep_alive, farewell=run.farewell, name="an AG-UI run"
        )


def _refusal(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=status)


class NatRun(AgentObserver):
    """One run: a producer that drives the workflow, and the frames made of what it produces, in order."""

    def __init__(
        self,
        session_manager: SessionManager,
        request: Request | None,
        payload: ChatRequest,
        run_input: Mapping[str, Any],
        user_id: str | None,
        options: ConverterOptions,
    ) -> None:
        self._session_manager = session_manager
        self._request = request
        self._payload = payload
        self._user_id = user_id
        self._ledger = ledger_for(run_input, WireEvents(), options)
        self._chunks = ChunkConverter(self._ledger)
        self._steps = StepConverter(self._ledger, lifecycle=False)
        self._queue: asyncio.Queue[Callable[[], list[bytes]] | None] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        # The end of a model turn as LangChain reports it, and what it reports before the turn's last chunks are out.
        self._turn_end: dict[str, Any] | None = None
        self._turns = 0
        self._model_calls = 0
        self._has_model_steps = False
        self._waiting: dict[str, BaseException] = {}  # failed calls whose answer the model has not been told yet

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The SSE frames of the run, as many at a time as there are. Closing it cancels the workflow."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        producer = asyncio.create_task(self._produce())
        try:
            yield b"".join(self._ledger.start_run())
            while (entry := await self._queue.get()) is not None:
                frames = entry()
                while not self._queue.empty() and (entry := self._queue.get_nowait()) is not None:
                    frames += entry()
                if frames:
                    yield b"".join(frames)
                if entry is None:
                    break
        finally:
            producer.cancel()
            await asyncio.wait({producer})

    def farewell(self, error: BaseException | None) -> list[bytes]:
        """The last frames of a run that was stopped, or whose conversion failed."""
        return self._ledger.cancel_run() if error is None else self._chunks.fail(error)

    # The producer: everything of NAT happens in its task, so that NAT's context variables stay in one context.

    async def _produce(self) -> None:
        try:
            async with self._session_manager.session(
                user_id=self._user_id, http_connection=self._request, conversation_id=self._ledger.thread_id
            ) as session:
                async with session.run(self._payload) as runner:
                    raw_chunks.set(True)
                    client_tools.set(self._payload.tools or ())
                    observe(self)
                    events = Context.get().intermediate_step_manager.subscribe(self._on_step)
                    try:
                        if session.workflow.has_streaming_output:
                            async with contextlib.aclosing(runner.result_stream()) as items:
                                async for item in items:
                                    self._put_item(item)
                        else:
                            self._put_item(await runner.result())
                    finally:
                        events.unsubscribe()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            logger.warning("an AG-UI run failed: %s", type(error).__name__)
            self._put(lambda error=error: self._fail(error))
        else:
            self._put(self._finish)
        self._queue.put_nowait(None)

    def _put(self, entry: Callable[[], list[bytes]]) -> None:
        # Tools that run in threads push their steps from there.
        if threading.get_ident() == self._thread or self._loop is None:
            self._queue.put_nowait(entry)
        else:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, entry)

    def _put_item(self, item: Any) -> None:
        if isinstance(item, DRAgentEventResponse) or not (isinstance(item, Mapping) or hasattr(item, "choices")):
            item = _as_chunk(item)
        self._put(lambda: self._chunks.feed(item))

    def _on_step(self, step: IntermediateStep) -> None:
        self._put(lambda: self._step(step))

    def _step(self, step: IntermediateStep) -> list[bytes]:
        if step.payload.event_type.value.startswith("LLM_"):
            self._has_model_steps = True
            # The chunks carry the root agent's text; its LLM steps (profiler) would bring everything again, and their
            # end comes before the turn's last chunks are out.
            if self._ledger.exact_results and step.function_ancestry.function_name == ROOT_FUNCTION:
                return []
        return self._steps.feed(step)

    def _finish(self) -> list[bytes]:
        frames = self._end_turn()
        for tool_call_id, error in self._waiting.items():
            frames += self._ledger.tool_result(tool_call_id, _error_text(error))
        return frames + self._chunks.finish() + self._steps.finish() + self._ledger.finish_run()

    def _fail(self, error: Exception) -> list[bytes]:
        return self._end_turn() + self._chunks.fail(error)

    # What LangChain tells; see `AgentObserver`.

    def model_starts(self, results: Sequence[ToolResult]) -> bool:
        """Every result is known now, as the model sees it: also of tools that failed or do not exist.

        A tool of the client does not exist here. Its call ends the run; the client asks again with the result.
        """

        def entry() -> list[bytes]:
            self._ledger.exact_results = True
            self._waiting.clear()
            frames = self._end_turn(goes_on=True)
            for result in results:
                frames += self._ledger.tool_result(result.tool_call_id, result.content)
            return frames

        self._put(entry)
        if self._model_calls and any(result.name in self._ledger.options.frontend_tools for result in results):
            self._put(self._finish)
            self._queue.put_nowait(None)
            return False
        self._model_calls += 1
        return True

    def model_ended(self, finish_reason: str, usage: object, model: str) -> None:
        """Kept until the next thing happens: LangGraph has not handed out the turn's last chunks yet."""

        def entry() -> list[bytes]:
            self._turns += 1
            choice = {"index": 0, "delta": {}, "finish_reason": finish_reason or None}
            self._turn_end = {"id": f"turn-{self._turns}", "model": model, "choices": [choice], "usage": usage}
            return []

        self._put(entry)

    def nested_model_ended(self, usage: object, model: str) -> None:
        """Counted, unless the profiler's steps tell it too."""

        def entry() -> list[bytes]:
            if not self._has_model_steps and (counts := read_usage(usage)):
                self._ledger.usage.from_step(counts, model=model, nested=True)
            return []

        self._put(entry)

    def tool_starts(self, tool_call_id: str) -> None:
        """The call's arguments are complete, and so is the turn."""
        self._put(lambda: self._end_turn() + self._ledger.tool_started(tool_call_id))

    def tool_ended(self, tool_call_id: str, name: str, content: str) -> None:
        """The result, whatever the tool's name is."""
        self._put(lambda: self._ledger.tool_result(tool_call_id, content))

    def tool_failed(self, tool_call_id: str, error: BaseException) -> None:
        """Answered when the model is told, in the words that the model is told."""

        def entry() -> list[bytes]:
            self._waiting[tool_call_id] = error
            return []

        self._put(entry)

    def _end_turn(self, *, goes_on: bool = False) -> list[bytes]:
        end, self._turn_end = self._turn_end, None
        if end is None:
            return []
        choice = end["choices"][0]
        if goes_on and choice["finish_reason"] == "length":
            choice["finish_reason"] = "stop"  # the agent asks again for what was cut off (truncation_retry)
        return self._chunks.feed(end)


def _as_chunk(item: Any) -> object:
    """What a workflow without chunks of its own gives (text, a batch, any model) as a chunk."""
    if isinstance(item, DRAgentEventResponse):
        from dragent_stream.nat.converters import batch_to_chunk

        return batch_to_chunk(item)
    try:
        text = GlobalTypeConverter.get().convert(item, to_type=str)
    except ValueError:
        text = str(item)
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


def _error_text(error: BaseException) -> str:
    return f"Error: {str(error) or type(error).__name__}"
