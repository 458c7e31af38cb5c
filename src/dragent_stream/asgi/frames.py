"""From what an agent yields, chunks and its own steps, to the SSE frames of one whole run."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from dragent_stream.ledger import RunLedger
from dragent_stream.stream_converter import ChunkConverter, ChunkSource, convert_upstream

__all__ = ["run_frames"]


async def run_frames(upstream: ChunkSource, ledger: RunLedger[bytes]) -> AsyncGenerator[bytes, None]:
    """One whole run: RUN_STARTED at once, then what each item says, then one terminal event.

    Yields the frames of one item together, so that whoever stops between two yields leaves client and ledger agreed.
    The upstream is closed once; nothing that it raises is raised here.
    """
    yield b"".join(ledger.start_run())
    batches = convert_upstream(upstream, ChunkConverter(ledger))
    try:
        async for batch in batches:
            if batch:
                yield batch[0] if len(batch) == 1 else b"".join(batch)
    finally:
        await batches.aclose()
    if ending := ledger.finish_run():
        yield b"".join(ending)
