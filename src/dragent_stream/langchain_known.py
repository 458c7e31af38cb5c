"""Which messages of one stream are known, so that each of them is said once.

Each message of a model is an `Answer`, found by its id: chunks of parallel nodes alternate, and a whole message often
follows its own chunks, under the same id, under the provider's, or rebuilt by the node under another. Providers' packages
name one message in several ways: OpenAI's Responses send `lc_run--…` on most chunks and `resp_…` or `msg_…` on some that
say nothing, and the whole message has the latter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from dragent_stream.chunk_record import Chunk, ToolResult
from dragent_stream.content_parts import read_content, result_text
from dragent_stream.fields import Fields, items_of
from dragent_stream.langchain_answer import Answer, Origin, calls_of
from dragent_stream.values import text_of

__all__ = ["KnownMessages", "is_result", "origin_of"]

_RESULTS = frozenset({"tool", "ToolMessageChunk", "function", "FunctionMessageChunk"})
_RUN_IDS = ("lc_run--", "run-")
_SPEAKERS = frozenset({"ai", "assistant"})
_Print: TypeAlias = tuple[str, str, tuple[str, ...]]


class KnownMessages:
    """The messages of one stream, by all their ids, and those that have none."""

    __slots__ = ("_answers", "_count", "_latest", "_nameless", "_results", "_unnamed")

    def __init__(self) -> None:
        self._answers: dict[str, Answer] = {}  # by each id that names them
        self._latest: dict[str, Answer] = {}  # by task
        self._nameless: dict[str, Answer] = {}  # the latest of chunks without an id, by task
        self._count = 0  # of the answers that came without an id
        self._results = _Results()
        self._unnamed: dict[_Print, list[Origin]] = {}

    def __bool__(self) -> bool:
        return bool(self._answers or self._unnamed or self._results.known)

    def rest(self) -> Sequence[Chunk]:
        """The records of what is held back: the stream has ended."""
        return [rest for answer in dict.fromkeys(self._answers.values()) if (rest := answer.rest())]

    def says(self, text: str) -> bool:
        """Whether the messages say this text: one of them, or several one after the other."""
        told = dict.fromkeys(self._answers.values())
        said = "".join("".join(answer.text) for answer in told if not answer.given) + "".join(
            text for _, text, _ in self._unnamed
        )
        return "".join(text.split()) in "".join(said.split())

    def repeats(self, message: Fields) -> bool:
        """Whether a piece is all that came of its message."""
        answer = self._answers.get(text_of(message.get("id")))
        return answer is not None and answer.same_as(message)

    def streamed(self, message: Fields, metadata: Fields, run: str = "") -> Sequence[Chunk]:
        """A message as it is streamed: a piece of one, or a whole one."""
        if message["type"] == "AIMessageChunk" or (message["type"] == "ChatMessageChunk" and is_answer(message)):
            answer = self._answer(message, metadata, run)
            return [_placed(record, metadata) for record in answer.read(message)]
        return self.whole(message, metadata)

    def whole(self, message: Fields, metadata: Fields | None = None, origin: Origin | None = None) -> Sequence[Chunk]:
        """A whole message; none where nothing of it can be new.

        Args:
            message: Its fields.
            metadata: Of its task, where there are any.
            origin: Where it comes from, where the metadata do not say.
        """
        metadata = metadata or {}
        return self._whole(message, metadata, origin or origin_of(metadata))

    def held(
        self, messages: Sequence[Fields], metadata: Fields | None = None, origin: Origin | None = None, *, again: bool
    ) -> Iterator[Chunk]:
        """What is new of the messages that a state or an update holds, in their order.

        Args:
            messages: The fields of each.
            metadata: Of the task, where there are any.
            origin: Where they come from, where the metadata do not say.
            again: The conversation is held again, with what was told without an id before it got one.
        """
        metadata = metadata or {}
        origin = origin or origin_of(metadata)
        again = again or (len(messages) > 1 and self._begins_with(messages, origin))
        beside = {self._answers[name] for message in messages if (name := text_of(message.get("id"))) in self._answers}
        for message in self._beyond(messages) if again else messages:
            yield from self._whole(message, metadata, origin, beside=beside, again=again)

    def _whole(
        self,
        message: Fields,
        metadata: Fields,
        origin: Origin,
        *,
        beside: Collection[Answer] = (),
        again: bool = False,
    ) -> Sequence[Chunk]:
        if is_result(message):
            return self.result(message, metadata)
        if not is_answer(message):
            return ()
        name = text_of(message.get("id"))
        answer = self._answers.get(name) or self._rebuilt(message, origin, beside)
        if answer is not None and answer.is_replaced_by(message, origin):
            # What was streamed cannot be taken back, so the text that a later node puts in its place is a message more.
            answer = Answer(f"{name}, replaced", origin)
        if answer is None:
            answer = self._told_unnamed(message, origin, again=again) or Answer(name or self._numbered(), origin)
        if name:
            self._answers[name] = answer
        else:
            self._unnamed.setdefault(_print(message), []).append(origin)
        if answer.whole:
            return ()
        self._results.asked(calls_of(message) if not answer.speaks else ())
        return [_placed(record, metadata) for record in answer.read(message, whole=True)]

    def _told_unnamed(self, message: Fields, origin: Origin, *, again: bool) -> Answer | None:
        """The answer that was told before it got its id, or by a graph inside the node that brings it."""
        name = text_of(message.get("id"))
        origins = self._unnamed.get(_print(message), [])
        for told in origins:
            inside = bool(origin.node) and told.graph != origin.graph and origin.may_rebuild(told)
            same = not told.node or not origin.node or (told.graph, told.node) == (origin.graph, origin.node)
            later = again and _may_be_the_states(name)
            if (name and (later or same)) or (inside and not again):
                origins.remove(told)
                answer = Answer(name, told)
                answer.know(message)
                return answer
        return None

    def _begins_with(self, messages: Sequence[Fields], origin: Origin) -> bool:
        """Whether the messages begin with what other nodes have told, so they are the conversation held again."""
        name = text_of(messages[0].get("id"))
        if answer := self._answers.get(name):
            return not origin.may_rebuild(answer.origin)
        if not _may_be_the_states(name):
            return False
        elsewhere = {key for key, told in self._unnamed.items() if not all(map(origin.may_rebuild, told))}
        return _print(messages[0]) in elsewhere <= {_print(message) for message in messages}

    def _numbered(self) -> str:
        self._count += 1
        return f"unnamed {self._count}"

    def _answer(self, message: Fields, metadata: Fields, run: str) -> Answer:
        """The answer that a chunk is a piece of."""
        name = text_of(message.get("id"))
        if not name:
            origin = origin_of(metadata)
            task = run or origin.task
            answer = self._nameless.get(task)
            if answer is None or answer.whole or (task and answer.over and _speaks(message)):
                number = self._numbered()
                answer = self._nameless[task] = self._answers[number] = Answer(number if task else "", origin)
            return answer
        answer = self._answers.get(name)
        if answer is not None and (answer.id == name or not _speaks(message) or name.startswith(_RUN_IDS)):
            if message.get("tool_call_chunks"):
                self._results.asked(_asked(message))
            return answer
        origin = origin_of(metadata)
        task = run or origin.task
        latest = self._latest.get(task)
        is_run = name.startswith(_RUN_IDS)
        if latest is not None and latest.id.startswith(_RUN_IDS) is not is_run and not latest.whole:
            # One name is LangChain's and one the provider's: the one that says nothing names the other's message.
            silent = not latest.speaks if is_run else not _speaks(message)
            if silent:
                self._answers[name] = latest
                self._results.asked(_asked(message))
                return latest
        answer = Answer(name, origin)
        self._answers[name] = self._latest[task] = answer
        self._results.asked(_asked(message))
        return answer

    def _rebuilt(self, message: Fields, origin: Origin, beside: Collection[Answer]) -> Answer | None:
        """The answer that a node has built anew under another id; none of those that stand `beside` it."""
        told = list(dict.fromkeys(self._answers.values()))
        for answer in reversed(told if any(origin) else told[-1:]):
            inside = answer.origin.graph != origin.graph
            if (
                not answer.rebuilt
                and answer not in beside
                and (answer.streamed or inside)
                and origin.may_rebuild(answer.origin)
                and answer.same_as(message)
            ):
                answer.rebuilt = True
                return answer
        return None

    def so_far(self, message: Fields) -> Sequence[Chunk]:
        """A message that repeats all of it that came before."""
        name = text_of(message.get("id"))
        if not name or not is_answer(message):
            return ()
        answer = self._answers.setdefault(name, Answer(name))
        return () if answer.whole else answer.read(message, so_far=True)

    def result(self, message: Fields, metadata: Fields) -> Sequence[Chunk]:
        """The result of a tool; none where it was told."""
        call = text_of(message.get("tool_call_id")) or text_of(message.get("name"))
        if not call or not self._results.is_new(text_of(message.get("id")), call, message.get("content")):
            return ()
        return (_placed(Chunk(tool_result=ToolResult(call, message.get("content"))), metadata),)

    def _beyond(self, messages: Iterable[Fields]) -> Iterator[Fields]:
        """The messages of a state without those that have no id and were said before; it repeats them at each step."""
        unnamed: Counter[_Print] = Counter()
        for message in messages:
            if not text_of(message.get("id")) and is_answer(message):
                key = _print(message)
                unnamed[key] += 1
                if unnamed[key] <= len(self._unnamed.get(key, ())):
                    continue
            yield message

    def know(self, messages: Iterable[Fields]) -> None:
        """The conversation so far, in which what was told without an id may have got one."""
        for message in self._beyond(messages):
            name = text_of(message.get("id"))
            if is_result(message):
                self._results.is_new(name, text_of(message.get("tool_call_id")), message.get("content"))
            elif is_answer(message) and name not in self._answers:
                answer = self._told_unnamed(message, Origin(), again=True)
                if answer is None:
                    answer = Answer(name)
                    answer.know(message)
                    answer.given = True
                if name:
                    self._answers[name] = answer
                else:
                    self._unnamed.setdefault(_print(message), []).append(Origin())


class _Results:
    """Which results of tools were told; one comes from the tool, from its node, and in every state after that."""

    __slots__ = ("_told", "known")

    def __init__(self) -> None:
        self.known: set[str] = set()
        self._told: dict[str, str] = {}

    def is_new(self, name: str, call: str, content: object) -> bool:
        text = result_text(content)
        if name in self.known:
            return False
        if name:
            self.known.add(name)
        if self._told.get(call) == text:
            return False
        self._told[call] = text
        return True

    def asked(self, calls: Iterable[str]) -> None:
        """A model makes these calls: their results are new ones, whatever had the ids before."""
        for call in calls:
            self._told.pop(call, None)


def _speaks(message: Fields) -> bool:
    if message.get("tool_call_chunks") or message.get("tool_calls"):
        return True
    content = read_content(message["content"])
    return bool(content.text or content.thoughts)


def _may_be_the_states(name: str) -> bool:
    """An id that no model gave: what has none gets one when the state takes it."""
    return bool(name) and not name.startswith(_RUN_IDS)


def _asked(message: Fields) -> list[str]:
    return [call_id for call in items_of(message.get("tool_call_chunks")) if (call_id := text_of(call.get("id")))]


def _print(message: Fields) -> _Print:
    return (
        str(message["type"]).removesuffix("MessageChunk").lower(),
        read_content(message["content"]).text,
        tuple(calls_of(message)),
    )


def is_result(message: Fields) -> bool:
    """Whether a message is what a tool gave."""
    return message["type"] in _RESULTS


def is_answer(message: Fields) -> bool:
    """Whether a message is a model's."""
    kind = message["type"]
    return kind in ("ai", "AIMessageChunk") or (
        kind in ("chat", "ChatMessageChunk") and message.get("role") in _SPEAKERS
    )


def origin_of(metadata: Fields) -> Origin:
    """Where a part comes from, as its metadata say."""
    task = text_of(metadata.get("langgraph_checkpoint_ns"))
    node = text_of(metadata.get("langgraph_node"))
    return Origin(task.rpartition("|")[0], task or node, node)


def _placed(record: Chunk, metadata: Fields) -> Chunk:
    """The record with the place of its task in the graph."""
    step = metadata.get("langgraph_step")
    if isinstance(step, int):
        record.step = step
        record.lane = text_of(metadata.get("langgraph_checkpoint_ns")).rpartition("|")[0]
    return record
