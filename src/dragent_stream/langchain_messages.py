"""LangChain messages, alone and in every form that LangGraph streams them, as records.

A state and a node's update hold more than is new: the conversation so far, and what was streamed before. New in a state
is what the graph's first state did not hold; new in an update is what stands behind the last message of a human.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from dragent_stream.chunk_record import Chunk
from dragent_stream.content_parts import read_content
from dragent_stream.errors import AnswerError
from dragent_stream.fields import Fields, fields_of
from dragent_stream.langchain_answer import Origin, calls_of
from dragent_stream.langchain_events import ContentBlocks, is_block_event, run_event
from dragent_stream.langchain_known import KnownMessages, is_result, origin_of
from dragent_stream.langchain_shapes import message_fields, node_message_fields
from dragent_stream.langgraph_parts import INTERRUPT, Part, messages_of, part_of
from dragent_stream.values import first_text, text_of

__all__ = ["LangChainReader"]

logger = logging.getLogger("dragent_stream")


class LangChainReader:
    """Reads the LangChain messages of one stream; remembers which of them were said."""

    __slots__ = (
        "_begun",
        "_blocks",
        "_graphs",
        "_keys",
        "_known",
        "_modelled",
        "_notes",
        "_result",
        "_returned",
        "_root",
        "_spoke",
    )

    def __init__(self) -> None:
        self._known = KnownMessages()
        self._result: Sequence[Chunk] = ()  # of a first state, which is a result if no other state follows
        self._begun: set[str] = set()  # the ids of its messages
        self._keys: set[str] = set()  # of states
        self._notes: list[str] = []  # what a graph's nodes wrote beside its messages
        self._returned = ""  # what the last of a graph's functions gave, if that was text
        self._spoke: set[str] = set()  # the runs of models whose pieces came
        self._graphs: set[str] = set()  # whose state was seen
        self._blocks = ContentBlocks()
        self._modelled = False
        self._root = ""

    def read(self, chunk: object) -> Sequence[Chunk] | None:
        """The records of a message, or of a part of what LangGraph streams; none where it says nothing of the run.

        None for what is neither.
        """
        if not self._result:
            return self._read(chunk)
        result, self._result = self._result, ()
        if not self._begun.isdisjoint(_names_of(fields_of(chunk))):
            return self._read(chunk)  # the next state: the one before was what the run began with
        records = self._read(chunk)
        if records is None:
            self._result = result
            return None
        return [*result, *records]

    def _read(self, chunk: object) -> Sequence[Chunk] | None:
        if (pair := _pair(chunk)) is not None:
            return self._known.streamed(*pair)
        if (message := message_fields(chunk)) is not None:
            return self._known.streamed(message, {})
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
            return self._known.streamed(message, {})
        return self._bare(fields)

    def finish(self) -> Sequence[Chunk]:
        """The records of what is held back: the stream has ended."""
        records = [*self._result, *self._known.rest()]
        if self._returned and not self._known.says(self._returned):
            records.append(Chunk(message="returned", text=self._returned, whole=True))
        notes = "".join(self._notes)
        if notes and not self._known:
            records.append(Chunk(text=notes))
        elif notes and not self._known.says(notes):
            logger.warning("%d texts of the custom mode came beside messages and were passed over", len(self._notes))
        return records

    # The forms.

    def _part(self, part: Part) -> Iterator[Chunk]:
        mode, graph, payload = part
        if mode == "" and isinstance(payload, str):
            yield Chunk(text=payload)  # of the custom mode, which may be the only one
        elif mode == "":
            yield from self._bare(fields_of(payload) or {}, graph, alone=False) or ()
        elif mode == "custom":
            if isinstance(payload, str):
                self._notes.append(payload)
        elif mode == "messages":
            yield from self._streamed(payload)
        elif mode in ("messages/partial", "messages/complete"):
            read = self._known.whole if mode == "messages/complete" else self._known.so_far
            for item in cast("Iterable[object]", payload if isinstance(payload, list) else ()):
                if message := message_fields(item):
                    yield from read(message)
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
        pair = cast("Sequence[object]", payload if isinstance(payload, list | tuple) and payload else (payload,))
        metadata = (fields_of(pair[1]) if len(pair) > 1 else None) or {}
        if message := message_fields(pair[0]):
            return self._known.streamed(message, metadata)
        fields = fields_of(pair[0])
        return self._block(fields, metadata) if fields and is_block_event(fields) else ()

    def _bare(self, fields: Fields, graph: str = "", *, alone: bool = True) -> Sequence[Chunk] | None:
        """A mapping that may be the update of nodes, a state or a chain's output; None where it is none of these.

        Args:
            fields: The mapping.
            graph: The graph that it is from.
            alone: It came without a namespace, so it need not be from a graph.
        """
        if _is_state(fields):
            self._keys.update(fields)
            return list(self._state(fields, graph, answered=alone))
        if INTERRUPT in fields:
            return list(self._updates(fields, graph))
        if any(isinstance(update, dict | list | tuple) or message_fields(update) for update in fields.values()) and any(
            True for update in fields.values() for _ in messages_of(update)
        ):
            self._keys.update(fields)
            return list(self._updates(fields, graph, pieces=alone))
        if self._known:
            # Beside messages a mapping of this form is the update or the state of a graph, without messages.
            known = all(isinstance(update, dict | None) for update in fields.values()) or self._keys.issuperset(fields)
            return () if known else None
        return () if _is_empty(fields) else None

    def _updates(self, nodes: Fields, graph: str, *, pieces: bool = False) -> Iterator[Chunk]:
        """What nodes give to the state, or with `pieces` what is streamed under the keys of a chain's output."""
        for node, update in nodes.items():
            if node == INTERRUPT:
                if not graph:
                    yield _interrupted()
                continue
            if not graph:
                self._returned = update if isinstance(update, str) and not pieces else ""
            if pieces and (found := list(_pieces(update, node))):
                for key, message in found:
                    if len(nodes) == 1 or not self._known.repeats(message):  # a state repeats what it holds
                        yield from self._known.streamed(message, {}, run=key)
                continue
            for messages in messages_of(update):
                new = _new(messages)
                again = len(new) < len(messages) or _begins_anew(messages)
                yield from self._known.held(new, origin=Origin(graph, "", node), again=again)

    def _state(self, state: object, graph: str, *, answered: bool = False) -> Iterator[Chunk]:
        """What is new in a state.

        The first state of a graph is what it was given; where it ends in an `answered` way, it may be a result.
        """
        first = graph not in self._graphs
        self._graphs.add(graph)
        interrupted = not graph and bool((fields_of(state) or {}).get(INTERRUPT))
        records: list[Chunk] = []
        for messages in messages_of(state):
            if first:
                last = messages[-1]
                complete = answered and last["type"] == "ai" and not calls_of(last)
                new = _new(messages) if complete else []
                self._known.know(messages[: len(messages) - len(new)])
                messages = new
            records += self._known.held(messages, origin=Origin(graph), again=True)
        if interrupted:
            yield from (*records, _interrupted())
        elif first and answered:
            self._result, self._begun = records, _names_of(fields_of(state))
        else:
            yield from records

    def _event(self, event: Fields) -> Iterator[Chunk]:
        """An event of `astream_events`, version v1 or v2."""
        kind, data, metadata = (
            event["event"],
            fields_of(event.get("data")) or {},
            fields_of(event.get("metadata")) or {},
        )
        run = text_of(event.get("run_id"))
        if not self._root:
            self._root = run
        if kind in ("on_chat_model_stream", "on_llm_stream"):
            if "nostream" in (event.get("tags") or ()):
                return
            self._modelled = True
            self._spoke.add(run)
            chunk = data.get("chunk")
            if message := message_fields(chunk):
                yield from self._known.streamed({**message, "id": message.get("id") or run}, metadata, run=run)
            elif text := chunk if isinstance(chunk, str) else first_text(fields_of(chunk) or {}, "text"):
                yield Chunk(text=text)
        elif kind == "on_chat_model_end":
            if "nostream" in (event.get("tags") or ()):
                return
            self._modelled = True
            if message := _output_message(data.get("output")):
                yield from self._known.whole({**message, "id": message.get("id") or run}, metadata)
        elif kind == "on_llm_end" and "nostream" not in (event.get("tags") or ()):
            self._modelled = True
            if run not in self._spoke and (text := first_text(_first_generation(data.get("output")), "text")):
                yield Chunk(text=text)
        elif kind == "on_tool_end" and "langgraph_node" not in metadata:  # else its node brings it, in the calls' order
            for messages in messages_of(data.get("output")):
                for message in messages:
                    if is_result(message):
                        yield from self._known.result(message, metadata)
        elif kind == "on_chain_end" and metadata.get("langgraph_node") == event.get("name"):
            for messages in messages_of(data.get("output")):
                new = _new(messages)
                again = len(new) < len(messages) or _begins_anew(messages)
                yield from self._known.held(new, metadata, again=again)
        elif kind == "on_chain_stream" and run == self._root:
            chunk = data.get("chunk")
            fields = fields_of(chunk)
            if fields and INTERRUPT in fields:
                yield _interrupted()
            elif not self._modelled and isinstance(chunk, str):
                yield Chunk(text=chunk)
            elif not self._modelled and (message := message_fields(chunk)):
                yield from self._known.streamed(message, metadata)

    def _block(self, event: Fields, metadata: Fields) -> Iterator[Chunk]:
        """An event of a message's content blocks, `astream_events` version v3."""
        run = text_of(metadata.get("run_id")) or origin_of(metadata).task
        for message in self._blocks.read(event, run):
            yield from self._known.streamed(message, metadata, run=run)

    def _tool_event(self, event: Fields) -> Iterator[Chunk]:
        call = text_of(event.get("tool_call_id"))
        if event.get("event") in ("tool-finished", "tool-error") and call:
            output = event.get("output", event.get("message"))
            message = message_fields(output)
            yield from self._known.result(message or {"type": "tool", "tool_call_id": call, "content": output}, {})


def _pair(chunk: object) -> tuple[Fields, Fields] | None:
    """What most parts are: a message and the metadata of its task."""
    if type(chunk) is not tuple or len(cast("tuple[object, ...]", chunk)) != 2:
        return None
    first, metadata = cast("tuple[object, object]", chunk)
    message = message_fields(first) if type(metadata) is dict else None
    return None if message is None else (message, cast("Fields", metadata))


def _new(messages: list[Fields]) -> list[Fields]:
    """The messages of an update that are not the conversation before: those behind the last one of a human.

    All of them where the model's come first and the human's last: a node that adds both.
    """
    last = max((at for at, message in enumerate(messages) if message["type"] == "human"), default=-1)
    if last == len(messages) - 1 and not _begins_anew(messages):
        return messages
    return messages[last + 1 :]


def _begins_anew(messages: Sequence[Fields]) -> bool:
    """Whether these are a conversation from its beginning."""
    return bool(messages) and messages[0]["type"] in ("human", "system")


def _is_empty(fields: Fields) -> bool:
    """A mapping is empty if it is the update of nodes that gave nothing, or a step of an agent that has nothing yet."""
    if "messages" in fields:
        return not any(fields.values())
    return all(value is None for value in fields.values())


def _is_state(fields: Fields) -> bool:
    """A mapping is a state if one of its values is a conversation that a human or the system began."""
    for value in fields.values():
        if isinstance(value, list | tuple) and value:
            first = node_message_fields(cast("Sequence[object]", value)[0])
            if first is not None and first["type"] in ("human", "system"):
                return True
    return False


def _output_message(output: object) -> Fields | None:
    """What `on_chat_model_end` brings: a message, or with v1 the generations around it."""
    if message := message_fields(output):
        return message
    return message_fields(_first_generation(output).get("message"))


def _first_generation(output: object) -> Fields:
    held: object = (fields_of(output) or {}).get("generations")
    while isinstance(held, list | tuple) and held:
        held = cast("Sequence[object]", held)[0]
    return fields_of(cast("object", held)) or {}


def _pieces(output: object, key: str, depth: int = 3) -> Iterator[tuple[str, Fields]]:
    """The pieces of messages in a chain's output, with the path that each stands under.

    `RunnableParallel` streams its output key by key. A node's messages stand in a list, and are whole.
    """
    message = message_fields(output)
    if message is not None:
        if message["type"].endswith("MessageChunk"):
            yield key, message
    elif isinstance(output, dict) and depth:
        for name, held in cast("dict[object, object]", output).items():
            yield from _pieces(held, f"{key}.{name}", depth - 1)


def _names_of(state: Fields | None) -> set[str]:
    """What tells the messages of a state: their ids, their texts where they have none."""
    return {
        text_of(message.get("id")) or f"{message['type']}: {read_content(message['content']).text}"
        for messages in messages_of(state)
        for message in messages
    }


def _interrupted() -> Chunk:
    return Chunk(error=AnswerError("the graph waits for an answer to an interrupt", "INTERRUPTED"))
