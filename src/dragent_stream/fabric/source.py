"""`fabric_source`: runtimes of NeMo Fabric as an agent of `create_app`.

The agent asks for the result of each turn, so a failed one fails the run; it lets turns of one runtime wait for each other;
and where the adapter does not stream, it invokes and shows the answer.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self

from ag_ui.core import RunAgentInput

from dragent_stream.errors import ConversionError, UpstreamError
from dragent_stream.fabric.answer import unknown_answer
from dragent_stream.fabric.failure import STREAMING_UNSUPPORTED, fabric_code, turn_error
from dragent_stream.fabric.open_turn import OpenTurn
from dragent_stream.fabric.pool import RuntimePool
from dragent_stream.fabric.turn_chunks import turn_chunks
from dragent_stream.fabric.turn_input import turn_input

__all__ = ["FabricSource", "fabric_source"]

logger = logging.getLogger("dragent_stream.fabric")


def thread_of(run_input: RunAgentInput) -> Hashable:
    """The conversation of a run: its thread."""
    return run_input.thread_id


def fabric_source(
    runtime: Any,
    *,
    prepare: Callable[[RunAgentInput], Any] | None = None,
    key: Callable[[RunAgentInput], Hashable] | None = thread_of,
    max_runtimes: int = 8,
    streaming: bool | None = None,
    close_timeout: float = 10.0,
) -> FabricSource:
    """An agent for `create_app`, `stream_agui_sse(agent(run_input), run_input)` and whoever else takes chunks.

    ```python
    app = create_app(fabric_source(lambda: Fabric().start_runtime(config, base_dir=".")))
    ```

    Each turn is read at its own speed; a client that leaves leaves it to run out, and its runtime is free afterwards. A turn
    that failed raises `UpstreamError` with Fabric's code; the error of the SDK is its cause.

    Args:
        runtime: A started runtime, whose turns go one after the other whatever thread they are of; its owner stops it,
            after `aclose`. Or a function that starts one (it may be async), called whenever another one is needed.
        prepare: Makes the turn's input, or a whole `RunRequest`, of the run input. Without it an adapter that streams
            gets the conversation as chat messages, a harness that does not gets the last question as text.
        key: Whose a runtime is, for a function: a harness remembers what it was told, so by default each thread has a
            runtime of its own. Where thread ids can be guessed, put the user into the key. None, for adapters that
            remember nothing (`serve_adapter`'s): any idle runtime takes any turn.
        max_runtimes: How many the function may have started at once. Beyond that the one that was idle for longest is
            stopped for the new one; where none is idle, turns wait.
        streaming: Whether the adapter streams natively; None believes its descriptor until the adapter says otherwise.
        close_timeout: Seconds that `aclose` waits for open turns.

    Raises:
        ConversionError: `runtime` is neither, or `max_runtimes` is below 1.
    """
    return FabricSource(
        runtime, prepare=prepare, key=key, max_runtimes=max_runtimes, streaming=streaming, close_timeout=close_timeout
    )


class FabricSource:
    """See `fabric_source`; `async with` it, or `aclose` it, to stop the runtimes that it started."""

    def __init__(
        self,
        runtime: Any,
        *,
        prepare: Callable[[RunAgentInput], Any] | None,
        key: Callable[[RunAgentInput], Hashable] | None,
        max_runtimes: int,
        streaming: bool | None,
        close_timeout: float,
    ) -> None:
        if max_runtimes < 1:
            raise ConversionError(f"max_runtimes must be at least 1, not {max_runtimes}")
        if hasattr(runtime, "invoke"):
            self._pool = RuntimePool(None, runtime, 1)
        elif callable(runtime):
            self._pool = RuntimePool(runtime, None, max_runtimes)
        else:
            remedy = "; await it first" if inspect.isawaitable(runtime) else ""
            raise ConversionError(
                f"fabric_source takes a runtime or a function that starts one, not {type(runtime).__name__}{remedy}"
            )
        self._prepare = prepare
        self._key = key
        self._streaming = streaming
        self._close_timeout = close_timeout

    def __call__(self, run_input: RunAgentInput) -> AsyncGenerator[Any, None]:
        """The chunks of one turn, which begins with the first pull."""
        return self._chunks(run_input)

    async def aclose(self) -> None:
        """Take no more turns, let open ones end, stop the runtimes that were started here."""
        await self._pool.aclose(self._close_timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _chunks(self, run_input: RunAgentInput) -> AsyncGenerator[Any, None]:
        async with aclosing(turn_chunks(await self._begin(run_input))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _begin(self, run_input: RunAgentInput) -> OpenTurn:
        pool = self._pool
        seat = await pool.take(self._key(run_input) if self._key else None)
        try:
            asked = _Turn(self, await pool.ready(seat), run_input)
        except BaseException as error:
            pool.give_back(seat)
            if isinstance(error, UpstreamError) or not isinstance(error, Exception):
                raise
            raise turn_error(error) from error
        return OpenTurn(asked, on_over=lambda: pool.give_back(seat))

    def streams(self, runtime: Any) -> bool:
        """Whether to ask this runtime for a stream."""
        if self._streaming is None:
            return bool(getattr(runtime, "supports_openai_streaming", False))
        return self._streaming

    def streams_not(self) -> None:
        """The adapter has no streaming, whatever its descriptor says."""
        if self._streaming is None:
            logger.warning("the adapter's descriptor claims streaming, and its code has none: its turns are invoked")
        self._streaming = False

    def request(self, runtime: Any, run_input: RunAgentInput, *, streams: bool) -> dict[str, Any]:
        """The arguments of `invoke` and `invoke_openai_stream`."""
        if self._prepare is None:
            fresh = not getattr(runtime, "invocations", ())
            return {"input": turn_input(run_input, streams=streams, fresh=fresh)}
        prepared = self._prepare(run_input)
        return {"request" if hasattr(prepared, "request_id") else "input": prepared}


class _Turn:
    """One turn as a `FabricStream`: streamed where the adapter can, else invoked, so that its answer is in the result."""

    def __init__(self, source: FabricSource, runtime: Any, run_input: RunAgentInput) -> None:
        self._source = source
        self._runtime = runtime
        self._run_input = run_input
        self._stream: Any = None
        self._result: Any = None

    async def __aiter__(self) -> AsyncIterator[Any]:
        source, runtime = self._source, self._runtime
        if source.streams(runtime):
            self._stream = runtime.invoke_openai_stream(**source.request(runtime, self._run_input, streams=True))
            silent = True
            async for chunk in self._stream:
                silent = False
                yield chunk
            try:
                self._result = await self._stream.result()
                return
            except Exception as error:
                if not silent or fabric_code(error) != STREAMING_UNSUPPORTED:
                    raise  # whatever it is, the target has run
            source.streams_not()
            _revive(runtime)
        self._result = await runtime.invoke(**source.request(runtime, self._run_input, streams=False))
        if (failure := unknown_answer(self._result)) is not None:
            raise failure

    async def result(self) -> Any:
        """The turn's result."""
        return self._result

    async def aclose(self) -> None:
        """Wait for the target's end."""
        if self._stream is not None:
            await self._stream.aclose()


def _revive(runtime: Any) -> None:
    """Undo that the SDK (0.2 to 0.5) counts a runtime as failed whose host refused to stream.

    The host said so before it called its adapter, and goes on to serve `invoke`; the SDK offers no other way back to it.
    """
    runtime._status = type(runtime.status)("active")
