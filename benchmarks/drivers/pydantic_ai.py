"""pydantic-ai: its AG-UI event stream over part events made beforehand (its own reading of the model is not counted)."""

from pydantic_ai.messages import (
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.ui.ag_ui import AGUIEventStream
from workloads import stream


def part_events(chunks):
    """The chunks as the events of pydantic-ai's own model stream: a part starts, grows, ends."""
    events, parts, text, base = [], {}, None, 0

    def close():
        nonlocal text
        if text is not None:
            events.append(PartEndEvent(index=text, part=TextPart("")))
            text = None
        events.extend(PartEndEvent(index=index, part=part) for index, part in parts.values())
        parts.clear()

    for chunk in chunks:
        delta = chunk["choices"][0]["delta"]
        if content := delta.get("content"):
            if text is None:
                close()
                text, base = base, base + 1
                events.append(PartStartEvent(index=text, part=TextPart(content)))
            else:
                events.append(PartDeltaEvent(index=text, delta=TextPartDelta(content)))
        for call in delta.get("tool_calls") or ():
            if call.get("id"):
                if text is not None:
                    close()
                part = ToolCallPart(tool_name=call["function"]["name"], args=None, tool_call_id=call["id"])
                parts[call["index"]] = (base, part)
                events.append(PartStartEvent(index=base, part=part))
                base += 1
            else:
                index, part = parts[call["index"]]
                grown = ToolCallPartDelta(args_delta=call["function"]["arguments"], tool_call_id=part.tool_call_id)
                events.append(PartDeltaEvent(index=index, delta=grown))
        if chunk["choices"][0]["finish_reason"]:
            close()
    return events


def rows(chunks):
    runs = {}
    for name, items in chunks.items():
        events = part_events(items)

        def convert(events=events):
            return AGUIEventStream().transform_stream(stream(events))

        def encode(events=events):
            bridge = AGUIEventStream()
            return bridge.encode_stream(bridge.transform_stream(stream(events)))

        runs[(name, "convert")] = convert
        runs[(name, "encode")] = encode
    return {"pydantic-ai 2.68 (bridge only)": runs}
