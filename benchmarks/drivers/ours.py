"""dragent_stream: each way in and each way out."""

from workloads import nat_objects, reads, sse_frames, stream

from dragent_stream.response import event_json
from dragent_stream.run import stream_agui_run, stream_agui_sse
from dragent_stream.stream_converter import convert_chunks_to_agui_events


async def batches(items):
    """What NAT's server writes of the batches."""
    async for batch in convert_chunks_to_agui_events(stream(items)):
        yield batch.get_stream_data()


async def event_frames(items):
    """Whole runs of ag_ui objects, written by the library's encoder."""
    async for event in stream_agui_run(stream(items)):
        yield f"data: {event_json(event)}\n\n"


def rows(chunks):
    objects_out, events_out, objects, dicts, frames, cut = {}, {}, {}, {}, {}, {}
    for name, items in chunks.items():
        found = nat_objects(items)
        whole = sse_frames(items)
        parts = reads(whole)
        objects_out[(name, "convert")] = lambda found=found: convert_chunks_to_agui_events(stream(found))
        objects_out[(name, "encode")] = lambda found=found: batches(found)
        events_out[(name, "encode")] = lambda found=found: event_frames(found)
        objects[(name, "convert")] = lambda found=found: stream_agui_run(stream(found))
        objects[(name, "encode")] = lambda found=found: stream_agui_sse(stream(found))
        dicts[(name, "convert")] = lambda items=items: stream_agui_run(stream(items))
        dicts[(name, "encode")] = lambda items=items: stream_agui_sse(stream(items))
        frames[(name, "encode")] = lambda whole=whole: stream_agui_sse(stream(whole))
        cut[(name, "encode")] = lambda parts=parts: stream_agui_sse(stream(parts))
    return {
        "ours: NAT objects in, ag_ui batches, get_stream_data()": objects_out,
        "ours: NAT objects in, ag_ui events, event_json()": events_out,
        "ours: NAT objects in": objects,
        "ours: dicts in": dicts,
        "ours: SSE bytes in, 16 KiB reads": cut,
        "ours: SSE bytes in, one frame a read": frames,
    }
