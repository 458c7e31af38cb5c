"""Read an object of the API: as the JSON it stands for, and as the error that it may report."""

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel

from dragent_stream.errors import UpstreamError
from dragent_stream.reported_errors import read_error

__all__ = ("error_in_chunk", "json_fields")


def json_fields(model: BaseModel) -> dict[str, Any]:
    """Dump a model without inventing nulls: a null that was received stays, an optional field left unset does not.

    openai's objects then give what the API sent; a model of one's own keeps its defaults.
    """
    given = model.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    known = model.model_dump(mode="json", by_alias=True, exclude_none=True, warnings=False)
    return cast("dict[str, Any]", _union(given, known))


def _union(given: object, known: object) -> object:
    if isinstance(given, dict) and isinstance(known, dict):
        ours, theirs = cast("dict[str, Any]", given), cast("dict[str, Any]", known)
        return {key: _union(ours.get(key), theirs.get(key)) for key in {**theirs, **ours}}
    if isinstance(given, list) and isinstance(known, list):
        pairs = zip(cast("list[Any]", given), cast("list[Any]", known), strict=False)
        return [_union(ours, theirs) for ours, theirs in pairs]
    return cast("object", known if given is None else given)


def error_in_chunk(fields: Mapping[str, Any]) -> UpstreamError | None:
    """The error that a chunk, or a whole answer, reports, in any of its shapes."""
    error = read_error(fields)
    if error is None:
        return None
    details = next((fields[key] for key in ("error", "base_resp") if fields.get(key)), fields)
    if not isinstance(details, Mapping):
        return error
    body = cast("Mapping[str, Any]", details)
    code = body.get("code") or body.get("status_code") or error.code
    return UpstreamError(str(error), str(code))
