"""The client's conversation as LangChain messages, and what a graph that remembers must be told to hold just that.

A graph with a checkpointer keeps its messages under LangChain's ids, while a client names the answers of a run by the ids
of its events, which are always fresh. So the two are matched by what they say, in their order. What matches stays as the
graph has it, with all that a client does not keep (signatures, usage, blocks of a provider); what only the client has is
added under the client's id, what only the graph has is removed. Kept are messages of the graph's own that no client has
ever had: system messages and messages of a human that did not come from here (instructions, handovers, summaries).
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from uuid import uuid4

from ag_ui.core import RunAgentInput

from dragent_stream.asgi.messages import conversation
from dragent_stream.content_parts import result_text, text_and_reasoning
from dragent_stream.values import json_text

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

__all__ = ["langchain_messages", "messages_to_send", "provider_of"]

_Json: TypeAlias = dict[str, Any]
_Saying: TypeAlias = tuple[str, str, str]  # kind, text, calls

_NO_CALLS = "[]"
_EITHERS = ("human", "system")  # a client's or the graph's own; a developer's message is a system message, too
_FROM_CLIENT = {"dragent_stream": "client"}
_GEMINI_SIGNATURES = "__gemini_function_call_thought_signatures__"
_PROVIDERS = {
    "langchain_anthropic": "anthropic",
    "langchain_aws": "bedrock_converse",
    "langchain_google_genai": "google_genai",
    "langchain_openai": "openai",
}


def langchain_messages(run_input: RunAgentInput, provider: str = "") -> list[BaseMessage]:
    """The conversation, each message under the client's id.

    Args:
        run_input: The request.
        provider: Whose encrypted reasoning goes back: "anthropic", "bedrock_converse", "google_genai" or "openai" (its
            Responses API). Without one it is left out, since another provider refuses it.

    Raises:
        RunInputError: A content part has no counterpart in Chat Completions.
    """
    from langchain_core.messages import convert_to_messages

    taken: set[str] = set()
    converted: list[_Json] = []
    signed: list[tuple[int, list[_Json]]] = []
    for message, sources in conversation(run_input):
        name = str(sources[-1]["id"]) if sources else f"result-of-{message['tool_call_id']}"
        if name not in taken:  # LangGraph finds messages by their ids alone
            taken.add(name)
            message = {**message, "id": name}
        if message["role"] == "assistant":
            signed.append((len(converted), sources))
        converted.append(message)
    messages = convert_to_messages(cast("Any", converted))
    for at, sources in signed:
        _give_back(messages[at], sources, provider)
    for message in messages:
        if message.type in _EITHERS:
            message.additional_kwargs.update(_FROM_CLIENT)
    return messages


def provider_of(runnable: Any) -> str:
    """The provider of a chat model, or of the one in a chain; empty where it is none of those that need to know."""
    for inner in (runnable, *_inside(runnable)):
        for kind in type(inner).__mro__:
            provider = _PROVIDERS.get(kind.__module__.partition(".")[0], "")
            if provider == "openai" and not _uses_responses(inner):
                return ""
            if provider:
                return provider
    return ""


def _inside(runnable: Any, depth: int = 5) -> Iterable[Any]:
    for inner in (getattr(runnable, "bound", None), *(getattr(runnable, "steps", None) or ())):
        if inner is not None and depth:
            yield inner
            yield from _inside(inner, depth - 1)


def _uses_responses(model: Any) -> bool:
    uses = getattr(model, "_use_responses_api", None)
    return bool(getattr(model, "use_responses_api", False) or (uses and uses({})))


# Encrypted reasoning, back in the form in which the provider's package takes it.


def _give_back(message: Any, sources: Sequence[_Json], provider: str) -> None:
    *thoughts, own = sources
    values = [(str(thought.get("content") or ""), thought.get("encryptedValue")) for thought in thoughts]
    values = [(text, value) for text, value in (*values, ("", own.get("encryptedValue"))) if value]
    calls = {call["id"]: call["encryptedValue"] for call in own.get("toolCalls") or () if call.get("encryptedValue")}
    if provider == "google_genai":
        _sign_gemini(message, [value for _, value in values], calls)
        return
    values += [("", value) for value in calls.values()]
    blocks = [block for text, value in values if (block := _block(provider, text, str(value)))]
    if blocks:
        text = [{"type": "text", "text": message.content}] if message.content else []
        message.content = [*blocks, *text]
        message.response_metadata["model_provider"] = provider


def _block(provider: str, text: str, value: str) -> _Json | None:
    """A thought with its signature; a value without a thought is one that was redacted."""
    if provider == "anthropic":
        if text:
            return {"type": "thinking", "thinking": text, "signature": value}
        return {"type": "redacted_thinking", "data": value}
    if provider == "bedrock_converse":
        if text:
            return {"type": "reasoning_content", "reasoning_content": {"text": text, "signature": value}}
        try:
            redacted = b64decode(value, validate=True)
        except ValueError:
            return None
        return {"type": "reasoning_content", "reasoning_content": {"redacted_content": redacted}}
    if provider == "openai":
        summary = [{"type": "summary_text", "text": text}] if text else []
        return {"type": "reasoning", "summary": summary, "encrypted_content": value}
    return None


def _sign_gemini(message: Any, values: Sequence[Any], calls: _Json) -> None:
    if calls:
        message.additional_kwargs[_GEMINI_SIGNATURES] = calls
    if values and message.content:
        message.content = [{"type": "text", "text": message.content, "extras": {"signature": values[-1]}}]
    if calls or values:
        message.response_metadata["model_provider"] = "google_genai"


# What the graph holds, and what the client has.


def messages_to_send(
    stored: Sequence[BaseMessage], client: Sequence[BaseMessage], pending: Sequence[BaseMessage] = ()
) -> tuple[list[BaseMessage], bool]:
    """What makes the graph's messages those of the client.

    Args:
        stored: What the graph's state holds.
        client: The client's conversation.
        pending: What the finished tasks of a step that broke off wrote. A new input throws it away, so what the client
            has of it is sent with it.

    Returns:
        The messages, and whether they replace all that is stored; else they follow it.
    """
    kept = len(stored)
    stored = [*stored, *pending]
    client = _with_stored_results(stored, client)
    after = [_saying(message) for message in client]
    before = _with_handovers(stored, after)
    merged: list[BaseMessage] = []
    call_ids: dict[str, str] = {}
    for what, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if what == "equal":
            for old, new in zip(stored[i:j], client[k:m], strict=True):
                call_ids |= zip(_call_ids(new), _call_ids(old), strict=True)
                merged.append(old)
            continue
        merged += [message for message in stored[i : min(j, kept)] if _is_the_graphs(message)]
        merged += [_answering(message, call_ids) for message in client[k:m]]
    _name_apart(merged, stored)
    follows = len(merged) >= kept and all(a is b for a, b in zip(merged[:kept], stored, strict=False))
    if follows:
        return merged[kept:], False
    for message in merged:
        message.id = message.id or str(uuid4())
    return merged, True


def _name_apart(merged: list[BaseMessage], stored: Sequence[BaseMessage]) -> None:
    """Rename the client's where the graph's holds the id, as after two equal messages changed places; one would be lost."""
    held = {id(message) for message in stored}
    taken = {message.id for message in merged if id(message) in held}
    for at, message in enumerate(merged):
        if id(message) not in held and message.id in taken:
            merged[at] = message.model_copy(update={"id": str(uuid4())})


def _with_stored_results(stored: Sequence[BaseMessage], client: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The client's conversation with the graph's results where a client has none, or one that is no text."""
    results = {str(getattr(message, "tool_call_id", "")): message for message in stored if message.type == "tool"}
    return [
        results.get(str(getattr(message, "tool_call_id", "")), message)
        if message.type == "tool" and not cast("Any", message).content
        else message
        for message in client
    ]


def _with_handovers(stored: Sequence[BaseMessage], client: Sequence[_Saying]) -> list[_Saying]:
    """What the graph's messages say; a handover says what the client has as the answer that it was made of.

    A node may give a model's answer on as a named message of a human, in the place of the answer.
    """
    said = [_saying(message) for message in stored]
    missing = Counter(saying for saying in client if saying[0] == "ai")
    missing.subtract(saying for saying in said if saying[0] == "ai")
    for at, message in enumerate(stored):
        if message.type == "human" and message.name and _is_the_graphs(message):
            answer: _Saying = "ai", text_and_reasoning(cast("Any", message).content)[0], _NO_CALLS
            if answer[1] and missing[answer] > 0:
                missing[answer] -= 1
                said[at] = answer
    return said


def _saying(message: BaseMessage) -> _Saying:
    """What two messages must have in common to be the same one: all that a client keeps of it, without ids."""
    calls: list[tuple[str, _Json]] = [(call["name"], call["args"]) for call in getattr(message, "tool_calls", ())]
    calls += [(call["name"], {}) for call in getattr(message, "invalid_tool_calls", ())]
    content: object = cast("Any", message).content
    kind = "ai" if message.type == "AIMessageChunk" else message.type
    if kind == "ai":
        text = text_and_reasoning(content)[0]
    else:
        text = result_text(content) if kind == "tool" else json_text(content)
    return kind, text, json.dumps(calls, sort_keys=True, default=str)


def _call_ids(message: BaseMessage) -> list[str]:
    return [
        str(call["id"])
        for calls in (getattr(message, "tool_calls", ()), getattr(message, "invalid_tool_calls", ()))
        for call in calls
    ]


def _answering(message: BaseMessage, call_ids: dict[str, str]) -> BaseMessage:
    """A result names the call by the graph's id of it; the client may have got another."""
    named = call_ids.get(getattr(message, "tool_call_id", ""))
    return message.model_copy(update={"tool_call_id": named}) if named else message


def _is_the_graphs(message: BaseMessage) -> bool:
    return message.type in _EITHERS and not _FROM_CLIENT.items() <= message.additional_kwargs.items()
