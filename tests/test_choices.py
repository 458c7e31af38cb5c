"""Which of several choices is the answer."""

from __future__ import annotations

from typing import Any

from agui_case import both_writers, calls, texts

from dragent_stream import ChunkConverter


def chunk(*choices: dict[str, Any]) -> dict[str, Any]:
    return {"id": "c", "object": "chat.completion.chunk", "choices": list(choices)}


def choice(index: int, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"index": index, "delta": fields, "finish_reason": finish}


def heard(*feed: Any) -> list[str]:
    return list(texts(both_writers({}, list(feed))).values())


def test_index_0_is_followed_also_if_index_1_comes_first() -> None:
    feed = [chunk(choice(1, content="B1 ")), chunk(choice(0, content="A1 "))]
    feed += [chunk(choice(1, content="B2")), chunk(choice(0, "stop", content="A2"))]
    assert heard(*feed) == ["A1 A2"]
    converter: ChunkConverter[Any] = ChunkConverter()
    for each in feed:
        converter.feed(each)
    assert converter.ignored_choices == 2


def test_index_0_is_followed_where_a_chunk_has_both_in_any_order() -> None:
    feed = [chunk(choice(1, content="B"), choice(0, content="A")), chunk(choice(1, "stop"), choice(0, "stop"))]
    assert heard(*feed) == ["A"]


def test_the_only_choice_is_followed_whatever_its_index() -> None:
    for count in (1, 3, 20):
        feed = [chunk(choice(1, content=f"{at} ")) for at in range(count)]
        assert heard(*feed, chunk(choice(1, "stop"))) == ["".join(f"{at} " for at in range(count))]


def test_an_index_that_counts_tokens_is_followed_from_any_number() -> None:
    for start in (0, 1, 2, 197):
        feed = [chunk(choice(start + at, content=f"{at} ")) for at in range(5)]
        expected = "0 " if start == 0 else "0 1 2 3 4 "
        assert heard(*feed) == [expected]


CALL = {"index": 0, "id": "tu_1", "type": "function", "function": {"name": "ls", "arguments": '{"p":1}'}}


def test_an_answer_that_is_split_over_choices_is_one_in_deltas_too() -> None:
    for order in (1, -1):
        feed = [chunk(choice(0, content="Let me ")), chunk(choice(0, "tool_calls", content="look."))]
        other = [chunk(choice(1, tool_calls=[CALL])), chunk(choice(1, "tool_calls"))]
        events = both_writers({}, (feed + other) if order > 0 else [feed[0], *other, feed[1]])
        assert list(texts(events).values()) == ["Let me look."]
        assert [(call["name"], call["args"], call["complete"]) for call in calls(events)] == [("ls", '{"p":1}', True)]


def test_the_calls_of_a_split_answer_come_before_their_results() -> None:
    whole = {
        "object": "chat.completion",
        "choices": [
            {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": "Let me look."}},
            {"index": 1, "finish_reason": "tool_calls", "message": {"content": None, "tool_calls": [CALL]}},
        ],
    }
    events = both_writers({}, [whole, {"role": "tool", "tool_call_id": "tu_1", "content": "a.txt"}])
    kinds = [event["type"] for event in events]
    assert kinds.index("TOOL_CALL_END") < kinds.index("TOOL_CALL_RESULT")


def test_alternatives_are_no_parts_of_an_answer() -> None:
    feed = [
        chunk(choice(0, "stop", content="A")),
        chunk(choice(1, content="B", tool_calls=[CALL])),
        chunk(choice(1, "tool_calls")),
    ]
    events = both_writers({}, feed)
    assert (list(texts(events).values()), calls(events)) == (["A"], [])
    feed = [chunk(choice(0, "stop", content="A")), chunk(choice(1, "tool_calls", tool_calls=[CALL]))]
    assert calls(both_writers({}, feed)) == []


def test_a_whole_answer_that_is_split_is_one_whatever_its_reasons_are() -> None:
    choices = [
        {"index": 0, "finish_reason": "stop", "message": {"content": "hi"}},
        {"index": 1, "finish_reason": "tool_calls", "message": {"content": None, "tool_calls": [CALL]}},
    ]
    events = both_writers({}, [{"id": "c", "choices": choices}])
    assert (list(texts(events).values()), [call["complete"] for call in calls(events)]) == (["hi"], [True])


def test_two_entries_of_the_followed_index_are_both_the_answers() -> None:
    feed = [chunk(choice(0, content="hi")), chunk(choice(0, content=" there"), choice(0, "stop", content="."))]
    assert heard(*feed) == ["hi there."]
    assert heard(chunk(choice(0, content="hi"), choice(0, "stop", content=" there"))) == ["hi there"]


def test_a_choice_that_is_no_list_is_the_only_one() -> None:
    assert heard({"choices": choice(0, "stop", content="hi")}) == ["hi"]


def test_an_answer_that_only_another_choice_gave_is_no_success() -> None:
    events = both_writers({}, [chunk(choice(0, content="")), chunk(choice(1, content="B")), chunk(choice(0, "stop"))])
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "EMPTY_ANSWER")


def test_a_whole_message_at_the_end_brings_the_calls_that_were_not_streamed() -> None:
    last = {"index": 0, "message": {"content": "The quick", "tool_calls": [CALL]}, "finish_reason": "tool_calls"}
    events = both_writers({}, [chunk(choice(0, content="The quick")), chunk(last)])
    assert (list(texts(events).values()), [call["name"] for call in calls(events)]) == (["The quick"], ["ls"])
    events = both_writers({}, [chunk(choice(0, "tool_calls", tool_calls=[CALL])), chunk(last)])
    assert [call["name"] for call in calls(events)] == ["ls"]
