"""Which call a delta belongs to: the shapes that providers send, and what may be cut between deltas."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from agui_case import both_writers, calls
from hypothesis import given, settings
from hypothesis import strategies as st

from dragent_stream.chunk_record import ToolCallDelta
from dragent_stream.tool_calls import ToolCall, TurnCalls

Shape = tuple[int | None, str | None, str | None, Any]

A, B = '{"a":1}', '{"b":2}'


def run(*deltas: Shape) -> list[tuple[str, str]]:
    """(name, arguments) of the calls that come out."""
    chunks = [
        {
            "choices": [
                {"index": 0, "delta": {"tool_calls": [{"index": i, "id": c, "function": {"name": n, "arguments": a}}]}}
            ]
        }
        for i, c, n, a in deltas
    ]
    return [(call["name"], call["args"]) for call in calls(both_writers({}, chunks))]


TWO = [("f", A), ("g", B)]


@pytest.mark.parametrize(
    "deltas",
    [
        [(0, "x", "f", ""), (0, "y", "g", ""), (0, "x", None, A), (0, "y", None, B)],
        [(0, "x", "f", A), (0, "y", "g", B)],
        [(None, "x", "f", A[:3]), (None, "y", "g", B[:2]), (None, "x", None, A[3:]), (None, "y", None, B[2:])],
        [(None, "x", "f", A[:3]), (None, None, None, A[3:]), (None, "y", "g", B)],
        [(None, None, "f", A[:3]), (None, None, "f", A[3:]), (None, None, "g", B)],
        [(0, None, "f", A), (0, None, "g", B)],
        [(0, None, "f", A), (0, None, "g", ""), (0, None, None, B)],
        [(0, "x", "f", A), (1, "x", "g", ""), (1, None, None, B)],
        [(0, "null", "f", A), (1, "null", "g", B)],
        [(3, "x", "f", A), (1, "y", "g", B)],
        [(0, "x", "f", ""), (1, "y", "g", ""), (1, None, None, B), (0, None, None, A)],
        [(0, "x", "f", A), (0, "x", "f", A), (1, "y", "g", B)],
        [(0, "x", "f", A), (0, None, None, '{"a": 1}'), (1, "y", "g", B)],
        [(0, "x", "f", A), (0, "x", "f", ""), (0, None, None, ""), (1, "y", "g", B)],
        [(0, "x", None, A[:4]), (0, None, "f", A[4:]), (1, None, "g", B[:1]), (1, "late", None, B[1:])],
        [(0, "x", "f", A[:3]), (0, "y", "f", A[3:]), (0, "z", "g", B)],
        [(0, "x", "f", None), (0, "x__thought__s", None, A), (0, "y", "g", B)],
        [(0, "1", "f", A), (0, "10", "g", B)],
        [(0, "x", "f", {"a": 1}), (0, "y", "g", B)],
    ],
)
def test_two_calls_come_out_of_any_shape(deltas: list[Shape]) -> None:
    assert [(name, json.loads(arguments)) for name, arguments in run(*deltas)] == [
        (name, json.loads(arguments)) for name, arguments in TWO
    ]


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([(0, "x", "get_", ""), (0, None, "weather", ""), (0, None, None, "{}")], [("get_weather", "{}")]),
        ([(0, "x", "get_", ""), (0, None, "get_weather", "{}")], [("get_weather", "{}")]),
        ([(0, "x", "f", ""), (0, "x", "f", ""), (0, "x", "f", A)], [("f", A)]),
        ([(0, "x", "f", "")], [("f", "{}")]),
        ([(0, "x", "f", "null")], [("f", "null")]),
        ([(0, "x", "f", A), (0, None, None, "\n")], [("f", A + "\n")]),
        ([(0, "x", "f", A), (0, None, None, "}")], [("f", A)]),
        ([(0, "x", None, A)], []),
        ([(0, "x", "f", '{"a":"\\u00'), (0, None, None, 'e9\\""}')], [("f", '{"a":"\\u00e9\\""}')]),
        # The same id and name again, other arguments: the next turn's call, found as soon as the two differ.
        (
            [(0, "x", "f", '{"p":"."}'), (0, "x", "f", '{"p":'), (0, None, None, '"/"}')],
            [("f", '{"p":"."}'), ("f", '{"p":"/"}')],
        ),
        ([(0, "x", "f", '{"p":"."}'), (0, "x", "f", '{"p":')], [("f", '{"p":"."}'), ("f", '{"p":')]),
    ],
)
def test_one_call_in_pieces(deltas: list[Shape], expected: list[tuple[str, str]]) -> None:
    assert run(*deltas) == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=4), children, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), json_values, max_size=3), st.data())
@settings(deadline=None)
def test_arguments_are_complete_exactly_at_their_last_bracket(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=5)) | {0, len(text)})
    call = ToolCall(0, "x", "f")
    for start, end in itertools.pairwise(cuts):
        assert not call.complete
        call.append(text[start:end])
    assert call.complete
    assert call.arguments == text


def test_repeated_deliveries_are_counted() -> None:
    turn = TurnCalls()
    for delta in (ToolCallDelta(0, "x", "f", A), ToolCallDelta(0, "", "", A)):
        if placed := turn.place(delta):
            placed[0].append(placed[1])
    assert turn.dropped == 1
    assert [call.arguments for call in turn.calls] == [A]


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([(0, "x", "f", "{}"), (0, None, None, '{"a":'), (0, None, None, "1}")], [("f", A)]),
        ([(0, "x", "f", {}), (0, None, None, {"a": 1})], [("f", '{"a": 1}')]),
        ([(0, "x", "f", "{}"), (0, "x", "f", A)], [("f", A)]),
        ([(0, "x", "f", "{}"), (0, None, None, "{"), (0, None, None, '"a":1}')], [("f", A)]),
        ([(None, "x", "f", "{}"), (None, None, None, A)], [("f", A)]),
        ([(0, "x", "f", "{}"), (0, None, None, A), (1, "y", "g", "{}"), (1, None, None, B)], TWO),
        ([(0, "x", "f", "{}"), (0, "x", "f", "{}"), (1, "y", "g", B)], [("f", "{}"), ("g", B)]),
        ([(0, None, "f", "{}"), (0, None, "f", A)], [("f", "{}"), ("f", A)]),
        ([(0, "x", "f", "{}"), (0, "y", "f", A)], [("f", "{}"), ("f", A)]),
        ([(0, "x", "f", "{}")], [("f", "{}")]),
    ],
)
def test_an_empty_object_gives_way_to_the_arguments_that_follow_it(
    deltas: list[Shape], expected: list[tuple[str, str]]
) -> None:
    assert run(*deltas) == expected


def test_white_space_alone_is_no_arguments() -> None:
    ((_, arguments),) = run((0, "x", "f", " "))
    assert json.loads(arguments) == {}
