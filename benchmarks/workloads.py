"""The streams that are measured, as plain chunk mappings, and the shapes in which they reach a bridge.

Imports nothing but the standard library (pydantic only where objects are asked for): every peer's venv reads this file.

* A `text`: one message of four-character deltas.
* B `interleaved_calls`: 64 calls of one turn, their fragments arriving round robin.
* C `mixed_turns`: text, then two parallel calls, then the next turn, as an agent that works through a task streams.
* D: any of the above as SSE bytes (`sse_frames`, `reads`), read and written as bytes.
* E `token_steps`: a long run seen only through intermediate steps, one LLM_NEW_TOKEN per token.
* F `long_arguments`: one call whose arguments arrive in four-byte fragments.

Equal chunks are one object. A live stream's chunk has just been made and lies in the processor's cache; of ten thousand
different ones each would first have to be fetched from memory, which the bridge has no part in.
"""

import json
from collections.abc import AsyncGenerator, Iterable, Iterator
from functools import cache
from typing import Any

Chunk = dict[str, Any]

_MODEL = "gpt-4o-2024-08-06"
_TEXT = 'The café said "no": it costs 5 €.\nThen we went on, and the next place was open all night. '


def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> Chunk:
    """One chunk with the fields an OpenAI-compatible server sends."""
    return {
        "id": "chatcmpl-8f1b2c3d4e5f",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": _MODEL,
        "system_fingerprint": "fp_44709d6fcb",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}],
        "usage": None,
    }


def _call_opening(index: int, call_id: str, name: str) -> Chunk:
    return chunk(
        {
            "tool_calls": [
                {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
            ]
        }
    )


@cache
def _text_chunk(content: str) -> Chunk:
    return chunk({"content": content})


@cache
def _call_fragment(index: int, arguments: str) -> Chunk:
    return chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})


def pieces(count: int, width: int = 4) -> Iterator[str]:
    """`count` deltas of `width` characters of ordinary prose: a few quotes, newlines and non-ASCII letters."""
    prose = _TEXT * (count * width // len(_TEXT) + 2)
    return (prose[at : at + width] for at in range(0, count * width, width))


def text(count: int = 10_000) -> list[Chunk]:
    """Workload A: `count` text chunks of four characters, then `finish_reason`."""
    return [*map(_text_chunk, pieces(count)), chunk({}, "stop")]


def _argument_fragments(count: int) -> list[str]:
    """`count` four-character fragments that make one JSON object."""
    value = "".join(pieces(count)).replace("\n", " ").replace('"', "'")
    document = '{"query":"' + value[: count * 4 - 12] + '"}'
    return [document[at : at + 4] for at in range(0, count * 4, 4) if document[at : at + 4]]


def interleaved_calls(calls: int = 64, fragments: int = 200) -> list[Chunk]:
    """Workload B: the openings of `calls` calls, then one fragment of each in turn, `fragments` times."""
    opened = [_call_opening(index, f"call_{index:04d}", f"tool_{index}") for index in range(calls)]
    arguments = _argument_fragments(fragments)
    body = [_call_fragment(index, fragment) for fragment in arguments for index in range(calls)]
    return [*opened, *body, chunk({}, "tool_calls")]


def mixed_turns(turns: int = 100) -> list[Chunk]:
    """Workload C: per turn 60 text chunks, two parallel calls of 15 fragments each, `finish_reason`."""
    words = list(pieces(60))
    arguments = _argument_fragments(15)
    chunks: list[Chunk] = []
    for turn in range(turns):
        chunks += map(_text_chunk, words)
        for index, name in enumerate(("search", "fetch")):
            chunks.append(_call_opening(index, f"call_{turn}_{index}", name))
            chunks += [_call_fragment(index, fragment) for fragment in arguments]
        chunks.append(chunk({}, "tool_calls"))
    return [*chunks, *map(_text_chunk, words), chunk({}, "stop")]


def long_arguments(size: int = 1 << 20) -> list[Chunk]:
    """Workload F: one call with `size` characters of arguments, four characters a chunk."""
    return [
        _call_opening(0, "call_long", "write_file"),
        *(_call_fragment(0, fragment) for fragment in _argument_fragments(size // 4)),
        chunk({}, "tool_calls"),
    ]


def _step(event_type: str, name: str, uuid: str, *, data: dict[str, Any], ancestor: str = "<workflow>") -> Chunk:
    return {
        "parent_id": "root",
        "function_ancestry": {
            "function_id": f"id-{ancestor}",
            "function_name": ancestor,
            "parent_id": None if ancestor == "root" else "root",
            "parent_name": None if ancestor == "root" else "root",
        },
        "payload": {
            "event_type": event_type,
            "event_timestamp": 1_700_000_000.0,
            "span_event_timestamp": None,
            "framework": "langchain" if event_type.startswith("LLM") else None,
            "name": name,
            "tags": None,
            "metadata": None,
            "data": {"input": None, "output": None, "chunk": None, "payload": None, **data},
            "usage_info": None,
            "UUID": uuid,
        },
    }


def token_steps(count: int = 8_000) -> list[Chunk]:
    """Workload E: the steps of one NAT run (as JSON mappings) with `count` LLM_NEW_TOKEN steps."""
    answer = "".join(pieces(count))
    tokens = [_step("LLM_NEW_TOKEN", "scripted", "llm-1", data={"chunk": piece}) for piece in pieces(count)]
    return [
        _step("WORKFLOW_START", "agent", "run-1", data={"input": "hello"}, ancestor="root"),
        _step("LLM_START", "scripted", "llm-1", data={"input": "hello"}),
        *tokens,
        _step("LLM_END", "scripted", "llm-1", data={"output": answer}),
        _step("WORKFLOW_END", "agent", "run-1", data={"output": answer}, ancestor="root"),
    ]


STREAMS = {"A": text, "B": interleaved_calls, "C": mixed_turns}
TITLES = {
    "A": "A: 10,000 text chunks of 4 characters",
    "B": "B: 64 interleaved calls x 200 fragments",
    "C": "C: 101 mixed turns (text, then two parallel calls)",
}


def deltas(chunks: Iterable[Chunk]) -> list[str]:
    """The strings a bridge passes on: what the floor writes."""
    found: list[str] = []
    for item in chunks:
        delta = item["choices"][0]["delta"]
        if delta.get("content"):
            found.append(delta["content"])
        for call in delta.get("tool_calls") or ():
            if call["function"]["arguments"]:
                found.append(call["function"]["arguments"])
    return found


def sse_frames(chunks: Iterable[Chunk]) -> list[bytes]:
    """Workload D: one SSE frame per chunk, as an OpenAI-compatible server writes them, with the closing `[DONE]`."""
    frames = [b"data: " + json.dumps(item, separators=(",", ":")).encode() + b"\n\n" for item in chunks]
    return [*frames, b"data: [DONE]\n\n"]


def reads(frames: Iterable[bytes], size: int = 16_384) -> list[bytes]:
    """The same bytes as a socket hands them over: `size` bytes a read, frames cut anywhere."""
    body = b"".join(frames)
    return [body[at : at + size] for at in range(0, len(body), size)]


@cache
def nat_chunk_model() -> type:
    """A pydantic model of the shape of NAT 1.9's ChatResponseChunk: the real one where it is installed, else its equal.

    Equal in what a reader pays for: nested models, `extra="allow"` on chunk and choice, an enum role, a datetime.
    """
    try:
        from nat.data_models.api_server import ChatResponseChunk  # pyright: ignore[reportMissingImports]
    except ImportError:
        from natlike import ChatResponseChunk
    return ChatResponseChunk


def nat_objects(chunks: Iterable[Chunk]) -> list[Any]:
    """The chunks as NAT's stream function yields them: without the fields that NAT's models do not know."""
    model = nat_chunk_model()
    kept = ("id", "object", "created", "model")

    def made(item: Chunk) -> Any:
        choices = [{key: value for key, value in choice.items() if key != "logprobs"} for choice in item["choices"]]
        return model.model_validate({name: item[name] for name in kept} | {"choices": choices})

    items = list(chunks)
    objects = {id(item): made(item) for item in {id(item): item for item in items}.values()}
    return [objects[id(item)] for item in items]


async def stream(items: Iterable[Any]) -> AsyncGenerator[Any]:
    """The upstream: an async generator that never waits."""
    for item in items:
        yield item
