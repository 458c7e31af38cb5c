"""What stands before every route of the front end: who may come in, how much they may bring, how many at once.

Refusals are JSON: `{"error": text}` with 400 and 401, `{"error": {"code", "message"}}` with the others, as those of
`dragent_stream.asgi`. Health routes and CORS preflights pass: who asks them has no credentials.
"""

import asyncio
from collections.abc import Callable, Collection
from contextvars import ContextVar
from typing import Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragent_stream.errors import DragentStreamError
from dragent_stream.nat.failures import ServerStoppingError, TooManyRunsError
from dragent_stream.nat.health import PATHS as HEALTH_PATHS
from dragent_stream.nat.identity import IdentityError, check_signed, request_user
from dragent_stream.nat.imports import SessionManager
from dragent_stream.nat.open_runs import OpenRuns, runs_of_request

__all__ = ["Gate", "Refusal", "request_path"]

request_path: ContextVar[str] = ContextVar("dragent_stream_path", default="")
"""The path of the current request, which NAT does not tell `get_step_adaptor`."""

BODY_SECONDS = 30.0
WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})


class Refusal(DragentStreamError):
    """A request that is answered with an error and nothing else.

    Attributes:
        status: The HTTP status.
        code: A word for programs.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def response(self) -> JSONResponse:
        """The answer."""
        headers = {"retry-after": "1"} if self.status == 503 else None
        # The text itself is what clients of this front end know of a 400 and a 401.
        plain = self.status in (400, 401)
        error = str(self) if plain else {"code": self.code, "message": str(self)}
        return JSONResponse({"error": error}, status_code=self.status, headers=headers)


class Gate:
    """Middleware, inside of CORS and around all routes.

    Args:
        app: The routes.
        runs: The open runs.
        run_paths: The paths whose requests are runs.
        session_managers: Gives NAT's sessions; they exist once the server has started.
        auth_required: Refuse whoever has no valid signed context.
        max_body_bytes: The largest body; files for `/static` may be larger.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        runs: OpenRuns,
        run_paths: Collection[str],
        session_managers: Callable[[], list[SessionManager]],
        auth_required: bool,
        max_body_bytes: int,
    ) -> None:
        self._app = app
        self._runs = runs
        self._run_paths = run_paths
        self._session_managers = session_managers
        self._auth_required = auth_required
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request or a websocket in, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request_path.set(scope["path"])
        begun = False

        async def answer(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._let_in(scope, receive, answer)
        except (Refusal, IdentityError, TooManyRunsError, ServerStoppingError) as error:
            if begun:
                raise
            await _refusal(error).response()(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope.get("method", "")
        if method == "OPTIONS" or (path in HEALTH_PATHS and method == "GET"):
            await self._app(scope, receive, send)
            return
        managers = self._session_managers()
        check_signed(HTTPConnection(scope), managers[0], required=self._auth_required)
        if method and method not in WITHOUT_BODY and not path.startswith("/static/"):
            body = await self._body(scope, receive)
            if body is None:
                return
            receive = _replayed(body, receive)
        if not method or path not in self._run_paths:
            await self._app(scope, receive, send)
            return
        request_user(Request(scope), managers[0])
        with self._runs.admitted():
            await self._run(scope, receive, send)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request run; what it streams ends with it, also where its generators are left to the collector."""
        streams = False

        async def watch(message: Message) -> None:
            nonlocal streams
            if message["type"] == "http.response.start":
                streams = any(value.startswith(b"text/event-stream") for _, value in message.get("headers", ()))
            await send(message)

        leave: list[Callable[[], None]] = []
        runs_of_request.set(leave)
        try:
            await self._app(scope, receive, watch)
        finally:
            for left in leave if streams else ():
                left()

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None if the client has gone."""
        limit = self._max_body_bytes
        too_large = Refusal(413, "too_large", f"the body is larger than {limit} bytes")
        declared = HTTPConnection(scope).headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > limit:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while (message := await receive())["type"] == "http.request":
                    body += message.get("body", b"")
                    if len(body) > limit:
                        raise too_large
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise Refusal(408, "timeout", f"the body did not arrive within {BODY_SECONDS:g} s") from None
        return None


def _replayed(body: bytes, receive: Receive) -> Receive:
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return parts.pop() if parts else await receive()

    return replay


def _refusal(error: DragentStreamError) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, IdentityError):
        return Refusal(401, "unauthorized", str(error))
    code: Any = "shutting_down" if isinstance(error, ServerStoppingError) else "too_many_runs"
    return Refusal(503, code, str(error))
