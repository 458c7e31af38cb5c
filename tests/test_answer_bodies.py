"""Every body that a server has sent for an answer: what it comes to, the same however it is cut and as a recording."""

from __future__ import annotations

import gzip
import io
import itertools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import anyio
import pytest
from agui_case import both_writers, convert, counted_ids, delta, options_of, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from dragent_stream.events import WireEvents
from dragent_stream.options import ConverterOptions
from dragent_stream.trace import convert_trace, record_chunks


def lines(*frames: Any) -> list[bytes]:
    return [json.dumps(frame).encode() for frame in frames]


def body(*frames: Any) -> bytes:
    return b"".join(b"data: " + line + b"\n\n" for line in lines(*frames))


DONE = b"data: [DONE]\n\n"
ANSWER = [delta(content="Hel"), delta(content="lo"), delta("stop")]
WHOLE = body(*ANSWER) + DONE
NEXT = body(delta(content="again", chunk_id="d"), delta("stop", chunk_id="d")) + DONE
USAGE = {"id": "c", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
MESSAGE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello"}}
COMPLETION = {"id": "c", "object": "chat.completion", "choices": [MESSAGE], "usage": USAGE["usage"]}
PRETTY = json.dumps(COMPLETION, indent=2).encode()
ERROR = {"error": {"message": "boom", "type": "server_error"}}
HALF = body(delta(content="lost"))[:-30]
CUT = "STREAM_ERROR", "the answer ended without finish_reason and without [DONE]"
FOREIGN = "UNKNOWN_CHUNKS", "not understood"
EMPTY = "EMPTY_ANSWER", "look into the log"


class Body(NamedTuple):
    data: bytes
    text: Sequence[str] = ("Hello",)
    error: tuple[str, str] | None = None


BODIES = {
    # what follows [DONE]
    "nothing behind the end": Body(WHOLE),
    "usage behind the end": Body(WHOLE + body(USAGE)),
    "a comment behind the end": Body(WHOLE + b": bye\n\n"),
    "blank lines behind the end": Body(WHOLE + b"\n\r\n\n"),
    "the end twice": Body(WHOLE + DONE),
    "text and a page behind the end": Body(WHOLE + b"data: bye\n\nbye\n<html>\n"),
    "half of the usage behind the end": Body(WHOLE + body(USAGE)[:40]),
    "a part of the content behind the end": Body(WHOLE + NEXT[:80], error=CUT),
    "an error behind the end": Body(WHOLE + body(ERROR), error=("STREAM_ERROR", "boom")),
    "the next answer behind the end": Body(WHOLE + NEXT, ["Hello", "again"]),
    "the next answer without a line end between": Body(WHOLE.rstrip() + NEXT, ["Hello", "again"]),
    "the next answer with a mark of its own": Body(WHOLE + b"\xef\xbb\xbf" + NEXT, ["Hello", "again"]),
    "a cut next answer": Body(WHOLE + body(delta(content="again", chunk_id="d")), ["Hello", "again"], CUT),
    "a cut next answer behind a finish reason": Body(
        body(*ANSWER, delta(content="b", chunk_id="d")), ["Hello", "b"], CUT
    ),
    # where an answer breaks off
    "cut off": Body(body(*ANSWER[:2]), error=CUT),
    "cut off inside the end mark": Body(body(*ANSWER) + b"data: [DO"),
    "cut off inside the end mark without a finish reason": Body(body(*ANSWER[:2]) + b"data: [DO"),
    "cut off inside a field name": Body(body(*ANSWER) + b"da"),
    "cut off inside a frame": Body(body(*ANSWER[:2]) + HALF, error=CUT),
    "cut off inside the usage": Body(body(*ANSWER) + body(USAGE)[:40]),
    "cut off inside content behind a finish reason": Body(body(*ANSWER) + HALF, error=CUT),
    "a page in the middle": Body(body(*ANSWER[:2]) + b"<html>\n502\n", error=(CUT[0], "an HTML page came instead")),
    "half a call": Body(
        body(delta(tool_calls=[{"index": 0, "id": "1", "function": {"name": "f", "arguments": '{"a'}}])), [], CUT
    ),
    # JSON that is no stream
    "a completion": Body(json.dumps(COMPLETION).encode()),
    "a completion behind a mark and blanks": Body(b"\xef\xbb\xbf \n\n\t " + json.dumps(COMPLETION).encode() + b"\n"),
    "a completion behind comments": Body(b": keep-alive\n\n: keep-alive\n\n" + PRETTY),
    "a completion over many lines": Body(PRETTY),
    "a completion over many lines with CRLF": Body(PRETTY.replace(b"\n", b"\r\n")),
    "a completion over many lines with CR": Body(PRETTY.replace(b"\n", b"\r")),
    "a completion with blank lines inside": Body(PRETTY.replace(b"\n", b"\n\n")),
    "a completion over many lines in one frame": Body(b"data: " + PRETTY + b"\n\n"),
    "half a completion": Body(PRETTY[:200], [], CUT),
    "two completions": Body(b"".join(lines(COMPLETION, {**COMPLETION, "id": "d"})), ["Hello", "Hello"]),
    "an error body": Body(json.dumps(ERROR).encode(), [], ("STREAM_ERROR", "boom")),
    "an error body over many lines": Body(json.dumps(ERROR, indent=2).encode(), [], ("STREAM_ERROR", "boom")),
    "an error body in the middle": Body(
        body(*ANSWER[:2]) + json.dumps(ERROR, indent=2).encode() + b"\n", error=("STREAM_ERROR", "boom")
    ),
    "an error body with a detail": Body(b'{\n"detail": "Not Found"\n}', [], ("STREAM_ERROR", "Not Found")),
    "an error body with a code": Body(b'{"code": 1113, "msg": "no credit"}', [], ("STREAM_ERROR", "no credit")),
    "half an error body": Body(json.dumps(ERROR).encode()[:25], [], ("STREAM_ERROR", "bo")),
    "an array of an error": Body(json.dumps([ERROR], indent=2).encode(), [], ("STREAM_ERROR", "boom")),
    "an array": Body(json.dumps(ANSWER).encode()),
    "an array over many lines": Body(json.dumps(ANSWER, indent=2).encode()),
    "an array of lines": Body(b"[\n" + b",\n".join(lines(*ANSWER)) + b"\n]\n"),
    "half an array": Body(json.dumps(ANSWER[:2]).encode()[:-1], error=CUT),
    "JSON lines": Body(b"\n".join(lines(*ANSWER))),
    "JSON lines with an end mark": Body(b"\n".join(lines(*ANSWER[:2])) + b"\n[DONE]\n"),
    "cut JSON lines": Body(b"\n".join(lines(*ANSWER[:2])), error=CUT),
    # frames that are not as they should be
    "raw control characters": Body(body(*ANSWER).replace(b"Hel", b"H\x1b[31m\t\x00l"), ["H\x1b[31m\t\x00llo"]),
    "a raw line end in a string": Body(body(*ANSWER).replace(b"Hel", b"H\nl"), ["H\nllo"]),
    "pings": Body(
        body(ANSWER[0])
        + b"event: ping\ndata: 2026-01-01\n\nevent: heartbeat\ndata: {}\n\nevent: keepalive\ndata\n\n"
        + body(*ANSWER[1:])
    ),
    "objects glued together": Body(b"data: " + b"".join(lines(*ANSWER)) + b"\n\n"),
    "objects glued to the end": Body(b"data: " + b"".join(lines(*ANSWER[:2])) + b"[DONE]\n\n"),
    "frames glued together": Body(WHOLE.replace(b"\n\n", b"")),
    "a list in a frame": Body(b"data: " + json.dumps(ANSWER).encode() + b"\n\n"),
    "single line ends": Body(WHOLE.replace(b"\n\n", b"\n")),
    "single line ends with CRLF": Body(WHOLE.replace(b"\n\n", b"\r\n")),
    "half a frame and an error": Body(
        body(ANSWER[0]) + HALF + b"\n\n" + body(ERROR), ["Hel"], ("STREAM_ERROR", "boom")
    ),
    "half a frame, a ping and an error": Body(
        body(ANSWER[0]) + HALF + b"\n\n: x\n\nevent: ping\ndata: x\n\n" + body(ERROR), ["Hel"], ("STREAM_ERROR", "boom")
    ),
    "half a frame and an error on the next line": Body(
        body(ANSWER[0]) + HALF + b"\n" + body(ERROR), ["Hel"], ("STREAM_ERROR", "boom")
    ),
    "half a frame and an error on its line": Body(
        body(ANSWER[0]) + HALF + body(ERROR), ["Hel"], ("STREAM_ERROR", "boom")
    ),
    "half a frame and a bare error": Body(
        body(ANSWER[0]) + HALF + b"\n" + json.dumps(ERROR).encode(), ["Hel"], ("STREAM_ERROR", "boom")
    ),
    "half an error": Body(body(*ANSWER[:2]) + body(ERROR)[:31], error=("STREAM_ERROR", "bo")),
    "half a frame in the middle": Body(
        body(ANSWER[0]) + HALF + b"\n\n" + body(*ANSWER[1:]) + DONE, ["Hel"], ("STREAM_ERROR", "frame 2 of the stream")
    ),
    "half a frame before the end": Body(
        body(ANSWER[0]) + HALF + b"\n\n" + DONE, ["Hel"], ("STREAM_ERROR", "frame 2 of the stream")
    ),
    "an error event of text": Body(
        body(ANSWER[0]) + b"event: server_error\ndata: overloaded\n\n", ["Hel"], ("STREAM_ERROR", "overloaded")
    ),
    # what is no answer
    "nothing": Body(b"", [], EMPTY),
    "blanks": Body(b" \n\n\t\n", [], EMPTY),
    "comments": Body(b": a\n\n: b\n\n", [], EMPTY),
    "only an end": Body(DONE, [], EMPTY),
    "an empty array": Body(b"[]", [], EMPTY),
    "events of another protocol": Body(b"event: token\ndata: Hello\n\n", [], EMPTY),
    "a page": Body(b"<!DOCTYPE html>\n<html><body>blocked: no</body></html>\n", [], ("UNKNOWN_CHUNKS", "HTML page")),
    "compressed": Body(gzip.compress(WHOLE, mtime=0), [], ("UNKNOWN_CHUNKS", "compressed data")),
    "text": Body(b"upstream connect error: reset\n", [], ("UNKNOWN_CHUNKS", "is text")),
    "another JSON": Body(b'{"hello": "world"}', [], FOREIGN),
    "frames of another JSON": Body(body({"hello": "world"}) + DONE, [], FOREIGN),
    "a JSON string": Body(b'"Hello"', [], ("UNKNOWN_CHUNKS", "is text")),
}


def by_recording(reads: list[bytes]) -> list[dict[str, Any]]:
    out = io.StringIO()

    async def record() -> None:
        assert [read async for read in record_chunks(reads, out)] == reads

    anyio.run(record)
    recorded = out.getvalue().splitlines(keepends=True)
    options = ConverterOptions(new_id=counted_ids())
    return [json.loads(event) for event in convert_trace(recorded, thread_id="t", run_id="r", options=options)]


@pytest.mark.parametrize("name", BODIES)
def test_a_body_comes_to_the_same_run_however_it_is_cut(name: str) -> None:
    data, text, error = BODIES[name]
    whole = both_writers({}, [data])
    last = whole[-1]
    assert list(texts(whole).values()) == list(text)
    if error is None:
        assert last["type"] == "RUN_FINISHED"
    else:
        assert (last["type"], last["code"]) == ("RUN_ERROR", error[0])
        assert error[1] in last["message"]
    for at in range(1, len(data)):
        reads = [data[:at], data[at:]]
        assert convert(reads, WireEvents(), options_of({})) == whole, reads
    bytewise = [data[at : at + 1] for at in range(len(data))] or [b""]
    assert both_writers({}, bytewise) == whole
    assert by_recording([data]) == by_recording(bytewise) == whole


@pytest.mark.parametrize("name", ["usage behind the end", "a completion", "a completion over many lines in one frame"])
def test_usage_counts_wherever_it_stands(name: str) -> None:
    (usage,) = both_writers({}, [BODIES[name].data])[-1]["usage"]
    assert (usage["inputTokens"], usage["outputTokens"]) == (3, 2)


PIECES = [
    *(piece for item in BODIES.values() for piece in (item.data, item.data[: len(item.data) // 2])),
    b"\n",
    b"\r\n\r\n",
    b"data: ",
    b"event: ping\n",
    b"{",
    b"[",
    b'"',
    b"]}",
]


@given(st.lists(st.sampled_from(PIECES), max_size=5).map(b"".join), st.data())
@settings(deadline=None)
def test_any_bytes_give_the_same_run_however_they_are_cut(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    reads = [data[start:stop] for start, stop in itertools.pairwise([0, *cuts, len(data)])]
    whole = both_writers({}, [data])
    assert both_writers({}, reads) == whole
    assert by_recording(reads) == whole
