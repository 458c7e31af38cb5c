"""Make a pydantic object from values that are known to be valid, which costs a third of validating them."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

__all__ = ["unvalidated"]

M = TypeVar("M", bound=BaseModel)

# What pydantic's own `__copy__` sets, past its `__setattr__`: `object.__setattr__` costs twice as much.
_new = object.__new__
_set_values = BaseModel.__dict__["__dict__"].__set__
_set_names = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_extra = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private = BaseModel.__dict__["__pydantic_private__"].__set__


def unvalidated(model: type[M], values: dict[str, Any], names: set[str], extra: dict[str, Any] | None) -> M:
    """An object of a model without private attributes.

    Args:
        model: Its class.
        values: Of all of its fields; the object keeps this very dict.
        names: The fields that count as given; copied.
        extra: Its other values; None where the model has none.
    """
    made = _new(model)
    _set_values(made, values)
    _set_names(made, names.copy())
    _set_extra(made, extra)
    _set_private(made, None)
    return made
