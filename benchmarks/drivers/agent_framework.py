"""agent-framework-ag-ui: `AgentFrameworkAgent.run` over agent updates made beforehand."""

from ag_ui.encoder import EventEncoder
from agent_framework import AgentResponse, AgentResponseUpdate, AgentSession, Content, ResponseStream
from agent_framework_ag_ui import AgentFrameworkAgent
from workloads import stream


def updates(chunks):
    ids, found = {}, []
    for chunk in chunks:
        delta = chunk["choices"][0]["delta"]
        contents = []
        if delta.get("content"):
            contents.append(Content.from_text(delta["content"]))
        for call in delta.get("tool_calls") or ():
            if call.get("id"):
                ids[call["index"]] = call["id"]
            contents.append(
                Content.from_function_call(
                    call_id=ids[call["index"]],
                    name=call["function"].get("name") or "",
                    arguments=call["function"]["arguments"],
                )
            )
        found.append(AgentResponseUpdate(contents=contents, role="assistant", response_id="r", message_id="m"))
    return found


class _Replayed:
    """An agent that answers with the prepared updates."""

    def __init__(self, prepared):
        self.id, self.name, self.description = "bench", "bench", "bench"
        self.prepared = prepared

    def run(self, messages=None, *, stream=False, session=None, **options):
        return ResponseStream(_stream(self.prepared), finalizer=lambda _: AgentResponse(messages=[]))

    def create_session(self, *, session_id=None):
        return AgentSession(session_id=session_id)

    def get_session(self, service_session_id, *, session_id=None):
        return AgentSession(service_session_id=service_session_id, session_id=session_id)


_stream = stream


def rows(chunks):
    runs = {}

    def convert(prepared):
        run_input = {"thread_id": "t", "run_id": "r", "messages": [{"id": "1", "role": "user", "content": "hello"}]}
        return AgentFrameworkAgent(agent=_Replayed(prepared)).run(run_input)

    async def encode(prepared):
        encoder = EventEncoder()
        async for event in convert(prepared):
            yield encoder.encode(event)

    for name, items in chunks.items():
        prepared = updates(items)
        runs[(name, "convert")] = lambda prepared=prepared: convert(prepared)
        runs[(name, "encode")] = lambda prepared=prepared: encode(prepared)
    return {"agent-framework-ag-ui 1.7": runs}
