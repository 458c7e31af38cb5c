"""What a Chat Completion is: the types, their check before the first byte, and the one form that is streamed.

The schema is OpenAI's `CreateChatCompletionResponse`, with what servers add (reasoning, further finish reasons) and what
they leave out (ids, the role). Keys that it does not name are extras: any JSON value, kept as they are.
"""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final, Literal, NotRequired, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError
from typing_extensions import TypedDict

from dragent_stream.chat_completions.objects import error_in_chunk, json_fields
from dragent_stream.content_parts import text_and_reasoning
from dragent_stream.errors import ConversionError
from dragent_stream.foreign import describe

__all__ = ("ChatCompletion", "default_finish", "read_chat_completion", "split_content")


class FunctionCall(TypedDict):
    """A function's name and arguments; arguments that are no string are encoded as JSON, null becomes `""`."""

    name: str
    arguments: NotRequired[Any]


class CustomCall(TypedDict):
    """A custom tool's name and its free-form input."""

    name: str
    input: NotRequired[str | None]


class ToolCall(TypedDict):
    """A call of a function or of a custom tool; a type that is left out follows from the other keys."""

    id: NotRequired[str | None]
    type: NotRequired[str | None]
    function: NotRequired[FunctionCall | None]
    custom: NotRequired[CustomCall | None]


class AlternativeLogprob(TypedDict):
    """A token the model might have written instead."""

    token: NotRequired[str]
    logprob: NotRequired[float | None]
    bytes: NotRequired[list[int] | None]


class TokenLogprob(AlternativeLogprob):
    """A token the model wrote."""

    top_logprobs: NotRequired[list[AlternativeLogprob] | None]


class Logprobs(TypedDict):
    """Log probabilities of the content or the refusal."""

    content: NotRequired[list[TokenLogprob] | None]
    refusal: NotRequired[list[TokenLogprob] | None]


class Message(TypedDict):
    """The answer of one choice."""

    role: NotRequired[str | None]
    content: NotRequired[str | list[dict[str, Any]] | None]
    reasoning: NotRequired[str | None]
    reasoning_content: NotRequired[str | None]
    refusal: NotRequired[str | None]
    annotations: NotRequired[list[Any] | None]
    audio: NotRequired[dict[str, Any] | None]
    function_call: NotRequired[FunctionCall | None]
    tool_calls: NotRequired[list[ToolCall] | None]


class Choice(TypedDict):
    """One answer; a choice without index takes its position."""

    index: NotRequired[int]
    message: NotRequired[Message | None]
    finish_reason: NotRequired[str | None]
    logprobs: NotRequired[Logprobs | None]


class Usage(TypedDict):
    """Token counts of the whole completion."""

    prompt_tokens: NotRequired[int | None]
    completion_tokens: NotRequired[int | None]
    total_tokens: NotRequired[int | None]
    prompt_tokens_details: NotRequired[dict[str, Any] | None]
    completion_tokens_details: NotRequired[dict[str, Any] | None]


class ChatCompletion(TypedDict):
    """A whole answer of the Chat Completions API, as JSON."""

    __pydantic_config__ = ConfigDict(title="ChatCompletion")  # type: ignore[misc]

    id: NotRequired[str | None]
    object: NotRequired[Literal["chat.completion"] | None]
    created: NotRequired[int | float | None]
    model: NotRequired[str | None]
    choices: NotRequired[list[Choice] | None]
    usage: NotRequired[Usage | None]
    service_tier: NotRequired[str | None]
    system_fingerprint: NotRequired[str | None]


_COMPLETION: Final = TypeAdapter[ChatCompletion](ChatCompletion)
# Of a content in parts; what has no type is text, a refusal is part of the answer.
_TEXT_PARTS: Final = ("text", "output_text", "refusal", "thinking", "reasoning", None)
_LARGEST_INT: Final = 10**4300  # what CPython writes as decimal digits
_Path = tuple[str | int, ...]


def read_chat_completion(completion: object) -> dict[str, Any]:
    """Check a completion and return the form in which it is streamed and assembled.

    A completion that has all the keys the OpenAI schema requires comes back equal. Beyond that:

    * choices are sorted by their index, which is their position where it is missing;
    * a message without role gets `assistant`, a choice without finish reason gets `tool_calls`, `function_call` or
      `stop`; `id`, `created` and `model` that are missing are null; `object` is `chat.completion`;
    * content in parts (Mistral) becomes the text and, from its thinking, `reasoning_content`; parts of other types are
      kept under `content_parts`;
    * arguments that are no string are encoded as JSON, missing ones are `""`; a missing tool type is filled in;
    * the `index` of a tool call and the `delta` of a choice are dropped: both belong to the stream.

    Strings and extras are not copied.

    Args:
        completion: A mapping in OpenAI's format, or a pydantic object (`openai.types.chat.ChatCompletion`, NAT's
            `ChatResponse`).

    Raises:
        pydantic.ValidationError: A value has the wrong type, is no JSON (NaN too), or the object has an `error`.
            Every entry of `errors()` names its path in `loc`; none holds the value, which may be a user's.
        UpstreamError: The object is an error body of another shape; the message is the body's.
        ConversionError: It has neither a choice nor usage, or a choice has no message: it is something else.
    """
    if isinstance(completion, BaseModel):
        completion = json_fields(completion)
    data: dict[str, Any] = dict(cast("Mapping[str, Any]", completion)) if isinstance(completion, Mapping) else {}
    for key, is_error in (("error", bool(data.get("error"))), ("object", data.get("object") == "error")):
        if is_error:
            raise _invalid((key,), "error_body", "This is an error, not a completion")
    if (wrong := _mistyped(data if isinstance(completion, Mapping) else completion)) is not None:
        raise wrong
    try:
        problem = _find_no_json(data)
    except RecursionError:
        problem = "is nested too deeply, or holds itself", ()
    if problem is not None:
        raise _invalid(problem[1], "json_value", "Value " + problem[0])
    if (reported := error_in_chunk(data)) is not None:
        raise reported
    if not data.get("choices") and data.get("usage") is None:
        raise ConversionError(f"no chat completion: it has neither choices nor usage; it looks like {describe(data)}")
    result: dict[str, Any] = {
        "id": data.get("id"),
        "object": "chat.completion",
        "created": data.get("created"),
        "model": data.get("model"),
        "choices": _read_choices(data.get("choices") or []),
    }
    for key, value in data.items():
        if key != "obfuscation":
            result.setdefault(key, value)
    return result


def _mistyped(data: object) -> ValidationError | None:
    """The errors of the types, without the values: a TypedDict's `hide_input_in_errors` has no effect on its adapter."""
    try:
        _COMPLETION.validate_python(data, strict=True)
    except ValidationError as error:
        lines = [
            InitErrorDetails(
                type=PydanticCustomError(cast("Any", line["type"]), "{text}", {"text": line["msg"]}),
                loc=_without_members(line["loc"]),
                input=None,
            )
            for line in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        return ValidationError.from_exception_data("ChatCompletion", lines, hide_input=True)
    return None


def _without_members(loc: _Path) -> _Path:
    """The path without pydantic's names of what a union may hold."""
    return tuple(part for part in loc if part not in ("str", "int", "float", "list[dict[str,any]]"))


def _read_choices(choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    by_index: dict[int, dict[str, Any]] = {}
    indexes: set[int] = set()
    for position, choice in enumerate(choices):
        index = choice.get("index", position)
        if index in indexes or index < 0:
            problem = "Index is negative" if index < 0 else f"Index {index} is taken by an earlier choice"
            raise _invalid(("choices", position, "index"), "choice_index", problem)
        indexes.add(index)
    for position, choice in enumerate(choices):
        index = choice.get("index", position)
        if choice.get("message") is None:
            raise _without_message(choice, position)
        message = _read_message(choice["message"], ("choices", position, "message"))
        finish = choice.get("finish_reason")
        if not finish:
            finish = default_finish(message)
        read = {"index": index, "message": message, "finish_reason": finish}
        for key, value in choice.items():
            if key != "delta":
                read.setdefault(key, value)
        by_index[index] = read
    return [by_index[index] for index in sorted(by_index)]


def _without_message(choice: Mapping[str, Any], position: int) -> ConversionError:
    problem = f"choices[{position}] has no message"
    if choice.get("delta") is not None:
        return ConversionError(
            f"{problem} but a delta: this is a chunk of a stream; assemble_chat_completion reads those"
        )
    if choice.get("text") is not None:
        return ConversionError(f"{problem} but a text: this is an answer of the old Completions API")
    return ConversionError(f"{problem}, so there is no answer to stream")


def default_finish(message: Mapping[str, Any]) -> str:
    """The finish reason of a message whose server named none."""
    return "tool_calls" if message.get("tool_calls") else "function_call" if message.get("function_call") else "stop"


def split_content(parts: list[object]) -> tuple[str, str, list[object]]:
    """A content in parts as its text, its thinking, and the parts that are neither."""
    read: list[object] = []
    others: list[object] = []
    for part in parts:
        kind = cast("dict[str, object]", part).get("type") if isinstance(part, dict) else None
        chosen = read if kind in _TEXT_PARTS else others
        chosen.append(cast("object", part))
    return *text_and_reasoning(read), others


def _read_content(read: dict[str, Any], path: _Path) -> None:
    parts: list[dict[str, Any]] = read["content"]
    for part in parts:
        if part.get("type") in ("text", "output_text", None) and not isinstance(part.get("text"), str):
            raise _invalid((*path, "content"), "content_part", "A text part of the content has no text")
    read["content"], reasoning, others = split_content(cast("list[object]", parts))
    if reasoning and not (read.get("reasoning_content") or read.get("reasoning")):
        read["reasoning_content"] = reasoning
    if others:
        read["content_parts"] = others


def _read_message(message: dict[str, Any], path: _Path) -> dict[str, Any]:
    read = {**message, "role": message.get("role") or "assistant"}
    if isinstance(read.get("content"), list):
        _read_content(read, path)
    if message.get("function_call"):
        read["function_call"] = _read_function(message["function_call"])
    if message.get("tool_calls"):
        read["tool_calls"] = [
            _read_tool_call(call, (*path, "tool_calls", number)) for number, call in enumerate(message["tool_calls"])
        ]
    return read


def _read_tool_call(call: dict[str, Any], path: _Path) -> dict[str, Any]:
    kind = call.get("type") or ("custom" if call.get("custom") and not call.get("function") else "function")
    if kind in ("custom", "function") and not call.get(kind):
        raise _invalid((*path, kind), "missing", "Field required")
    read = {**call, "type": kind}
    read.pop("index", None)
    if call.get("function"):
        read["function"] = _read_function(call["function"])
    if call.get("custom"):
        read["custom"] = {**call["custom"], "input": call["custom"].get("input") or ""}
    return read


def _read_function(function: dict[str, Any]) -> dict[str, Any]:
    arguments = function.get("arguments")
    if arguments is None:
        arguments = ""
    elif not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**function, "arguments": arguments}


def _find_no_json(value: object) -> tuple[str, _Path] | None:
    """What in this value JSON cannot carry, and where; None if there is nothing."""
    if isinstance(value, dict):
        for key, item in cast("dict[object, object]", value).items():
            if not isinstance(key, str):
                return f"has a key that is no string but {type(key).__name__}", ()
            if item.__class__ is not str and (found := _find_no_json(item)) is not None:
                return found[0], (key, *found[1])
    elif isinstance(value, list | tuple):
        for position, item in enumerate(cast("list[object]", value)):
            if item.__class__ is not str and (found := _find_no_json(item)) is not None:
                return found[0], (position, *found[1])
    elif isinstance(value, float):
        if not isfinite(value):
            return f"is {value}, which JSON does not have", ()
    elif isinstance(value, int):
        if not -_LARGEST_INT < value < _LARGEST_INT:
            return "is an integer of more than 4300 digits", ()
    elif value is not None and not isinstance(value, str):
        return f"is no JSON value but {type(value).__name__}", ()
    return None


def _invalid(
    path: _Path, kind: Literal["json_value", "error_body", "choice_index", "content_part", "missing"], text: str
) -> Exception:
    problem = PydanticCustomError(kind, "{text}", {"text": text})  # braces in the text are no placeholders
    return ValidationError.from_exception_data(
        "ChatCompletion", [InitErrorDetails(type=problem, loc=path, input=None)], hide_input=True
    )
