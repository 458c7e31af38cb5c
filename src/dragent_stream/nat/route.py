"""POST /agui: one run of a NAT workflow as one ordered AG-UI event stream."""

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dragent_stream.asgi_response import EventStreamResponse
from dragent_stream.errors import ConversionError
from dragent_stream.events import WireEvents
from dragent_stream.nat.agent_run import AgentRun
from dragent_stream.nat.callbacks import observe
from dragent_stream.nat.client_tools import client_tools
from dragent_stream.nat.gate import Refusal
from dragent_stream.nat.imports import MESSAGES_KEEP_TOOLS, ChatRequest, Context
from dragent_stream.nat.messages import chat_request, history, openai_messages
from dragent_stream.nat.sessions import RequestSessionManager
from dragent_stream.nat.workflow import raw_chunks
from dragent_stream.options import ConverterOptions
from dragent_stream.response import DRAgentEventResponse
from dragent_stream.run import ledger_for
from dragent_stream.well_formed import well_formed

__all__ = ["AguiRoute", "NatRun"]


class AguiRoute:
    """The endpoint. One instance serves all requests of one workflow.

    Args:
        session_manager: The sessions of the workflow.
        options: Of every run; the request's frontend tools are added.
        keep_alive: Seconds of silence after which a comment is sent.
    """

    def __init__(
        self, session_manager: RequestSessionManager, *, options: ConverterOptions, keep_alive: float = 15.0
    ) -> None:
        self._session_manager = session_manager
        self._options = options
        self._keep_alive = keep_alive

    async def __call__(self, request: Request) -> Response:
        """Answer one request: the run as SSE.

        Raises:
            Refusal: 400 for what is no run input.
        """
        try:
            run_input: Any = await request.json()
        except ValueError:
            raise _no_run_input("the body is no JSON: send a RunAgentInput") from None
        if not isinstance(run_input, Mapping):
            raise _no_run_input("the body is no object: send a RunAgentInput")
        try:
            payload = chat_request(run_input)
            run = NatRun(self._session_manager, request, payload, run_input, self._options)
        except ConversionError as error:
            raise _no_run_input(str(error)) from None
        except ValueError as error:
            raise _no_run_input(f"the run input does not fit a NAT ChatRequest: {error}") from None
        frames = EventStreamResponse(
            run.frames(), keep_alive=self._keep_alive, farewell=run.farewell, name="an AG-UI run"
        )
        return _RunResponse(frames, self._session_manager)


def _no_run_input(message: str) -> Refusal:
    return Refusal(400, "bad_run_input", message)


class _RunResponse(Response):
    """The stream as what FastAPI takes for a response."""

    media_type = "text/event-stream"

    def __init__(self, frames: EventStreamResponse, session_manager: RequestSessionManager) -> None:
        super().__init__()
        self._frames = frames
        self._runs = session_manager.runs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._runs.stopped_by(self._frames.stop):
            await self._frames(scope, receive, send)


class NatRun:
    """One run: a producer that drives the workflow, and the frames made of what it produces, in order."""

    def __init__(
        self,
        session_manager: RequestSessionManager,
        request: Request,
        payload: ChatRequest,
        run_input: Mapping[str, Any],
        options: ConverterOptions,
    ) -> None:
        self._session_manager = session_manager
        self._request = request
        self._payload = payload
        self._history = () if MESSAGES_KEEP_TOOLS else openai_messages(run_input)
        self._run = AgentRun(ledger_for(run_input, WireEvents(), options))

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The SSE frames of the run, as many at a time as there are. Closing it cancels the workflow."""
        async with contextlib.aclosing(self._run.events(self._produce)) as events:
            async for frames in events:
                yield b"".join(frames)

    def farewell(self, error: BaseException | None) -> list[bytes]:
        """The last frames of a run that was stopped, or whose conversion failed."""
        ledger = self._run.ledger
        return ledger.start_run() + (ledger.cancel_run() if error is None else self._run.fail(error))

    async def _produce(self) -> None:
        # Everything of NAT happens in this task, so that NAT's context variables stay in one context.
        run = self._run
        async with self._session_manager.session(
            http_connection=self._request, conversation_id=run.ledger.thread_id
        ) as session:
            async with session.run(self._payload) as runner:
                raw_chunks.set(True)
                client_tools.set(self._payload.tools or ())
                history.set(self._history)
                observe(run)
                steps = Context.get().intermediate_step_manager.subscribe(run.put_step)
                is_whole = not session.workflow.has_streaming_output
                try:
                    if is_whole:
                        run.put_chunk(_as_chunk(await runner.result()))
                    else:
                        async with contextlib.aclosing(runner.result_stream()) as items:
                            async for item in items:
                                run.put_chunk(_as_chunk(item))
                                is_whole = not _is_chat(item)  # a chat says itself that it is
                    if is_whole:
                        run.put_chunk(_END)
                finally:
                    steps.unsubscribe()


_END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def _as_chunk(item: Any) -> object:
    """An item of a workflow's stream as a chunk: text as it is, None as nothing, what is no text as JSON."""
    if isinstance(item, DRAgentEventResponse):
        from dragent_stream.nat.converters import batch_to_chunk

        return batch_to_chunk(item)
    return item if _is_chat(item) else {"choices": [{"index": 0, "delta": {"content": _text(item)}}]}


def _is_chat(item: Any) -> bool:
    """Whether an item speaks as a model does, and not as a plain function."""
    if isinstance(item, Mapping):
        return "choices" in item
    return isinstance(item, DRAgentEventResponse) or hasattr(item, "choices")


def _text(item: Any) -> str:
    if item is None or isinstance(item, str):
        return item or ""
    if isinstance(item, BaseModel) and set(type(item).model_fields) == {"value"}:
        return _text(dict(item)["value"])  # NAT's own envelope of a plain value
    return well_formed(to_json(item, fallback=str, inf_nan_mode="null", serialize_unknown=True).decode())
