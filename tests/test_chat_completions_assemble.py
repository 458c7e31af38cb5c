"""Streams as other servers write them, put together into a completion."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from ag_ui.core import RunErrorEvent, TextMessageContentEvent, ToolCallArgsEvent, ToolCallStartEvent
from hypothesis import given
from hypothesis import strategies as st
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
        "role": "assistant",
        "reasoning_content": "hm",
        "content": "a6",
    }


def test_parts_that_are_neither_text_nor_thought_are_kept() -> None:
    reference = {"type": "reference", "reference_ids": [1]}
    assert message_of({"content": [{"type": "text", "text": "a"}, reference]}, {"content": [reference]}) == {
        "role": "assistant",
        "content": "a",
        "content_parts": [reference, reference],
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


CALL = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":'}}]}


@pytest.mark.parametrize(
    ("deltas", "finish"),
    [
        ([{"content": "Hel"}], None),
        ([{"content": None}], None),
        ([CALL, {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}], "tool_calls"),
        ([{"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]}], "tool_calls"),
        ([{"function_call": {"name": "f", "arguments": "{}"}}], "function_call"),
        ([CALL], "length"),
        ([{"function_call": {"name": "f", "arguments": "{"}}], "length"),
    ],
)
def test_a_finish_reason_that_never_came_is_filled_in_where_the_answer_proves_it(
    deltas: list[dict[str, Any]], finish: str | None
) -> None:
    (choice,) = assemble_chat_completion([chunk(delta) for delta in deltas])["choices"]
    assert choice["finish_reason"] == finish


@pytest.mark.parametrize("role", [{}, {"role": None}, {"role": ""}])
def test_a_role_that_the_server_left_out_is_the_assistants(role: dict[str, Any]) -> None:
    assert message_of({**role, "content": "a"}) == {"role": "assistant", "content": "a"}
    (choice,) = assemble_chat_completion([chunk(finish="stop")])["choices"]
    assert choice["message"] == {"role": "assistant"}


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
        ({"error": {"type": "t"}}, "the upstream reported an error (t)", "STREAM_ERROR"),
        ({"base_resp": {"status_code": 1008, "status_msg": "no balance"}, "choices": None}, "no balance", "1008"),
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


def is_of_chat_completions(chunks: list[Any]) -> bool:
    """The chunks are no LangChain messages."""
    return all(chunk is None or (isinstance(chunk, dict) and "type" not in chunk) for chunk in chunks)


CASES = {
    path.stem: case["chunks"]
    for path in sorted((Path(__file__).parent / "cases").glob("*.json"))
    if "chunks" in (case := json.loads(path.read_text("utf-8"))) and is_of_chat_completions(case["chunks"])
}
OTHER_CALLS = {
    "040-no-arguments-null",  # a completion keeps "" where AG-UI shows {}
    "245-calls-in-another-choice",  # a completion keeps its choices, a run has one answer
}
OTHER_TEXT = {
    "075-delta-with-tool-or-user-role",  # a completion has one message: what other roles said is in it
    "225-gemini-thought-flag",  # a completion keeps the tags of a thought inside its text
}


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


@pytest.mark.parametrize("name", CASES)
def test_what_assembles_can_be_synthesized_and_is_the_same_again(name: str) -> None:
    try:
        whole = assemble_chat_completion(CASES[name])
    except UpstreamError:
        return
    assert assemble_chat_completion(synthesize_chat_completion_chunks(whole, True)) == whole


@pytest.mark.parametrize(
    "chunks",
    [
        [{"content": "Hi", "type": "AIMessageChunk", "id": "a"}],
        [{"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hi"}],
        [{}],
        [{"id": "x", "object": "chat.completion.chunk"}],
    ],
)
def test_a_stream_without_any_choice_is_no_empty_success(chunks: list[Any]) -> None:
    with pytest.raises(ConversionError, match="no chunk of the stream has choices or usage"):
        assemble_chat_completion(chunks)


# Blocks of thought in fragments.


def blocks_of(*fragments: list[dict[str, Any]], key: str = "thinking_blocks") -> list[dict[str, Any]]:
    return message_of(*({key: list(fragment)} for fragment in fragments))[key]


def thinking(text: str, signature: str | None = None) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


def test_a_signed_thought_in_fragments_is_one_signed_block() -> None:
    """As LiteLLM streams Anthropic; `litellm.stream_chunk_builder` gives the same."""
    fragments = [[thinking("Let ", "")], [thinking("me", "")], [thinking("", "SIG==")]]
    assert blocks_of(*fragments) == [thinking("Let me", "SIG==")]
    assert blocks_of([thinking("Let ")], [{"type": "thinking", "thinking": "me"}], [thinking("", "S")]) == [
        thinking("Let me", "S")
    ]


def test_what_follows_a_signature_is_the_next_block() -> None:
    redacted = {"type": "redacted_thinking", "data": "ENC"}
    fragments = [[thinking("a")], [thinking("", "1")], [redacted], [redacted], [thinking("b")], [thinking("c", "2")]]
    assert blocks_of(*fragments) == [thinking("a", "1"), redacted, redacted, thinking("bc", "2")]
    assert blocks_of([thinking("", "1")], [thinking("", "2")]) == [thinking("", "1"), thinking("", "2")]
    assert blocks_of([thinking("a", "1")], [thinking("", "1")]) == [thinking("a", "1")]


def test_blocks_of_one_delta_are_blocks_of_their_own() -> None:
    assert blocks_of([thinking("a"), thinking("b")]) == [thinking("a"), thinking("b")]
    assert blocks_of([thinking("a")], [thinking("b"), thinking("c")]) == [thinking("ab"), thinking("c")]


def test_details_belong_to_the_block_of_their_index() -> None:
    def detail(index: int, kind: str = "text", **fields: Any) -> dict[str, Any]:
        return {"type": f"reasoning.{kind}", "index": index, **fields}

    fragments = [
        [detail(0, "summary", summary="a")],
        [detail(1, text="x", format="f"), detail(0, "summary", summary="b")],
        [detail(1, text="y", signature=None)],
        [detail(1, text="", signature="S")],
        [detail(2, "encrypted", data="ENC", id="e")],
        [detail(2, "encrypted", data="ENC", id="e")],
        [detail(2, "encrypted", data="MORE", id="f")],
    ]
    assert blocks_of(*fragments, key="reasoning_details") == [
        detail(0, "summary", summary="ab"),
        detail(1, text="xy", format="f", signature="S"),
        detail(2, "encrypted", data="ENC", id="e"),
        detail(2, "encrypted", data="MORE", id="f"),
    ]


def test_details_that_repeat_all_so_far_are_read_as_snapshots() -> None:
    said = ["I think that ", "I think that this ", "I think that this is it"]
    fragments = [[{"type": "reasoning.text", "text": text}] for text in said]
    assert blocks_of(*fragments, key="reasoning_details") == [{"type": "reasoning.text", "text": said[-1]}]


def test_blocks_inside_fields_of_the_server_are_put_together_too() -> None:
    def specific(**fields: Any) -> dict[str, Any]:
        return {"provider_specific_fields": fields}

    message = message_of(
        specific(thinking_blocks=[thinking("a", "")], citation="x"),
        specific(thinking_blocks=[thinking("b", "S")], other=1),
        {"provider_specific_fields": None},
    )
    assert message["provider_specific_fields"] == {
        "thinking_blocks": [thinking("ab", "S")],
        "citation": "x",
        "other": 1,
    }


def test_what_is_no_block_is_kept_as_it_is() -> None:
    odd: list[Any] = [
        "text",
        7,
        None,
        {},
        {"type": "thinking", "thinking": ["x"]},
        {"type": "thinking", "thinking": ["y"]},
    ]
    assert message_of(*({"thinking_blocks": [entry]} for entry in odd))["thinking_blocks"] == odd


_block = st.fixed_dictionaries(
    {"type": st.sampled_from(["thinking", "redacted_thinking", "reasoning.text"])},
    optional={
        "thinking": st.text(max_size=3),
        "text": st.text(max_size=20),
        "signature": st.sampled_from(["", None, "S"]),
        "data": st.sampled_from(["", "ENC"]),
        "index": st.integers(0, 2),
    },
)


@given(st.lists(st.lists(_block, max_size=3), max_size=6))
def test_no_text_of_a_block_is_lost_and_whole_lists_stay_as_they_are(fragments: list[list[dict[str, Any]]]) -> None:
    blocks = blocks_of(*fragments) if any(fragments) else []
    for key in ("thinking", "data"):
        sent = sorted("".join(block.get(key) or "" for fragment in fragments for block in fragment))
        kept = sorted("".join(block.get(key) or "" for block in blocks))
        assert kept == sent or (key == "data" and set(kept) == set(sent))
    if blocks:
        assert blocks_of(blocks) == blocks


def test_a_heartbeat_is_no_chunk() -> None:
    assert assemble_chat_completion([None, *OPENAI_STREAM, None]) == assemble_chat_completion(OPENAI_STREAM)


def test_halves_of_one_character_become_the_character() -> None:
    assert message_of({"content": "a\ud83d"}, {"content": "\ude00"})["content"] == "a\N{GRINNING FACE}"
    assert message_of({"content": "a\ud83d"})["content"] == "a\ud83d"


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (
            [{"prompt_tokens": 1}, {"completion_tokens": 2}],
            {"prompt_tokens": 1, "completion_tokens": 2},
        ),
        (
            [{"prompt_tokens": 5, "total_tokens": 5}, {"completion_tokens": 2, "total_tokens": 2}],
            {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        ),
        (
            [{"prompt_tokens": 5, "completion_tokens": 1}, {"prompt_tokens": 0, "completion_tokens": 3}],
            {"prompt_tokens": 5, "completion_tokens": 3},
        ),
        (
            [{"prompt_tokens_details": {"cached_tokens": 4}}, {"prompt_tokens_details": {"audio_tokens": 1}}],
            {"prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 1}},
        ),
        ([{"prompt_tokens": 5}, {}, None, {"prompt_tokens": None}], {"prompt_tokens": 5}),
        ([{"completion_tokens": 1, "cost": 0.5}, {"completion_tokens": 2}], {"completion_tokens": 2, "cost": 0.5}),
    ],
)
def test_usage_that_is_told_in_several_chunks_is_merged(words: list[Any], usage: dict[str, Any]) -> None:
    kept = json.dumps(words)
    answer = assemble_chat_completion([chunk({"content": "a"}, "stop"), *({"usage": word} for word in words)])
    assert answer["usage"] == usage
    assert json.dumps(words) == kept


def test_a_stream_in_which_no_chunk_has_a_choice_is_no_answer() -> None:
    with pytest.raises(ConversionError, match="no chunk of the stream has a choice"):
        assemble_chat_completion([{"id": "a", "choices": []}, {"choices": None}])
    with pytest.raises(ConversionError, match="no chunk of the stream has a choice"):
        assemble_chat_completion([{"usage": None}])
