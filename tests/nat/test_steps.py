"""The step path: NAT's steps through our adaptor, in linear time and without ever failing."""

import gc
import time
import uuid
from typing import Any

import pytest
from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepPayload,
    IntermediateStepType,
    StreamEventData,
)
from nat.data_models.invocation_node import InvocationNode
from nat.data_models.step_adaptor import StepAdaptorConfig

from dragent_stream.nat.step_adaptor import AguiStepAdaptor, SilentStepAdaptor
from dragent_stream.response import DRAgentEventResponse


def step(kind: IntermediateStepType, uid: str = "u", name: str = "model", nested: bool = False, **data: Any) -> Any:
    ancestry = InvocationNode(
        function_id="f2" if nested else "f1",
        function_name="helper" if nested else "<workflow>",
        parent_id="f1" if nested else "root",
        parent_name="<workflow>" if nested else "root",
    )
    payload = IntermediateStepPayload(UUID=uid, event_type=kind, name=name, data=StreamEventData(**data))
    return IntermediateStep(parent_id="root", function_ancestry=ancestry, payload=payload)


def tokens(count: int, *, nested: bool) -> list[Any]:
    uid = str(uuid.uuid4())
    start = step(IntermediateStepType.LLM_START, uid, nested=nested, input="q")
    return [
        step(IntermediateStepType.WORKFLOW_START, name="agent"),
        start,
        *(step(IntermediateStepType.LLM_NEW_TOKEN, uid, nested=nested, chunk="tok ") for _ in range(count)),
        step(IntermediateStepType.LLM_END, uid, nested=nested, output="tok " * count),
        step(IntermediateStepType.WORKFLOW_END, name="agent"),
    ]


def seconds_for(count: int) -> float:
    adaptor, steps = AguiStepAdaptor(StepAdaptorConfig()), tokens(count, nested=True)
    # All of NAT is in the heap, and a collection of it in one of the measurements would be all that is measured.
    gc.disable()
    try:
        started = time.process_time()
        batches = [adaptor.process(one) for one in steps]
        taken = time.process_time() - started
    finally:
        gc.enable()
    events = [event for batch in batches if isinstance(batch, DRAgentEventResponse) for event in batch.events]
    assert sum(event.type.value == "REASONING_MESSAGE_CONTENT" for event in events) == count
    return taken


def test_eight_thousand_tokens_cost_linear_time() -> None:
    few, many = min(seconds_for(1000) for _ in range(3)), min(seconds_for(8000) for _ in range(3))
    # NAT's own adaptor takes 0.8 s and 105 s: 130 times as long for 8 times the tokens.
    assert many < 24 * few
    assert many < 5


def test_the_adaptor_keeps_no_history() -> None:
    adaptor = AguiStepAdaptor(StepAdaptorConfig())
    for one in tokens(100, nested=False):
        adaptor.process(one)
    assert adaptor._history == []


def test_a_run_has_its_lifecycle_from_the_steps_alone() -> None:
    adaptor = AguiStepAdaptor(StepAdaptorConfig())
    batches = [adaptor.process(one) for one in tokens(2, nested=False)]
    kinds = [e.type.value for batch in batches if isinstance(batch, DRAgentEventResponse) for e in batch.events]
    assert kinds[0] == "RUN_STARTED"
    assert kinds[-1] == "RUN_FINISHED"
    assert kinds.count("TEXT_MESSAGE_START") == kinds.count("TEXT_MESSAGE_END") == 1


@pytest.mark.parametrize("broken", [None, 1, "step", {}, {"payload": None}, object()])
def test_a_broken_step_never_raises(broken: Any) -> None:
    class Odd:
        class payload:
            class event_type:
                value = "LLM_END"

            data = broken

    assert AguiStepAdaptor(StepAdaptorConfig()).process(Odd()) is None  # type: ignore[arg-type]


def test_the_silent_adaptor_says_nothing() -> None:
    adaptor = SilentStepAdaptor(StepAdaptorConfig())
    assert [adaptor.process(one) for one in tokens(2, nested=False)] == [None] * 6
