"""The page: a chat and its events in the browser, built from `page/` at the repository's root by `make page`."""

from __future__ import annotations

from html import escape
from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

__all__ = ["page_routes"]

_STATIC = Path(__file__).parent / "static"

# The page runs its own script and talks to its own origin; what a model writes into it can do neither.
_SECURITY = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def page_routes(*, endpoint: str, title: str) -> list[BaseRoute]:
    """`/`, which is the page for browsers and a pointer to the endpoint for programs, and `/page/` with its files."""
    document = (_STATIC / "index.html").read_text(encoding="utf-8")
    document = document.replace("{{endpoint}}", escape(endpoint)).replace("{{title}}", escape(title))

    async def index(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        if "text/html" in accept:
            return HTMLResponse(document, headers={**_SECURITY, "cache-control": "no-cache", "vary": "accept"})
        return JSONResponse({"status": "ok", "agui": endpoint}, headers={"vary": "accept"})

    return [Route("/", index, methods=["GET"]), Mount("/page", _PageFiles(directory=_STATIC))]


class _PageFiles(StaticFiles):
    """Static files that a browser asks about anew: they change with the installed version."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update({**_SECURITY, "cache-control": "no-cache"})
            await send(message)

        await super().__call__(scope, receive, with_headers)
