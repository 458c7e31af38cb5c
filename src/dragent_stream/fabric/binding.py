"""serve_binding: a complete adapter process without Fabric's common host, on the standard library's streams.

It speaks the lifecycle protocol on stdin and stdout (one JSON object a line, one answer for each request) and the record
wire through `OpenAIStreamSink`. The envelope is read leniently, because it is the part that changes between versions:
unknown members are ignored, so one process serves SDK 0.2 to 0.5. Unlike the common host it keeps file descriptor 1
for itself (a print in a C library or in a child process would end the runtime otherwise) and notices at once when its
runtime, or the consumer of its stream, is gone, even if the target says nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import Coroutine, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import IO, Any, cast

from dragent_stream.fabric.contract import FabricStreamError, RecordEncoder
from dragent_stream.fabric.deadline import has_abandoned_targets
from dragent_stream.fabric.normalize import ReadyChunk
from dragent_stream.fabric.sink import OpenAIStreamSink, StreamTransport
from dragent_stream.fabric.turn import Lifespan, Prepare, StreamTarget, TurnSource, failure_text
from dragent_stream.options import ConverterOptions

__all__ = ["Binding", "TurnContext", "TurnRequest", "serve_binding"]

logger = logging.getLogger("dragent_stream.fabric")

Json = dict[str, Any]

_OPERATIONS = ("start", "invoke", "invoke_openai_stream", "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """The request of one turn, with the attributes of Fabric's `AgentRunRequest`.

    Attributes:
        input: Any JSON value.
        context: The caller's context.
        extensions: The caller's overrides.
    """

    input: Any = ""
    context: Mapping[str, Any] = dataclass_field(default_factory=dict[str, Any])
    extensions: Mapping[str, Any] = dataclass_field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    """The context of one turn, with the attributes of Fabric's `RuntimeContext` that a target needs.

    Attributes:
        runtime_id: The runtime.
        invocation_id: The turn.
        request_id: The caller's request.
        deadline_millis: When the target must be done, in Unix milliseconds; None before Fabric 0.5.
        fields: The whole `runtime_context` as it came.
    """

    runtime_id: str
    invocation_id: str
    request_id: str
    deadline_millis: int | None = None
    fields: Mapping[str, Any] = dataclass_field(default_factory=dict[str, Any])


class Binding:
    """The lifecycle of one runtime: requests in, answers out. No stdin, no stdout.

    Attributes:
        stopped: A `stop`, or a `start` that failed, was answered; the process is to end.
    """

    def __init__(self, target: StreamTarget) -> None:
        self.stopped = False
        self._target = target
        self._runtime_id: str | None = None
        self._failed = False

    async def handle(self, line: str | bytes) -> Json:
        """Answer one request; raises only when the task is cancelled."""
        operation = "start"
        try:
            message: object = json.loads(line)
            if not isinstance(message, dict):
                raise FabricStreamError("lifecycle_invalid_request", "a lifecycle request must be a mapping")
            fields = cast("Json", message)
            asked = fields.get("operation")
            operation = asked if isinstance(asked, str) else operation
            if asked not in _OPERATIONS:
                raise FabricStreamError("lifecycle_invalid_operation", "unknown lifecycle operation")
            payload = fields.get("payload")
            if not isinstance(payload, dict):
                raise FabricStreamError("lifecycle_invalid_payload", "the payload of a request must be a mapping")
            output = await self._dispatch(operation, cast("Json", payload))
            outcome: Json = {"status": "succeeded", "output": output}
        except FabricStreamError as error:
            outcome = _failure(operation, error.code, error.message)
        except ValueError:
            outcome = _failure(operation, "lifecycle_invalid_request", "a lifecycle request must be JSON")
        except (Exception, SystemExit) as error:
            # The text of the exception stays here: Fabric shows what a failed operation says to its caller.
            logger.error("the %s of this adapter failed", operation, exc_info=error)
            self._failed = self._failed or operation.startswith("invoke")
            text = failure_text(operation, error, self._target.options)
            outcome = _failure(operation, f"lifecycle_adapter_{operation}_failed", text)
        failed_start = operation == "start" and outcome["status"] == "failed" and self._runtime_id is None
        self.stopped = self.stopped or operation == "stop" or failed_start
        return {"operation": operation, "outcome": outcome}

    async def close(self) -> None:
        """Stop the target, if it still runs; for the end of stdin."""
        if self._runtime_id is not None:
            self._runtime_id = None
            try:
                await self._target.stop()
            except Exception as error:
                logger.error("the stop of this adapter failed", exc_info=error)

    async def _dispatch(self, operation: str, payload: Json) -> Any:
        context = payload if operation == "stop" else _mapping(payload.get("runtime_context"))
        runtime_id = context.get("runtime_id")
        if not isinstance(runtime_id, str) or not runtime_id:
            raise FabricStreamError("lifecycle_invalid_runtime", "the request names no runtime")
        if operation == "start":
            if self._runtime_id is not None:
                raise FabricStreamError("lifecycle_already_started", "this process already has a runtime")
            await self._target.start(payload)
            self._runtime_id = runtime_id
            return None
        if self._runtime_id is None:
            raise FabricStreamError("lifecycle_not_started", "the runtime was not started")
        if runtime_id != self._runtime_id:
            raise FabricStreamError("lifecycle_runtime_mismatch", "the request is for another runtime")
        if operation == "stop":
            self._runtime_id = None
            await self._target.stop()
            return None
        if self._failed:
            raise FabricStreamError("lifecycle_runtime_failed", "the runtime failed and takes no further turn")
        with _environment(context):
            if operation == "invoke":
                return await self._invoke(payload)
            return await self._invoke_openai_stream(payload)

    async def _invoke(self, payload: Json) -> Json:
        request, context = _turn(payload)
        records = RecordEncoder(
            runtime_id=context.runtime_id, invocation_id=context.invocation_id, request_id=context.request_id
        )
        outcome = await self._target.run(request, context, chunk_limit=records.chunk_limit)
        return outcome.to_mapping()

    async def _invoke_openai_stream(self, payload: Json) -> Json:
        request, context = _turn(payload)
        async with await OpenAIStreamSink.connect(StreamTransport.from_payload(payload)) as sink:

            async def send(ready: ReadyChunk) -> None:
                await sink.emit_encoded(ready.encoded)

            try:
                run = self._target.run(request, context, chunk_limit=sink.chunk_limit, send=send)
                outcome = await sink.unless_lost(run)
                await sink.finish()
            except FabricStreamError:
                self._failed = True  # the target ran, and its chunks are lost: nothing may run it again
                raise
        return outcome.to_mapping()


def serve_binding(
    source: TurnSource | None = None,
    *,
    lifespan: Lifespan | None = None,
    prepare: Prepare | None = None,
    model: str = "unknown-model",
    turn_timeout: float | None = None,
    options: ConverterOptions | None = None,
) -> None:
    """Serve one runtime until Fabric stops it or closes stdin: the last line of an adapter's script.

    The descriptor is of kind `process` (`write_descriptor`). Whatever else the process writes to stdout goes to stderr
    from here on.

    Args:
        source: As for `ChunkStreamAdapter`, and so the next five; the request is a `TurnRequest`, the context a
            `TurnContext`.
        lifespan: See `ChunkStreamAdapter`; it gets the start payload as plain JSON.
        prepare: See `ChunkStreamAdapter`.
        model: See `ChunkStreamAdapter`.
        turn_timeout: See `ChunkStreamAdapter`.
        options: See `ChunkStreamAdapter`.
    """
    target = StreamTarget(
        source, lifespan=lifespan, prepare=prepare, model=model, turn_timeout=turn_timeout, options=options
    )
    answers = _reserve_stdout()
    try:
        asyncio.run(_serve(Binding(target), answers))
    except KeyboardInterrupt:
        raise SystemExit(130) from None


async def _serve(binding: Binding, answers: IO[bytes]) -> None:
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()
    # A thread of its own, and a daemon: a read of stdin cannot be interrupted, and must not hold up the end.
    threading.Thread(target=_read, args=(loop, lines, gone), daemon=True).start()
    try:
        while not binding.stopped and (line := await lines.get()) is not None:
            # Start and stop run in this task: what a lifespan enters has to be left in the same one.
            streams = b'"invoke_openai_stream"' in line
            answer = await (_unless_gone(binding.handle(line), lines, gone) if streams else binding.handle(line))
            if answer is None:
                break
            answers.write(json.dumps(answer).encode() + b"\n")
            answers.flush()
    finally:
        await binding.close()
        if has_abandoned_targets():
            # `asyncio.run` would wait for it, and the process would outlive its runtime.
            sys.stderr.flush()
            os._exit(0)


async def _unless_gone(
    work: Coroutine[Any, Any, Json], lines: asyncio.Queue[bytes | None], gone: asyncio.Event
) -> Json | None:
    """The answer of a streamed turn; None where stdin ended meanwhile: nobody is left to stream to."""
    turn = asyncio.create_task(work)
    watch = asyncio.create_task(gone.wait())
    try:
        await asyncio.wait({turn, watch}, return_when=asyncio.FIRST_COMPLETED)
        if turn.done() or lines.qsize() > 1:  # the end of stdin waits behind another request
            return await turn
        return None
    finally:
        watch.cancel()
        turn.cancel()
        await asyncio.gather(turn, watch, return_exceptions=True)


def _read(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes | None], gone: asyncio.Event) -> None:
    """Hand on the lines of stdin; from the descriptor, because the lock of `sys.stdin` would abort the exit."""
    rest = b""
    with suppress(RuntimeError):  # the loop is closed
        while read := os.read(0, 1 << 16):
            *whole, rest = (rest + read).split(b"\n")
            for line in whole:
                loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, None)
        loop.call_soon_threadsafe(gone.set)


def _reserve_stdout() -> IO[bytes]:
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return answers


def _turn(payload: Json) -> tuple[TurnRequest, TurnContext]:
    request, context = _mapping(payload.get("request")), _mapping(payload.get("runtime_context"))
    ids: dict[str, str] = {}
    for name in ("runtime_id", "invocation_id", "request_id"):
        value = context.get(name)
        if not isinstance(value, str) or not value.strip():
            raise FabricStreamError("lifecycle_invalid_request", f"runtime_context.{name} must be a non-blank string")
        ids[name] = value
    if "input" not in request:
        raise FabricStreamError("lifecycle_invalid_request", "the request has no input")
    deadline = context.get("deadline_millis")
    return (
        TurnRequest(
            input=request["input"],
            context=_mapping(request.get("context")),
            extensions=_mapping(request.get("extensions")),
        ),
        TurnContext(deadline_millis=deadline if type(deadline) is int else None, fields=context, **ids),
    )


def _mapping(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


@contextmanager
def _environment(context: Json) -> Generator[None]:
    """The environment variables that Fabric's telemetry sets for one turn."""
    overlay = _mapping(_mapping(context.get("telemetry")).get("env"))
    if not all(isinstance(value, str) for value in overlay.values()):
        overlay = {}
    before = {name: os.environ.get(name) for name in overlay}
    os.environ.update(overlay)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _failure(operation: str, code: str, message: str) -> Json:
    # Fabric knows no stage of its own for the streamed invoke, and refuses an unknown one.
    stage = "invoke" if operation == "invoke_openai_stream" else operation
    return {"status": "failed", "error": {"stage": stage, "code": code, "message": message, "retryable": False}}
