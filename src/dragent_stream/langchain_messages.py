"""LangChain messages, alone and in every form that LangGraph streams them, as records.

Each message of a model is an `Answer` of its own, found by its id: chunks of parallel nodes alternate, and a whole message
often follows its own chunks, under the same id, under the provider's, or rebuilt by the node under another. Providers'
packages name one message in several ways: OpenAI's Responses send `lc_run--…` on most chunks and `resp_…` or `msg_…` on
some that say nothing, and the whole message has the latter.

A state and a node's update hold more than is new: the conversation so far, and what was streamed before. New is what
stands behind the last message of a human and is not known yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from dragent_stream.chunk_record import Chunk, ToolResult
from dragent_stream.content_parts import read_content, result_text
from dragent_stream.errors import AnswerError
from dragent_stream.fields import Fields, fields_of
from dragent_stream.langchain_answer import Answer, calls_of
from dragent_stream.langchain_events import ContentBlocks, is_block_event, run_event
from dragent_stream.langchain_shapes import message_fields, node_message_fields
from dragent_stream.langgraph_parts import INTERRUPT, Part, messages_of, part_of
from dragent_stream.values import text_of

__all__ = ["LangChainReader"]

_RESULTS = frozenset({"tool", "ToolMessageChunk", "function", "FunctionMessageChunk"})
_RUN_IDS = ("lc_run--", "run-")
_SPEAKERS = frozenset({"ai", "assistant"})


class LangChainReader:
    """Reads the LangChain messages of one stream; remembers which of them were said."""

    __slots__ = ("_answers", "_blocks", "_graphs", "_latest", "_modelled", "_results", "_root", "_unnamed")

    def __init__(self) -> None:
        self._answers: dict[str, Answer] = {}  # by each id that names them
        self._latest: dict[str, Answer] = {}  # by task
        self._results = _Results()
        self._unnamed: Counter[tuple[str, str, tuple[str, ...]]] = Counter()
        self._graphs: set[str] = set()  # whose state was seen
        self._blocks = ContentBlocks()
        self._modelled = False
        self._root = ""

    def read(self, chunk: object) -> Sequence[Chunk] | None:
        """The records of a message, or of a part of what LangGraph streams; none where it says nothing of the run.

        None for what is neither.
        """
        message = message_fields(chunk)
        if message is not None:
            return self._message(message, {})
        part = part_of(chunk)
        if part is not None:
            return list(self._part(part))
        fields = fields_of(chunk)
        if not fields:
            return None
        if (event := run_event(fields)) is not None:
            return list(self._event(event))
        if is_block_event(fields):
            return list(self._block(fields, {}))
        if (message := node_message_fields(chunk)) is not None:
            return self._message(message, {})
        return self._bare(fields)

    def finish(self) -> Sequence[Chunk]:
        """The records of what is held back: the stream has ended."""
        return [rest for answer in dict.fromkeys(self._answers.values()) if (rest := answer.rest())]

    # The forms.

    def _part(self, part: Part) -> Iterator[Chunk]:
        mode, graph, payload = part
        if mode == "":
            yield from self._bare(fields_of(payload) or {}, graph) or ()
        elif mode == "messages":
            yield from self._streamed(payload)
        elif mode == "messages/complete":
            for item in cast("Iterable[object]", payload if isinstance(payload, list) else ()):
                if message := message_fields(item):
                    yield from self._whole(message)
        elif mode == "updates":
            yield from self._updates(fields_of(payload) or {}, graph)
        elif mode == "values":
            yield from self._state(payload, graph)
        elif mode == "tools":
            yield from self._tool_event(fields_of(payload) or {})
        elif mode in ("input", "input.requested"):
            yield _interrupted()
        elif mode == "error":
            details = fields_of(payload) or {}
            yield Chunk(error=AnswerError(text_of(details.get("message")) or "the graph failed", "STREAM_ERROR"))
        elif mode == "events" and (event := run_event(fields_of(payload) or {})):
            yield from self._event(event)

    def _streamed(self, payload: object) -> Iterable[Chunk]:
        """What the messages mode brings: a message or an event of one, with the metadata of its task."""
        metadata: Fields = {}
        if isinstance(payload, list | tuple) and payload:
            pair = cast("Sequence[object]", payload)
            payload, metadata = pair[0], (len(pair) > 1 and fields_of(pair[1])) or {}
        if message := message_fields(payload):
            return self._message(message, metadata)
        fields = fields_of(payload)
        return self._block(fields, metadata) if fields and is_block_event(fields) else ()

    def _bare(self, fields: Fields, graph: str = "") -> Sequence[Chunk] | None:
        """A mapping that may be the update of nodes or a state; None where it is neither."""
        if INTERRUPT in fields:
            return list(self._updates(fields, graph))
        if _is_state(fields):
            return list(self._state(fields, graph, answered=True))
        if any(isinstance(update, dict | list | tuple) or message_fields(update) for update in fields.values()) and any(
            True for update in fields.values() for _ in messages_of(update)
        ):
            return list(self._updates(fields, graph))
        if self._answers or self._results.known:
            # Beside messages a mapping of this form is the update or the state of a graph, without messages.
            return () if all(isinstance(update, dict | None) for update in fields.values()) else None
        return None

    def _updates(self, nodes: Fields, graph: str) -> Iterator[Chunk]:
        for node, update in nodes.items():
            if node == INTERRUPT:
                if not graph:
                    yield _interrupted()
                continue
            for messages in messages_of(update):
                for message in _new(messages, self._known):
                    yield from self._whole(message, node=node)

    def _state(self, state: object, graph: str, *, answered: bool = False) -> Iterator[Chunk]:
        """What is new in a state.

        The first state of a graph is what it was given; where it ends in an `answered` way, it is a result.
        """
        first = graph not in self._graphs
        self._graphs.add(graph)
        fields = fields_of(state) or {}
        if not graph and fields.get(INTERRUPT):
            yield _interrupted()
        for messages in messages_of(state):
            given = first and not (answered and messages[-1]["type"] == "ai" and not calls_of(messages[-1]))
            unnamed: Counter[Any] = Counter()
            for message in [] if given else _new(messages, self._known):
                if not text_of(message.get("id")) and message["type"] == "ai":
                    key = _print(message)
                    unnamed[key] += 1
                    if unnamed[key] <= self._unnamed[key]:
                        continue
                yield from self._whole(message)
            if given:
                for message in messages:
                    self._know(message)

    def _event(self, event: Fields) -> Iterator[Chunk]:
        """An event of `astream_events`, version v1 or v2."""
        kind, data, metadata = event["event"], fields_of(event.get("data")) or {}, fields_of(event.get("metadata")) or {}
        run = text_of(event.get("run_id"))
        if not self._root:
            self._root = run
        if kind in ("on_chat_model_stream", "on_llm_stream"):
            if "nostream" in (event.get("tags") or ()):
                return
            self._modelled = True
            chunk = data.get("chunk")
            if message := message_fields(chunk):
                yield from self._message({**message, "id": message.get("id") or run}, metadata, run=run)
            elif text := chunk if isinstance(chunk, str) else text_of((fields_of(chunk) or {}).get("text")):
                yield Chunk(text=text)
        elif kind == "on_chat_model_end":
            if "nostream" in (event.get("tags") or ()):
                return
            self._modelled = True
            if message := _output_message(data.get("output")):
                yield from self._whole({**message, "id": message.get("id") or run}, metadata, run=run)
        elif kind == "on_tool_end":
            for messages in messages_of(data.get("output")):
                for message in messages:
                    yield from self._whole(message, metadata) if message["type"] in _RESULTS else ()
        elif kind == "on_chain_end" and metadata.get("langgraph_node") == event.get("name"):
            for messages in messages_of(data.get("output")):
                for message in _new(messages, self._known):
                    yield from self._whole(message, metadata)
        elif kind == "on_chain_stream" and run == self._root:
            chunk = data.get("chunk")
            fields = fields_of(chunk)
            if fields and INTERRUPT in fields:
                yield _interrupted()
            elif not self._modelled and isinstance(chunk, str):
                yield Chunk(text=chunk)
            elif not self._modelled and (message := message_fields(chunk)):
                yield from self._message(message, metadata)

    def _block(self, event: Fields, metadata: Fields) -> Iterator[Chunk]:
        """An event of a message's content blocks, `astream_events` version v3."""
        run = text_of(metadata.get("run_id")) or _task(metadata)
        for message in self._blocks.read(event, run):
            yield from self._message(message, metadata, run=run)

    def _tool_event(self, event: Fields) -> Iterator[Chunk]:
        call = text_of(event.get("tool_call_id"))
        if event.get("event") in ("tool-finished", "tool-error") and call:
            output = event.get("output", event.get("message"))
            message = message_fields(output)
            yield from self._result(message or {"type": "tool", "tool_call_id": call, "content": output}, {})

    # The messages.

    def _message(self, message: Fields, metadata: Fields, run: str = "") -> Sequence[Chunk]:
        """A message as it is streamed: a piece of one, or a whole one."""
        kind = message["type"]
        if kind in _RESULTS:
            return self._result(message, metadata)
        if kind == "AIMessageChunk" or (kind == "ChatMessageChunk" and message.get("role") in _SPEAKERS):
            answer = self._answer(message, metadata, run)
            return (_placed(answer.read(message), metadata),)
        return self._whole(message, metadata, run=run)

    def _whole(self, message: Fields, metadata: Fields | None = None, *, node: str = "", run: str = "") -> Sequence[Chunk]:
        """A whole message; none where nothing of it can be new."""
        kind, metadata = message["type"], metadata or {}
        if kind in _RESULTS:
            return self._result(message, metadata)
        if kind not in ("ai", "AIMessageChunk") and not (
            kind in ("chat", "ChatMessageChunk") and message.get("role") in _SPEAKERS
        ):
            return ()
        name = text_of(message.get("id"))
        answer = self._answers.get(name) or self._repeated(message, _task(metadata) or run, node)
        if answer is None:
            key = _print(message)
            if name and self._unnamed[key]:
                self._unnamed[key] -= 1  # said before it got its id
                self._answers[name] = Answer(name)
                self._answers[name].whole = True
                return ()
            answer = Answer(name, _task(metadata) or run, node or text_of(metadata.get("langgraph_node")))
            if not name:
                self._unnamed[key] += 1
        if name:
            self._answers[name] = answer
        if answer.whole:
            return ()
        self._results.asked(calls_of(message) if not answer.speaks else ())
        return (_placed(answer.read(message, whole=True), metadata),)

    def _answer(self, message: Fields, metadata: Fields, run: str) -> Answer:
        """The answer that a chunk is a piece of."""
        name = text_of(message.get("id"))
        if not name:
            return Answer("")
        answer = self._answers.get(name)
        if answer is not None and (answer.id == name or not _speaks(message) or name.startswith(_RUN_IDS)):
            self._results.asked(_asked(message))
            return answer
        task = run or _task(metadata)
        latest = self._latest.get(task)
        is_run = name.startswith(_RUN_IDS)
        if latest is not None and latest.id.startswith(_RUN_IDS) is not is_run and not latest.whole:
            # One name is LangChain's and one the provider's: the one that says nothing names the other's message.
            silent = not latest.speaks if is_run else not _speaks(message)
            if silent:
                self._answers[name] = latest
                self._results.asked(_asked(message))
                return latest
        answer = Answer(name, _task(metadata) or run, text_of(metadata.get("langgraph_node")))
        self._answers[name] = self._latest[task] = answer
        self._results.asked(_asked(message))
        return answer

    def _repeated(self, message: Fields, task: str, node: str) -> Answer | None:
        """The streamed answer that a node has rebuilt under another id."""
        streamed = list(dict.fromkeys(self._answers.values()))
        for answer in reversed(streamed if task or node else streamed[-1:]):
            known = (answer.task == task) if task else (not answer.node or answer.node == node)
            if known and not answer.whole and answer.same_as(message):
                return answer
        return None

    def _result(self, message: Fields, metadata: Fields) -> Sequence[Chunk]:
        call = text_of(message.get("tool_call_id")) or text_of(message.get("name"))
        if not call or not self._results.is_new(text_of(message.get("id")), call, message.get("content")):
            return ()
        return (_placed(Chunk(tool_result=ToolResult(call, message.get("content"))), metadata),)

    def _known(self, message: Fields) -> bool:
        name = text_of(message.get("id"))
        return bool(name) and (name in self._answers or name in self._results.known)

    def _know(self, message: Fields) -> None:
        """A message of the conversation so far."""
        name = text_of(message.get("id"))
        if message["type"] in _RESULTS:
            self._results.is_new(name, text_of(message.get("tool_call_id")), message.get("content"))
        elif message["type"] == "ai" and name:
            answer = self._answers.setdefault(name, Answer(name))
            answer.whole = True
        elif message["type"] == "ai":
            self._unnamed[_print(message)] += 1


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


def _new(messages: list[Fields], known: Any) -> Iterator[Fields]:
    """The messages of a list that are not the conversation before this run.

    What stands before a message of a human, or before one that is known, is older; unless the list begins with the model
    and ends with the human: a node that adds both.
    """
    last = max((at for at, message in enumerate(messages) if message["type"] == "human"), default=-1)
    if last == len(messages) - 1 and messages and messages[0]["type"] != "human" and messages[0]["type"] != "system":
        last = -1 if not any(known(message) for message in messages) else last
    for message in messages[last + 1 :]:
        yield message


def _is_state(fields: Fields) -> bool:
    """A mapping is a state if one of its values is a conversation that a human or the system began."""
    for value in fields.values():
        if isinstance(value, list | tuple) and value:
            first = node_message_fields(cast("Sequence[object]", value)[0])
            if first is not None and first["type"] in ("human", "system"):
                return True
    return False


def _speaks(message: Fields) -> bool:
    if message.get("tool_call_chunks") or message.get("tool_calls"):
        return True
    content = read_content(message["content"])
    return bool(content.text or content.thoughts)


def _asked(message: Fields) -> list[str]:
    calls = (fields_of(item) or {} for item in cast("Iterable[object]", message.get("tool_call_chunks") or ()))
    return [call_id for call in calls if (call_id := text_of(call.get("id")))]


def _print(message: Fields) -> tuple[str, str, tuple[str, ...]]:
    return message["type"], read_content(message["content"]).text, tuple(calls_of(message))


def _output_message(output: object) -> Fields | None:
    """What `on_chat_model_end` brings: a message, or with v1 the generations around it."""
    if message := message_fields(output):
        return message
    generations = (fields_of(output) or {}).get("generations")
    while isinstance(generations, list | tuple) and generations:
        generations = cast("Sequence[object]", generations)[0]
    return message_fields((fields_of(generations) or {}).get("message"))


def _task(metadata: Fields) -> str:
    namespace = text_of(metadata.get("langgraph_checkpoint_ns"))
    return namespace or text_of(metadata.get("langgraph_node"))


def _placed(record: Chunk, metadata: Fields) -> Chunk:
    """The record with the place of its task in the graph."""
    step = metadata.get("langgraph_step")
    if isinstance(step, int):
        record.step = step
        record.lane = text_of(metadata.get("langgraph_checkpoint_ns")).rpartition("|")[0]
    return record


def _interrupted() -> Chunk:
    return Chunk(error=AnswerError("the graph waits for an answer to an interrupt", "INTERRUPTED"))
