"""Turn the body of a streaming request into one for a server that only computes whole completions."""

from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any, Final, cast

from pydantic import BaseModel

from dragent_stream.chat_completions.objects import json_fields
from dragent_stream.errors import ConversionError

__all__ = ("OPENAI_CHAT_FIELDS", "STRICT_CHAT_FIELDS", "sanitize_streaming_chat_body")

STRICT_CHAT_FIELDS: Final = frozenset(
    """
    audio frequency_penalty logit_bias logprobs max_completion_tokens max_tokens messages metadata modalities model n
    parallel_tool_calls prediction presence_penalty reasoning_effort response_format seed service_tier stop store
    temperature tool_choice tools top_logprobs top_p user web_search_options
    """.split()
)
"""The fields that NeMo Gym's strict chat parameters know (NVIDIA-NeMo/Gym#2130); the default of `allowed_fields`."""

OPENAI_CHAT_FIELDS: Final = STRICT_CHAT_FIELDS | frozenset(
    """
    function_call functions moderation prompt_cache_key prompt_cache_options prompt_cache_retention safety_identifier
    verbosity
    """.split()
)
"""Every parameter of OpenAI's `chat.completions.create` but the two of streaming (openai-python 3.57)."""

_STREAMING: Final = frozenset({"stream", "stream_options"})


def sanitize_streaming_chat_body(
    body: object,
    *,
    allowed_fields: Collection[str] = STRICT_CHAT_FIELDS,
    extra_fields: Collection[str] = (),
) -> tuple[dict[str, Any], bool]:
    """Split a streaming request into the request of the whole completion and the wish for usage.

    `stream` and `stream_options` are always dropped, and every field that is not allowed. Values are not checked: that
    is for the server that answers. The result shares nothing with `body`.

    Args:
        body: The request's JSON object, or a pydantic object.
        allowed_fields: The fields the server accepts, in place of the strict default.
        extra_fields: Fields it accepts besides these: `top_k`, `chat_template_kwargs`, …

    Returns:
        The body for the server, in the order of the request, and whether the client asked for usage: whether
        `stream_options.include_usage` is truthy.

    Raises:
        ConversionError: The body is no object, or a field cannot be copied (it is nested too deeply). Also where
            `allowed_fields` or `extra_fields` is a text: `in` would find parts of names in it.
    """
    for name, names in (("allowed_fields", allowed_fields), ("extra_fields", extra_fields)):
        check_field_names(name, names)
    if isinstance(body, BaseModel):
        body = json_fields(body)
    if not isinstance(body, Mapping):
        raise ConversionError(f"the body of a chat completion request is a JSON object, not {type(body).__name__}")
    fields = cast("Mapping[object, Any]", body)
    options = fields.get("stream_options")
    include_usage = isinstance(options, Mapping) and bool(cast("Mapping[str, Any]", options).get("include_usage"))
    cleaned: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(name, str) and name not in _STREAMING and (name in allowed_fields or name in extra_fields):
            try:
                cleaned[name] = deepcopy(value)
            except RecursionError:
                raise ConversionError(f"the field {name!r} of the request is nested too deeply") from None
            except Exception as error:
                raise ConversionError(f"the field {name!r} of the request cannot be copied: {error}") from error
    return cleaned, include_usage


def check_field_names(name: str, names: object) -> None:
    """Refuse a text where names are wanted."""
    if isinstance(names, str | bytes):
        raise ConversionError(f"{name} must be a list or set of names, not a text; write [{names!r}]")
