"""NAT's StepAdaptor as the step path of a run: one step in, a batch of AG-UI events out; linear, without history.

NAT's own adaptor keeps every step and joins all tokens again at each one: 8,000 tokens cost it 105 s. Nothing of it is
called here.
"""

from ag_ui.core import BaseEvent

from dragent_stream.ledger import RunLedger
from dragent_stream.nat.agent_run import is_told_exactly
from dragent_stream.nat.imports import IntermediateStep, ResponseSerializable, StepAdaptor, StepAdaptorConfig
from dragent_stream.nat.workflow import run_ledger
from dragent_stream.options import ConverterOptions
from dragent_stream.response import DRAgentEventResponse
from dragent_stream.step_adaptor import StepConverter

__all__ = ["AguiStepAdaptor", "SilentStepAdaptor"]


class AguiStepAdaptor(StepAdaptor):
    """Turns the steps of one run into batches; NAT makes one adaptor for each request.

    The agents of this package stream through the same ledger, so that both paths are one run. NAT delivers a step one
    tick after the chunks that were produced with it; where exact order matters, use the AG-UI route.
    """

    def __init__(self, config: StepAdaptorConfig, options: ConverterOptions | None = None) -> None:
        super().__init__(config)
        self._ledger: RunLedger[BaseEvent] = RunLedger(options=options)
        self._steps = StepConverter(self._ledger)

    def process(self, step: IntermediateStep) -> ResponseSerializable | None:
        """The events of one step, or None. Never raises: NAT would close the stream early and say nothing."""
        if step.payload.event_type.value == "WORKFLOW_START":
            # Called in the producer's task, where the agent's stream runs next.
            run_ledger.set(self._ledger)
        events = [] if is_told_exactly(step, self._ledger) else self._steps.feed(step)
        # A virtual subclass of NAT's abstract class (converters.py).
        return DRAgentEventResponse(events=events) if events else None  # pyright: ignore[reportReturnType]


class SilentStepAdaptor(StepAdaptor):
    """Says nothing: an OpenAI client can read no steps, and `step_adaptor: mode: off` wants none.

    An agent of this package then writes its whole run itself.
    """

    def process(self, step: IntermediateStep) -> ResponseSerializable | None:
        """Nothing, whatever the step."""
        if step.payload.event_type.value == "WORKFLOW_START":
            run_ledger.set(None)
        return None
