"""From an agent's intermediate steps to AG-UI events: `StepConverter`, written against plain records, without NAT.

A step is a mapping or an object with NAT's field names: flat (`event_type`, `UUID`, `name`, `data`, `level`) or as an
IntermediateStep (`payload` with those, `parent_id`, `function_ancestry`). What becomes of it:

| step | events |
| --- | --- |
| WORKFLOW_START, WORKFLOW_END | the run's lifecycle, where no one else owns it |
| LLM_START, LLM_NEW_TOKEN, LLM_END of the root agent | its text, unless the chunk path brings it; the end of the turn |
| the same inside a tool or sub-agent | reasoning, or nothing (`ConverterOptions.nested`) |
| TOOL_START, TOOL_END of the root agent | END of the call it executes, RESULT; a call nobody announced is shown whole |
| FUNCTION_START, FUNCTION_END | the same for a call they belong to, else a step |
| TASK_START, TASK_END, nested tools | a step |
| CUSTOM_START, CUSTOM_END | CUSTOM |

A function step names no tool call. It belongs to the unanswered call of its name whose arguments its input contains;
name and order alone decide only where the step has no input. LangChain's own chain steps (framework "langchain") are
no functions of the agent and say nothing.
"""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, cast

from ag_ui.core import BaseEvent
from pydantic_core import to_json, to_jsonable_python
from typing_extensions import TypeVar

from dragent_stream.content_parts import result_text, text_and_reasoning
from dragent_stream.errors import ConversionError
from dragent_stream.fields import Fields, fields_of
from dragent_stream.ledger import RunLedger
from dragent_stream.options import ConverterOptions
from dragent_stream.tool_calls import ToolCall
from dragent_stream.turn import OpenMessage
from dragent_stream.usage import read_usage
from dragent_stream.values import json_text, text_of
from dragent_stream.well_formed import well_formed

__all__ = ["AgentStep", "StepConverter"]

logger = logging.getLogger("dragent_stream")

E = TypeVar("E", default=BaseEvent)

_ROOTS = frozenset({"", "root", "<workflow>"})


@dataclass(frozen=True, slots=True)
class AgentStep:
    """Marks a step inside a chunk stream: a source of both paths yields chunks, and steps as `AgentStep(step)`."""

    step: object


class _Step:
    """The fields of one step that count here."""

    __slots__ = ("data", "framework", "function_id", "kind", "name", "nested", "parent_id", "payload", "uuid")

    def __init__(self, step: object) -> None:
        outer = _fields(step)
        payload = _fields(outer.get("payload"))
        self.payload = payload if "event_type" in payload else outer
        ancestry = _fields(outer.get("function_ancestry"))
        kind = self.payload["event_type"]
        self.kind = str(getattr(kind, "value", kind)).upper()
        self.uuid = str(self.payload.get("UUID") or "")
        self.name = str(self.payload.get("name") or "")
        self.framework = self.payload.get("framework")
        self.data = _fields(self.payload.get("data"))
        self.parent_id = str(outer.get("parent_id") or "")
        self.function_id = str(ancestry.get("function_id") or "")
        level = self.payload.get("level")
        if isinstance(level, int):
            self.nested = level > 1
        elif self.kind.startswith("FUNCTION"):
            self.nested = str(ancestry.get("parent_name") or "") not in _ROOTS  # its own function is itself
        else:
            self.nested = str(ancestry.get("function_name") or "") not in _ROOTS


class _ModelCall(Generic[E]):
    """One model call of the step path.

    Attributes:
        message: The message it writes, once it has written.
        streamed: It has written.
        tokens: What it has said so far of text that the chunk path may bring.
    """

    __slots__ = ("message", "streamed", "tokens")

    def __init__(self) -> None:
        self.message: OpenMessage[E] | None = None
        self.streamed = False
        self.tokens: list[str] = []


class StepConverter(Generic[E]):
    """Steps in, events out; linear, without history. A step that cannot be processed is logged and skipped.

    Args:
        ledger: The run to write to, shared with the chunk path; a new one, with `options`, where None.
        options: Of a new ledger.
        lifecycle: WORKFLOW_START and WORKFLOW_END start and finish the run. False where the run has an owner.
    """

    def __init__(
        self,
        ledger: RunLedger[E] | None = None,
        options: ConverterOptions | None = None,
        *,
        lifecycle: bool = True,
    ) -> None:
        if ledger is not None and options is not None and options is not ledger.options:
            raise ConversionError("options belong to the ledger: RunLedger(options=…), then StepConverter(ledger)")
        self.ledger: RunLedger[E] = ledger or RunLedger(options=options)
        self._alone = ledger is None
        self._lifecycle = lifecycle
        self._models: dict[str, _ModelCall[E]] = {}
        self._unsaid: list[str] = []  # text of the root agent that the chunk path may still bring
        self._running: dict[str, ToolCall] = {}  # by the UUID of the step that executes the call
        self._begun: set[str] = set()  # UUIDs of functions whose start was seen
        self._named: set[str] = set()  # UUIDs of steps that were shown as AG-UI steps
        self._on: dict[str, Callable[[_Step], None]] = {
            "WORKFLOW_START": self._workflow_start,
            "WORKFLOW_END": self._workflow_end,
            "LLM_START": self._llm_start,
            "LLM_NEW_TOKEN": self._llm_token,
            "LLM_END": self._llm_end,
            "TOOL_START": self._tool_start,
            "TOOL_END": self._tool_end,
            "FUNCTION_START": self._function_start,
            "FUNCTION_END": self._function_end,
            "TASK_START": self._name_step,
            "TASK_END": self._end_step,
            "CUSTOM_START": self._custom,
            "CUSTOM_END": self._custom,
        }

    def feed(self, step: object) -> list[E]:
        """The events of one step. Never raises."""
        ledger = self.ledger
        if ledger.finished:
            return []
        try:
            read = _Step(step)
            act = self._on.get(read.kind)
            if act is not None:
                act(read)
        except Exception as exc:
            logger.warning("skipped a step that could not be processed (%s)", type(exc).__name__, exc_info=exc)
        return ledger.drain()

    def finish(self) -> list[E]:
        """No more steps come: close the messages of model calls that never ended."""
        ledger = self.ledger
        if not ledger.finished:
            for call in self._models.values():
                if call.message:
                    ledger.close_message(call.message)
                elif call.tokens:
                    self._unsaid.append("".join(call.tokens))
            self._models.clear()
            self._say()
            if self._alone:
                ledger.close()
        return ledger.drain()

    # The run.

    def _workflow_start(self, step: _Step) -> None:
        self.ledger.steps_seen = True
        if self._lifecycle:
            self.ledger.keep(self.ledger.start_run())

    def _workflow_end(self, step: _Step) -> None:
        output = step.data.get("output")
        if not self.ledger.heard and not self._unsaid and isinstance(output, str) and output:
            self._unsaid.append(output)  # nobody else has said it
        if self._lifecycle:
            self.ledger.keep(self.finish())
            self.ledger.workflow_ended()

    # Model calls.

    def _llm_start(self, step: _Step) -> None:
        self._models[step.uuid] = _ModelCall()
        self._say()
        if not step.nested:
            if not self.ledger.exact_results:
                for call_id, content in _last_results(step):
                    self.ledger.keep(self.ledger.tool_result(call_id, content))
            self.ledger.tools_over()

    def _llm_token(self, step: _Step) -> None:
        token, _ = text_and_reasoning(step.data.get("chunk"))
        if not token:
            return
        call = self._models.setdefault(step.uuid, _ModelCall())
        # A ledger that is shared leaves the root agent's text to the chunk path, which is about to bring it.
        if step.nested or self._alone:
            call.streamed = True
            self._write(step, call, token)
        elif self.ledger.chunks_seen:
            call.tokens.clear()
        else:
            call.tokens.append(token)

    def _llm_end(self, step: _Step) -> None:
        call = self._models.pop(step.uuid, None) or _ModelCall[E]()
        if not call.streamed:
            text = _llm_output(step) or "".join(call.tokens)
            if step.nested or self._alone:
                self._write(step, call, text)
            elif text:
                self._unsaid.append(text)
        if call.message:
            self.ledger.close_message(call.message)
        if not step.nested and not self._models:
            self.ledger.end_turn()
        usage = _fields(_fields(step.payload.get("usage_info")).get("token_usage"))
        if counts := read_usage(usage):
            self.ledger.usage.from_step(counts, model=well_formed(step.name), nested=step.nested)

    def _write(self, step: _Step, call: _ModelCall[E], text: str) -> None:
        if not text or (step.nested and self.ledger.options.nested == "hide"):
            return
        if call.message is None:
            call.message = self.ledger.open_side(reasoning=step.nested)
        self.ledger.write(call.message, text)

    def _say(self) -> None:
        """The agent has moved on: what the chunk path has not brought by now, it does not bring."""
        texts, self._unsaid = self._unsaid, []
        if not self.ledger.chunks_seen:
            for text in texts:
                message = self.ledger.open_side(reasoning=False)
                self.ledger.write(message, text)
                self.ledger.close_message(message)

    # Tools and functions.

    def _tool_start(self, step: _Step) -> None:
        self.ledger.steps_seen = True
        self._say()
        if step.nested:
            self._name_step(step)
            return
        arguments = _tool_input(step.data.get("input"))
        call = self._match(step.name, arguments)
        if call is None and not self.ledger.chunks_seen:
            call = self.ledger.whole_call(step.name, _arguments(arguments))
        if call is not None:
            self._running[step.uuid] = call
            self.ledger.step_runs(call)

    def _tool_end(self, step: _Step) -> None:
        self.ledger.steps_seen = True
        if step.nested:
            self._end_step(step)
            return
        output = _fields(step.data.get("output")) or _fields(_fields(step.payload.get("metadata")).get("tool_outputs"))
        call = self._running.pop(step.uuid, None)
        call_id = output.get("tool_call_id")
        if isinstance(call_id, str) and call_id and not self.ledger.exact_results:
            # The message names its call: that is exact, whatever the step was matched with.
            content = output.get("content")
            if call and not call.ids:
                call.ids.add(call_id)  # only steps have told of it, and this is the first that knows its id
            if call is None or call_id not in call.ids:
                if call:
                    self.ledger.tool_left(call)
                self.ledger.keep(self.ledger.tool_result(call_id, json_text(content)))
                return
            self.ledger.answer(call, json_text(content))
            return
        if call is None and not self.ledger.chunks_seen and step.data.get("input") is not None:
            arguments = _tool_input(step.data.get("input"))
            call = self.ledger.whole_call(step.name, _arguments(arguments))
        if call and not self.ledger.exact_results:
            self.ledger.answer(call, json_text(step.data.get("output")))

    def _function_start(self, step: _Step) -> None:
        self.ledger.steps_seen = True
        if step.framework is not None or step.name in _ROOTS:
            return
        self._begun.add(step.uuid)
        self._say()
        if not step.nested and step.parent_id in self._running:
            return  # the tool step around it speaks for the call
        call = None if step.nested else self._match(step.name, _tool_input(step.data.get("input")))
        if call is None:
            self._name_step(step)
        else:
            self._running[step.uuid] = call
            self.ledger.step_runs(call)

    def _function_end(self, step: _Step) -> None:
        self._end_step(step)
        call = self._running.pop(step.uuid, None)
        begun = step.uuid in self._begun or step.framework is not None or step.nested or step.name in _ROOTS
        self._begun.discard(step.uuid)
        if not begun and (given := step.data.get("input")) is not None:
            call = self._match(step.name, _tool_input(given))  # whoever listens came late
        if call and not self.ledger.exact_results:
            self.ledger.answer(call, json_text(step.data.get("output")))

    def _match(self, name: str, given: object) -> ToolCall | None:
        """The unanswered call that a starting tool executes."""
        calls = (call for call in self.ledger.calls_of_turn() if call.name == name)
        return next((call for call in calls if given is None or _asks_for(call, given)), None)

    def _name_step(self, step: _Step) -> None:
        if step.name and self.ledger.step_started(step.name):
            self._named.add(step.uuid)

    def _end_step(self, step: _Step) -> None:
        if step.uuid in self._named:
            self._named.remove(step.uuid)
            self.ledger.step_finished(step.name)

    def _custom(self, step: _Step) -> None:
        value = {"event": step.kind.rpartition("_")[2].lower(), **_jsonable(step.data)}
        # Names without a prefix are reserved to the protocol.
        name = step.name if set(step.name) & set(".:/") else f"nat.{step.name or 'custom'}"
        self.ledger.custom(name, {key: item for key, item in value.items() if item is not None})


def _jsonable(value: Any) -> dict[str, Any]:
    try:
        found = to_jsonable_python(
            dict(value),
            inf_nan_mode="strings",
            bytes_mode="base64",
            serialize_unknown=True,
            by_alias=True,
            fallback=str,
        )
        to_json(found)
        return found
    except ValueError:  # lone surrogates
        return json.loads(well_formed(json.dumps(dict(value), default=str, skipkeys=True, ensure_ascii=False)))


def _fields(value: object) -> Fields:
    return fields_of(value) or {}


def _llm_output(step: _Step) -> str:
    """The text of a finished model call; NAT's output string has the tool calls glued to it."""
    payload = _fields(step.data.get("payload"))
    if isinstance(text := payload.get("text"), str):
        return text
    output = step.data.get("output")
    if not isinstance(output, str):
        return text_and_reasoning(
            cast("object", output) if isinstance(output, list) else _fields(output).get("content")
        )[0]
    return output.partition("\n\nTool calls: [")[0]


def _last_results(step: _Step) -> Iterator[tuple[str, str]]:
    """(call id, result) of the tool messages that a model's input ends with: what the calls before it gave."""
    metadata = _fields(step.payload.get("metadata"))
    messages = metadata.get("chat_inputs") or step.data.get("input")
    if not isinstance(messages, list | tuple):
        return
    for message in reversed(cast("Sequence[object]", messages)):
        fields = _fields(message)
        if "tool" not in (fields.get("type"), fields.get("role")):
            return
        if call_id := text_of(fields.get("tool_call_id")):
            yield call_id, result_text(fields.get("content"))


def _arguments(value: object) -> str:
    """The arguments of a call that only its step shows: an object is one, anything else becomes its one value."""
    if value is None:
        return "{}"
    text = json.dumps(value) if isinstance(value, str) else json_text(value)
    return text if text.startswith("{") else f'{{"value":{text}}}'


def _tool_input(value: object) -> object:
    """A tool's input as the arguments it stands for; LangChain's callbacks give the repr of a dict."""
    if isinstance(value, str):
        for read in (json.loads, ast.literal_eval):
            try:
                return cast("Callable[[str], object]", read)(value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
    return value


def _asks_for(call: ToolCall, given: object) -> bool:
    """Whether the arguments of a call are in a tool's input; the input may hold defaults beside them."""
    if call.blank:
        return True
    try:
        wanted = json.loads(call.arguments)
    except ValueError:
        return False
    return _contains(given, wanted)


def _contains(given: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        fields = _fields(given)
        items = cast("Mapping[str, Any]", wanted).items()
        return all(key in fields and _contains(fields[key], value) for key, value in items)
    if isinstance(wanted, list) and isinstance(given, list | tuple):
        mine, theirs = cast("list[Any]", wanted), cast("list[Any]", given)
        return len(mine) == len(theirs) and all(map(_contains, theirs, mine))
    # The tool's schema may have turned "1" into 1, or a string into a date or an enum.
    return given == wanted or str(getattr(cast("object", given), "value", cast("object", given))) == str(
        cast("object", wanted)
    )
