"""datarobot-genai: `convert_chunks_to_agui_events` over real NAT chunks, then its two ways of writing frames."""

from ag_ui.encoder import EventEncoder
from datarobot_genai.dragent.plugins.datarobot_dragent_normalization import convert_chunks_to_agui_events
from workloads import nat_objects, stream


async def encoded(objects):
    encode = EventEncoder().encode
    async for batch in convert_chunks_to_agui_events(stream(objects)):
        for event in batch.events:
            yield encode(event)


async def stream_data(objects):
    async for batch in convert_chunks_to_agui_events(stream(objects)):
        yield batch.get_stream_data()


def rows(chunks):
    with_encoder, as_served = {}, {}
    for name, items in chunks.items():
        objects = nat_objects(items)
        with_encoder[(name, "convert")] = lambda objects=objects: convert_chunks_to_agui_events(stream(objects))
        with_encoder[(name, "encode")] = lambda objects=objects: encoded(objects)
        as_served[(name, "encode")] = lambda objects=objects: stream_data(objects)
    return {"datarobot-genai 0.31 + EventEncoder": with_encoder, "datarobot-genai 0.31, get_stream_data()": as_served}
