"""Run the fuzz: `python -m fuzz --seconds 600 --seed 1`; exit 1 with every kind of fault once, as small as it gets."""

from __future__ import annotations

import argparse
import sys
import time
from random import Random

from fuzz.corpus import corpus
from fuzz.judges import Fault, Stream, fault_of, source_of
from fuzz.minimise import minimised
from fuzz.mutations import mutated


def stream_of(seed: int, number: int, seeds: list[list[object]]) -> tuple[Stream, Random]:
    """The stream of this number, and the cuts of its body: the same for every run with the seed."""
    random = Random(f"{seed}/{number}")
    feed = mutated(random.choice(seeds), seeds, random)
    tools = frozenset({"weather", "f", "add"}) if random.random() < 0.1 else frozenset[str]()
    stream = Stream(feed, think_tags=random.random() < 0.1, objects=random.random() < 0.1, frontend_tools=tools)
    return stream, random


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None, help="of all streams; by default from the clock")
    parser.add_argument("--stream", type=int, default=None, help="only the stream of this number")
    arguments = parser.parse_args()
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    seeds = corpus()
    deadline = time.monotonic() + arguments.seconds
    print(f"seed {seed}: {len(seeds)} streams to mutate, {arguments.seconds:g} s")
    faults: dict[str, int] = {}
    number = -1 if arguments.stream is None else arguments.stream - 1
    while time.monotonic() < deadline:
        number += 1
        stream, cuts = stream_of(seed, number, seeds)
        fault = fault_of(stream, cuts, growth=number % 50 == 0)
        if fault is not None:
            faults[fault.kind] = faults.get(fault.kind, 0) + 1
            if faults[fault.kind] == 1:
                _report(seed, number, stream, fault)
        if arguments.stream is not None:
            break
    print(f"seed {seed}: {number + 1} streams, {len(faults)} kinds of fault")
    for kind, times in sorted(faults.items(), key=lambda found: -found[1]):
        print(f"  {times} x {kind}")
    return 1 if faults else 0


def _report(seed: int, number: int, stream: Stream, fault: Fault) -> None:
    def judge(candidate: Stream) -> Fault | None:
        return fault_of(candidate, growth=fault.kind == "not linear")

    small = minimised(stream, fault, judge)
    said = judge(small) or fault
    print(
        f"\n# {fault.kind}: make fuzz SEED={seed} STREAM={number}\n# {said.detail}\n{source_of(small, fault)}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
