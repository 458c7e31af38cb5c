"""The rules, each in a sentence, and what is said where one is broken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ("RULES", "Violation")

RULES: Mapping[str, str] = {
    # what verifyEvents of @ag-ui/client 1.0.0 rejects the run for
    "V1": "The first event is RUN_STARTED or RUN_ERROR.",
    "V2": "No RUN_STARTED while a run is active.",
    "V3": "After RUN_ERROR only RUN_STARTED.",
    "V4": "After RUN_FINISHED only RUN_STARTED (RUN_ERROR is accepted by clients, and falls under D2).",
    "V5": "TEXT_MESSAGE_START does not name an open message.",
    "V6": "TEXT_MESSAGE_CONTENT and _END name an open message.",
    "V7": "TOOL_CALL_START does not name an open call.",
    "V8": "TOOL_CALL_ARGS and _END name an open call.",
    "V9": "A step is not started twice, and is finished once by the same owner.",
    "V10": "REASONING_START and REASONING_MESSAGE_START do not name what is open already.",
    "V11": "REASONING_MESSAGE_CONTENT and _END name an open reasoning message, REASONING_END an open span.",
    "V12": "RUN_FINISHED comes when nothing is open.",
    "V13": "Each subagent is started once, below a started one, and finished once.",
    "V14": "subagentRunId agrees with the owner of the message, call or span.",
    # what its schema refuses or strips
    "S1": "The type is an event of AG-UI 1.0.",
    "S2": "Required fields are there.",
    "S3": "Fields hold what the schema says; ids and names are not empty.",
    "S4": "Optional fields without a value are left out, not null.",
    "S5": "No field that the protocol does not have.",
    "S6": "The event can be written as UTF-8 JSON.",
    "S7": "Text is JSON objects, or SSE frames of one each whose lines end in LF.",
    # what its reducer makes of ids: messages are found by id alone, over all roles and the whole thread
    "I1": "A message or reasoning id is new in the thread.",
    "I2": "A result's messageId is new in the thread.",
    "I3": "No id names both a message and a tool call.",
    "I4": "A tool call id is never opened again.",
    "I5": "parentMessageId names an assistant message, known or yet to come.",
    "I6": "A message takes neither text nor calls after the result of one of its calls.",
    "I7": "Calls open at the same time have a parentMessageId; without one each becomes a message of its own.",
    "I8": "An encrypted value comes after the message or call it belongs to.",
    "I9": "threadId and runId are the request's, the same at both ends, and a runId is used once.",
    "I10": "Interrupt ids are unique in the run.",
    "I11": "A messages snapshot keeps the messages and calls that are open.",
    # what a producer owes although no client checks it
    "D1": "RUN_STARTED carries the protocolVersion, 'major.minor'.",
    "D2": "A run ends with one terminal event, RUN_FINISHED or RUN_ERROR.",
    "D3": "No *_CHUNK events.",
    "D4": "No empty delta, and no message without a delta.",
    "D5": "A result comes after its call's TOOL_CALL_END.",
    "D6": "A call gets at most one result.",
    "D7": "A result names a call of the thread.",
    "D8": "A call the agent runs has its result when the run finishes.",
    "D9": "A call the client runs gets no result.",
    "D10": "pendingToolCallIds are exactly the unanswered calls of the run.",
    "D11": "What only a 1.0 client reads goes only to a client that said it is one.",
    "D12": "Usage has one entry per provider and model, and its parts do not exceed the totals.",
    "D13": "The metadata key 'ag-ui' is reserved.",
    "D14": "A cancelled run has no result.",
    "D15": "TOOL_CALL_END says that the arguments are complete: where there are any, they are JSON.",
    "D16": "Where content is asked for, a run that succeeds has shown some: text, thought, call, state, activity, custom event.",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule.

    Attributes:
        index: The position of the event, from 0; the number of events where the end of the stream is meant.
        rule: A key of `RULES`.
        message: What is wrong, with the ids concerned.
    """

    index: int
    rule: str
    message: str
