"""Serve an application with uvicorn, and find the agent that a command line names."""

from __future__ import annotations

import asyncio
import dis
import importlib
import inspect
import logging
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import uvicorn

from dragent_stream.asgi.app import Agent
from dragent_stream.asgi.sources import langchain_source, openai_source, trace_source
from dragent_stream.errors import ConversionError, missing_extra

__all__ = ["resolve_agent", "run_server"]

logger = logging.getLogger("dragent_stream")

# Seconds that tasks which are still there at the end are given to end.
_LAST_SECONDS = 5.0


def resolve_agent(
    target: str,
    *,
    model: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    system: str = "",
    speed: float | None = 1.0,
) -> Agent:
    """The agent that a target names.

    Args:
        target: A trace file; the URL of an OpenAI-compatible endpoint; or `module:agent`, where the agent is a function
            of the run input, or a LangChain runnable or graph.
        model: The endpoint's model; needed for an endpoint.
        base_url: The endpoint, where `target` is the model's name.
        api_key: The endpoint's key; `OPENAI_API_KEY` where None.
        system: A system message for an endpoint's model.
        speed: Of a trace; see `trace_source`.

    Raises:
        ConversionError: The target is none of these; the message names the remedy.
        TraceFormatError: The file is no trace.
        MissingExtraError: An endpoint needs `dragent-stream[openai]`.
    """
    if base_url is not None:
        return _endpoint(base_url, model or target, api_key, system)
    if urlsplit(target).scheme in ("http", "https"):
        if not model:
            raise ConversionError(f"an endpoint needs the name of a model: serve {target} --model NAME")
        return _endpoint(target, model, api_key, system)
    if Path(target).is_file():
        return trace_source(target, speed=speed)
    module, colon, name = target.partition(":")
    if colon and all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        return _import(module, name)
    raise ConversionError(
        f"{target!r} is no file, no http(s) URL and no module:agent; give a trace file, the URL of an OpenAI-compatible "
        "endpoint with --model, or the import path of an agent"
    )


def _endpoint(base_url: str, model: str, api_key: str | None, system: str) -> Agent:
    try:
        from openai import AsyncOpenAI
    except ImportError as error:
        raise missing_extra("openai", error) from error
    # An endpoint of one's own often wants no key, but the client insists on having one.
    key = api_key or os.environ.get("OPENAI_API_KEY") or "none"
    base_url = base_url.rstrip("/").removesuffix("/chat/completions")
    return openai_source(AsyncOpenAI(base_url=base_url, api_key=key), model, system=system)


def _import(module: str, name: str) -> Agent:
    # As with `python -m`, modules of the current folder count.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(error.name + ".")):
            raise ConversionError(f"there is no module {error.name!r} here or installed") from None
        if error.name:
            raise ConversionError(f"{module} needs {error.name!r}, which is not installed") from error
        raise ConversionError(f"{module} cannot be imported: {error}") from error
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise ConversionError(
            f"{module} cannot be imported: {type(error).__name__}: {error} ({place.filename}:{place.lineno})"
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConversionError(f"{module} has no {name!r}")
        found = getattr(found, part)
    if problem := _no_agent(found, f"{module}:{name}"):
        raise ConversionError(f"{module}:{name} is no agent: {problem}")
    return langchain_source(found) if hasattr(found, "astream") else cast("Agent", found)


def _no_agent(found: Any, target: str) -> str | None:
    """Why every run of it would fail, and the remedy; None for what may be an agent."""
    kind = type(found).__name__
    if inspect.isclass(found):
        return f"it is the class {found.__name__}; give an instance, or a function of the run input"
    if hasattr(found, "astream"):
        return None
    if inspect.isawaitable(found) or inspect.isasyncgen(found) or inspect.isgenerator(found):
        return f"it is a {kind}, which can be used up once; give the function that makes it, without calling it"
    if not callable(found):
        remedy = "; compile() it first" if callable(getattr(found, "compile", None)) else ""
        return f"it is a {kind}, not a function of the run input{remedy}"
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # some builtins have none
        return None
    names = list(signature.parameters)
    if names[:1] == ["scope"]:
        return f"it is an ASGI application; serve it with: uvicorn {target}"
    if names == ["environ", "start_response"]:
        return "it is a WSGI application; an agent is a function of the run input"
    try:
        signature.bind(None)
    except TypeError:
        return f"it takes {', '.join(names) or 'nothing'}; an agent is a function of one argument, the run input"
    if given := _given_always(found):
        return f"it gives {given}, never a stream; yield chunks, or return an iterable of them"
    return None


def _given_always(function: Any) -> str | None:
    """The type of what a function that is no generator returns on every way, where that is one text or nothing."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
        return None
    given: set[str] = set()
    before = None
    for step in dis.get_instructions(code):
        if step.opname == "RETURN_CONST":  # Python 3.12 and 3.13
            given.add(type(step.argval).__name__)
        elif step.opname == "RETURN_VALUE":
            constant = before is not None and before.opname == "LOAD_CONST"
            given.add(type(before.argval).__name__ if before is not None and constant else "?")
        before = step
    return given.pop() if len(given) == 1 and given <= {"NoneType", "str", "bytes", "int", "bool"} else None


def run_server(
    app: Any,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    announce: Callable[[str], None] | None = None,
    log_level: str = "warning",
) -> None:
    """Serve until interrupted. Open runs are then given the app's `shutdown_grace`, and stopped in order after it.

    Args:
        app: What `create_app` gives, or any ASGI application.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        announce: Called once with the URL, when connections are accepted.
        log_level: Of uvicorn.

    Raises:
        ConversionError: The address cannot be listened on.
    """
    if not 0 <= port <= 65535:
        raise ConversionError(f"cannot listen on {host} port {port}: ports go from 0 to 65535")
    try:
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048
        )
    except OSError as error:
        raise ConversionError(
            f"cannot listen on {host} port {port}: {getattr(error, 'strerror', None) or error}; choose another host or port"
        ) from None
    config = uvicorn.Config(app, log_level=log_level, server_header=False)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listener.getsockname()[1]}"
    with listener, suppress(KeyboardInterrupt):
        _DrainingServer(config, lambda: announce(url) if announce is not None else None).run(sockets=[listener])


class _DrainingServer(uvicorn.Server):
    """Lets the app's runs drain while uvicorn waits for its connections; the lifespan would tell the app only afterwards.

    Tasks that swallow their cancellation do not keep it from ending, as they keep `asyncio.run`.
    """

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        factory = getattr(self.config, "get_loop_factory", None)  # uvicorn before 0.36 has none
        loop = ((factory and factory()) or asyncio.new_event_loop)()
        try:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(self.serve(sockets))
        finally:
            try:
                _end_tasks(loop)
            finally:
                asyncio.set_event_loop(None)
                loop.close()

    async def main_loop(self) -> None:
        self._announce()  # from here on a signal ends the server in order, with older uvicorns, too
        await super().main_loop()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        state = getattr(self.config.app, "state", None)
        runs = getattr(state, "runs", None)
        draining = (
            asyncio.create_task(runs.drain(state.shutdown_grace)) if state is not None and runs is not None else None
        )
        await super().shutdown(sockets)
        if draining is not None:
            draining.cancel()


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what still runs on the loop, and wait for it no longer than it is given."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    stubborn: set[asyncio.Task[Any]] = set()
    if tasks:
        _, stubborn = loop.run_until_complete(asyncio.wait(tasks, timeout=_LAST_SECONDS))
    if stubborn:
        logger.warning(
            "tasks that did not end when they were cancelled: %d; the server ends without them", len(stubborn)
        )
        # Python's end would destroy them, and who swallows everything swallows that, too, for ever. What a daemon
        # thread holds is not destroyed.
        threading.Thread(target=_hold, args=(stubborn,), daemon=True).start()
    else:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())


def _hold(tasks: set[asyncio.Task[Any]]) -> None:
    threading.Event().wait()
    tasks.clear()
