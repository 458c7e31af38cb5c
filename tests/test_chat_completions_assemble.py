"""Streams as other servers write them, put together into a completion."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from ag_ui.core import RunErrorEvent, TextMessageContentEvent, ToolCallArgsEvent, ToolCallStartEvent
from openai.types.chat import ChatCompletionChunk

from dragent_stream.chat_completions import assemble_chat_completion, synthesize_chat_completion_chunks
from dragent_stream.errors import ConversionError, UpstreamError
from dragent_stream.run import stream_agui_run


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **top: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **top,
    }


def message_of(*deltas: dict[str, Any]) -> dict[str, Any]:
    return assemble_chat_completion([chunk(delta) for delta in deltas])["choices"][0]["message"]


USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
OPENAI_STREAM = [
    chunk({"role": "assistant", "content": "", "refusal": None}, service_tier="default", obfuscation="x"),
    chunk({"content": "Hel"}, service_tier="default", obfuscation="y"),
    chunk({"content": "lo"}, service_tier="default", usage=None),
    chunk({}, "stop", service_tier="default", usage=None),
    chunk(choices=[], usage=USAGE, service_tier="default"),
]


def test_the_stream_of_openai_becomes_its_completion() -> None:
    expected = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello", "refusal": None},
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
        "service_tier": "default",
    }
    assert assemble_chat_completion(OPENAI_STREAM) == expected
    objects = [ChatCompletionChunk.model_validate(item) for item in OPENAI_STREAM]
    assert assemble_chat_completion(objects) == expected


def test_fragments_of_interleaved_calls_are_joined() -> None:
    def call(index: int, **fields: Any) -> dict[str, Any]:
        return {"tool_calls": [{"index": index, **fields}]}

    message = message_of(
        {"role": "assistant", "content": None},
        call(0, id="a", type="function", function={"name": "f", "arguments": ""}),
        call(1, id="b", type="function", function={"name": "g", "arguments": ""}),
        call(0, function={"arguments": '{"x":'}),
        call(1, function={"arguments": "{"}),
        call(0, function={"arguments": "1}"}),
        call(1, function={"arguments": "}"}),
    )
    assert message["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]


def test_parallel_calls_that_share_an_index_stay_apart() -> None:
    def call(**fields: Any) -> dict[str, Any]:
        return {"tool_calls": [fields]}

    message = message_of(
        call(index=0, id="a", function={"name": "f", "arguments": "{}"}),
        call(index=0, id="b", function={"name": "f", "arguments": {"x": 1}}),
        call(id="c", function={"name": "g", "arguments": ""}),
        call(function={"arguments": "{}"}),
    )
    assert [(c["id"], c["type"], c["function"]["arguments"]) for c in message["tool_calls"]] == [
        ("a", "function", "{}"),
        ("b", "function", '{"x": 1}'),
        ("c", "function", "{}"),
    ]


def test_custom_calls_and_the_old_function_call_are_joined() -> None:
    message = message_of(
        {"tool_calls": [{"index": 0, "id": "a", "type": "custom", "custom": {"name": "c", "input": "x"}}]},
        {"tool_calls": [{"index": 0, "custom": {"input": "y"}}]},
        {"function_call": {"name": "f", "arguments": "{"}},
        {"function_call": {"arguments": "}"}},
    )
    assert message["tool_calls"] == [{"id": "a", "type": "custom", "custom": {"name": "c", "input": "xy"}}]
    assert message["function_call"] == {"name": "f", "arguments": "{}"}


def test_text_joins_and_lists_join_and_the_last_other_value_stays() -> None:
    message = message_of(
        {"role": "assistant", "content": "", "reasoning": "a", "annotations": [1], "x": 1, "y": None},
        {"role": "assistant", "content": None, "reasoning": "b", "annotations": [2], "x": 2, "y": {"z": 1}},
        {"role": None, "x": None, "audio": {"id": "i", "data": "A", "transcript": "t"}},
        {"audio": {"data": "B", "transcript": "u", "expires_at": 9}},
    )
    assert message == {
        "role": "assistant",
        "content": "",
        "reasoning": "ab",
        "annotations": [1, 2],
        "x": 2,
        "y": {"z": 1},
        "audio": {"id": "i", "data": "AB", "transcript": "tu", "expires_at": 9},
    }


def test_typed_parts_and_numbers_are_read_as_text() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    assert message_of({"content": [thinking]}, {"content": [{"type": "text", "text": "a"}]}, {"content": 6}) == {
        "reasoning_content": "hm",
        "content": "a6",
    }


def test_blank_openings_do_not_hide_what_follows() -> None:
    azure = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": [1]}
    answer = assemble_chat_completion([azure, *OPENAI_STREAM])
    assert (answer["id"], answer["created"], answer["model"]) == ("chatcmpl-1", 1, "m")
    assert answer["prompt_filter_results"] == [1]


def test_a_whole_message_instead_of_a_delta_is_read_and_beside_one_is_not() -> None:
    whole = {"role": "assistant", "content": "Hello"}
    only = assemble_chat_completion([{"choices": [{"index": 0, "message": whole, "finish_reason": "stop"}]}])
    assert only["choices"][0]["message"] == whole
    both = assemble_chat_completion([*OPENAI_STREAM, {"choices": [{"index": 0, "message": whole}]}])
    assert both["choices"][0]["message"]["content"] == "Hello"


def test_interleaved_choices_and_token_ids_and_logprobs_are_kept_apart() -> None:
    def part(index: int | None, text: str) -> dict[str, Any]:
        logprobs = {"content": [{"token": text}], "refusal": None}
        return {"index": index, "delta": {"content": text}, "logprobs": logprobs, "token_ids": [ord(text)]}

    chunks = [{"choices": [part(1, "a")]}, {"choices": [part(0, "b")]}, {"choices": [part(None, "c"), part(1, "d")]}]
    answer = assemble_chat_completion(chunks)
    assert [(c["index"], c["message"]["content"], c["token_ids"]) for c in answer["choices"]] == [
        (0, "bc", [98, 99]),
        (1, "ad", [97, 100]),
    ]
    assert answer["choices"][1]["logprobs"] == {"content": [{"token": "a"}, {"token": "d"}], "refusal": None}


def test_a_stream_that_breaks_off_has_no_finish_reason() -> None:
    (choice,) = assemble_chat_completion(OPENAI_STREAM[:2])["choices"]
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": "Hel", "refusal": None},
        "finish_reason": None,
    }


def test_choices_null_or_absent_are_no_choices() -> None:
    answer = assemble_chat_completion(
        [*OPENAI_STREAM[:4], {"choices": None, "usage": {"total_tokens": 4}}, {"id": "z"}]
    )
    assert answer["usage"] == {"total_tokens": 4} and answer["id"] == "chatcmpl-1"


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        ({"error": {"message": "boom", "code": 429}}, "boom", "429"),
        ({"error": "boom", "choices": []}, "boom", "STREAM_ERROR"),
        ({"object": "error", "message": "boom", "code": "x"}, "boom", "x"),
        ({"error": {"type": "t"}}, "the stream reported an error", "STREAM_ERROR"),
    ],
)
def test_an_error_in_the_stream_is_raised(error: dict[str, Any], message: str, code: str) -> None:
    with pytest.raises(UpstreamError) as caught:
        assemble_chat_completion([*OPENAI_STREAM[:2], error])
    assert (str(caught.value), caught.value.code) == (message, code)


@pytest.mark.parametrize(
    ("chunks", "problem"),
    [
        ([], "the stream holds no chunk"),
        ([{}, "x"], "chunk 2 is str, not an object"),
        ([{"choices": {}}], "chunk 1: choices is dict, not a list"),
        ([{"choices": [3]}], r"chunk 1: choices\[0\] is int, not an object"),
        ([{"choices": [{"index": "0"}]}], r"chunk 1: choices\[0\].index is str, not a number"),
        ([{"choices": [{"delta": "x"}]}], r"chunk 1: choices\[0\].delta is str, not an object"),
        ([{"choices": [{"delta": {"tool_calls": [3]}}]}], r"choices\[0\].delta.tool_calls\[0\] is int, not an object"),
        ([{"choices": [{"logprobs": 3}]}], r"choices\[0\].logprobs is int, not an object"),
    ],
)
def test_what_is_no_chunk_is_refused_with_its_place(chunks: list[Any], problem: str) -> None:
    with pytest.raises(ConversionError, match=problem):
        assemble_chat_completion(chunks)


def test_calls_of_every_kind_come_back_when_ids_and_names_repeat() -> None:
    calls = [
        {"id": "x", "type": "function", "function": {"name": "f", "arguments": "not json"}},
        {"id": "x", "type": "function", "function": {"name": "f", "arguments": "more"}},
        {"id": "x", "type": "function", "function": {"name": "", "arguments": "{}"}},
        {"id": None, "type": "function", "function": {"name": "", "arguments": "{}"}},
        {"type": "web_search", "query": "q"},
    ]
    whole = {
        **{"id": "a", "object": "chat.completion", "created": 1, "model": "m"},
        "choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": calls}, "finish_reason": "tool_calls"}],
    }
    assert assemble_chat_completion(synthesize_chat_completion_chunks(whole)) == whole


def test_assembling_takes_linear_time() -> None:
    def seconds(count: int) -> float:
        body = {"annotations": [1], "content": "x", "tool_calls": [{"index": 0, "function": {"arguments": "x"}}]}
        chunks = [chunk(json.loads(json.dumps(body))) for _ in range(count)]
        for number, item in enumerate(chunks):
            item["choices"][0]["logprobs"] = {"content": [number]}
        began = time.process_time()
        assemble_chat_completion(chunks)
        return time.process_time() - began

    small = min(seconds(1000) for _ in range(3))
    assert seconds(16_000) < 16 * 4 * small


CASES = {
    path.stem: case["chunks"]
    for path in sorted((Path(__file__).parent / "cases").glob("*.json"))
    if "chunks" in (case := json.loads(path.read_text("utf-8")))
}
OTHER_CALLS = {"040-no-arguments-null"}  # a completion keeps "" where AG-UI shows {}
OTHER_TEXT = {"075-delta-with-tool-or-user-role"}  # a completion has one message: what other roles said is in it


@pytest.mark.parametrize("name", CASES)
async def test_a_recorded_stream_adds_up_to_what_its_run_says(name: str) -> None:
    events = [event async for event in stream_agui_run(CASES[name])]
    try:
        message = assemble_chat_completion(CASES[name])["choices"][0]["message"]
    except UpstreamError as error:
        assert isinstance(events[-1], RunErrorEvent) and events[-1].message == str(error)
        return
    calls: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, ToolCallStartEvent):
            calls[event.tool_call_id] = [event.tool_call_name, ""]
        elif isinstance(event, ToolCallArgsEvent):
            calls[event.tool_call_id][1] += event.delta
    functions = [call["function"] for call in message.get("tool_calls", [])]
    functions += [message["function_call"]] if "function_call" in message else []
    if name not in OTHER_CALLS:
        assert [[function["name"], function["arguments"]] for function in functions] == list(calls.values())
    if name not in OTHER_TEXT:
        text = "".join(event.delta for event in events if isinstance(event, TextMessageContentEvent))
        assert (message.get("content") or "") == text


def test_a_heartbeat_is_no_chunk() -> None:
    assert assemble_chat_completion([None, *OPENAI_STREAM, None]) == assemble_chat_completion(OPENAI_STREAM)


def test_halves_of_one_character_become_the_character() -> None:
    assert message_of({"content": "a\ud83d"}, {"content": "\ude00"})["content"] == "a\N{GRINNING FACE}"
    assert message_of({"content": "a\ud83d"})["content"] == "a\ud83d"
