"""Who runs the adapter under test: its own process, our binding, or a stand-in for Fabric's common host.

Each takes one lifecycle request after the other and gives its outcome, as it goes over stdin and stdout.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, cast

__all__ = ["AdapterHost", "CountedSource", "HostError", "host_for"]

Json = dict[str, Any]


class HostError(Exception):
    """The host cannot go on: it ended, or said something that is no answer."""


class AdapterHost(Protocol):
    """One runtime of the adapter.

    Attributes:
        refuses: It can refuse a chunk to the adapter, as the common host does.
        refuse: The code with which the next chunk is refused, or None.
    """

    refuses: bool
    refuse: str | None

    async def ask(self, operation: str, payload: Json) -> Json:
        """The outcome of one lifecycle request; HostError where there is none."""
        ...

    async def close(self) -> None:
        """End it, whatever state it is in."""
        ...


class CountedSource:
    """A source that counts its calls."""

    def __init__(self, source: Callable[[Any], Any]) -> None:
        self.source = source
        self.calls = 0

    def __call__(self, question: Any) -> Any:
        """Call it."""
        self.calls += 1
        return self.source(question)


def host_for(adapter: Any) -> AdapterHost:
    """The host for what `check_adapter` was given."""
    if isinstance(adapter, str | os.PathLike):
        return ProcessHost(Path(cast("str", adapter)))
    if hasattr(adapter, "invoke_openai_stream") or isinstance(adapter, type):
        return ObjectHost(adapter() if isinstance(adapter, type) else adapter)
    if callable(adapter):
        return SourceHost(adapter)
    raise TypeError(f"an adapter is a descriptor's path, an adapter, or a source, not {type(adapter).__name__}")


class SourceHost:
    """A source in this process, served as `serve_binding` serves it."""

    def __init__(self, source: Callable[[Any], Any]) -> None:
        from dragent_stream.fabric.binding import Binding
        from dragent_stream.fabric.turn import StreamTarget

        self.refuses = False
        self.refuse: str | None = None
        self._binding = Binding(StreamTarget(source))

    async def ask(self, operation: str, payload: Json) -> Json:
        """See `AdapterHost`."""
        answer = await self._binding.handle(json.dumps({"operation": operation, "payload": payload}))
        return answer["outcome"]

    async def close(self) -> None:
        """See `AdapterHost`."""
        await self._binding.close()


class ObjectHost:
    """An adapter of the common host in this process: typed requests in, typed results out, the strict wire between."""

    def __init__(self, adapter: Any) -> None:
        self.refuses = True
        self.refuse: str | None = None
        self._adapter = adapter

    async def ask(self, operation: str, payload: Json) -> Json:
        """See `AdapterHost`."""
        from nemo_fabric_adapters.common.lifecycle import LifecycleError  # pyright: ignore[reportMissingTypeStubs]

        work = asyncio.ensure_future(_settled(self._dispatch(operation, payload)))
        try:
            await asyncio.wait({work})
        finally:
            work.cancel()
        if work.cancelled():
            raise HostError("CancelledError came out of the adapter, which ends the common host")
        output, error = work.result()
        if isinstance(error, LifecycleError):
            return _failed(error.code, error.message)
        if isinstance(error, Exception):
            return _failed(
                f"lifecycle_adapter_{operation}_failed", f"the adapter raised {type(error).__name__}: {error}"
            )
        if error is not None:
            raise HostError(f"{type(error).__name__} came out of the adapter, which ends the common host")
        return {"status": "succeeded", "output": output}

    async def close(self) -> None:
        """See `AdapterHost`."""

    async def _dispatch(self, operation: str, payload: Json) -> Any:
        from nemo_fabric_adapter_contract.models import AgentConfig, AgentRunRequest, AgentRunResult, RuntimeContext
        from nemo_fabric_adapters.common.lifecycle import LifecycleError  # pyright: ignore[reportMissingTypeStubs]

        if operation == "start":
            return await self._adapter.start({**payload, "config": AgentConfig.from_mapping(payload["config"])})
        if operation == "stop":
            return await self._adapter.stop()
        try:
            request = AgentRunRequest.from_mapping(payload["request"])
            context = RuntimeContext.from_mapping(payload["runtime_context"])
        except Exception as error:
            raise LifecycleError("lifecycle_invalid_request", str(error)) from error
        if operation == "invoke":
            result = await self._adapter.invoke(request, context)
        else:
            result = await self._stream(request, context, payload)
        if not isinstance(result, AgentRunResult):
            raise LifecycleError("lifecycle_invalid_response", f"{operation} returned {type(result).__name__}")
        return result.to_mapping()

    async def _stream(self, request: Any, context: Any, payload: Json) -> Any:
        from nemo_fabric_adapters.common.lifecycle import LifecycleError  # pyright: ignore[reportMissingTypeStubs]

        from dragent_stream.fabric.contract import INVALID_CHUNK, FabricStreamError
        from dragent_stream.fabric.sink import OpenAIStreamSink, StreamTransport

        invoke = getattr(self._adapter, "invoke_openai_stream", None)
        if not callable(invoke):
            raise LifecycleError("lifecycle_openai_stream_unsupported", "the adapter has no invoke_openai_stream")
        sink = await OpenAIStreamSink.connect(StreamTransport.from_payload(payload))

        async def emit(chunk: Mapping[str, Any]) -> None:
            if not isinstance(chunk, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise LifecycleError(INVALID_CHUNK, f"a chunk is a mapping, not {type(chunk).__name__}")
            refusal, self.refuse = self.refuse, None
            if refusal is not None:
                raise LifecycleError(refusal, "refused on purpose")
            try:
                await sink.emit(chunk)
            except FabricStreamError as error:
                raise LifecycleError(error.code, error.message) from error

        # As the common host: the end record goes out whatever the adapter did.
        async with sink:
            output, error = await _settled(cast("Awaitable[Any]", invoke(request, context, emit)))
            try:
                await sink.finish()
            except FabricStreamError as lost:
                if error is None:
                    raise LifecycleError(lost.code, lost.message) from lost
        if error is not None:
            raise error
        return output


class ProcessHost:
    """The process that a descriptor names, spoken to as Fabric does."""

    def __init__(self, descriptor: Path) -> None:
        self.refuses = False
        self.refuse: str | None = None
        self._process: asyncio.subprocess.Process | None = None
        runner: Json = json.loads(descriptor.read_text("utf-8"))["runner"]
        if module := runner.get("module"):
            python = runner.get("python") or os.environ.get("ADAPTER_PYTHON") or sys.executable
            self._command = [python, "-m", module]
        else:
            self._command = [runner["command"], *([runner["script"]] if "script" in runner else [])]
        self._command += runner.get("args", [])
        self._env = {**os.environ, **runner.get("env", {})}
        self._directory = descriptor.resolve().parent

    async def ask(self, operation: str, payload: Json) -> Json:
        """See `AdapterHost`."""
        process = self._process = self._process or await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self._env,
            cwd=self._directory,
            limit=1 << 24,
        )
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps({"operation": operation, "payload": payload}).encode() + b"\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
        except (OSError, ValueError) as error:
            raise HostError(f"its process cannot be spoken to ({type(error).__name__})") from error
        if not line:
            raise HostError(f"its process ended with {await process.wait()}; see its stderr above")
        try:
            answer: Json = json.loads(line)
            answered, outcome = answer["operation"], cast("Json", answer["outcome"])
        except (ValueError, KeyError, TypeError):
            raise HostError(f"stdout is Fabric's alone, and it wrote {line[:80]!r}") from None
        if answered != operation:
            raise HostError(f"it answered {operation} with an answer to {answered}")
        if operation == "stop":
            rest = await process.stdout.read()
            if rest:
                raise HostError(f"stdout is Fabric's alone, and it wrote {rest[:80]!r}")
            await process.wait()
        return outcome

    async def close(self) -> None:
        """See `AdapterHost`."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


async def _settled(work: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """(result, exception): a task that raises SystemExit would end its event loop."""
    try:
        return await work, None
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:
        return None, error


def _failed(code: str, message: str) -> Json:
    return {"status": "failed", "error": {"stage": "invoke", "code": code, "message": message, "retryable": False}}
