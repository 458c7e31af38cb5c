"""The fuzz repeats itself by seed, finds what is planted, and hands out the smallest test of it."""

from __future__ import annotations

import copy
import datetime
from random import Random
from typing import Any

import pytest
from agui_case import delta
from fuzz.__main__ import stream_of
from fuzz.corpus import corpus
from fuzz.judges import Fault, Stream, fault_of, source_of
from fuzz.minimise import minimised

from dragent_stream import AgentStep, ChunkConverter
from dragent_stream.events import ModelEvents, WireEvents

SEEDS = corpus()


def planted(monkeypatch: pytest.MonkeyPatch, word: str, act: Any) -> None:
    """A converter that does something else where a chunk holds this word."""
    read = ChunkConverter.read

    def faulty(self: ChunkConverter[Any], chunk: object) -> list[Any]:
        return act(self, chunk) if word in repr(chunk) else read(self, chunk)

    monkeypatch.setattr(ChunkConverter, "read", faulty)
    monkeypatch.setattr(ChunkConverter, "feed", faulty)


def test_a_seed_and_a_number_are_a_stream() -> None:
    first, second = ([stream_of(5, number, seeds) for number in range(40)] for seeds in (SEEDS, corpus()))
    assert [repr(stream) for stream, _ in first] == [repr(stream) for stream, _ in second]
    assert [cuts.random() for _, cuts in first] == [cuts.random() for _, cuts in second]


def test_streams_differ_and_leave_what_they_came_from_alone() -> None:
    before = copy.deepcopy([repr(seed) for seed in SEEDS])
    streams = {repr(stream_of(6, number, SEEDS)[0]) for number in range(300)}
    assert len(streams) > 280
    assert [repr(seed) for seed in SEEDS] == before


def test_a_stream_that_is_right_has_no_fault() -> None:
    stream = Stream([delta(content="Hi"), AgentStep({"event_type": "LLM_START", "UUID": "1"}), delta("stop")])
    assert fault_of(stream, Random(1), growth=True) is None


def test_what_raises_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    def act(converter: object, chunk: object) -> list[Any]:
        raise IndexError("planted")

    planted(monkeypatch, "needle", act)
    stream = Stream([delta(content="a"), delta(content="x needle y", role="assistant"), delta("stop")], think_tags=True)
    fault = fault_of(stream)
    assert fault is not None and fault.kind.startswith("IndexError")
    small = minimised(stream, fault, fault_of)
    (item,) = small.feed
    assert "needle" in repr(item) and len(repr(item)) < 100
    assert not small.think_tags


def test_a_run_that_breaks_a_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for writer in (ModelEvents, WireEvents):
        end = writer.text_end
        monkeypatch.setattr(writer, "text_end", lambda self, message_id, end=end: end(self, "nobody"))
    fault = fault_of(Stream([delta(content="a")]))
    assert fault is not None and fault.kind.startswith("check V6")


def test_writers_that_differ_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    end = WireEvents.text_end
    monkeypatch.setattr(WireEvents, "text_end", lambda self, message_id: end(self, "nobody"))
    fault = fault_of(Stream([delta(content="a")]))
    assert fault is not None and fault.kind.startswith("the writers differ: TEXT_MESSAGE_END")


def test_what_a_chunk_and_its_frame_say_differently_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read = ChunkConverter.read

    def faulty(self: ChunkConverter[Any], chunk: object) -> list[Any]:
        return read(self, chunk.replace(b"needle", b"thread") if isinstance(chunk, bytes) else chunk)

    monkeypatch.setattr(ChunkConverter, "read", faulty)
    stream = Stream([delta(content="needle")])
    fault = fault_of(stream)
    assert fault is not None and "as SSE differ" in fault.kind
    assert "json.dumps" in source_of(stream, fault)


def test_work_that_grows_with_the_stream_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def act(converter: ChunkConverter[Any], chunk: object) -> list[Any]:
        converter.model += "x"  # as long as the stream so far
        for _ in converter.model:
            sum(range(20))
        return []

    planted(monkeypatch, "needle", act)
    fault = fault_of(Stream([delta(content="needle")]), growth=True)
    assert fault is not None and fault.kind == "not linear"


def test_a_step_that_is_lost_to_an_exception_is_found() -> None:
    class Step(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            raise ValueError("planted")

    fault = fault_of(Stream([AgentStep(Step(event_type="LLM_START"))]))
    assert fault is not None and fault.kind.startswith("a step was skipped: ValueError")


def test_a_fault_comes_out_as_a_test_to_paste() -> None:
    stream = Stream(
        [
            delta(content="\ud83d"),
            {"x": [float("nan"), datetime.datetime(2026, 1, 1)]},
            AgentStep({"event_type": "LLM_START"}),
            b"\xff",
        ],
        frontend_tools=frozenset({"f"}),
    )
    names: dict[str, Any] = {}
    exec(source_of(stream, Fault("IndexError", "planted")), names)
    names["test_found_by_the_fuzz"]()


def test_a_test_to_paste_fails_as_the_stream_does(monkeypatch: pytest.MonkeyPatch) -> None:
    end = WireEvents.text_end
    monkeypatch.setattr(WireEvents, "text_end", lambda self, message_id: end(self, "nobody"))
    for objects in (False, True):
        stream = Stream([delta(content="a")], objects=objects)
        fault = fault_of(stream)
        assert fault is not None
        names: dict[str, Any] = {}
        exec(source_of(stream, fault), names)
        with pytest.raises(AssertionError):
            names["test_found_by_the_fuzz"]()
