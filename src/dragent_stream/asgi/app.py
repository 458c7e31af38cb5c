"""`create_app`: the ASGI application that runs an agent and streams its runs as AG-UI.

Routes: `POST /agui` (a run), `POST /agui/{runId}/stop`, `GET /health` and `GET /ping`, and where asked for the page at `/`
and the inspector at `/agui-inspector`. Each also answers with a trailing slash. Every refusal is JSON,
`{"error": {"code", "message", "field"?}}`, with a 4xx or 5xx status and no stream; once a stream is open, every failure is
a RUN_ERROR in it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any, TypeAlias

from ag_ui.core import RunAgentInput
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from dragent_stream.asgi.coalesce import DeltaBuffer
from dragent_stream.asgi.hosts import AllowedHosts, HostRules
from dragent_stream.asgi.page import page_routes
from dragent_stream.asgi.run_input import RunInputError, read_run_input
from dragent_stream.asgi.runs import ActiveRuns, Run, RunRefusedError
from dragent_stream.asgi_exits import as_exception, exits_contained
from dragent_stream.asgi_response import EventStreamResponse
from dragent_stream.error_text import error_text
from dragent_stream.errors import AnswerError, ConversionError, missing_extra
from dragent_stream.events import WireEvents
from dragent_stream.options import DEFAULT_OPTIONS, ConverterOptions
from dragent_stream.run import frames_of_a_chunk, ledger_for, run_events
from dragent_stream.stream_converter import ChunkSource

__all__ = ["Agent", "Identify", "create_app"]

logger = logging.getLogger("dragent_stream")

Agent: TypeAlias = Callable[[RunAgentInput], Any]
"""Takes the run input; gives an async iterable of chunks and steps, an awaitable of one, or an iterable."""

Identify: TypeAlias = Callable[[Request], str | Awaitable[str | None] | None]
"""Names the user behind a request; raises `starlette.exceptions.HTTPException` (401, 403) to refuse it."""

_BODY_SECONDS = 30.0


def create_app(
    agent: Agent,
    *,
    path: str = "/agui",
    options: ConverterOptions | None = None,
    keep_alive: float | None = 15.0,
    send_timeout: float | None = 60.0,
    coalesce_ms: float = 16.0,
    coalesce_chars: int = 1024,
    max_body_bytes: int = 8 * 1024 * 1024,
    max_runs: int = 2048,
    allow_origins: Sequence[str] = (),
    allowed_hosts: Sequence[str] | None = None,
    identify: Identify | None = None,
    expose_errors: bool = False,
    shutdown_grace: float = 10.0,
    page: bool = False,
    inspector: bool = False,
    title: str = "dragent_stream",
) -> Starlette:
    """An ASGI application that streams the agent's runs to AG-UI clients.

    It can be served as it is, or mounted: `fastapi_app.mount("/agent", create_app(agent))`. Its `state.runs` is the
    `ActiveRuns`; a host that mounts it calls `await app.state.runs.drain(seconds)` before it goes down.

    Args:
        agent: Called with the run input for every run. What it raises is a RUN_ERROR; a `RunInputError` raised by the
            call itself is a 422 instead.
        path: Where runs are posted.
        options: Of the conversion. `frontend_tools` come from the run input, `public_error` from `expose_errors`.
        keep_alive: Seconds of silence before a `: ping` comment; None for none. The upstream is not disturbed.
        send_timeout: Seconds that a client may leave a frame unread; None for no limit.
        coalesce_ms: Milliseconds that a text, reasoning or argument delta may wait to be merged with the next; 0 for no
            merging. The first delta of a message never waits, nor does one that comes later than that after the one
            before. The default is one frame of a screen: a fast model's tokens cost the browser, which pays for each
            event, no more than it can show, and the server half as much; a slow model's are not touched.
        coalesce_chars: Bytes of merged text that leave at once.
        max_body_bytes: A larger request is refused with 413.
        max_runs: Runs streamed at once; one more is refused with 503.
        allow_origins: Origins of other sites that may use this one (CORS); none by default.
        allowed_hosts: Names of this server that requests may use, as in `example.com`, `*.example.com` or `127.0.0.1`;
            others get 421. None for any: the application does not know how it is reached. On a machine of one's own
            `dragent_stream.asgi.LOOPBACK_HOSTS` keep web pages out that point their own name here (DNS rebinding);
            `dragent-stream serve` does that.
        identify: Names the user behind a request. A run can only be stopped by the user who started it.
        expose_errors: Send exception texts to clients. Off, they get a reference, under which the log has the rest.
        shutdown_grace: Seconds that open runs are given to end when the server shuts down, before they are stopped.
        page: Serve a chat page with an event timeline at `/`.
        inspector: Mount agui-inspector at `/agui-inspector` (extra `[inspector]`).
        title: Name of the agent on the page.

    Raises:
        ConversionError: An entry of `allowed_hosts` is no host.
    """
    runs = ActiveRuns(max_runs)
    hosts = None if allowed_hosts is None else HostRules(allowed_hosts)
    endpoint = _RunEndpoint(
        agent,
        runs,
        options=options or DEFAULT_OPTIONS,
        expose_errors=expose_errors,
        identify=identify,
        max_body_bytes=max_body_bytes,
        keep_alive=keep_alive,
        send_timeout=send_timeout,
        buffer=(lambda: DeltaBuffer(coalesce_ms, coalesce_chars)) if coalesce_ms > 0 else None,
    )
    path = "/" + path.strip("/")
    routes: list[BaseRoute] = [
        *_both(path, endpoint, "POST"),
        *_stop_routes(path, _stop_endpoint(runs, identify)),
        *_both("/health", _health_endpoint(runs), "GET"),
        *_both("/ping", _health_endpoint(runs), "GET"),
    ]
    if page:
        routes += page_routes(endpoint=path, title=title)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        yield
        await runs.drain(shutdown_grace)

    app = Starlette(
        routes=routes,
        middleware=[
            *([Middleware(AllowedHosts, hosts)] if hosts is not None else []),
            *([_cors(allow_origins)] if allow_origins else []),
        ],
        exception_handlers={HTTPException: _refuse_http, Exception: _tell_of_failure},
        lifespan=lifespan,
    )
    app.state.runs = runs
    app.state.shutdown_grace = shutdown_grace
    if inspector:
        _mount_inspector(app, path, title)
    return app


class _RunEndpoint:
    """Raw ASGI: no request or response object stands between a frame and the socket."""

    def __init__(
        self,
        agent: Agent,
        runs: ActiveRuns,
        *,
        options: ConverterOptions,
        expose_errors: bool,
        identify: Identify | None,
        max_body_bytes: int,
        keep_alive: float | None,
        send_timeout: float | None,
        buffer: Callable[[], DeltaBuffer] | None,
    ) -> None:
        self._agent = agent
        self._runs = runs
        self._options = options
        self._expose_errors = expose_errors
        self._identify = identify
        self._max_body_bytes = max_body_bytes
        self._keep_alive = keep_alive
        self._send_timeout = send_timeout
        self._buffer = buffer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            _check_headers(request)
            owner = await _identified(request, self._identify)
            run_input = read_run_input(await _body(request, self._max_body_bytes))
            self._runs.check(run_input.thread_id, run_input.run_id)
            response = self._response(run_input)
        except ClientDisconnect:
            return
        except (RunInputError, RunRefusedError) as error:
            await _refusal(error)(scope, receive, send)
            return
        run = Run(run_input.thread_id, run_input.run_id, response.stop, owner)
        with self._runs.streaming(run):
            await response(scope, receive, send)

    def _response(self, run_input: RunAgentInput) -> EventStreamResponse:
        name = f"run {run_input.run_id!r} of thread {run_input.thread_id!r}"
        if self._expose_errors:
            options = replace(self._options, expose_errors=True)
        else:
            options = replace(self._options, public_error=_reference_for(name))
        try:
            ledger = ledger_for(run_input, WireEvents(), options)
        except ConversionError as error:
            raise RunInputError(str(error)) from error

        def farewell(error: BaseException | None) -> Iterable[bytes]:
            begun = ledger.start_run()  # nothing, unless the run was stopped before its first frame
            if error is None:
                return begun + ledger.cancel_run()
            return begun + ledger.fail_run(error_text(error, options))

        try:
            with exits_contained():
                upstream: ChunkSource = self._agent(run_input)
        except RunInputError:
            raise
        except BaseException as error:
            upstream = _failed(as_exception(error))
        return EventStreamResponse(
            run_events(upstream, ledger, frames_of_a_chunk),
            keep_alive=self._keep_alive,
            send_timeout=self._send_timeout,
            close_timeout=options.close_timeout,
            buffer=self._buffer and self._buffer(),
            farewell=farewell,
            name=name,
        )


async def _failed(error: Exception) -> AsyncIterator[Any]:
    raise error
    yield


def _reference_for(name: str) -> Callable[[BaseException], str]:
    """What clients read for an exception: a reference, under which it is logged."""
    told: dict[int, str] = {}

    def public_error(error: BaseException) -> str:
        if isinstance(error, AnswerError):
            return str(error)  # the library's own words, which hold nothing of the user's
        if id(error) not in told:
            reference = secrets.token_hex(4)
            told[id(error)] = f"The agent failed. Reference: {reference}"
            logger.error("%s failed (reference %s)", name, reference, exc_info=error)
        return told[id(error)]

    return public_error


def _check_headers(request: Request) -> None:
    # A browser sends other types across sites without asking; JSON it only sends where CORS allows.
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise RunInputError(
            f"must be application/json, not {media_type!r}", field="content-type", status=415, code="not_json"
        )
    accept = request.headers.get("accept", "*/*").lower()
    if not any(wanted in accept for wanted in ("text/event-stream", "text/*", "*/*")):
        raise RunInputError("must allow text/event-stream", field="accept", status=406, code="not_acceptable")


async def _identified(request: Request, identify: Identify | None) -> str | None:
    if identify is None:
        return None
    with exits_contained():
        try:
            owner = identify(request)
            return await owner if inspect.isawaitable(owner) else owner
        except Exception:
            raise
        except BaseException as error:
            if _is_cancelled(error):
                raise
            raise as_exception(error) from error


def _is_cancelled(error: BaseException) -> bool:
    """Whether the request itself is cancelled or destroyed, and this is not just what was raised in it."""
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no loop runs any more
            return True
        return task is None or (isinstance(error, asyncio.CancelledError) and task.cancelling() > 0)
    return False


async def _body(request: Request, limit: int) -> bytes:
    too_large = RunInputError(f"the body is larger than {limit} bytes", status=413, code="too_large")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    raise too_large
    except TimeoutError:
        raise RunInputError(f"the body did not arrive within {_BODY_SECONDS:g} s", status=408, code="timeout") from None
    return bytes(body)


def _stop_endpoint(runs: ActiveRuns, identify: Identify | None) -> Callable[[Request], Awaitable[Response]]:
    async def stop(request: Request) -> Response:
        owner = await _identified(request, identify)
        run_id = request.path_params["run_id"]
        found = runs.find(run_id, thread_id=request.query_params.get("threadId"), owner=owner)
        if not found:
            return _error_response(404, "run_not_found", f"no run {run_id!r} is being streamed", "runId")
        if len(found) > 1:
            message = f"{len(found)} threads are streaming a run {run_id!r}; name one with ?threadId="
            return _error_response(409, "run_ambiguous", message, "threadId")
        found[0].stop()
        return _json({"threadId": found[0].thread_id, "runId": run_id, "stopping": True}, 202)

    return stop


def _health_endpoint(runs: ActiveRuns) -> Callable[[Request], Awaitable[Response]]:
    async def health(request: Request) -> Response:
        status = "draining" if runs.draining else "ok"
        return _json({"status": status, "activeRuns": len(runs)}, 503 if runs.draining else 200)

    return health


def _both(path: str, endpoint: Any, method: str) -> list[Route]:
    return [Route(path, endpoint, methods=[method]), Route(path + "/", endpoint, methods=[method])]


def _stop_routes(path: str, endpoint: Any) -> list[Route]:
    """A run's id may hold all that a client can think of; the path that a server gives is decoded: `a%2Fb` is `a/b`."""
    routes = _both(path + "/{run_id:path}/stop", endpoint, "POST")
    for route in routes:
        route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)
    return routes


def _cors(origins: Sequence[str]) -> Middleware:
    return Middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["GET", "POST"],
        allow_headers=["accept", "authorization", "content-type"],
    )


def _mount_inspector(app: Starlette, path: str, title: str) -> None:
    try:
        agui_inspector: Any = import_module("agui_inspector")
    except ImportError as error:
        raise missing_extra("inspector", error) from error
    agui_inspector.mount_inspector(app, agents=[agui_inspector.Agent(id="agent", url=path, name=title)], enabled=True)


def _refusal(error: RunInputError | RunRefusedError) -> Response:
    headers = {"retry-after": "1"} if error.status == 503 else None
    return _error_response(error.status, error.code, str(error), getattr(error, "field", ""), headers)


async def _refuse_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    message = error.detail
    if error.status_code == 405:
        message = f"{request.method} is not possible here; allowed: {(error.headers or {}).get('Allow', '')}"
    return _error_response(error.status_code, code, message, "", error.headers)


async def _tell_of_failure(request: Request, error: Exception) -> Response:
    """The answer beside an exception, which the server logs."""
    return _error_response(500, "internal_error", "the server failed; its log has the rest")


def _error_response(status: int, code: str, message: str, field: str = "", headers: Any = None) -> Response:
    details = {"code": code, "message": message} | ({"field": field} if field else {})
    return _json({"error": details}, status, headers)


def _json(content: dict[str, Any], status: int, headers: Any = None) -> Response:
    # ASCII: what a request names may hold half a character, which UTF-8 does not have.
    return Response(json.dumps(content), status_code=status, headers=headers, media_type="application/json")
