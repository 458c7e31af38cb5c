"""The parts of a LangGraph stream, in each form that it takes: which mode, which graph, what payload.

| asked for | a part |
| --- | --- |
| one mode | the payload alone: `(chunk, metadata)`, `{node: update}`, the state |
| a list of modes | `(mode, payload)` |
| `subgraphs=True` | `(namespace, payload)`, `(namespace, mode, payload)` |
| `version="v2"` | `{"type": mode, "ns": namespace, "data": payload}` |
| langgraph-sdk | `StreamPart(event, data)`, with `mode|namespace` for a subgraph |
| `astream_events(version="v3")` | `{"type": "event", "method": mode, "params": {"namespace", "data"}}` |

A pair is `(message, metadata)` only if its first half is a message (langchain-ai/langgraph#4853, livekit/agents#3111).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard, cast

from dragent_stream.fields import Fields, fields_of
from dragent_stream.langchain_shapes import message_fields, node_message_fields

__all__ = ["INTERRUPT", "Part", "messages_of", "part_of"]

INTERRUPT = "__interrupt__"

_MODES = frozenset(
    {
        "checkpoints",
        "custom",
        "debug",
        "input",
        "input.requested",
        "lifecycle",
        "messages",
        "tasks",
        "tools",
        "updates",
        "values",
    }
)
_SDK_EVENTS = frozenset(
    {
        "end",
        "error",
        "events",
        "feedback",
        "messages/complete",
        "messages/metadata",
        "messages/partial",
        "metadata",
    }
)


class Part(NamedTuple):
    """One part: its mode, the graph that it is from ("" for the outermost), and what it brings."""

    mode: str
    graph: str
    payload: Any


def part_of(chunk: object) -> Part | None:
    """The part that a chunk is; None for what is none of these forms, a bare payload among them."""
    if isinstance(chunk, list | tuple):
        return _of_sequence(cast("Sequence[object]", chunk))
    fields = fields_of(chunk)
    if not fields:
        return None
    kind = fields.get("type")
    if isinstance(kind, str) and kind in _MODES and "data" in fields and "ns" in fields:
        return Part(kind, _graph(fields["ns"]), _with_interrupts(fields["data"], fields))
    if kind == "event" and isinstance(method := fields.get("method"), str):
        params = fields_of(fields.get("params")) or {}
        return Part(method, _graph(params.get("namespace")), _with_interrupts(params.get("data"), params))
    return None


def _with_interrupts(payload: Any, part: Fields) -> Any:
    """The state, with the interrupts that v2 and v3 name beside it."""
    interrupts = part.get("interrupts")
    if not interrupts or not isinstance(payload, dict):
        return payload
    return {**cast("dict[str, Any]", payload), INTERRUPT: interrupts}


def _of_sequence(parts: Sequence[object]) -> Part | None:
    if len(parts) not in (2, 3):
        return None
    first = parts[0]
    if isinstance(first, str):
        mode, _, graph = first.partition("|")
        if mode in _MODES or mode in _SDK_EVENTS:
            return Part(mode, graph, parts[1])
        return None
    if _is_namespace(first):
        if len(parts) == 2:
            inner = parts[1]
            return Part("messages" if _is_pair(inner) else "", _graph(first), inner)
        if isinstance(parts[1], str) and parts[1] in _MODES:
            return Part(parts[1], _graph(first), parts[2])
        return None
    return Part("messages", "", parts) if _is_pair(parts) else None


def _is_pair(value: object) -> bool:
    if not isinstance(value, list | tuple) or len(cast("Sequence[object]", value)) != 2:
        return False
    message, metadata = cast("Sequence[object]", value)
    return isinstance(metadata, Mapping | None) and message_fields(message) is not None


def _is_namespace(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in cast("Sequence[object]", value))


def _graph(namespace: object) -> str:
    return "|".join(namespace) if _is_namespace(namespace) else ""


def messages_of(update: object) -> Iterator[list[Fields]]:
    """The messages that a node's update or a state holds, list by list.

    LangGraph's own messages mode looks into the values of the state in the same way; `Command` and `Overwrite` are
    looked through.
    """
    if (found := message_fields(update)) is not None:
        yield [found]
        return
    if isinstance(update, list | tuple):
        if messages := _messages(cast("Sequence[object]", update)):
            yield messages
        else:
            for item in cast("Sequence[object]", update):  # several updates of one node
                yield from messages_of(item) if not isinstance(item, str | list | tuple) else ()
        return
    if type(update).__name__ == "Command":
        yield from messages_of(getattr(update, "update", None))
        return
    fields = fields_of(update)
    if not fields:
        return
    for key, held in fields.items():
        value: object = held
        if type(value).__name__ == "Overwrite":
            value = getattr(value, "value", None)
        found = node_message_fields(value) if key == "messages" else message_fields(value)
        if found is not None:
            yield [found]
        elif isinstance(value, list | tuple) and (messages := _messages(cast("Sequence[object]", value), key)):
            yield messages


def _messages(items: Sequence[object], key: str = "") -> list[Fields]:
    read = node_message_fields if key == "messages" else message_fields
    return [found for item in items if (found := read(item)) is not None]
