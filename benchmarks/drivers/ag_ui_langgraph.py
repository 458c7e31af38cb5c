"""ag-ui-langgraph: `LangGraphAgent.run` over chat-model events made beforehand, raw events off.

LangGraph itself is not run: the graph's event stream is replaced, so only the bridge is measured.
"""

from types import SimpleNamespace

from ag_ui.core import RunAgentInput
from ag_ui.encoder import EventEncoder
from ag_ui_langgraph import LangGraphAgent
from langchain_core.messages import AIMessageChunk
from langgraph.graph import END, START, MessagesState, StateGraph
from workloads import stream

_STATE = SimpleNamespace(values={"messages": []}, tasks=(), next=(), metadata={}, config={})


def model_events(chunks):
    events = []
    for chunk in chunks:
        choice = chunk["choices"][0]
        message = AIMessageChunk(
            content=choice["delta"].get("content") or "",
            id="lc_run--1",
            tool_call_chunks=[
                {
                    "index": call["index"],
                    "id": call.get("id"),
                    "name": call["function"].get("name"),
                    "args": call["function"]["arguments"],
                    "type": "tool_call_chunk",
                }
                for call in choice["delta"].get("tool_calls") or ()
            ],
            response_metadata={"finish_reason": choice["finish_reason"]} if choice["finish_reason"] else {},
        )
        events.append(
            {
                "event": "on_chat_model_stream",
                "run_id": "run-1",
                "name": "ChatOpenAI",
                "metadata": {"langgraph_node": "agent", "langgraph_checkpoint_ns": "agent:1"},
                "data": {"chunk": message},
                "parent_ids": [],
                "tags": [],
            }
        )
    return events


class _Replayed(LangGraphAgent):
    """The bridge, over a list of events instead of a running graph."""

    events: list

    async def prepare_stream(self, input, agent_state, config):
        return {"state": {}, "stream": stream(self.events), "config": config}

    async def get_state_and_messages_snapshots(self, config):
        return
        yield


class _Graph:
    """A compiled graph that is asked for its state and nothing else."""

    def __init__(self):
        builder = StateGraph(MessagesState)
        builder.add_node("agent", lambda state: state)
        builder.add_edge(START, "agent")
        builder.add_edge("agent", END)
        self._graph = builder.compile()

    def __getattr__(self, name):
        return getattr(self._graph, name)

    async def aget_state(self, config):
        return _STATE


def rows(chunks):
    graph = _Graph()
    run_input = RunAgentInput(
        thread_id="t", run_id="r", state={}, messages=[], tools=[], context=[], forwarded_props={}
    )
    runs = {}

    def convert(events):
        agent = _Replayed(name="bench", graph=graph, emit_raw_events=False)
        agent.events = events
        return agent.run(run_input)

    async def encode(events):
        encoder = EventEncoder()
        async for event in convert(events):
            yield encoder.encode(event)

    for name, items in chunks.items():
        events = model_events(items)
        runs[(name, "convert")] = lambda events=events: convert(events)
        runs[(name, "encode")] = lambda events=events: encode(events)
    return {"ag-ui-langgraph 0.0.47 (raw events off)": runs}
