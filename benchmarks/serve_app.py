"""One server of `serve.py`, alone on its core: `python serve_app.py KIND CORE`; prints its port.

`POST /agui` answers with a run of `chunks` text deltas; `GET /usage` gives the CPU seconds and the memory of this process.
With `interval` the chunks come one by one in time and their text is the moment they were made; without, the agent never
waits for more than one pass of the event loop. Every kind runs on uvicorn with h11 and asyncio.
"""

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import uvicorn
from workloads import chunk, nat_objects, pieces

HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
FRAME = 'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"0adb3367-47a9-46d4-8a2a-192a9dbc9a29","delta":%s}\n\n'
MARK = chunk({"content": "x"})


async def each(items: list[Any], interval: float, made: Any) -> AsyncIterator[Any]:
    """The items, one for each pass of the event loop; or `made()` in their place, at their moments."""
    if not interval:
        for item in items:
            await asyncio.sleep(0)
            yield item
        return
    start = time.monotonic()
    for at in range(len(items)):
        await asyncio.sleep(max(0.0, start + (at + 1) * interval - time.monotonic()))
        yield made()


def now_chunk() -> Any:
    return {**MARK, "choices": [{"index": 0, "delta": {"content": f"{time.monotonic():.6f} "}, "finish_reason": None}]}


def now_frame() -> bytes:
    return (FRAME % f'"{time.monotonic():.6f} "').encode()


async def receive_body(receive: Any) -> dict[str, Any]:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return json.loads(body)


def bare(frames: Any) -> Any:
    """The floor: an ASGI application that sends frames and does nothing else."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked = (await receive_body(receive))["forwardedProps"]
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        async for frame in frames(asked["chunks"], asked.get("interval", 0.0)):
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


def make_app(kind: str) -> Any:
    if kind == "bare":
        prebuilt: dict[int, list[bytes]] = {}

        def frames(count: int, interval: float) -> AsyncIterator[bytes]:
            if count not in prebuilt:
                prebuilt[count] = [(FRAME % json.dumps(piece)).encode() for piece in pieces(count)]
            return each(prebuilt[count], interval, now_frame)

        return bare(frames)
    if kind.startswith("ours"):
        from dragent_stream.asgi import create_app

        chunks: dict[int, list[Any]] = {}

        def agent(run_input: Any) -> AsyncIterator[Any]:
            asked = run_input.forwarded_props
            count = asked["chunks"]
            if count not in chunks:
                chunks[count] = [chunk({"content": piece}) for piece in pieces(count)]
            return each(chunks[count], asked.get("interval", 0.0), now_chunk)

        return create_app(agent, coalesce_ms=float(kind.partition("+")[2] or 0))
    # The peer's own conversion behind the cheapest way to send, so that nothing else is held against it.
    from ag_ui.encoder import EventEncoder
    from datarobot_genai.dragent.plugins.datarobot_dragent_normalization import convert_chunks_to_agui_events

    if kind == "datarobot-served":
        return as_served(convert_chunks_to_agui_events)
    objects: dict[int, list[Any]] = {}
    encode = EventEncoder().encode

    async def converted(count: int, interval: float) -> AsyncIterator[bytes]:
        if count not in objects:
            objects[count] = nat_objects(chunk({"content": piece}) for piece in pieces(count))
        async for batch in convert_chunks_to_agui_events(each(objects[count], 0.0, None)):
            if kind == "datarobot-encoder":
                for event in batch.events:
                    yield encode(event).encode()
            else:
                yield batch.get_stream_data().encode()

    return bare(converted)


def as_served(convert: Any) -> Any:
    """The peer's conversion on the way its server takes: NAT's queue between two tasks, then a StreamingResponse."""
    from nat.utils.producer_consumer_queue import AsyncIOProducerConsumerQueue
    from starlette.applications import Starlette
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    objects: dict[int, list[Any]] = {}

    async def frames(count: int) -> AsyncIterator[str]:
        if count not in objects:
            objects[count] = nat_objects(chunk({"content": piece}) for piece in pieces(count))
        queue: Any = AsyncIOProducerConsumerQueue()

        async def pull() -> None:
            async for batch in convert(each(objects[count], 0.0, None)):
                await queue.put(batch)
            await queue.close()

        task = asyncio.create_task(pull())
        async for batch in queue:
            yield batch.get_stream_data()
        await task

    async def endpoint(request: Any) -> Any:
        asked = (await request.json())["forwardedProps"]
        return StreamingResponse(frames(asked["chunks"]), headers={"content-type": "text/event-stream"})

    return Starlette(routes=[Route("/agui", endpoint, methods=["POST"])])


def memory_kib() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


def with_usage(app: Any) -> Any:
    async def outer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != "/usage":
            await app(scope, receive, send)
            return
        body = json.dumps({"cpu": time.process_time(), "kib": memory_kib()}).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return outer


async def serve(kind: str) -> None:
    config = uvicorn.Config(
        with_usage(make_app(kind)), port=0, http="h11", loop="asyncio", log_level="error", lifespan="off", backlog=4096
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await task


if __name__ == "__main__":
    os.sched_setaffinity(0, {int(sys.argv[2])})
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(sys.argv[1]))
