"""Look into mappings and objects alike: chunks and steps arrive as dicts, pydantic models and plain objects."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeAlias, cast

__all__ = ["Fields", "fields_of", "items_of"]

Fields: TypeAlias = Mapping[str, Any]


def fields_of(value: object) -> Fields | None:
    """The fields of a mapping or of an object that has them, extras included; None for anything else."""
    if type(value) is dict:
        return cast("dict[str, Any]", value)
    if type(value) in _PLAIN:
        return None
    extra: Fields | None = getattr(value, "__pydantic_extra__", _NOTHING)
    if extra is _NOTHING:
        if isinstance(value, Mapping):
            return cast("Fields", value)
        extra = None
    fields = getattr(value, "__dict__", None)
    if not isinstance(fields, dict) or isinstance(value, type | Enum):
        return None
    return cast("dict[str, Any]", {**fields, **extra} if extra else fields)


def items_of(value: object) -> list[Fields]:
    """The objects in a list; none where there is no list."""
    if not isinstance(value, list | tuple):
        return []
    return [found for item in cast("list[object]", value) if (found := fields_of(item))]


_PLAIN = frozenset({type(None), str, int, float, bool, list, tuple, bytes})
_NOTHING: Any = object()
