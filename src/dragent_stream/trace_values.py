"""How what a stream carried stands in a trace, and what it is again when the trace is read.

A chunk is written by what a reader looks at, its fields: an object becomes a JSON object. What JSON does not have, and
whose text or JSON counts (a tool's input and output, a call's arguments), is written with all that a reader may ask of it:

```
{"$recorded": {"type": "Point", "fields": {…}, "json": …, "text": "…"}}
{"$recorded": {"type": "Color", "value": "red", …}}   a member of an enum
{"$recorded": {"type": "tuple", "items": […]}}      and "list"
{"$recorded": {"type": "dict", "pairs": [[1, …], …]}}   keys that are no text, or this module's own
```

and is an object again that gives the same answers. A tuple outside of any object, as LangGraph streams them, is a JSON
list: there it is the list that is tagged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias, cast

from pydantic_core import SchemaSerializer, core_schema, to_jsonable_python

from dragent_stream.fields import fields_of

__all__ = ["TAG", "read_chunk", "read_step", "write_chunk", "write_line", "write_step"]

TAG = "$recorded"

Json: TypeAlias = Any

_VALUES = frozenset({"args", "arguments", "artifact", "content", "input", "output"})
"""Fields whose value is a person's or a tool's: its JSON text counts, not only its fields."""
_STEP_DATA = frozenset({"data", "metadata"})
"""Fields of a step that hold nothing but such values."""
_LOOKED_THROUGH = {"Command": "update", "Overwrite": "value"}
"""Objects of LangGraph's that a reader looks through, by their name, at this field; with slots, so they have no fields."""
_DEEPEST = 100


# Writing.


def write_line(record: Mapping[str, Json]) -> str:
    """The line of a record whose values were written by this module; UTF-8 can carry it, and no reader splits it."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    if text.isascii():
        return text
    return re.sub("[\ud800-\udfff\u2028\u2029\x85]", lambda found: f"\\u{ord(found[0]):04x}", text)


def write_chunk(chunk: object) -> Json:
    """What stands in a trace for a chunk. Never raises."""
    try:
        return chunk if _is_json(chunk) else _Writer(_VALUES).outer(chunk)
    except Exception:  # a foreign object may do anything when it is looked at
        return {TAG: {"type": type(chunk).__name__}}


def write_step(step: object) -> Json:
    """What stands in a trace for a step. Never raises."""
    try:
        return step if _is_json(step) else _Writer(_VALUES, _STEP_DATA).structure(step, walk=True)
    except Exception:
        return {TAG: {"type": type(step).__name__}}


_SCALARS = frozenset({str, int, float, bool, type(None)})


def _is_json(value: Any) -> bool:
    """A chunk of dicts, which nearly every chunk is, stands in a trace as it is."""
    try:
        return type(value) in _SCALARS or (type(value) is dict and _is_json_object(cast("dict[Any, Any]", value)))
    except RecursionError:  # it contains itself
        return False


def _is_json_object(value: dict[Any, Any]) -> bool:
    for key, item in value.items():
        kind = cast("type[object]", type(item))
        if type(key) is not str or not (
            kind in _SCALARS
            or (kind is dict and _is_json_object(item))
            or (kind is list and all(type(entry) in _SCALARS or _is_json(entry) for entry in item))
        ):
            return False
    return TAG not in value


class _Writer:
    """Writes one chunk or step.

    Args:
        values: Names of fields whose value's JSON counts.
        holders: Names of fields that hold such values.
    """

    __slots__ = ("_holders", "_in_plain", "_path", "_values")

    def __init__(self, values: frozenset[str], holders: frozenset[str] = frozenset()) -> None:
        self._values = values
        self._holders = holders
        self._path: set[int] = set()
        self._in_plain = False

    def outer(self, value: Any) -> Json:
        """A chunk, or an item of a tuple of LangGraph's."""
        if type(value) is tuple:
            return [self.outer(item) for item in cast("tuple[object, ...]", value)]
        if type(value) is list:
            return _items("list", [self.outer(item) for item in cast("list[object]", value)])
        if isinstance(value, str | Mapping) or value is None:
            return self.structure(value)
        fields = fields_of(value)
        if fields and _is_a_chunk(fields):
            return self.structure(value, walk=True)
        return self._tagged(value, values=False)

    def structure(self, value: Any, *, walk: bool = False, values: bool = False) -> Json:
        """A value of which only the fields count; with `walk` also those of plain objects, with `values` no more."""
        if values:
            return self.value(value)
        if value is None or isinstance(value, str | int | float):
            return value
        if isinstance(value, tuple):
            return _items("tuple", self._each(cast("tuple[object, ...]", value), walk, values))
        if isinstance(value, list):
            return self._each(cast("list[object]", value), walk, values)
        fields = fields_of(value)
        if type(value).__name__ in _LOOKED_THROUGH:
            return self._tagged(value, values=True, fields=False)
        if fields is None or not (walk or isinstance(value, Mapping) or _is_a_model(value) or _is_a_chunk(fields)):
            return self._tagged(value, values=True, fields=False)
        walk = walk or _is_a_chunk(fields)
        written = self._fields(value, fields, walk, values)
        return _pairs(written) if TAG in written else written

    def value(self, value: Any) -> Json:
        """A value whose JSON counts."""
        if value is None or isinstance(value, str | int | float):
            return value
        if isinstance(value, list | tuple):
            return self._each(cast("list[object]", value), walk=False, values=True)
        if isinstance(value, dict):
            items = cast("dict[Any, Any]", value)
            if all(key is None or isinstance(key, str | int | float) for key in items):
                written = self._fields(value, items, False, True)
                return (
                    _pairs(written) if TAG in written or not all(isinstance(key, str) for key in written) else written
                )
        return self._tagged(value, values=True)

    def _each(self, items: list[object] | tuple[object, ...], walk: bool, values: bool) -> list[Json]:
        if not self._enter(items):
            return []
        written = [self.structure(item, walk=walk, values=values) for item in items]
        self._leave(items)
        return written

    def _fields(self, owner: Any, fields: Mapping[Any, Any], walk: bool, values: bool) -> dict[Any, Json]:
        if not self._enter(owner):
            return {}
        written: dict[Any, Json] = {}
        by_attribute = not isinstance(owner, Mapping)
        for key, value in fields.items():
            name = key if values or isinstance(key, str) else str(key)
            if not isinstance(name, str):
                written[name] = self.value(value)
                continue
            if name.startswith("_") and by_attribute:
                written[name] = None  # nobody reads it, and it may lead anywhere
            elif name in self._holders and not values and (held := fields_of(value)):
                written[name] = self._fields(value, held, walk, True)
            else:
                written[name] = self.structure(value, walk=walk, values=values or name in self._values)
        self._leave(owner)
        return written

    def _enter(self, value: object) -> bool:
        """Go into a value; False where it contains itself or lies too deep."""
        place = id(value)
        if place in self._path or len(self._path) >= _DEEPEST:
            return False
        self._path.add(place)
        return True

    def _leave(self, value: object) -> None:
        self._path.discard(id(value))

    def _tagged(self, value: Any, *, values: bool, fields: bool = True) -> Json:
        found = cast("object", value)  # narrowing an Any to Enum or Mapping leaves it partly unknown
        tag: dict[str, Json] = {"type": type(found).__name__}
        held = fields_of(value)
        if isinstance(value, Enum):
            tag["value"] = self.value(value.value)
        if held is not None:
            plain = not (_is_a_model(value) or isinstance(value, Mapping))
            # A plain object may hold a client, a connection, the whole program.
            closed = plain and (self._in_plain or not fields)
            tag["fields"] = {} if closed else self._fields_of_tagged(found, held, plain, values)
        if (name := _LOOKED_THROUGH.get(tag["type"])) and not isinstance(value, Mapping) and hasattr(value, name):
            tag["fields"] = self._fields(found, {name: getattr(value, name)}, False, values and fields)
        if values:
            try:
                tag["json"] = to_jsonable_python(
                    found, bytes_mode="base64", serialize_unknown=True, by_alias=True, fallback=str
                )
                write_line(tag)
            except (TypeError, ValueError, RecursionError):
                tag.pop("json", None)
            try:
                tag["text"] = str(found)
                tag |= {} if found else {"false": True}
            except Exception:
                tag.setdefault("text", tag["type"])
        return {TAG: tag}

    def _fields_of_tagged(self, value: object, fields: Mapping[str, Any], plain: bool, values: bool) -> dict[str, Json]:
        around, self._in_plain = self._in_plain, self._in_plain or plain
        written = self._fields(value, fields, False, values)
        self._in_plain = around
        return written


def _pairs(written: dict[Any, Json]) -> Json:
    return {TAG: {"type": "dict", "pairs": [[key, value] for key, value in written.items()]}}


def _items(kind: str, items: list[Json]) -> Json:
    return {TAG: {"type": kind, "items": items}}


def _is_a_chunk(fields: Mapping[str, Any]) -> bool:
    """A completion chunk or a LangChain message: read by its fields, whatever it is an object of."""
    return "choices" in fields or "delta" in fields or ("type" in fields and "content" in fields)


def _is_a_model(value: object) -> bool:
    """The value's class says which fields it has."""
    return hasattr(type(value), "__pydantic_fields__") or hasattr(type(value), "__dataclass_fields__")


# Reading.


def read_chunk(written: Json) -> Any:
    """The chunk that a JSON value of a trace stands for."""
    if isinstance(written, list):
        return tuple(read_chunk(item) for item in cast("list[Json]", written))
    value = read_step(written)
    if isinstance(value, list):
        return [read_chunk(item) for item in cast("list[Json]", value)]
    return value


def read_step(written: Json) -> Any:
    """The step that a JSON value of a trace stands for."""
    if isinstance(written, list):
        return [read_step(item) for item in cast("list[Json]", written)]
    if not isinstance(written, dict):
        return written
    fields = cast("dict[str, Json]", written)
    tag = fields.get(TAG)
    if len(fields) == 1 and isinstance(tag, dict) and isinstance(cast("dict[str, Json]", tag).get("type"), str):
        return _untagged(cast("dict[str, Json]", tag))
    return {name: read_step(value) for name, value in fields.items()}


def _untagged(tag: dict[str, Json]) -> Any:
    kind: str = tag["type"]
    if isinstance(tag.get("items"), list):
        items = cast("list[Json]", tag["items"])
        return items if kind == "list" else tuple(read_step(item) for item in items)
    if isinstance(tag.get("pairs"), list):
        pairs = [cast("list[Json]", pair) for pair in tag["pairs"] if isinstance(pair, list)]
        return {
            pair[0]: read_step(pair[1]) for pair in pairs if len(pair) == 2 and not isinstance(pair[0], list | dict)
        }
    fields = tag.get("fields")
    if not isinstance(fields, dict):
        return _class_of(kind, RecordedMember if "value" in tag else RecordedValue)(tag)
    held = {name: read_step(value) for name, value in cast("dict[str, Json]", fields).items()}
    found = _class_of(kind, RecordedObject)(tag)
    found.__dict__.update(held)
    return found


class RecordedValue:
    """Stands for a value without fields that JSON does not have; its text and its JSON are what they were."""

    __slots__ = ("_tag",)

    def __init__(self, tag: dict[str, Json]) -> None:
        self._tag = tag

    def __str__(self) -> str:
        return str(self._tag.get("text", self._tag["type"]))

    __repr__ = __str__

    def __bool__(self) -> bool:
        return "false" not in self._tag

    def _json(self) -> Json:
        if "json" not in self._tag:
            raise ValueError(f"the {self._tag['type']} of the recording has no JSON")
        return self._tag["json"]

    __pydantic_serializer__ = SchemaSerializer(
        core_schema.any_schema(serialization=core_schema.plain_serializer_function_ser_schema(_json))
    )


class RecordedMember(RecordedValue):
    """Stands for a member of an enum; its value is what it was, too."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        """The member's value."""
        return read_step(self._tag["value"])


class RecordedObject(RecordedValue):
    """Stands for an object; its fields are what they were, too."""


@lru_cache(maxsize=256)
def _class_of(name: str, base: type[RecordedValue]) -> type[RecordedValue]:
    """A class of the recorded one's name, for whoever says what a foreign object is."""
    more: dict[str, Any] = {} if base is RecordedObject else {"__slots__": ()}
    try:
        return cast("type[RecordedValue]", type(name, (base,), more))
    except ValueError:  # no name at all
        return base
