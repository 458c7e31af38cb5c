"""From what an agent yields, chunks and its own steps, to the SSE frames of one whole run."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from dragent_stream.ledger import RunLedger
from dragent_stream.stream_converter import ChunkConverter, ChunkSource, open_upstream

__all__ = ["run_frames"]


async def run_frames(upstream: ChunkSource, ledger: RunLedger[bytes]) -> AsyncGenerator[bytes, None]:
    """One whole run: RUN_STARTED at once, then what each item says, then one terminal event.

    Yields the frames of one item together, so that whoever stops between two yields leaves client and ledger agreed.
    The upstream is closed once; nothing that it raises is raised here.
    """
    converter = ChunkConverter(ledger)
    yield b"".join(ledger.start_run())
    try:
        async with open_upstream(upstream, ledger.options.close_timeout) as items:
            async for item in items:
                if frames := converter.feed(item):
                    yield frames[0] if len(frames) == 1 else b"".join(frames)
                if ledger.finished:
                    return
    except Exception as error:
        ending = converter.fail(error)
    else:
        ending = converter.finish() + ledger.finish_run()
    if ending:
        yield b"".join(ending)
