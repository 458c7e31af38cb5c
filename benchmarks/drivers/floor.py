"""The template floor (see `benchmarks/floor.py`)."""

from floor import floor_sse
from workloads import deltas, stream


def rows(chunks):
    runs = {}
    for name, items in chunks.items():
        strings = deltas(items)
        runs[(name, "encode")] = lambda strings=strings: floor_sse(stream(strings))
    return {"template floor": runs}
