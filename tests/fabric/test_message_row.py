"""LangChain messages that run beside each other become one completion stream, one message after the other."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragent_stream.errors import AnswerError, UpstreamError
from dragent_stream.events import WireEvents
from dragent_stream.fabric.contract import RECORD_LIMIT
from dragent_stream.fabric.normalize import ChunkNormalizer
from dragent_stream.ledger import RunLedger
from dragent_stream.options import ConverterOptions
from dragent_stream.stream_converter import ChunkConverter
from dragent_stream.testing import finish_chunk, text_chunk

Json = dict[str, Any]


def piece(message: str, text: str = "", *, step: int | None = 1, lane: str = "", **fields: Any) -> Any:
    """A piece of a message as LangGraph streams it."""
    metadata = {} if step is None else {"langgraph_step": step, "langgraph_checkpoint_ns": f"{lane}|{message}"}
    return ({"type": "AIMessageChunk", "id": message, "content": text, **fields}, metadata)


def last(message: str, text: str = "", **fields: Any) -> Any:
    return piece(message, text, chunk_position="last", **fields)


def call(message: str, call_id: str, arguments: str = "{}", **fields: Any) -> Any:
    return piece(message, tool_call_chunks=[{"index": 0, "id": call_id, "name": "f", "args": arguments}], **fields)


def result(call_id: str, text: str, *, step: int = 2) -> Any:
    return ({"type": "tool", "tool_call_id": call_id, "content": text}, {"langgraph_step": step})


def counted() -> Any:
    numbers = count(1)
    return lambda: f"new-{next(numbers)}"


def normalise(chunks: Iterable[object]) -> list[list[Json]]:
    """What goes out after each chunk, and at the end."""
    normalizer = ChunkNormalizer(chunk_limit=RECORD_LIMIT, new_id=counted())
    fed = [[ready.chunk for ready in normalizer.feed(chunk)] for chunk in chunks]
    return [*fed, [ready.chunk for ready in normalizer.finish()]]


def flat(chunks: Iterable[object]) -> list[Json]:
    return [chunk for sent in normalise(chunks) for chunk in sent]


def said(chunks: list[Json]) -> str:
    """The text of chunks, their ends and their results."""
    out = ""
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            out += f"[{delta['content']}]" if delta.get("role") == "tool" else delta.get("content") or ""
            out += "".join(call["id"] for call in delta.get("tool_calls", ()))
            out += f"<{choice['finish_reason']}>" if choice["finish_reason"] else ""
    return out


def run(chunks: Iterable[object]) -> list[Json]:
    """The AG-UI run of a stream."""
    ledger: RunLedger[bytes] = RunLedger(WireEvents(), options=ConverterOptions(new_id=counted()))
    converter = ChunkConverter(ledger)
    frames = [frame for chunk in chunks for frame in converter.feed(chunk)]
    return [json.loads(frame[6:]) for frame in frames + converter.finish() + ledger.finish_run()]


def messages(events: list[Json]) -> list[tuple[str, str]]:
    """What each message and each call of a run holds."""
    held: dict[str, str] = {}
    for event in events:
        if event["type"] in ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT", "TOOL_CALL_ARGS"):
            name = event.get("messageId") or event["toolCallId"]
            held[name] = held.get(name, "") + event["delta"]
    kinds = {event.get("messageId") or event.get("toolCallId"): event["type"].split("_")[0] for event in events}
    return sorted((kinds[name], text) for name, text in held.items())


def test_a_message_goes_out_as_it_comes_and_the_one_beside_it_waits() -> None:
    sent = normalise([piece("a", "A1"), piece("b", "B1"), piece("a", "A2"), last("a"), piece("b", "B2"), last("b")])
    assert [said(chunks) for chunks in sent] == ["A1", "", "A2", "<stop>B1", "B2", "<stop>", ""]


def test_a_waiting_message_that_is_over_follows_at_once() -> None:
    sent = normalise([piece("a", "A"), last("b", "B"), piece("c", "C"), last("a"), last("c")])
    assert [said(chunks) for chunks in sent] == ["A", "", "", "<stop>B<stop>C", "<stop>", ""]


def test_what_never_ended_goes_out_at_the_end() -> None:
    sent = normalise([piece("a", "A"), piece("b", "B")])
    assert [said(chunks) for chunks in sent] == ["A", "", "<stop>B"]


def test_a_message_of_an_earlier_step_is_over() -> None:
    sent = normalise([piece("a", "A"), piece("b", "B"), piece("c", "C", step=2)])
    assert [said(chunks) for chunks in sent] == ["A", "", "<stop>B<stop>C", ""]


def test_a_reason_to_stop_is_said_once() -> None:
    ending = {"response_metadata": {"finish_reason": "stop"}}
    sent = flat([piece("a", "A", **ending), last("a"), piece("b", "B", step=2)])
    assert said(sent) == "A<stop>B"


def test_a_message_that_has_stopped_is_over_when_another_one_begins_that_cannot_run_beside_it() -> None:
    ending: Json = {"response_metadata": {"finish_reason": "stop"}}
    assert [said(c) for c in normalise([piece("a", "A", step=None, **ending), piece("b", "B", step=None)])][1] == "B"
    # Of one step: the first may still bring its usage.
    assert [said(c) for c in normalise([piece("a", "A", **ending), piece("b", "B")])][1] == ""
    inside = piece("b", "B", lane="tools:1")
    assert [said(c) for c in normalise([piece("a", "A", **ending), inside])][1] == "B"
    beside = [piece("a", "A", lane="x:1", **ending), piece("b", "B", lane="y:1")]
    assert [said(c) for c in normalise(beside)][1] == ""


def test_calls_end_before_their_results_whichever_message_made_them() -> None:
    sent = normalise([piece("a", "A"), call("b", "c1"), result("c1", "42", step=1), last("a"), piece("d", "D", step=3)])
    assert [said(chunks) for chunks in sent] == ["A", "", "", "<stop>c1<tool_calls>[42]", "D", ""]


def test_a_result_ends_the_message_of_its_call() -> None:
    assert said(flat([call("a", "c1"), result("c1", "42", step=1), piece("b", "B")])) == "c1<tool_calls>[42]B"


def test_a_whole_message_repeats_nothing() -> None:
    whole = ({"type": "ai", "id": "a", "content": "AA"}, {"langgraph_step": 1})
    assert said(flat([piece("a", "A"), piece("a", "A"), last("a"), whole, whole])) == "AA<stop>"


def test_each_message_has_an_id_of_its_own() -> None:
    nameless = {"type": "AIMessageChunk", "id": None, "content": "A", "chunk_position": "last"}
    sent = flat([nameless, nameless])
    assert said(sent) == "A<stop>A<stop>"
    assert len({chunk["id"] for chunk in sent}) == 2


def test_what_comes_late_for_a_message_that_is_over_is_a_message_of_its_own() -> None:
    sent = flat([last("a", "A"), piece("a", "late")])
    assert said(sent) == "A<stop>late"
    assert len({chunk["id"] for chunk in sent}) == 2


def test_text_before_and_behind_a_message_is_no_part_of_it() -> None:
    assert said(flat(["one", last("a", "A"), "two"])) == "one<stop>A<stop>two"
    assert said(flat([text_chunk("one"), finish_chunk(), last("a", "A")])) == "one<stop>A<stop>"
    assert [said(chunks) for chunks in normalise([piece("a", "A"), "two", text_chunk("three"), last("a")])] == [
        "A",
        "",
        "",
        "<stop>twothree",
        "",
    ]
    assert messages(run(flat(["one", piece("a", "A"), "two"]))) == [("TEXT", "A"), ("TEXT", "one"), ("TEXT", "two")]


def test_a_message_that_says_nothing_gets_no_reason_to_stop() -> None:
    assert flat([piece("a"), last("a")]) == []
    usage = {"usage_metadata": {"input_tokens": 1, "output_tokens": 0, "total_tokens": 1}}
    assert said(flat([piece("a", **usage), last("a")])) == ""


def test_usage_goes_with_its_message() -> None:
    def counts(number: int) -> Json:
        return {"usage_metadata": {"input_tokens": number, "output_tokens": number, "total_tokens": 2 * number}}

    stream = [piece("a", "A"), piece("b", "B", **counts(10)), last("b"), last("a", **counts(1))]
    for events in (run(flat(stream)), run(stream)):
        assert [entry["totalTokens"] for entry in events[-1]["usage"]] == [22]


def test_a_whole_messages_usage_is_a_total() -> None:
    counts = {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6}
    more = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    whole = ({"type": "ai", "id": "a", "content": "A", "usage_metadata": more}, {"langgraph_step": 1})
    sent = flat([piece("a", "A", usage_metadata=counts), whole])
    assert [chunk["usage"]["total_tokens"] for chunk in sent if "usage" in chunk] == [6, 7]


def test_encrypted_reasoning_and_signatures_reach_the_other_side() -> None:
    thought = {"type": "thinking", "thinking": "hm", "index": 0}
    stream = [
        piece("a", content=[thought]),
        piece("a", content=[{"type": "thinking", "thinking": "", "signature": "U0lH", "index": 0}]),
        last("a", "A"),
    ]
    values = [event for event in run(flat(stream)) if event["type"] == "REASONING_ENCRYPTED_VALUE"]
    assert [event["encryptedValue"] for event in values] == ["U0lH"]
    assert values == [event for event in run(stream) if event["type"] == "REASONING_ENCRYPTED_VALUE"]


def test_a_failure_keeps_what_waited_for_it() -> None:
    normalizer = ChunkNormalizer(chunk_limit=RECORD_LIMIT, new_id=counted())
    sent = [normalizer.feed(piece("a", "A")), normalizer.feed(piece("b", "B"))]
    with pytest.raises(UpstreamError, match="overloaded"):
        normalizer.feed({"error": {"message": "overloaded"}})
    sent.append(normalizer.release())
    assert said([ready.chunk for chunks in sent for ready in chunks]) == "A<stop>B"
    assert normalizer.release() == []


def test_the_text_beside_a_failure_is_kept() -> None:
    normalizer = ChunkNormalizer(chunk_limit=RECORD_LIMIT)
    with pytest.raises(UpstreamError, match="overloaded"):
        normalizer.feed({**text_chunk("x"), "error": {"message": "overloaded"}})
    assert said([ready.chunk for ready in normalizer.release()]) == "x"


def test_an_interrupt_keeps_its_code() -> None:
    with pytest.raises(AnswerError) as caught:
        flat([("updates", {"__interrupt__": ({"value": "sure?"},)})])
    assert caught.value.code == "INTERRUPTED"


def test_tool_messages_and_updates_of_nodes_are_chunks() -> None:
    update = {"agent": {"messages": [{"type": "ai", "id": "a", "content": "A"}]}}
    assert said(flat([update])) == "A<stop>"
    tool = {"role": "tool", "tool_call_id": "c1", "content": "42"}
    assert said(flat([call("a", "c1"), tool])) == "c1<tool_calls>[42]"


@st.composite
def graphs(draw: st.DrawFn) -> list[object]:
    """Steps of a graph; in each, some messages run beside each other, whole or in pieces, with or without an end."""
    stream: list[object] = []
    for step in range(1, draw(st.integers(1, 3)) + 1):
        running: list[list[object]] = []
        for number in range(draw(st.integers(1, 3))):
            name = f"{step}-{number}"
            words = draw(st.lists(st.sampled_from(["x ", "yy ", "z"]), min_size=1, max_size=4))
            pieces: list[object] = [piece(name, f"{name} ", step=step)] + [
                piece(name, word, step=step) for word in words
            ]
            ending = draw(st.sampled_from(["last", "stop", "whole", "call", "nothing"]))
            if ending == "last":
                pieces.append(last(name, step=step))
            elif ending == "stop":
                pieces.append(piece(name, step=step, response_metadata={"finish_reason": "stop"}))
            elif ending == "whole":
                text = f"{name} {''.join(words)}"
                pieces.append(({"type": "ai", "id": name, "content": text}, {"langgraph_step": step}))
            elif ending == "call":
                pieces += [call(name, f"c{name}", step=step), result(f"c{name}", "42", step=step)]
            running.append(pieces)
        while running:
            pieces = draw(st.sampled_from(running))
            stream.append(pieces.pop(0))
            running = [left for left in running if left]
    return stream


@given(graphs())
def test_messages_are_neither_shuffled_nor_lost(stream: list[object]) -> None:
    sent = flat(stream)
    assert messages(run(sent)) == messages(run(stream))
    results = [
        sorted(event["content"] for event in run(s) if event["type"] == "TOOL_CALL_RESULT") for s in (sent, stream)
    ]
    assert results[0] == results[1]
