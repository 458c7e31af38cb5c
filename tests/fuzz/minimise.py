"""Make a stream with a fault as small as it gets while the fault stays the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from dragent_stream import AgentStep
from fuzz.judges import Fault, Stream


def minimised(stream: Stream, fault: Fault, judge: Callable[[Stream], Fault | None], seconds: float = 10) -> Stream:
    """The smallest stream found with a fault of this kind."""
    deadline = time.monotonic() + seconds
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(stream):
            if time.monotonic() > deadline:
                return stream
            found = judge(candidate)
            if found is not None and found.kind == fault.kind:
                stream, smaller = candidate, True
                break
    return stream


def _smaller(stream: Stream) -> Iterator[Stream]:
    """Streams with less in them, the largest cuts first."""
    feed = stream.feed
    size = len(feed) // 2
    while size:
        for start in range(0, len(feed), size):
            yield replace(stream, feed=feed[:start] + feed[start + size :])
        size //= 2
    if stream.think_tags:
        yield replace(stream, think_tags=False)
    if stream.objects:
        yield replace(stream, objects=False)
    if stream.frontend_tools:
        yield replace(stream, frontend_tools=frozenset())
    for at, item in enumerate(feed):
        for less in _less(item):
            yield replace(stream, feed=[*feed[:at], less, *feed[at + 1 :]])


def _less(value: Any) -> Iterator[Any]:
    if isinstance(value, AgentStep):
        yield from (AgentStep(step) for step in _less(value.step))
    elif isinstance(value, dict):
        for key in value:
            yield {other: item for other, item in value.items() if other != key}
        for key, item in value.items():
            for less in _less(item):
                yield {**value, key: less}
    elif isinstance(value, list):
        for at in range(len(value)):
            yield value[:at] + value[at + 1 :]
        for at, item in enumerate(value):
            for less in _less(item):
                yield [*value[:at], less, *value[at + 1 :]]
    elif isinstance(value, str | bytes) and len(value) > 1:
        half = len(value) // 2
        yield from (value[:half], value[half:])
        if len(value) <= 12:
            yield from (value[1:], value[:-1])
