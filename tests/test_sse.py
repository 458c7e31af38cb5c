"""The event-stream decoder, its chat-chunk reader, and the frame encoder."""

import json
import time
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragent_stream.errors import SSEError
from dragent_stream.sse import ChatSSEDecoder, ServerSentEvent, SSEDecoder, decode_chat_chunks, encode_sse_frame


def decode(*pieces: bytes, **options: int) -> list[ServerSentEvent]:
    decoder = SSEDecoder(**options)
    events: list[ServerSentEvent] = []
    for piece in pieces:
        events += decoder.feed(piece)
    return events + decoder.flush()


def data_of(*pieces: bytes) -> list[str]:
    return [event.data for event in decode(*pieces)]


def chat(*pieces: bytes) -> tuple[list[dict[str, Any]], bool]:
    decoder = ChatSSEDecoder()
    chunks: list[dict[str, Any]] = []
    for piece in pieces:
        chunks += decoder.feed(piece)
    chunks += decoder.flush()
    return chunks, decoder.done


def cuts(stream: bytes) -> Iterable[list[bytes]]:
    """Whole, byte by byte, and in every two pieces."""
    yield [stream]
    yield [stream[i : i + 1] for i in range(len(stream))]
    for i in range(1, len(stream)):
        yield [stream[:i], stream[i:]]


STREAMS: dict[str, tuple[bytes, list[ServerSentEvent]]] = {
    "plain frames": (b"data: a\n\ndata: b\n\n", [ServerSentEvent("a"), ServerSentEvent("b")]),
    "CRLF": (b"data: a\r\n\r\ndata: b\r\n\r\n", [ServerSentEvent("a"), ServerSentEvent("b")]),
    "CR alone": (b"data: a\r\rdata: b\r\r", [ServerSentEvent("a"), ServerSentEvent("b")]),
    "mixed line ends": (b"data: a\r\n\ndata: b\r\r\ndata: c\n\r", [ServerSentEvent(x) for x in "abc"]),
    "BOM": (b"\xef\xbb\xbfdata: a\n\n", [ServerSentEvent("a")]),
    "only the first BOM is dropped": (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", [ServerSentEvent("b")]),
    "comments": (b": hi\n\n:\ndata: a\n: in between\ndata: b\n\n:\n\n", [ServerSentEvent("a\nb")]),
    "many lines": (b"data: a\ndata:\ndata:  b\n\n", [ServerSentEvent("a\n\n b")]),
    "no space after the colon": (b"data:a\n\n", [ServerSentEvent("a")]),
    "only one space is dropped": (b"data:  a \n\n", [ServerSentEvent(" a ")]),
    "a tab is data": (b"data:\ta\n\n", [ServerSentEvent("\ta")]),
    "a field without colon": (b"data\n\ndata\ndata\n\n", [ServerSentEvent(""), ServerSentEvent("\n")]),
    "event type for one event": (
        b"event: x\ndata: a\n\ndata: b\n\n",
        [ServerSentEvent("a", "x"), ServerSentEvent("b")],
    ),
    "no data, no event": (b"event: x\n\ndata: b\n\n", [ServerSentEvent("b")]),
    "id persists": (
        b"id: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\n",
        [ServerSentEvent("a", id="7"), ServerSentEvent("b", id="7"), ServerSentEvent("c", id="")],
    ),
    "id with NUL is ignored": (b"id: 1\nid: 2\0\ndata: a\n\n", [ServerSentEvent("a", id="1")]),
    "retry takes ASCII digits only": (
        b"retry: 10\ndata: a\n\nretry: 1x\ndata: b\n\nretry: \xd9\xa3\ndata: c\n\n",
        [ServerSentEvent("a", retry=10), ServerSentEvent("b"), ServerSentEvent("c")],
    ),
    "unknown fields": (b"foo: 1\ndata: a\ndatax: 2\n Data: 3\n\n", [ServerSentEvent("a")]),
    "blank lines in front": (b"\n\n\ndata: a\n\n\n\n\ndata: b\n\n", [ServerSentEvent("a"), ServerSentEvent("b")]),
    "only LF and CR end lines": (
        "data: a\u2028b\u0085c\x0b\x0c\x1cd\n\n".encode(),
        [ServerSentEvent("a\u2028b\u0085c\x0b\x0c\x1cd")],
    ),
    "UTF-8 of every width": ("data: é€😀\n\n".encode(), [ServerSentEvent("é€😀")]),
    "bytes that are not UTF-8": (b"data: a\xffb\xe2\x82\n\n", [ServerSentEvent("a\ufffdb\ufffd")]),
    "the last blank line is missing": (b"data: a\n\ndata: b\n", [ServerSentEvent("a"), ServerSentEvent("b")]),
    "the last line end is missing": (b"data: a\n\ndata: b", [ServerSentEvent("a"), ServerSentEvent("b")]),
    "an error field": (
        b'error: {"code":500}\n\ndata: [DONE]\n\n',
        [ServerSentEvent('{"code":500}', "error"), ServerSentEvent("[DONE]")],
    ),
    "an error field in front of data": (
        b"data: [DONE]\nerror: x\n\n",
        [ServerSentEvent("x", "error"), ServerSentEvent("[DONE]")],
    ),
    "a bare error line": (b'{"error": {"m": 1}}\n\n', [ServerSentEvent('{"error": {"m": 1}}', "error")]),
    "a bare JSON line without error": (b'{"a": 1}\n\n', []),
    "nothing": (b"", []),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_gives_the_same_events_however_it_is_cut(name: str) -> None:
    stream, expected = STREAMS[name]
    for pieces in cuts(stream):
        assert decode(*pieces) == expected, pieces


_SNIPPETS = rb"data|:| |event: e|id: 1|retry: 5|error: e|{'error': 1}|[DONE]|{}|data: {}".replace(b"'", b'"').split(
    b"|"
)
PIECES = st.sampled_from(
    [
        *_SNIPPETS,
        b"\n",
        b"\r",
        b"\n\n",
        b"\r\n",
        b"data: x\n\n",
        b"id: \0",
        b": c\n",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\xe2\x80\xa8",
    ]
)


@given(st.lists(PIECES, max_size=25), st.lists(st.integers(1, 9), min_size=1), st.sampled_from([6, 10, 1000]))
def test_random_streams_give_the_same_events_and_errors_however_they_are_cut(
    pieces: list[bytes], widths: list[int], limit: int
) -> None:
    def run(parts: Iterable[bytes]) -> tuple[list[ServerSentEvent], bool]:
        decoder = SSEDecoder(max_event_bytes=limit)
        events: list[ServerSentEvent] = []
        try:
            for part in parts:
                events += decoder.feed(part)
            events += decoder.flush()
        except SSEError:
            return events, True
        return events, False

    stream = b"".join(pieces)
    parts: list[bytes] = []
    start = 0
    while start < len(stream):
        width = widths[len(parts) % len(widths)]
        parts.append(stream[start : start + width])
        start += width
    assert run(parts) == run([stream])


def reference_events(stream: bytes) -> list[tuple[str, str]]:
    """The WHATWG algorithm as written: one line after the other, no buffers; (data, event type)."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    events: list[tuple[str, str]] = []
    data, event = "", ""
    for line in [*text.split("\n"), ""]:
        if not line:
            if data:
                events.append((data[:-1], event or "message"))
            data, event = "", ""
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "data":
            data += value + "\n"
        elif field == "event":
            event = value
    return events


@given(st.lists(PIECES.filter(lambda piece: b"error" not in piece), max_size=30).map(b"".join))
def test_random_streams_are_read_as_the_specification_says(stream: bytes) -> None:
    assert [(event.data, event.event) for event in decode(stream)] == reference_events(stream)


def test_an_event_is_returned_as_soon_as_its_blank_line_arrives() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\r\n\r") == [ServerSentEvent("a")]
    assert decoder.feed(b"\ndata: b\n") == []
    assert decoder.feed(b"\n") == [ServerSentEvent("b")]


def test_the_decoder_tells_what_a_reconnect_needs() -> None:
    decoder = SSEDecoder()
    decoder.feed(b"id: 4\nretry: 250\n\n")
    assert (decoder.last_event_id, decoder.retry) == ("4", 250)
    assert decoder.feed(b"data: a\n\n") == [ServerSentEvent("a", id="4")]


def test_a_retry_of_thousands_of_digits_is_ignored() -> None:
    assert decode(b"retry: " + b"9" * 5000 + b"\ndata: a\n\n") == [ServerSentEvent("a")]


def test_after_flush_the_next_stream_may_begin_with_a_bom() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a") + decoder.flush() == [ServerSentEvent("a")]
    assert decoder.feed(b"\xef\xbb\xbfdata: b\n\n") == [ServerSentEvent("b")]


@pytest.mark.parametrize(
    "stream", [b"data: 12345\n\n", b"data: 12345", b"data: 1\ndata: 2\n", b": 345678901", b"x" * 11]
)
def test_an_event_over_the_limit_is_refused_with_the_limit_named(stream: bytes) -> None:
    for pieces in cuts(stream):
        with pytest.raises(SSEError, match=r"larger than 10 bytes.*max_event_bytes"):
            decode(*pieces, max_event_bytes=10)


def test_an_event_of_exactly_the_limit_passes() -> None:
    for pieces in cuts(b"data: 1234\n\ndata: 5678\n\n"):
        assert [event.data for event in decode(*pieces, max_event_bytes=10)] == ["1234", "5678"]


def test_events_before_the_one_over_the_limit_are_not_lost() -> None:
    decoder = SSEDecoder(max_event_bytes=10)
    assert decoder.feed(b"data: a\n\ndata: 12345\n\ndata: b\n\n") == [ServerSentEvent("a")]
    for _ in range(2):
        with pytest.raises(SSEError):
            decoder.feed(b"data: c\n\n")
    with pytest.raises(SSEError):
        decoder.flush()


def test_keep_alive_comments_without_blank_lines_never_reach_the_limit() -> None:
    decoder = SSEDecoder(max_event_bytes=10)
    for _ in range(100):
        assert decoder.feed(b": ping\n") == []
    assert decoder.feed(b"data: a\n\n") == [ServerSentEvent("a")]


def test_one_large_event_byte_by_byte_takes_linear_time() -> None:
    def seconds(size: int) -> float:
        stream = b"data: " + b"x" * size + b"\n\n"
        decoder = SSEDecoder()
        began = time.process_time()
        count = sum(len(decoder.feed(stream[i : i + 1])) for i in range(len(stream)))
        assert count == 1
        return time.process_time() - began

    small = min(seconds(20_000) for _ in range(3))
    assert seconds(160_000) < 8 * 4 * small


def test_a_frame_is_written_as_one_data_line() -> None:
    assert encode_sse_frame('{"a":"é"}') == 'data: {"a":"é"}\n\n'.encode()
    assert encode_sse_frame("a", event="e", id="1") == b"event: e\nid: 1\ndata: a\n\n"


def test_a_lone_surrogate_is_written_as_its_json_escape() -> None:
    frame = encode_sse_frame(json.dumps({"a": "\ud83d"}, ensure_ascii=False))
    assert frame == b'data: {"a": "\\ud83d"}\n\n'
    assert chat(frame) == ([{"a": "\ud83d"}], False)


@pytest.mark.parametrize("mark", ["\n", "\r", "\0"])
@pytest.mark.parametrize("name", ["event", "id"])
def test_a_line_break_in_a_frame_name_is_refused(name: str, mark: str) -> None:
    with pytest.raises(SSEError, match=f"the {name} of a frame"):
        encode_sse_frame("a", **{name: f"x{mark}data: injected"})


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back_from_its_frame_with_lf_line_ends(text: str) -> None:
    frame = encode_sse_frame(text)
    assert data_of(frame) == [text.replace("\r\n", "\n").replace("\r", "\n")]


CHUNK = b'data: {"id":"a","choices":[]}\n\n'
CHUNK_DICT = {"id": "a", "choices": []}
EXPECTED = "Expecting property name enclosed in double quotes at character 10"
OPEN = "Unterminated string at character 5"
COLON = "Expecting ':' delimiter at character 5"

CHAT_STREAMS: dict[str, tuple[bytes, list[dict[str, Any]], bool]] = {
    "chunks and the end mark": (CHUNK + b"data: [DONE]\n\n", [CHUNK_DICT], True),
    "no end mark": (CHUNK, [CHUNK_DICT], False),
    "a cut-off last blank line": (CHUNK.rstrip(), [CHUNK_DICT], False),
    "an end mark with a tail": (b"data: [DONE] bye\n\n", [], True),
    "a quoted end mark": (b'data: "[DONE]"\n\n', [], True),
    "data behind the end mark": (b"data: [DONE]\n\n" + CHUNK, [], True),
    "an empty frame": (b"data:\n\n" + CHUNK, [CHUNK_DICT], False),
    "an error object": (b'data: {"error":{"message":"m"}}\n\n', [{"error": {"message": "m"}}], False),
    "an error event": (b'event: error\ndata: {"message":"m"}\n\n', [{"error": {"message": "m"}}], False),
    "an error event with the error key": (
        b'event: error\ndata: {"error":{"message":"m"}}\n\n',
        [{"error": {"message": "m"}}],
        False,
    ),
    "an error event of plain text": (b"event: error\ndata: boom\n\n", [{"error": {"message": "boom"}}], False),
    "an error event of a JSON string": (b'event: error\ndata: "boom"\n\n', [{"error": {"message": '"boom"'}}], False),
    "an error field": (b'error: {"code":500}\n\ndata: [DONE]\n\n', [{"error": {"code": 500}}], True),
    "a flat error body": (
        b'data: {"object":"error","message":"m"}\n\n',
        [{"error": {"object": "error", "message": "m"}}],
        False,
    ),
    "a bare error line": (b'{"error":{"message":"m"}}\n', [{"error": {"message": "m"}}], False),
    "a null error key": (b'data: {"error":null,"choices":[]}\n\n', [{"error": None, "choices": []}], False),
    "two fused chunks and the end mark": (
        CHUNK.rstrip() + b"\n" + CHUNK.rstrip() + b"\ndata: [DONE]\n\n",
        [CHUNK_DICT, CHUNK_DICT],
        True,
    ),
    "JSON over several lines": (b'data: {"id":"a",\ndata: "choices":[]}\n\n', [CHUNK_DICT], False),
    "a JSON body": (b'{"id":"a","choices":[]}', [CHUNK_DICT], False),
    "a JSON body over many lines": (b'\n{\n"id":"a",\n\n"choices":[\n]}\n', [CHUNK_DICT], False),
    "JSON lines": (b'{"id":"a","choices":[]}\n{"id":"a","choices":[]}\n[DONE]\n', [CHUNK_DICT, CHUNK_DICT], True),
    "an array": (b'[\n{"id":"a","choices":[]},\n{"id":"a","choices":[]}\n]', [CHUNK_DICT, CHUNK_DICT], False),
    "a list in a frame": (b'data: [{"id":"a","choices":[]}]\n\n', [CHUNK_DICT], False),
    "half a JSON body and a frame": (
        b'{"id":"a",\n' + CHUNK,
        [{"error": {"message": "frame 1 of the stream is not JSON: " + EXPECTED, "type": "invalid_frame"}}, CHUNK_DICT],
        False,
    ),
    "glued objects": (b'data: {"id":"a","choices":[]}{"id":"a","choices":[]}\n\n', [CHUNK_DICT, CHUNK_DICT], False),
    "an error behind half an object": (
        b'data: {"id":"a","cho{"error":{"message":"m"}}\n\n',
        [{"error": {"message": "m"}}],
        False,
    ),
    "an escaped error in the text of half an object": (
        b'data: {"a":"{\\"error\\":1}\n\n',
        [{"error": {"message": "frame 1 of the stream is not JSON: " + OPEN, "type": "invalid_frame"}}],
        False,
    ),
    "half an error": (b'data: {"error":{"message":"m', [{"error": {"message": "m"}}], False),
    "a raw control character": (b'data: {"a":"\t\x1b"}\n\n', [{"a": "\t\x1b"}], False),
    "a ping of text": (b"event: ping\ndata: 2026-01-01\n\n" + CHUNK, [CHUNK_DICT], False),
    "a ping of JSON": (b"event: heartbeat\ndata: {}\n\n" + CHUNK, [CHUNK_DICT], False),
    "a ping with a chunk": (b"event: ping\n" + CHUNK, [CHUNK_DICT], False),
    "half a chunk under a name": (
        b'event: chunk\ndata: {"id"\n\n',
        [{"error": {"message": "frame 1 of the stream is not JSON: " + COLON, "type": "invalid_frame"}}],
        False,
    ),
    "a failure under another name": (
        b"event: server_error\ndata: boom\n\n",
        [{"error": {"message": "boom"}}],
        False,
    ),
    "a lone surrogate": (b'data: {"a":"\\ud83d"}\n\n', [{"a": "\ud83d"}], False),
    "another event name": (b"event: chunk\n" + CHUNK, [CHUNK_DICT], False),
}


@pytest.mark.parametrize("name", CHAT_STREAMS)
def test_a_chat_stream_gives_the_same_chunks_however_it_is_cut(name: str) -> None:
    stream, chunks, done = CHAT_STREAMS[name]
    for pieces in cuts(stream):
        assert chat(*pieces) == (chunks, done)
    if stream.startswith((b"data", b"event")):  # what is no SSE is no event for the plain decoder
        assert list(decode_chat_chunks(decode(stream))) == chunks


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'{"secret":', "frame 2 of the stream is not JSON: Expecting value at character 10"),
        (b"[1]", "frame 2 of the stream is JSON, but not an object"),
        (b"null", "frame 2 of the stream is JSON, but not an object"),
        (b"[" * 100_000, "frame 2 of the stream is not JSON: nested too deeply"),
        (b"{}\ndata: x", "frame 2 of the stream is not JSON: Extra data at character 3"),
    ],
)
def test_a_frame_that_is_no_chunk_becomes_an_error_and_reading_goes_on(data: bytes, problem: str) -> None:
    chunks, done = chat(CHUNK + b"data: " + data + b"\n\n" + CHUNK + b"data: [DONE]\n\n")
    assert chunks == [CHUNK_DICT, {"error": {"message": problem, "type": "invalid_frame"}}, CHUNK_DICT]
    assert done
