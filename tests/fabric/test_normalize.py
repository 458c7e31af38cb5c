"""Any source's chunk becomes valid chunks that say the same."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessageChunk, ToolMessage
from openai.types.chat import ChatCompletionChunk

from dragent_stream.errors import ConversionError, UpstreamError
from dragent_stream.events import WireEvents
from dragent_stream.fabric.contract import RECORD_LIMIT, chunk_problem, encode_chunk
from dragent_stream.fabric.normalize import ChunkNormalizer, ReadyChunk
from dragent_stream.ledger import RunLedger
from dragent_stream.options import ConverterOptions
from dragent_stream.stream_converter import ChunkConverter
from dragent_stream.testing import text_chunk

CASES = [json.loads(path.read_text("ascii")) for path in sorted((Path(__file__).parents[1] / "cases").glob("*.json"))]
CHUNK_CASES = [case for case in CASES if "chunks" in case]

Json = dict[str, Any]


def counted() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"new-{next(numbers)}"


def normalise(chunks: Iterable[object], limit: int = RECORD_LIMIT, **options: Any) -> Iterator[Json]:
    normalizer = ChunkNormalizer(chunk_limit=limit, new_id=counted(), **options)

    def checked(ready_chunks: list[ReadyChunk]) -> Iterator[Json]:
        for ready in ready_chunks:
            assert chunk_problem(ready.chunk) is None
            assert json.loads(ready.encoded) == ready.chunk
            assert len(ready.encoded) <= limit
            yield ready.chunk

    try:
        for chunk in chunks:
            yield from checked(normalizer.feed(chunk))
        rest = normalizer.finish()
    except (UpstreamError, ConversionError):
        yield from checked(normalizer.release())
        raise
    yield from checked(rest)


def one(chunk: object) -> Json:
    (found,) = normalise([chunk])
    return found


def delta(chunk: object) -> Json:
    return one(chunk)["choices"][0]["delta"]


def run(chunks: Iterable[object]) -> list[Json]:
    """The AG-UI run of a stream, with neighbouring deltas of one entity joined."""
    ledger: RunLedger[bytes] = RunLedger(
        WireEvents(), options=ConverterOptions(new_id=counted()), thread_id="t", run_id="r"
    )
    converter = ChunkConverter(ledger)
    frames = ledger.start_run()
    try:
        for chunk in chunks:
            frames += converter.feed(chunk)
    except UpstreamError as error:
        frames += converter.fail(error)
    frames += converter.finish() + ledger.finish_run()
    joined: list[Json] = []
    for frame in frames:
        event = json.loads(frame[6:])
        before = joined[-1] if joined else {}
        if "delta" in event and {**event, "delta": ""} == {**before, "delta": ""}:
            before["delta"] += event["delta"]
        else:
            joined.append(event)
    return joined


def told(chunks: Iterable[object], case: Json) -> object:
    """The run, or the set of its texts where messages run beside each other: their order is no part of the case."""
    events = run(chunks)
    if "text_set" not in case["expect"]:
        return events
    texts: dict[str, str] = {}
    for event in events:
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            texts[event["messageId"]] = texts.get(event["messageId"], "") + event["delta"]
    return sorted(texts.values())


def test_a_valid_chunk_passes_as_it_is_with_its_extras(chunk: Json) -> None:
    chunk["choices"][0]["delta"]["reasoning_content"] = "hm"
    chunk["x_vendor"] = {"a": [1, 2]}
    before = json.loads(json.dumps(chunk))
    assert one(chunk) == before
    assert chunk == before


@pytest.mark.parametrize("case", CHUNK_CASES, ids=lambda case: case["id"])
def test_a_normalised_stream_becomes_the_same_run(case: Json) -> None:
    assert told(normalise(case["chunks"]), case) == told(case["chunks"], case)


@pytest.mark.parametrize("case", CHUNK_CASES, ids=lambda case: case["id"])
def test_a_stream_in_small_pieces_becomes_the_same_run(case: Json) -> None:
    if any(len(json.dumps(chunk)) > 4000 for chunk in case["chunks"]):
        limit = 4096
    else:
        limit = max([330, *(len(json.dumps(chunk)) * 3 // 4 for chunk in case["chunks"])])
    assert told(normalise(case["chunks"], limit=limit), case) == told(case["chunks"], case)


def test_blank_ids_models_and_times_take_the_last_good_ones() -> None:
    azure = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": [{"x": 1}]}
    good = {"id": "a", "created": 7, "model": "m", "choices": [{"delta": {"content": "x"}}]}
    nothing = {"id": None, "created": None, "model": None, "choices": [{"index": 0, "delta": None}]}
    first, second, third = normalise([azure, good, nothing], model="fallback", created=5)
    assert (first["id"], first["model"], first["created"], first["choices"]) == ("chatcmpl-new-1", "fallback", 0, [])
    assert first["prompt_filter_results"] == [{"x": 1}]
    assert (second["id"], second["model"], second["created"]) == ("a", "m", 7)
    assert (third["id"], third["model"], third["created"]) == ("a", "m", 7)
    assert third["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}]


@pytest.mark.parametrize(
    ("created", "wanted"),
    [
        (1.9, 1),
        (math.nan, 5),
        (math.inf, 5),
        (True, 5),
        (-1, 5),
        ("1", 5),
        (2**64, 5),
        (1_790_000_000_123, 1_790_000_000_123),
    ],
)
def test_created_becomes_an_unsigned_integer(created: object, wanted: int) -> None:
    (found,) = normalise([{"choices": [], "created": created, "usage": {}}], created=5)
    assert found["created"] == wanted


def test_null_choices_become_none_at_all() -> None:
    found = one({**text_chunk("x"), "choices": None, "usage": {"total_tokens": 3}})
    assert found["choices"] == []
    assert found["usage"] == {"total_tokens": 3}


def test_typed_parts_become_text_and_reasoning() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}, "!"]
    assert delta(text_chunk(parts)) == {"content": "yes!", "reasoning_content": "hm"}  # type: ignore[arg-type]


def test_a_number_as_content_becomes_text() -> None:
    assert delta(text_chunk(6)) == {"content": "6"}  # type: ignore[arg-type]


def test_arguments_as_object_become_their_json_text() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": ["é"]}}}
    chunk = {**text_chunk(""), "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
    (found,) = delta(chunk)["tool_calls"]
    assert found == {**call, "function": {"name": "f", "arguments": '{"a": ["é"]}'}}
    assert call["function"]["arguments"] == {"a": ["é"]}


def test_wrong_types_beside_the_text_are_dropped() -> None:
    odd = {
        "index": True,
        "finish_reason": 3,
        "logprobs": [],
        "delta": {"content": "x", "role": "", "refusal": False, "function_call": "f", "tool_calls": {"index": 0}},
    }
    found = one({"id": 5, "choices": [odd], "usage": "none"})
    assert found["id"] == "5"
    assert found["choices"] == [
        {"index": 0, "finish_reason": None, "delta": {"content": "x", "tool_calls": [{"index": 0}]}}
    ]
    assert "usage" not in found


def test_a_message_counts_only_where_nothing_was_streamed() -> None:
    whole = {"object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": "ab"}}]}
    assert delta(whole) == {"role": "assistant", "content": "ab"}
    *_, last = normalise([text_chunk("ab"), whole])
    assert last["choices"][0]["delta"] == {}


def test_the_caller_keeps_his_chunk_unchanged() -> None:
    odd = {
        "choices": [
            {"delta": {"content": [{"type": "text", "text": "x"}], "tool_calls": [{"function": {"arguments": {}}}]}}
        ]
    }
    before = json.dumps(odd)
    one(odd)
    assert json.dumps(odd) == before


@pytest.mark.parametrize("chunk", [None, "", {}, {"ping": 1}, {"type": "ping"}])
def test_a_heartbeat_becomes_nothing(chunk: object) -> None:
    assert list(normalise([chunk])) == []


@pytest.mark.parametrize(
    ("chunk", "looks"),
    [
        ({"text": "secret"}, "the source yielded a dict with the keys text, which is no chunk"),
        ({"type": "response.output_text.delta", "delta": "secret"}, "delta of a chunk is a str"),
        ({str(n): "secret" for n in range(9)}, "a dict with the keys 0, 1, 2, 3, 4, which"),
        (3, "an int, which is no chunk"),
        (True, "a bool, which is no chunk"),
        (object(), "an object, which is no chunk"),
        (b"secret", "a bytes, which is no chunk"),
        ([text_chunk("secret")] * 4, "a list, which is no chunk"),
        ({"choices": "secret"}, "choices of a chunk is a str, not a list of mappings"),
        ({"choices": {"delta": {}}}, "choices of a chunk is a dict with the keys delta, not a list of mappings"),
        ({"choices": [None, "secret"]}, r"choices\[1\] of a chunk is a str, not a mapping"),
        ({"choices": [{"delta": "secret"}]}, r"choices\[0\].delta of a chunk is a str, not a mapping"),
        ({"choices": [{"delta": {"tool_calls": "secret"}}]}, "tool_calls of a chunk is a str"),
        ({"choices": [{"delta": {"tool_calls": [{}, "secret"]}}]}, r"tool_calls\[1\] of a chunk is a str"),
    ],
)
def test_what_is_no_chunk_is_refused_by_its_look_and_never_by_its_value(chunk: object, looks: str) -> None:
    with pytest.raises(ConversionError, match=looks) as caught:
        list(normalise([text_chunk("before"), chunk]))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("chunk", [{"choices": {}}, {"choices": ""}, {"choices": [None]}, {"choices": [{"delta": []}]}])
def test_an_empty_place_holds_nothing_that_could_be_lost(chunk: Json) -> None:
    assert all(not choice["delta"] for choice in one(chunk)["choices"])


@pytest.mark.parametrize(
    ("index", "kept"),
    [(["0"], None), ({}, None), ("0", 0), ("x", None), (1.0, None), (True, None), (2, 2), (None, None)],
)
@pytest.mark.parametrize("half", ["", "\ud83d"])
def test_the_index_of_a_call_is_a_number_or_absent(index: object, kept: object, half: str) -> None:
    call = {"index": index, "id": "c", "function": {"name": "f", "arguments": "{}" + half}}
    (found,) = delta({"choices": [{"index": [0], "delta": {"tool_calls": [call]}}]})["tool_calls"]
    assert found.get("index") == kept


def test_a_legacy_text_completion_is_read_to_its_end() -> None:
    found = list(normalise([{"object": "text_completion", "choices": [{"index": 0, "text": text}]} for text in "ab"]))
    assert [chunk["choices"][0]["delta"] for chunk in found] == [{"content": "a"}, {"content": "b"}]


def test_text_alone_is_a_chunk() -> None:
    found = one("hello")
    assert found["choices"] == [{"index": 0, "delta": {"content": "hello"}, "finish_reason": None}]


def test_an_openai_object_becomes_its_mapping() -> None:
    chunk = {**text_chunk("x"), "x_extra": 1}
    assert one(ChatCompletionChunk.model_validate(chunk)) == {
        **chunk,
        "choices": [{"index": 0, "delta": {"content": "x"}}],
    }


def test_an_openai_object_with_wrong_types_warns_nobody() -> None:
    odd = ChatCompletionChunk.construct(id="", choices=[{"index": 0, "delta": {"content": 6}}], created=1.5, model="m")
    assert delta(odd) == {"content": "6"}


def test_langchain_messages_become_completion_chunks() -> None:
    found = list(
        normalise(
            [
                (AIMessageChunk(content="hi", id="run-1"), {"langgraph_node": "agent"}),
                AIMessageChunk(
                    content="",
                    id="run-1",
                    tool_call_chunks=[{"name": "f", "args": "{}", "id": "c1", "index": 0, "type": "tool_call_chunk"}],
                    response_metadata={"finish_reason": "tool_calls", "model_name": "m1"},
                ),
                ToolMessage(content="42", tool_call_id="c1"),
            ]
        )
    )
    assert [chunk["choices"][0] for chunk in found] == [
        {"index": 0, "delta": {"content": "hi"}, "finish_reason": None},
        {
            "index": 0,
            "delta": {
                "tool_calls": [
                    {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ]
            },
            "finish_reason": "tool_calls",
        },
        {"index": 0, "delta": {"role": "tool", "tool_call_id": "c1", "content": "42"}, "finish_reason": None},
    ]
    assert [chunk["model"] for chunk in found] == ["unknown-model", "m1", "m1"]


def test_usage_that_langchain_counts_per_chunk_is_stated_as_a_total() -> None:
    def message(prompt: int, answer: int) -> AIMessageChunk:
        usage = {"input_tokens": prompt, "output_tokens": answer, "total_tokens": prompt + answer}
        return AIMessageChunk(content="x", id="run-1", usage_metadata=usage)  # type: ignore[arg-type]

    *_, last = normalise([message(10, 1), message(0, 2)])
    assert last["usage"] == {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}


@pytest.mark.parametrize(
    "chunk",
    [
        {"error": {"message": "overloaded", "code": 503}},
        {**text_chunk("x"), "error": {"message": "overloaded"}},
        {"error": "overloaded"},
        {"object": "error", "message": "overloaded", "code": 1},
    ],
)
def test_an_error_in_the_stream_is_raised(chunk: Json) -> None:
    with pytest.raises(UpstreamError, match="overloaded"):
        list(normalise([chunk]))


def test_what_json_has_not_is_replaced(chunk: Json) -> None:
    chunk["extra"] = {"nan": math.nan, "when": datetime(2026, 1, 1, tzinfo=UTC), "set": {1}, 5: "x", "lone": "a\ud800"}
    assert one(chunk)["extra"] == {
        "nan": None,
        "when": "2026-01-01 00:00:00+00:00",
        "set": [1],
        "5": "x",
        "lone": "a\ufffd",
    }


def test_a_character_cut_between_two_chunks_is_joined() -> None:
    found = list(normalise([text_chunk("a\ud83d"), text_chunk("\ude00b"), text_chunk("\ude00c")]))
    assert [chunk["choices"][0]["delta"]["content"] for chunk in found] == ["a", "\U0001f600b", "\ufffdc"]


@pytest.mark.parametrize("field", ["content", "reasoning_content", "reasoning", "refusal"])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=400))
def test_long_text_is_divided_and_stays_whole(field: str, text: str) -> None:
    long = {**text_chunk(""), "choices": [{"index": 0, "delta": {"role": "assistant", field: text}}], "usage": {"n": 1}}
    found = list(normalise([long], limit=220))
    assert "".join(chunk["choices"][0]["delta"].get(field, "") for chunk in found if chunk["choices"]) == text
    assert [chunk.get("usage") for chunk in found if "usage" in chunk] == [{"n": 1}]
    assert found[-1]["usage"] == {"n": 1}
    assert found[0]["choices"][0]["delta"]["role"] == "assistant"


def test_long_arguments_are_divided_and_keep_their_call() -> None:
    calls = [
        {
            "index": index,
            "id": f"c{index}",
            "type": "function",
            "function": {"name": f"f{index}", "arguments": "x" * 900},
        }
        for index in (0, 1)
    ]
    chunk = {**text_chunk(""), "choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}
    found = list(normalise([chunk], limit=400))
    for index in (0, 1):
        deltas = [
            call
            for piece in found
            for call in piece["choices"][0]["delta"].get("tool_calls", [])
            if call["index"] == index
        ]
        assert "".join(call["function"]["arguments"] for call in deltas) == "x" * 900
        assert [call["id"] for call in deltas if "id" in call] == [f"c{index}"]
        assert [call["function"]["name"] for call in deltas if "name" in call["function"]] == [f"f{index}"]
    assert [
        piece["choices"][0].get("finish_reason") for piece in found if piece["choices"][0].get("finish_reason")
    ] == ["tool_calls"]


def test_old_function_calls_and_calls_without_index_are_divided_too() -> None:
    old = {"name": "f", "arguments": "y" * 500}
    new = {"id": "c", "function": {"name": "g", "arguments": "z" * 500}}
    chunk = {**text_chunk(""), "choices": [{"index": 0, "delta": {"function_call": old, "tool_calls": [new]}}]}
    found = [piece["choices"][0]["delta"] for piece in normalise([chunk], limit=300)]
    assert "".join(delta["function_call"]["arguments"] for delta in found if "function_call" in delta) == "y" * 500
    calls = [call for delta in found for call in delta.get("tool_calls", [])]
    assert {call["id"] for call in calls} == {"c"}
    assert "".join(call["function"]["arguments"] for call in calls) == "z" * 500


def test_a_thought_in_two_spellings_is_said_once_when_divided() -> None:
    thought = "t" * 600
    chunk = {
        **text_chunk(""),
        "choices": [
            {
                "index": 0,
                "delta": {"reasoning": thought, "reasoning_content": thought, "reasoning_details": [{"text": "t"}]},
            }
        ],
    }
    assert run(normalise([chunk], limit=400)) == run([chunk])


def test_what_cannot_be_divided_is_refused_by_name(chunk: Json) -> None:
    chunk["citations"] = ["secret" * 200]
    with pytest.raises(ConversionError, match="citations") as caught:
        list(normalise([chunk], limit=500))
    assert "secret" not in str(caught.value)


def test_a_chunk_of_exactly_the_limit_stays_whole(chunk: Json) -> None:
    chunk["choices"][0]["delta"]["content"] = "hello" * 20
    assert len(list(normalise([chunk], limit=len(encode_chunk(chunk))))) == 1
    del chunk["choices"][0]["finish_reason"]
    assert len(list(normalise([chunk], limit=len(encode_chunk(chunk)) - 1))) == 2


def test_deep_nesting_is_refused_and_not_a_crash(chunk: Json) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    chunk["deep"] = deep
    with pytest.raises(ConversionError, match="nested"):
        list(normalise([chunk]))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
deltas = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("content", "role", "refusal", "function_call", "tool_calls", "reasoning"), json_values),
)
choices = st.fixed_dictionaries(
    {},
    optional={
        "index": json_values,
        "delta": deltas | json_values,
        "finish_reason": json_values,
        "logprobs": json_values,
        "message": deltas | json_values,
    },
)
chunks = st.fixed_dictionaries(
    {},
    optional={
        "id": json_values,
        "object": json_values,
        "created": json_values,
        "model": json_values,
        "usage": json_values,
        "choices": st.lists(choices | json_values, max_size=3) | json_values,
    },
)


@given(st.lists(chunks | json_values, max_size=4))
def test_whatever_comes_the_outcome_is_valid_or_an_error_of_ours(stream: list[object]) -> None:
    try:
        list(normalise(stream))
    except (ConversionError, UpstreamError):
        pass
