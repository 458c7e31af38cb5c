"""llama-index-protocols-ag-ui: `AGUIChatWorkflow` over chat responses made beforehand.

Text only: it sends a call's arguments whole after the turn, so workloads B and C have no counterpart here.
"""

from ag_ui.core import RunAgentInput, UserMessage
from llama_index.core.llms import ChatMessage, ChatResponse
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.protocols.ag_ui.agent import AGUIChatWorkflow
from llama_index.protocols.ag_ui.router import AG_UI_EVENTS
from llama_index.protocols.ag_ui.utils import workflow_event_to_sse
from pydantic import PrivateAttr
from workloads import stream


class _Replayed(MockFunctionCallingLLM):
    _responses: list = PrivateAttr(default_factory=list)

    async def astream_chat_with_tools(self, *args, **kwargs):
        return stream(self._responses)


def rows(chunks):
    run_input = RunAgentInput(
        thread_id="t",
        run_id="r",
        state={},
        messages=[UserMessage(id="1", role="user", content="hello")],
        tools=[],
        context=[],
        forwarded_props={},
    )
    whole = ChatMessage(role="assistant", content="done")

    def responses(items):
        return [ChatResponse(message=whole, delta=item["choices"][0]["delta"].get("content") or "") for item in items]

    async def convert(replayed):
        llm = _Replayed()
        llm._responses = replayed
        handler = AGUIChatWorkflow(llm=llm, timeout=None).run(input_data=run_input)
        async for event in handler.stream_events():
            if isinstance(event, AG_UI_EVENTS):
                yield event
        await handler

    async def encode(replayed):
        async for event in convert(replayed):
            yield workflow_event_to_sse(event)

    runs = {}
    for name in ("A", "open"):
        replayed = responses(chunks[name])
        runs[(name, "convert")] = lambda replayed=replayed: convert(replayed)
        runs[(name, "encode")] = lambda replayed=replayed: encode(replayed)
    return {"llama-index-protocols-ag-ui 0.6": runs}
