"""ChunkStreamAdapter: any async chunk source as an adapter for the common host of NeMo Fabric."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dragent_stream.errors import missing_extra
from dragent_stream.fabric.contract import RecordEncoder
from dragent_stream.fabric.normalize import ReadyChunk
from dragent_stream.fabric.turn import Lifespan, Prepare, StreamTarget, TurnOutcome, TurnSource
from dragent_stream.options import ConverterOptions

try:
    from nemo_fabric_adapter_contract.models import AgentConfig, AgentRunResult
    from nemo_fabric_adapters.common import lifecycle  # pyright: ignore[reportMissingTypeStubs]
except ImportError as error:
    raise missing_extra("fabric", error) from error

__all__ = ["ChunkStreamAdapter", "serve_adapter"]


class ChunkStreamAdapter:
    """An adapter with native OpenAI streaming over one chunk source.

    ```python
    async def source(question):  # an async generator of chunks; openai's create(stream=True), astream, stream_fn ...
        async for chunk in await client.chat.completions.create(..., stream=True):
            yield chunk

    if __name__ == "__main__":
        serve_adapter(source)
    ```

    The target runs exactly once a turn; what it yields that is no chunk fails the turn as `invalid_chunk`. Its chunks are normalised to `openai.chat_completions.chunk/v1` and divided at
    1 MiB, each `emit` is awaited, the invocation's deadline (Fabric 0.5) is kept. Whatever the target does, the turn
    ends in an `AgentRunResult`: `raise` would cost the runtime, so a failure is `failed` with `error.code` (see
    `TurnOutcome.code`), a cancelled target `cancelled`. Only a lost transport is raised.
    """

    def __init__(
        self,
        source: TurnSource | None = None,
        *,
        lifespan: Lifespan | None = None,
        prepare: Prepare | None = None,
        model: str = "unknown-model",
        turn_timeout: float | None = None,
        options: ConverterOptions | None = None,
    ) -> None:
        """Describe the adapter; give `source` or `lifespan`.

        Args:
            source: Called once a turn with the request's input (or what `prepare` makes of it); gives the chunks.
            lifespan: Called with the start payload; an async context manager that yields the source, for clients and
                workflows that live as long as the runtime.
            prepare: Makes the source's argument of (request, context).
            model: The model's name for chunks that have none.
            turn_timeout: Seconds after which a turn fails with `timeout`, besides Fabric's deadline. Fabric 0.2 to 0.4
                tell no deadline and kill the process at their own timeout: give one that is below it.
            options: `public_error` words the error of a failed result, which otherwise names the exception's type and
                leaves its text and traceback to stderr; `close_timeout`, `new_id` and `think_tags` count here, too.
        """
        self._target = StreamTarget(
            source, lifespan=lifespan, prepare=prepare, model=model, turn_timeout=turn_timeout, options=options
        )

    async def start(self, payload: dict[str, Any]) -> None:
        """Enter the lifespan."""
        await self._target.start(payload)

    async def invoke(self, request: Any, context: Any) -> AgentRunResult:
        """Run the target and return the result alone."""
        return _result(await self._target.run(request, context, chunk_limit=_chunk_limit(context)))

    async def invoke_openai_stream(
        self, request: Any, context: Any, emit: Callable[[Mapping[str, Any]], Awaitable[None]]
    ) -> AgentRunResult:
        """Run the target, emit its chunks, and return the separate result."""

        async def send(ready: ReadyChunk) -> None:
            await emit(ready.chunk)

        return _result(await self._target.run(request, context, chunk_limit=_chunk_limit(context), send=send))

    async def stop(self) -> None:
        """Leave the lifespan."""
        await self._target.stop()


def serve_adapter(
    source: TurnSource | None = None,
    *,
    lifespan: Lifespan | None = None,
    prepare: Prepare | None = None,
    model: str = "unknown-model",
    turn_timeout: float | None = None,
    options: ConverterOptions | None = None,
) -> None:
    """Serve a `ChunkStreamAdapter` in the common host until Fabric stops it: the last line of an adapter's module.

    The arguments are those of `ChunkStreamAdapter`.
    """
    lifecycle.serve(
        lambda: ChunkStreamAdapter(
            source, lifespan=lifespan, prepare=prepare, model=model, turn_timeout=turn_timeout, options=options
        ),
        config_loader=AgentConfig.from_mapping,
    )


def _chunk_limit(context: Any) -> int:
    records = RecordEncoder(
        runtime_id=context.runtime_id, invocation_id=context.invocation_id, request_id=context.request_id
    )
    return records.chunk_limit


def _result(outcome: TurnOutcome) -> AgentRunResult:
    return AgentRunResult.from_mapping(outcome.to_mapping())
