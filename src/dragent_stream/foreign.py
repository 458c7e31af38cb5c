"""Say what something looks like that is no chunk, and what to do about it: the words of an error, nothing else."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import AsyncIterable, Callable, Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Any, NamedTuple, TypeAlias, cast

from dragent_stream.fields import Fields, fields_of

__all__ = ["describe"]

_SHAPE = 'a chunk is {"choices": [{"index": 0, "delta": {"content": "..."}}]}'
_MOST_KEYS = 6
_LONGEST_NAME = 40
_LONGEST_TEXT = 1_000_000
"""Text above this is not parsed to see what it holds."""


def describe(chunk: object) -> str:
    """Say what a chunk that nobody understood looks like, and the remedy.

    Pure, and never raises. Names of keys, types and events are shown; values never are, as they may be secrets.

    Args:
        chunk: Anything: a mapping, an object, a LangGraph tuple, the text or the bytes of a body or of one SSE frame.

    Returns:
        A phrase and a remedy in one line without a period: `"a Responses API event (response.created); ask …"`.
    """
    try:
        what, remedy = _look(chunk)
    except Exception:  # a foreign object may do anything when it is looked at
        what, remedy = f"an object of the type {_name(type(chunk).__name__)}", _SHAPE
    return f"{what}; {remedy}"


_Answer: TypeAlias = tuple[str, str]


def _look(chunk: object) -> _Answer:
    if chunk is None:
        return "nothing (None)", _SHAPE
    if isinstance(chunk, str | bytes | bytearray | memoryview):
        return _look_at_text(cast("str | bytes", chunk))
    if isinstance(chunk, tuple | list):
        return _look_at_sequence(cast("tuple[object, ...] | list[object]", chunk))
    if isinstance(chunk, BaseException):
        return (
            f"an exception ({_name(type(chunk).__name__)})",
            "raise it: a source that raises ends the run with RUN_ERROR",
        )
    if isinstance(chunk, type):
        return f"a class ({_name(chunk.__name__)})", f"give objects of it; {_SHAPE}"
    if inspect.isawaitable(chunk):
        return "a coroutine or another awaitable", "await it in the source"
    if isinstance(chunk, AsyncIterable) or inspect.isgenerator(chunk):
        return "a stream inside the stream", "iterate it in the source: async for chunk in stream: yield chunk"
    if inspect.isroutine(chunk):
        return f"a function ({_name(chunk.__name__)})", "call it in the source"
    kind = _name(type(chunk).__name__)
    if kind == "ServerSentEvent":
        return "a ServerSentEvent object", "give the bytes of the response as they come, or json.loads(event.data)"
    fields = fields_of(chunk)
    if fields is None:
        return f"a value of the Python type {kind}", _SHAPE
    for form in _FORMS:
        if (detail := form.of(fields)) is not None:
            return form.name + (f" ({detail})" if detail else ""), form.remedy
    if not isinstance(chunk, Mapping):
        public = {} if isinstance(chunk, Enum) else {key: fields[key] for key in fields if not str(key).startswith("_")}
        return f"an object of the type {kind}" + (f" with {_keys(public)}" if public else ""), _SHAPE
    return f"an object with {_keys(fields)}" if fields else "an empty object", _SHAPE


def _look_at_text(text: str | bytes) -> _Answer:
    said = text if isinstance(text, str) else bytes(text[:_LONGEST_TEXT]).decode("utf-8", "replace")
    unit = "text" if isinstance(text, str) else "bytes"
    start = said[:_LONGEST_TEXT].lstrip("\ufeff \t\r\n")
    if not start:
        return f"empty {unit}", _SHAPE
    if start[:1] in "{[" and len(text) <= _LONGEST_TEXT:
        try:
            return _inside(json.loads(start), unit)
        except (ValueError, RecursionError):
            return f"broken JSON, as {unit}", "give whole objects, or the bytes of an SSE body"
    if frame := re.search(r"(?:\A|[\r\n])data:[ ]?(\{[^\r\n]*)", start):
        try:
            return _inside(json.loads(frame[1]), "an SSE frame")
        except (ValueError, RecursionError):
            return "an SSE frame with broken JSON", "give the bytes of the body as they come"
    if re.match(r"<(!doctype|html|head|body|\?xml)\b", start, re.IGNORECASE):
        return (
            "an HTML or XML page",
            "the URL is that of a page, a login or a proxy's error; look at it with curl, and give the API's base URL",
        )
    if re.match(r"(data|event|id|retry)?:", start):
        return "an SSE frame without JSON", "give the bytes of the body as they come"
    if re.match(r"[0-9a-h]:[\"{\[]", start):
        return "a line of the AI SDK's data stream", _AI_SDK
    if re.match(r"content=(['\"]|\[)", start):
        return "a LangChain message turned into text", "yield the message itself, not str(message)"
    if written := re.match(r"([A-Z]\w{2,60})\(\w+=", start):
        return f"the repr of a {_name(written[1])}", "yield the object itself, not its text"
    return f"{len(text)} {'characters of text' if unit == 'text' else unit}", _SHAPE


def _inside(value: object, holder: str) -> _Answer:
    if isinstance(value, dict | list):
        what, remedy = _look(cast("object", value))
        return f"{what}, as {holder}", remedy
    return f"{holder} with a JSON {type(value).__name__}", _SHAPE


def _look_at_sequence(items: tuple[object, ...] | list[object]) -> _Answer:
    kind = "tuple" if isinstance(items, tuple) else "list"
    for mode in items[:2]:
        if isinstance(mode, str) and mode in _LANGGRAPH_MODES and len(items) > 1:
            return f"a LangGraph part (mode {mode})", _LANGGRAPH
    if kind == "tuple" and len(items) == 2 and isinstance(items[0], tuple):
        return "a LangGraph part of a subgraph", _LANGGRAPH
    if not items:
        return f"an empty {kind}", _SHAPE
    first, remedy = "another one", _SHAPE
    if not isinstance(items[0], tuple | list):
        first, remedy = _look(items[0])
    return f"a {kind} that begins with {first}", "give its items one by one" if remedy is _SHAPE else remedy


def _keys(fields: Fields) -> str:
    names = [_name(key) for key in list(fields)[:_MOST_KEYS]]
    more = len(fields) - len(names)
    return f"the key{'s' * (len(fields) != 1)} {', '.join(names)}" + (f" and {more} more" if more > 0 else "")


def _name(value: object) -> str:
    """The name of a key or a type, fit for one line of a log."""
    text = value if isinstance(value, str) else f"<{type(value).__name__}>"
    text = "".join(letter if letter.isprintable() else "?" for letter in text[: _LONGEST_NAME + 1])
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 3] + "..."


# What is known. Of a form's values only its own vocabulary is shown.


class _Form(NamedTuple):
    """A form of other APIs: `of` gives a detail, which may be empty, or None where the fields have another form."""

    name: str
    of: Callable[[Fields], str | None]
    remedy: str


_CHAT = "ask that model for Chat Completions (client.chat.completions.create(stream=True))"
_RESPONSES = f"{_CHAT}, or stream it through langchain-openai"
_ANTHROPIC = "stream it through langchain-anthropic, or use the provider's OpenAI-compatible endpoint"
_GEMINI = "use Gemini's OpenAI-compatible endpoint (base URL ending in /v1beta/openai), or langchain-google-genai"
_BEDROCK = "stream it through langchain-aws, or use Bedrock's OpenAI-compatible endpoint"
_COHERE = "use Cohere's OpenAI-compatible endpoint (base URL ending in /compatibility/v1), or langchain-cohere"
_OLLAMA = "use Ollama's OpenAI-compatible endpoint, http://host:11434/v1"
_LANGGRAPH = 'give the messages: graph.astream(input, stream_mode="messages")'
_AI_SDK = "that is a stream for a browser already; convert what the model sent to the server that wrote it"
_RPC = "the answer of an agent's protocol is no stream of chunks; yield its text as chunks"
_RUN = "it is an AG-UI run already: pass it on as it is, or check it with: dragent-stream validate"
_STEP = "wrap an agent's step: yield dragent_stream.AgentStep(step)"
_RECORDED = "replay_trace(path) gives the chunks of a recording"
_ENDPOINT = "look at the endpoint's log, and at the URL: a base URL mostly ends in /v1"
_LANGCHAIN_EVENT = f"yield event['data']['chunk'] of on_chat_model_stream, or {_LANGGRAPH}"
_OTHER_ROUTE = f"this is another route's answer; {_CHAT}"
_REQUEST = "it is a request, no answer; give what the agent or the model answers"
_PYDANTIC_AI = "yield its text as chunks, or use pydantic_ai.ui.ag_ui"
_NO_MESSAGE = f"only tool results come as messages; {_SHAPE}"
_MESSAGES = r"ai|AIMessageChunk|human|system|tool|remove|chat|function"
_SERVER_PARTS = r"(messages|updates|values|metadata|custom|debug)([/|].*)?"
_LANGGRAPH_MODES = frozenset(
    {"checkpoints", "custom", "debug", "messages", "messages-tuple", "tasks", "updates", "values"}
)


def _word(fields: Fields, key: str) -> str:
    """A value that names a kind; empty where it is no string or no name."""
    value: Any = fields.get(key)
    value = getattr(value, "value", value)  # an enum
    return value if isinstance(value, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_./:-]{0,60}", value) else ""


def _typed(pattern: str, *, key: str = "type", beside: str = "") -> Callable[[Fields], str | None]:
    """The forms that one key names; `beside` is a key that they also have."""
    known = re.compile(pattern)

    def of(fields: Fields) -> str | None:
        word = _word(fields, key)
        return word if word and known.fullmatch(word) and (not beside or beside in fields) else None

    return of


def _with(*keys: str, beside: str = "", without: str = "") -> Callable[[Fields], str | None]:
    """The forms that have one of the keys, and `beside` but not `without`; the detail is the key."""

    def of(fields: Fields) -> str | None:
        if (beside and beside not in fields) or (without and without in fields):
            return None
        return next((key for key in keys if key in fields), None)

    return of


def _json_rpc(fields: Fields) -> str | None:
    if fields.get("jsonrpc") != "2.0":
        return None
    result = fields_of(fields.get("result")) or {}
    return _word(fields, "method") or _word(result, "kind") or ("error" if "error" in fields else "result")


def _bedrock_bytes(fields: Fields) -> str | None:
    return "chunk" if "bytes" in (fields_of(fields.get("chunk")) or {}) else None


def _ollama(fields: Fields) -> str | None:
    if not isinstance(fields.get("done"), bool):
        return None
    return next((key for key in ("message", "response") if key in fields), None)


def _langgraph_part(fields: Fields) -> str | None:
    kind = _word(fields, "type")
    return f"mode {kind}" if kind in _LANGGRAPH_MODES and "data" in fields and "ns" in fields else None


def _langgraph_state(fields: Fields) -> str | None:
    if isinstance(fields.get("messages"), list) and len(fields) <= _MOST_KEYS and "model" not in fields:
        return "mode values"
    if "__interrupt__" in fields:
        return "an interrupt"
    updates = [fields_of(value) for value in fields.values()]
    return "mode updates" if updates and all(update and "messages" in update for update in updates) else None


def _listed(fields: Fields) -> str | None:
    """A list object of an OpenAI API, by what it lists."""
    items = fields.get("data")
    if fields.get("object") != "list" or not isinstance(items, list):
        return None
    first = cast("list[object]", items)[:1]
    return (_word(fields_of(first[0]) or {}, "object") if first else "") or "list"


def _misspelt(fields: Fields) -> str | None:
    """A key that was meant to be `choices`."""
    if "choices" in fields:
        return None
    names = {str(key).lower(): key for key in fields if len(str(key)) < 2 * len("choices")}
    near = get_close_matches("choices", names, n=1, cutoff=0.8)
    return f"{_name(names[near[0]])} is not choices" if near else None


def _error_body(fields: Fields) -> str | None:
    """Of FastAPI, of gateways, RFC 9457: what no chunk reader takes for an error."""
    if any(key in fields for key in ("status", "statusCode", "status_code", "code", "type")):
        return next((key for key in ("title", "message", "msg") if key in fields), None)
    return next((key for key in ("error", "errors", "detail") if key in fields), None)


def _chat(fields: Fields) -> str | None:
    if "choices" not in fields:
        return None
    choices: object = fields["choices"]
    if not isinstance(choices, list | tuple):
        return "choices is no list"
    first: Fields | None = fields_of(cast("list[object]", choices)[0]) if choices else {}
    if first is None:
        return "a choice is no object"
    delta = fields_of(first.get("delta") or first.get("message"))
    return f"delta with {_keys(delta)}" if delta else "an empty delta" if first else "choices is empty"


_FORMS = (
    _Form("a text completion", _typed(r"text_completion|text\.completion", key="object"), _CHAT),
    _Form("a Chat Completions chunk without an answer", _chat, "look at what the model sent: dragent-stream record"),
    _Form("a JSON-RPC message of MCP or A2A", _json_rpc, _RPC),
    _Form("an AG-UI event", _typed(r"[A-Z]+(_[A-Z]+)+|RAW|CUSTOM"), _RUN),
    _Form("a batch of AG-UI events", _with("events", beside="usage_metrics"), "pass on the events of the batch"),
    _Form("a RunAgentInput", _with("runId", "run_id", beside="messages"), _REQUEST),
    _Form("a line of a recording", _with("dragent_trace"), _RECORDED),
    _Form("a line of a recording", _with("chunk", "step", "end", beside="t"), _RECORDED),
    # OpenAI
    _Form("a Realtime API event", _typed(r"(response|conversation)\..+", beside="event_id"), _CHAT),
    _Form("a Realtime API event", _typed(r"(\w+_)?session\..+|(in|out)put_audio_buffer\..+|rate_limits\..+"), _CHAT),
    _Form("a Responses API event", _typed(r"response\.[a-z0-9_.]+"), _RESPONSES),
    _Form("a Responses API body", _typed(r"response(\.compaction)?", key="object"), _RESPONSES),
    _Form("an Agents SDK event", _typed(r"(raw_response|run_item_stream|agent_updated_stream)_event"), _CHAT),
    _Form("an Assistants API event", _typed(r"thread\.[a-z_.]+", key="event"), _CHAT),
    _Form("an Assistants API object", _typed(r"(thread|assistant)(\.[a-z_.]+)?", key="object"), _CHAT),
    _Form("an embeddings or list object", _listed, _OTHER_ROUTE),
    _Form("an API object", _typed(r"embedding|model|file|moderation|image|batch", key="object"), _OTHER_ROUTE),
    _Form("a request body", _with("messages", "input", "contents", beside="model", without="object"), _REQUEST),
    # Other providers
    _Form("an Anthropic Messages event", _typed(r"(message|content_block)_(start|delta|stop)|ping"), _ANTHROPIC),
    _Form("an Anthropic Messages body", _typed("message", beside="stop_reason"), _ANTHROPIC),
    _Form("a Gemini GenerateContentResponse", _with("candidates", "promptFeedback", "usageMetadata"), _GEMINI),
    _Form("a Gemini Interactions event", _typed(r"(interaction|content)\.[a-z_.]+", key="event_type"), _GEMINI),
    _Form("a Bedrock Converse event", _with("messageStart", "messageStop"), _BEDROCK),
    _Form("a Bedrock Converse event", _with("contentBlockStart", "contentBlockDelta", "contentBlockStop"), _BEDROCK),
    _Form("a Bedrock Converse body", _with("stopReason", beside="output"), _BEDROCK),
    _Form("a Bedrock InvokeModel event", _bedrock_bytes, _BEDROCK),
    _Form("a Cohere event", _typed(r"(message|content|tool-call|citation)-(start|end)"), _COHERE),
    _Form("a Cohere event", _typed(r"(content|tool-plan|tool-call)-delta"), _COHERE),
    _Form("a Cohere event", _with("event_type", beside="is_finished"), _COHERE),
    _Form("a line of Ollama's own API", _ollama, _OLLAMA),
    _Form("a Mistral Conversations event", _typed(r"(conversation\.response|message\.output)\..+"), _CHAT),
    _Form("a Mistral Conversations event", _typed(r"(tool\.execution|agent\.handoff|function\.call)\..+"), _CHAT),
    # Frameworks
    _Form("a LangGraph part", _langgraph_part, _LANGGRAPH),
    _Form("a LangGraph part", _typed(r"task|task_result|checkpoint", beside="payload"), _LANGGRAPH),
    _Form("a LangGraph stream event", _typed(r"[a-z]+", key="method", beside="params"), _LANGGRAPH),
    _Form("a LangChain stream event", _typed(r"on_[a-z_]+", key="event"), _LANGCHAIN_EVENT),
    _Form("a LangChain content event", _typed(r"(content-block|message)-[a-z]+", key="event"), _LANGGRAPH),
    _Form("a part of a LangGraph server", _typed(_SERVER_PARTS, key="event", beside="data"), _LANGGRAPH),
    _Form("a serialized LangChain object", _with("lc"), "load it with langchain_core.load.load"),
    _Form("a serialized LangChain message", _typed(_MESSAGES, beside="data"), "load it with messages_from_dict"),
    _Form("a LangChain message without an answer", _typed(_MESSAGES, beside="content"), "look at what the model sent"),
    _Form("an AI SDK stream part", _typed(r"(text|reasoning)-(start|delta|end)|(start|finish)(-step)?|abort"), _AI_SDK),
    _Form("an AI SDK stream part", _typed(r"tool-(call|result|error|(input|output|approval)-\w+)"), _AI_SDK),
    _Form("an AI SDK stream part", _typed(r"message-metadata|source-(url|document)|data-.+"), _AI_SDK),
    _Form("an AI SDK stream part", _with("errorText"), _AI_SDK),
    _Form("a Pydantic AI event", _typed(r"[a-z_]+", key="event_kind"), _PYDANTIC_AI),
    _Form("a NAT intermediate step", _with("payload", beside="function_ancestry"), _STEP),
    _Form("a NAT intermediate step", _typed(r"[A-Z]+_(START|END|CHUNK|NEW_TOKEN|MESSAGE)", key="event_type"), _STEP),
    _Form("an A2A message", _typed(r"task|message|status-update|artifact-update", key="kind"), _RPC),
    _Form("an MCP tool result", _with("isError", "structuredContent", beside="content"), _RPC),
    _Form("a LangGraph part", _langgraph_state, _LANGGRAPH),
    # What is nearly right
    _Form("an object with a misspelt key", _misspelt, f"write choices; {_SHAPE}"),
    _Form("a chat message", _typed(r"assistant|user|system|developer|tool|function", key="role"), _NO_MESSAGE),
    _Form("an error body", _error_body, _ENDPOINT),
)
