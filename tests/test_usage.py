"""Token counts: read in any spelling, merged over chunks, consistent on the terminal event."""

from __future__ import annotations

from typing import Any

import pytest
from agui_case import both_writers, delta
from hypothesis import given
from hypothesis import strategies as st

from dragent_stream.check import check_events
from dragent_stream.usage import Usage, UsageTotals, read_usage


def entry(*usages: dict[str, Any]) -> dict[str, Any]:
    feed = [{**delta(content="Hi"), "usage": usages[0]}, *({"choices": [], "usage": usage} for usage in usages[1:])]
    events = both_writers({}, [*feed, delta("stop")])
    assert check_events(events) == []
    (found,) = events[-1]["usage"]
    return found


def test_the_last_word_counts_field_by_field() -> None:
    first = {"prompt_tokens": 25, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 5}}
    assert entry(first, {"completion_tokens": 15}) == {"inputTokens": 25, "outputTokens": 15, "cachedInputTokens": 5}
    assert entry(first, {"prompt_tokens": 0, "completion_tokens": 15})["inputTokens"] == 25
    assert entry({"completion_tokens": 1}, {"completion_tokens": 2}, {"completion_tokens": 3})["outputTokens"] == 3


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        # xAI: reasoning beside the answer, and a total that shows it
        (
            {
                "prompt_tokens": 12,
                "completion_tokens": 1,
                "total_tokens": 303,
                "completion_tokens_details": {"reasoning_tokens": 290},
            },
            {"inputTokens": 12, "outputTokens": 291, "totalTokens": 303, "reasoningTokens": 290},
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 50,
                "total_tokens": 90,
                "completion_tokens_details": {"reasoning_tokens": 30},
            },
            {"inputTokens": 10, "outputTokens": 80, "totalTokens": 90, "reasoningTokens": 30},
        ),
        # OpenAI: reasoning inside it
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 50,
                "total_tokens": 60,
                "completion_tokens_details": {"reasoning_tokens": 30},
            },
            {"inputTokens": 10, "outputTokens": 50, "totalTokens": 60, "reasoningTokens": 30},
        ),
        # Anthropic: cached input beside the rest
        (
            {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 7},
            {"inputTokens": 110, "outputTokens": 5, "cachedInputTokens": 100, "cacheWriteInputTokens": 7},
        ),
        (
            {"total_tokens": 6, "prompt_tokens": 5, "completion_tokens": 2},
            {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7},
        ),
    ],
)
def test_totals_hold_their_parts(usage: dict[str, Any], expected: dict[str, int]) -> None:
    assert entry(usage) == expected


def totals(*counts: Usage, adds: bool = True, calls: tuple[str, ...] = ("",)) -> list[dict[str, Any]]:
    found = UsageTotals()
    for at, usage in enumerate(counts):
        found.from_chunk(usage, provider="", model="m", adds=adds, call=calls[at % len(calls)])
    return found.entries()


def test_increments_add_up_and_totals_that_come_as_increments_do_not() -> None:
    assert totals(Usage(10, 1, 11), Usage(0, 4, 4)) == [
        {"model": "m", "inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
    ]
    assert totals(Usage(10, 1, 11), Usage(10, 5, 15)) == [
        {"model": "m", "inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
    ]


def test_calls_that_run_at_the_same_time_are_counted_apart() -> None:
    (found,) = totals(Usage(10, 1), Usage(20, 2), Usage(0, 3), Usage(0, 4), calls=("a", "b"))
    assert (found["inputTokens"], found["outputTokens"]) == (30, 10)


def test_steps_and_chunks_of_one_model_are_one_entry() -> None:
    found = UsageTotals()
    found.from_step(Usage(1, 1), model="m", nested=True)
    found.from_step(Usage(2, 2), model="m", nested=False)
    assert found.entries() == [{"model": "m", "inputTokens": 3, "outputTokens": 3}]


_counts = st.one_of(st.none(), st.integers(0, 2**40))


@given(
    st.lists(st.builds(Usage, _counts, _counts, _counts, _counts, _counts, _counts), min_size=1, max_size=5),
    st.booleans(),
)
def test_whatever_is_counted_comes_out_consistent(counts: list[Usage], adds: bool) -> None:
    for found in totals(*counts, adds=adds):
        run = [
            {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"},
            {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "usage": [found]},
        ]
        assert check_events(run) == []


@pytest.mark.parametrize("usage", [{}, None, {"prompt_tokens": 0}, {"prompt_tokens": True}, {"prompt_tokens": -1}, 5])
def test_placeholders_are_no_usage(usage: Any) -> None:
    assert read_usage(usage) is None
