"""What can go wrong with a stream: items and values dropped, doubled, swapped, retyped, nested, cut, and ids exchanged."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, TypeAlias

from dragent_stream import AgentStep

Feed: TypeAlias = list[Any]
Path: TypeAlias = tuple[str | int, ...]

ODDITIES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 10**30, 1.5, float("nan"), float("inf")),
    *("", " ", "0", "x", "null", "{}", '{"a":1}', "[", "stop", "tool_calls", "length", "\ud83d", "\ude00", "é\u2028\n"),
    *([], [None], [[]], [""], {}, [{}], {"a": 1}, {"text": "x"}, [{"type": "text", "text": "x"}], {"": ""}),
    *((1,), b"\xff", datetime.datetime(2026, 1, 1), {"s"}),
)
_STRANGERS: tuple[Any, ...] = (
    *(None, 0, "text", "data: {}", [], [{}], {}, {"choices": 1}, {"choices": [None]}, {"error": {}}, {"error": 5}),
    *(b"data: {}\n\n", b"data: [DONE]\n\n", b"\xff\xfe", b"{", AgentStep({}), AgentStep(None), AgentStep([1])),
    RuntimeError("gone"),
)
# Keys whose values name things: exchanged between places they make one thing another's.
_NAMES = frozenset(
    {"id", "index", "tool_call_id", "UUID", "name", "parent_id", "model", "event_type", "role", "finish_reason", "type"}
)
# Keys of other providers, which a renamed key may become.
_KEYS = (
    *("choices", "delta", "message", "content", "reasoning", "reasoning_content", "reasoning_details", "refusal"),
    *("tool_calls", "function", "function_call", "arguments", "name", "id", "index", "finish_reason", "usage", "error"),
    *("role", "tool_call_id", "type", "text", "model", "provider", "thinking", "signature", "encrypted_content"),
    *("payload", "event_type", "UUID", "level", "data", "input", "output", "chunk", "metadata", "usage_info"),
    *("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "cached_tokens"),
)


def mutated(feed: Feed, others: list[Feed], random: Random) -> Feed:
    """A copy of the feed with one to eight mutations, most of them of values."""
    feed = list(feed)
    if len(feed) > 40 and random.random() < 0.9:
        start = random.randrange(len(feed) - 20)
        feed = feed[start : start + random.randint(5, 40)]
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        (_mutate_values if random.random() < 0.7 else _mutate_items)(feed, others, random)
    return feed


def _mutate_items(feed: Feed, others: list[Feed], random: Random) -> None:
    at = random.randrange(len(feed) + 1)
    if not feed or random.random() < 0.15:
        feed.insert(at, random.choice(_STRANGERS))
        return
    here, there = random.randrange(len(feed)), random.randrange(len(feed))
    other = random.choice(others)
    start = random.randrange(len(other))
    match random.randrange(9):
        case 0:
            del feed[here]
        case 1:
            feed.insert(here, feed[here])
        case 2:
            feed[here], feed[there] = feed[there], feed[here]
        case 3:
            feed.insert(there, feed.pop(here))
        case 4:
            del feed[here:]
        case 5:
            feed[at:at] = other[start : start + random.randint(1, 6)]
        case 6:
            feed[at:at] = feed[min(here, there) : max(here, there) + 1]
        case 7:
            feed[min(here, there) : max(here, there)] = reversed(feed[min(here, there) : max(here, there)])
        case _:
            feed[here] = random.choice(_STRANGERS)


def _mutate_values(feed: Feed, others: list[Feed], random: Random) -> None:
    if not feed:
        return
    at = random.randrange(len(feed))
    item = feed[at]
    if isinstance(item, bytes):
        feed[at] = _mutate_bytes(item, random)
        return
    tree = copy.deepcopy(item.step if isinstance(item, AgentStep) else item)
    places = list(_places(tree))
    if not places:
        return
    path = random.choice(places)
    if (named := [place for place in places if place[-1] in _NAMES]) and random.random() < 0.4:
        path = random.choice(named)
    holder = _at(tree, path[:-1])
    _OPERATIONS[random.randrange(len(_OPERATIONS))](holder, path[-1], _donor(feed, others, random), random)
    feed[at] = AgentStep(tree) if isinstance(item, AgentStep) else tree


def _mutate_bytes(read: bytes, random: Random) -> bytes:
    at = random.randrange(len(read) + 1)
    match random.randrange(4):
        case 0:
            return read[:at]
        case 1:
            return read[:at] + bytes([random.randrange(256)]) + read[at + 1 :]
        case 2:
            return read[:at] + read[at + 1 :]
        case _:
            return read[:at] + random.choice((b"\n", b"\r", b"\n\n", b"data: ", b"\\", b'"', b"\xc3")) + read[at:]


def _donor(feed: Feed, others: list[Feed], random: Random) -> Any:
    """A stream's item as a tree of values; mostly one of the same stream."""
    source = feed if random.random() < 0.7 else random.choice(others)
    item = random.choice(source)
    return item.step if isinstance(item, AgentStep) else item


def _places(tree: Any, path: Path = ()) -> Iterator[Path]:
    """The way to every value inside."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        yield (*path, key)
        yield from _places(value, (*path, key))


def _at(tree: Any, path: Path) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _drop(holder: Any, key: Any, donor: Any, random: Random) -> None:
    del holder[key]


def _retype(holder: Any, key: Any, donor: Any, random: Random) -> None:
    holder[key] = copy.deepcopy(random.choice(ODDITIES))


def _nest(holder: Any, key: Any, donor: Any, random: Random) -> None:
    value = holder[key]
    deep: Any = value
    for _ in range(random.choice((1, 1, 1, 2, 30))):
        deep = [deep]
    holder[key] = random.choice((deep, {"value": value}, {key: value}, [value, value], {"text": value}))


def _unnest(holder: Any, key: Any, donor: Any, random: Random) -> None:
    value = holder[key]
    if isinstance(value, dict) and value:
        holder[key] = random.choice(list(value.values()))
    elif isinstance(value, list) and value:
        holder[key] = random.choice(value)
    else:
        holder[key] = str(value)


def _rename(holder: Any, key: Any, donor: Any, random: Random) -> None:
    if isinstance(holder, dict):
        holder[random.choice((*_KEYS, *holder))] = holder.pop(key)
    else:
        holder.insert(random.randrange(len(holder) + 1), holder.pop(key))


def _double(holder: Any, key: Any, donor: Any, random: Random) -> None:
    if isinstance(holder, dict):
        holder[random.choice(_KEYS)] = copy.deepcopy(holder[key])
    else:
        holder.insert(random.randrange(len(holder) + 1), copy.deepcopy(holder[key]))


def _exchange(holder: Any, key: Any, donor: Any, random: Random) -> None:
    """The value that another place has under the same key."""
    same = [place for place in _places(donor) if place[-1] == key]
    if same:
        holder[key] = copy.deepcopy(_at(donor, random.choice(same)))
    else:
        _retype(holder, key, donor, random)


def _transplant(holder: Any, key: Any, donor: Any, random: Random) -> None:
    places = list(_places(donor))
    if places:
        place = random.choice(places)
        target = place[-1] if isinstance(holder, dict) and isinstance(place[-1], str) else key
        holder[target] = copy.deepcopy(_at(donor, place))


def _cut(holder: Any, key: Any, donor: Any, random: Random) -> None:
    value = holder[key]
    if isinstance(value, str):
        at = random.randrange(len(value) + 1)
        holder[key] = random.choice((value[:at], value[at:], value + value, value[:at] + "\\" + value[at:]))
    elif isinstance(value, list):
        holder[key] = value[: random.randrange(len(value) + 1)]
    elif isinstance(value, int) and not isinstance(value, bool):
        holder[key] = random.choice((-value, value + 1, str(value), float(value) if abs(value) < 1e9 else 0))
    else:
        _retype(holder, key, donor, random)


_OPERATIONS: tuple[Callable[[Any, Any, Any, Random], None], ...] = (
    *(_drop, _retype, _retype, _nest, _unnest, _rename, _double, _exchange, _exchange, _transplant, _cut),
)
