"""One message of a model behind LangChain: what of it came so far, and each piece of it as a record.

Finish words stand under the names of the providers: `finish_reason`, `stop_reason` (Anthropic), `stopReason` (Bedrock),
`status` with `incomplete_details` (OpenAI's Responses), `done_reason` (Ollama), `native_finish_reason` (OpenRouter).
A thought stands in the content, or in `additional_kwargs` as `reasoning_content`, `reasoning` or, with Responses v0, as
`reasoning.summary[]`. Gemini's signatures stand beside the calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from dragent_stream.chunk_record import Chunk, ToolCallDelta
from dragent_stream.content_parts import Content, PartKey, read_content
from dragent_stream.errors import UpstreamError
from dragent_stream.fields import Fields, fields_of, items_of
from dragent_stream.finish_reasons import Finish, read_finish
from dragent_stream.usage import Usage, read_usage
from dragent_stream.values import arguments_of, first_text, index_of, text_of

__all__ = ["Answer", "Origin", "calls_of"]

_GEMINI_SIGNATURES = "__gemini_function_call_thought_signatures__"
_RESPONSES_STATUS = {"completed": "stop", "incomplete": "incomplete", "failed": "failed", "cancelled": "cancelled"}


class Origin(NamedTuple):
    """Where in a graph a message comes from, as far as that is known; all empty where it is not.

    Attributes:
        graph: The namespace of the graph; "" for the outermost.
        task: The namespace of the node's task, or what else tells two model calls apart.
        node: The node's name.
    """

    graph: str = ""
    task: str = ""
    node: str = ""

    def may_rebuild(self, inner: Origin) -> bool:
        """A node here may have made its message of one from there: a graph inside it, or a model that it called."""
        if inner.graph == self.graph:
            return inner.task == self.task if self.task and inner.task else self.node in ("", inner.node)
        if self.graph and not inner.graph.startswith(f"{self.graph}|"):
            return False
        segment = inner.graph[len(self.graph) :].strip("|").partition("|")[0]
        name = self.task.rpartition("|")[2]
        return segment == name if ":" in name else self.node in ("", segment.partition(":")[0])


_NOWHERE = Origin()
_PIECE: Fields = {"type": "AIMessageChunk"}


class Answer:
    """A message of a model while it comes.

    Attributes:
        id: What its records carry in `message`.
        origin: Where in the graph it comes from.
        text: Its text so far, in pieces.
        calls: The ids of its calls so far, names where there are none.
        streamed: Pieces of it came.
        whole: It was brought as a whole, so nothing can be missing.
        given: It is of the conversation that the graph was given.
        rebuilt: A node has brought it again under another id.
        over: Its last piece came, or its finish word.
    """

    __slots__ = (
        "_encrypted",
        "_model",
        "_provider",
        "_sealed",
        "_signed",
        "_thinks",
        "_thought",
        "_usage",
        "calls",
        "given",
        "id",
        "origin",
        "over",
        "rebuilt",
        "speaks",
        "streamed",
        "text",
        "whole",
    )

    def __init__(self, id: str, origin: Origin = _NOWHERE) -> None:
        self.id = id
        self.origin = origin
        self.text: list[str] = []
        self.calls: list[str] = []
        self.streamed = False
        self.whole = False
        self.given = False
        self.rebuilt = False
        self.over = False
        self.speaks = False
        self._thinks = False
        self._thought: PartKey | None = None  # the part that the last piece of thought belongs to
        self._sealed: tuple[PartKey, str] | None = None  # a signature, which may come in pieces
        self._encrypted: set[str] = set()
        self._signed = False  # the last thought has its signature
        self._usage: Usage | None = None
        self._model = ""
        self._provider = ""

    def know(self, message: Fields) -> None:
        """The whole message is known, and nothing of it is to be told."""
        if not self.streamed:
            self.text, self.calls = [read_content(message["content"]).text], calls_of(message)
        self.whole = True

    def same_as(self, message: Fields) -> bool:
        """A whole message repeats what was streamed: the same text, the same calls."""
        text = "".join(self.text).strip()
        calls = calls_of(message)
        return bool(text or calls) and text == read_content(message["content"]).text.strip() and calls == self.calls

    def is_replaced_by(self, message: Fields, origin: Origin) -> bool:
        """A later node has put another text in the place of what this one said, under its id."""
        text, new = "".join(self.text).strip(), read_content(message["content"]).text.strip()
        elsewhere = bool(origin.node and self.origin.node) and origin.node != self.origin.node
        again = self.whole and not self.streamed  # in a later state
        return (elsewhere or again) and bool(text and new) and new not in text and text not in new

    def read(self, message: Fields, *, whole: bool = False, so_far: bool = False) -> Sequence[Chunk]:
        """The records of a chunk of this message, or of what the whole of it has beyond its chunks.

        Args:
            message: Its fields.
            whole: It is the whole message.
            so_far: It is the message so far: all that came, and more.
        """
        content = message["content"]
        if type(content) is str and not (whole or so_far or self._sealed or _says_more(message)):
            self.streamed = True
            if content:
                self.speaks, self._thought = True, None
                self.text.append(content)
            return (Chunk(id=self.id, message=self.id, text=content),)
        if isinstance(content, list) and len(cast("list[object]", content)) > 1 and not self._thinks:
            *signed, rest = _signed_thoughts(cast("list[object]", content))
            records = [record for part in signed for record in self._read({**_PIECE, "content": part})]
            return [*records, *self._read({**message, "content": rest}, whole=whole, so_far=so_far, thinks=False)]
        return self._read(message, whole=whole, so_far=so_far, thinks=self._thinks)

    def _read(
        self, message: Fields, *, whole: bool = False, so_far: bool = False, thinks: bool = False
    ) -> Sequence[Chunk]:
        before: list[Chunk] = []
        record = Chunk(id=self.id, message=self.id, whole=whole)
        record.last = message.get("chunk_position") == "last"
        metadata = fields_of(message.get("response_metadata")) or {}
        more = fields_of(message.get("additional_kwargs")) or {}
        record.model = first_text(metadata, "model_name", "model", "model_id")
        record.provider = text_of(metadata.get("model_provider"))
        self._model = record.model or self._model
        self._provider = record.provider or self._provider
        content = read_content(message["content"])
        if more:
            _read_more(more, content)
        record.text = self._beyond(content.text) if whole or so_far else content.text
        if not so_far:
            record.tool_calls = list(self._calls(message, more, whole=whole, last=record.last))
        if content.thoughts:
            part = content.thoughts[0][0][0]
            if self._sealed and self._sealed[0][0] != part:
                before.append(Chunk(id=self.id, message=self.id, encrypted=list(self._unseal())))
            if self._signed and self._thought and self._thought[0] != part:
                record.new_thought, self._thought = True, None
            record.reasoning = self._thoughts(content.thoughts, repeats=thinks and (whole or so_far))
            self._signed = False
        if record.text or record.tool_calls:
            self.speaks = True
            self._thought = None
        elif record.reasoning:
            self.speaks = True
        if metadata:
            record.finish, record.error = _finish(metadata)
        if whole and self.over:
            record.finish = None  # it was said with the pieces
        self.over = self.over or record.last or bool(record.finish)
        if content.encrypted or self._sealed:
            ends = bool(whole or record.last or record.finish or record.tool_calls)
            said = bool(record.text or content.thoughts)
            record.encrypted = list(self._seal(content.encrypted, said=said, ends=ends))
        counts = message.get("usage_metadata") or (whole and (metadata.get("token_usage") or metadata.get("usage")))
        if counts and (usage := read_usage(counts)):
            if whole:
                record.usage = None if usage == self._usage else usage
            else:
                record.usage = self._more_usage(usage)
            record.usage_adds = not whole
            record.model, record.provider = self._model, self._provider  # said once, and not with the usage
        if record.text:
            self.text.append(record.text)
        self.streamed = self.streamed or not whole
        self.whole = self.whole or whole
        return [*before, record]

    def rest(self) -> Chunk | None:
        """What is still held back when the stream ends."""
        return (
            Chunk(id=self.id, message=self.id, encrypted=list(self._seal((), said=True, ends=True)))
            if (self._sealed)
            else None
        )

    def _beyond(self, whole: str) -> str:
        """What a whole text has beyond the pieces; nothing where it is another text, since those cannot be taken back."""
        said = "".join(self.text)
        return whole[len(said) :] if whole.startswith(said) else ""

    def _thoughts(self, pieces: Iterable[tuple[PartKey, str]], *, repeats: bool) -> str:
        """The pieces as one text; another part begins a paragraph. A thought that `repeats` one is not told again."""
        said = ""
        if repeats:
            return said
        self._thinks = True
        for part, piece in pieces:
            if self._thought not in (None, part):
                said += "\n\n"
            self._thought = part
            said += piece
        return said

    def _seal(self, values: Iterable[tuple[PartKey, str]], *, said: bool, ends: bool) -> Iterable[str]:
        """The encrypted values that are complete now; pieces for one part are one value, and a repeated one is told once."""
        for part, value in values:
            if self._sealed and self._sealed[0] == part:
                before = self._sealed[1]
                self._sealed = part, value if value.startswith(before) else before + value
                continue
            yield from self._unseal()
            self._sealed = part, value
            said = False
        if said or ends:
            yield from self._unseal()

    def _unseal(self) -> Iterable[str]:
        if self._sealed and self._sealed[1] not in self._encrypted:
            self._encrypted.add(self._sealed[1])
            self._signed = self._sealed[0][0] == (self._thought or (None,))[0]
            yield self._sealed[1]
        self._sealed = None

    def _calls(self, message: Fields, more: Fields, *, whole: bool, last: bool) -> Iterable[ToolCallDelta]:
        signatures = fields_of(more.get(_GEMINI_SIGNATURES)) or {}
        signed = _signatures(message["content"])
        calls = items_of(message.get("tool_call_chunks"))
        if not calls:
            calls = [call for key in ("tool_calls", "invalid_tool_calls") for call in items_of(message.get(key))]
            if whole or last:  # what was streamed, put together
                calls = [call for call in calls if _name_of(call) not in self.calls]
        for ordinal, call in enumerate(calls):
            delta = ToolCallDelta(
                index_of(call.get("index")),
                text_of(call.get("id")),
                text_of(call.get("name")),
                arguments_of(call.get("args")),
            )
            if signature := signatures.get(delta.id) or signed.get(delta.id) or signed.get(str(ordinal)):
                delta.signature = text_of(signature)
            if name := _name_of(call):
                self.calls.append(name)
            yield delta
        if not calls and not self.calls and (function := fields_of(more.get("function_call"))):
            self.calls.append(text_of(function.get("name")))
            yield ToolCallDelta(None, "", self.calls[-1], arguments_of(function.get("arguments")))

    def _more_usage(self, usage: Usage) -> Usage | None:
        """What was used since the chunk before. LangChain counts each chunk; some servers repeat the total so far."""
        before = self._usage
        if before is None:
            self._usage = usage
            return usage
        repeats = usage.input_tokens and usage.input_tokens == before.input_tokens
        if repeats and (usage.output_tokens or 0) >= (before.output_tokens or 0):
            more = Usage(
                *((a or 0) - (b or 0) if (a or 0) > (b or 0) else None for a, b in zip(usage, before, strict=True))
            )
        else:
            more = usage
        self._usage = before.plus(more)
        return more if any(more) else None


def calls_of(message: Fields) -> list[str]:
    """The ids of a whole message's calls, names where there are none."""
    entries = [call for key in ("tool_calls", "invalid_tool_calls") for call in items_of(message.get(key))]
    return [_name_of(call) for call in entries]


def _name_of(call: Fields) -> str:
    return text_of(call.get("id")) or text_of(call.get("name"))


def _says_more(message: Fields) -> bool:
    """A chunk has something beside its content; most have not."""
    get = message.get
    return bool(
        get("tool_call_chunks")
        or get("response_metadata")
        or get("additional_kwargs")
        or get("usage_metadata")
        or get("chunk_position")
        or get("tool_calls")
        or get("invalid_tool_calls")
    )


def _signed_thoughts(content: list[object]) -> Iterator[list[object]]:
    """A content in pieces, each but the last with one signed thought: each of these is a thought of its own."""
    begun: list[object] = []
    for position, item in enumerate(content):
        part = fields_of(item)
        if part and "index" not in part:
            part = {**part, "index": position}
        begun.append(part or item)
        found = read_content([part])
        after = fields_of(content[position + 1]) if position < len(content) - 1 else None
        of_one_item = part and after and part.get("id") and part.get("id") == after.get("id")
        if found.thoughts and found.encrypted and after and not of_one_item:
            yield begun
            begun = []
    yield begun


def _read_more(more: Fields, content: Content) -> None:
    """What a provider's package left beside the content."""
    if refusal := first_text(more, "refusal"):
        content.text += refusal
    if isinstance(said := more.get("reasoning"), str | None):
        said = said or first_text(more, "reasoning_content")
        if said and not content.thoughts:
            content.thoughts.append(((None, None), said))
    else:
        item = read_content([{"index": None, **(fields_of(said) or {}), "type": "reasoning"}])
        content.thoughts = content.thoughts or item.thoughts
        content.encrypted += item.encrypted
    for key in ("reasoning_details", "thinking_blocks"):
        if isinstance(details := more.get(key), list | tuple):
            found = read_content(cast("object", details))
            content.thoughts = content.thoughts or found.thoughts
            content.encrypted += found.encrypted


def _signatures(content: object) -> dict[str, object]:
    """Signatures of calls that stand in the content: by the call's id, or by its number."""
    signed: dict[str, object] = {}
    if isinstance(content, list):
        for item in cast("list[object]", content):
            part = fields_of(item) or {}
            if part.get("type") == "function_call_signature":
                signed[str(part.get("index", len(signed)))] = part.get("signature")
            elif part.get("type") in ("tool_call", "tool_call_chunk", "tool_use", "function_call"):
                extras = fields_of(part.get("extras")) or {}
                if signature := extras.get("signature") or extras.get("thought_signature"):
                    signed[text_of(part.get("id"))] = signature
    return signed


def _finish(metadata: Fields) -> tuple[Finish | None, UpstreamError | None]:
    finish: Finish | None = None
    word = ""
    for key in ("finish_reason", "stop_reason", "stopReason", "native_finish_reason", "done_reason"):
        if (found := _word(metadata.get(key))) and (meaning := read_finish(found)):
            finish, word = meaning, found
            if meaning != "unknown":
                break
    status = metadata.get("status")
    if finish is None and isinstance(status, str) and status in _RESPONSES_STATUS:
        details = fields_of(metadata.get("incomplete_details")) or {}
        word = first_text(details, "reason") or status
        finish = read_finish(first_text(details, "reason") or _RESPONSES_STATUS[status])
    if finish != "failed":
        return finish, None
    reported = fields_of(metadata.get("error")) or {}
    message = first_text(reported, "message") or f"the model's answer ended with finish_reason {word!r}"
    return finish, UpstreamError(message)


def _word(value: object) -> str:
    """A finish reason: a string, or an enum whose name says it (Gemini's have numbers as values)."""
    if isinstance(value, str):
        return str(getattr(value, "value", value))
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else ""
