"""What providers' words for the end of an answer mean."""

from __future__ import annotations

from typing import Any

import pytest
from agui_case import both_writers, calls, delta, texts

from dragent_stream.check import check_events
from dragent_stream.finish_reasons import read_finish

WORDS = {
    "stop": "stop STOP end_turn endTurn eos eos_token stop_sequence FinishReason.STOP FINISH_REASON_STOP completed",
    "calls": "tool_calls TOOL_CALLS tool-calls tool_use function_call requires_action",
    "length": "length max_tokens MAX_TOKENS maxTokens FinishReason.MAX_TOKENS model_length max_output_tokens "
    "model_context_window_exceeded context_length_exceeded max_length incomplete token_limit_reached",
    "content_filter": "content_filter content-filter CONTENT_FILTERED SAFETY safety PROHIBITED_CONTENT refusal "
    "RECITATION BLOCKLIST SPII guardrail_intervened sensitive IMAGE_SAFETY content_policy_violation",
    "failed": "error ERROR network_error abort MALFORMED_FUNCTION_CALL insufficient_system_resource repetition "
    "UNEXPECTED_TOOL_CALL malformed_model_output cancelled timeout server_error engine_overloaded",
    "unknown": "banana OTHER load",
}


@pytest.mark.parametrize(
    ("word", "finish"), [(word, finish) for finish, words in WORDS.items() for word in words.split()]
)
def test_a_word_has_its_meaning_in_any_spelling(word: str, finish: str) -> None:
    assert read_finish(word) == finish


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        ("content_filter: PROHIBITED_CONTENT", "content_filter"),
        ("error: overloaded", "failed"),
        ("blocked: SAFETY", "content_filter"),
        ("finished: max_tokens", "stop"),
        ("gemini: MAX_TOKENS", "length"),
        (": length", "length"),
        ("max tokens", "length"),
        ("some_new_error_2027", "failed"),
        ("thinking_budget_exceeded", "length"),
        ("moderated_by_policy", "content_filter"),
        ("", None),
        (" ", None),
    ],
)
def test_words_with_more_behind_a_colon_and_words_that_are_not_listed(word: str, finish: Any) -> None:
    assert read_finish(word) == finish


HALF = delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "write", "arguments": '{"text": "Chap'}}])
NOTHING = delta(role="assistant")


def outcome(*feed: Any) -> tuple[str, str]:
    events = both_writers({}, list(feed))
    assert check_events(events) == []
    return events[-1]["type"], events[-1].get("code", "")


@pytest.mark.parametrize("word", WORDS["length"].split())
def test_a_length_is_no_success_where_the_answer_is_cut_or_empty(word: str) -> None:
    assert outcome(HALF, delta(word)) == ("RUN_ERROR", "length")
    assert outcome(NOTHING, delta(word)) == ("RUN_ERROR", "length")
    assert outcome(delta(reasoning_content="hm"), delta(word)) == ("RUN_ERROR", "length")
    assert outcome(delta(content="All I have"), delta(word)) == ("RUN_FINISHED", "")


@pytest.mark.parametrize("word", WORDS["content_filter"].split())
def test_a_filter_is_a_filter_whatever_was_said_before(word: str) -> None:
    assert outcome(delta(content="Sure, "), delta(word)) == ("RUN_ERROR", "content_filter")
    assert outcome(NOTHING, delta(word)) == ("RUN_ERROR", "content_filter")


@pytest.mark.parametrize("word", WORDS["failed"].split())
def test_a_failure_is_an_error_that_names_the_word(word: str) -> None:
    events = both_writers({}, [delta(content="Sure, "), delta(word)])
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "STREAM_ERROR")
    assert repr(word) in events[-1]["message"]


@pytest.mark.parametrize("word", ["stop", "tool_calls", "banana", "tool_use", None])
def test_no_label_ends_a_call_whose_arguments_are_no_json(word: str | None) -> None:
    events = both_writers({}, [HALF, delta(word)])
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "INCOMPLETE_TOOL_CALL")
    (call,) = calls(events)
    assert (call["args"], call["complete"]) == ('{"text": "Chap', False)


@pytest.mark.parametrize("word", ["stop", "tool_calls", "length", "banana"])
def test_a_reason_with_every_fragment_is_the_end_only_at_the_end(word: str) -> None:
    pieces = ["", '{"ci', 'ty":', '"Oslo"}']
    feed = [
        delta(
            word if word != "length" or at == 3 else None, tool_calls=[{"index": 0, "function": {"arguments": piece}}]
        )
        for at, piece in enumerate(pieces)
    ]
    feed[0]["choices"][0]["delta"]["tool_calls"][0] |= {"id": "a", "function": {"name": "get", "arguments": ""}}
    events = both_writers({}, feed)
    assert [(call["name"], call["args"], call["complete"]) for call in calls(events)] == [
        ("get", '{"city":"Oslo"}', True)
    ]
    assert events[-1]["type"] == "RUN_FINISHED"


def test_whole_calls_that_each_bring_a_reason_are_one_answer() -> None:
    feed = [
        delta("tool_calls", tool_calls=[{"index": at, "id": f"c{at}", "function": {"name": "f", "arguments": "{}"}}])
        for at in range(3)
    ]
    events = both_writers({}, feed)
    assert [call["complete"] for call in calls(events)] == [True] * 3
    assert len({call["parent"] for call in calls(events)}) == 1


def test_a_word_that_nobody_knows_ends_an_answer_that_was_given_and_excuses_none_that_was_not() -> None:
    assert outcome(delta(content="Hi"), delta("banana")) == ("RUN_FINISHED", "")
    assert outcome(NOTHING, delta("banana")) == ("RUN_ERROR", "EMPTY_ANSWER")
    assert outcome(NOTHING, delta("tool_calls")) == ("RUN_ERROR", "EMPTY_ANSWER")


def test_a_model_that_says_stop_may_have_nothing_to_say() -> None:
    events = both_writers({}, [NOTHING, delta("stop")])
    assert events[-1]["type"] == "RUN_FINISHED" and not texts(events)


@pytest.mark.parametrize(
    ("choice", "outcome_of_it"),
    [
        ({"finish_reason": {"type": "abort", "message": "x"}}, ("RUN_ERROR", "STREAM_ERROR")),
        ({"finishReason": "SAFETY"}, ("RUN_ERROR", "content_filter")),
        ({"stop_reason": "max_tokens"}, ("RUN_FINISHED", "")),
        ({"stop_reason": "refusal"}, ("RUN_ERROR", "content_filter")),
        ({"finish_reason": "stop", "stop_reason": 128009}, ("RUN_FINISHED", "")),
        ({"finish_reason": "stop", "native_finish_reason": "MALFORMED_FUNCTION_CALL"}, ("RUN_ERROR", "STREAM_ERROR")),
        ({"finish_reason": "stop", "native_finish_reason": "STOP"}, ("RUN_FINISHED", "")),
        ({"finish_reason": "length", "native_finish_reason": "stop"}, ("RUN_FINISHED", "")),
    ],
)
def test_a_reason_is_read_wherever_and_however_it_stands(choice: Any, outcome_of_it: tuple[str, str]) -> None:
    assert outcome(delta(content="Hi"), {"choices": [{"index": 0, "delta": {}, **choice}]}) == outcome_of_it


def test_a_reason_at_the_top_of_a_chunk_without_choices_is_the_answers() -> None:
    assert outcome(delta(content="Hi"), {"choices": [], "finish_reason": "content_filter"}) == (
        "RUN_ERROR",
        "content_filter",
    )


def test_free_text_for_a_tool_that_is_cut_is_not_ended() -> None:
    custom = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "patch", "input": "*** Beg"}}
    for cut in (delta("length"), delta("error")):
        (call,) = calls(both_writers({}, [delta(tool_calls=[custom]), cut]))
        assert not call["complete"]
    (call,) = calls(both_writers({}, [delta(tool_calls=[custom]), delta("tool_calls")]))
    assert (call["args"], call["complete"]) == ('{"input":"*** Beg"}', True)
