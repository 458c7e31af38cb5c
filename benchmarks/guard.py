"""The short form for CI: fails only where a ratio within this one run leaves a margin that noise cannot cross.

The limits are about twice what is measured on a quiet machine; what they catch is a fast path that no longer takes the
ordinary stream, or work that grows with the stream. `python benchmarks/guard.py [--rounds N]`; exit 1 on a failure.
"""

import argparse
import sys

import workloads
from convert import FLOOR, costs, growth
from measure import table

# Convert + encode in multiples of the template floor, by workload and row.
LIMITS = {
    ("A", "ours: dicts in"): 5.0,
    ("A", "ours: NAT objects in"): 8.0,
    ("A", "ours: SSE bytes in, 16 KiB reads"): 5.0,
    ("B", "ours: dicts in"): 13.0,
    ("B", "ours: SSE bytes in, 16 KiB reads"): 13.0,
    ("C", "ours: dicts in"): 14.0,
}
EXPONENT_LIMIT = 1.3


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--size", type=int, default=4_000, help="chunks of the largest stream")
    arguments.add_argument("--report-only", action="store_true", help="print, but do not judge")
    options = arguments.parse_args()
    size = options.size
    streams = {
        "A": workloads.text(size),
        "B": workloads.interleaved_calls(64, max(size // 64, 1)),
        "C": workloads.mixed_turns(max(size // 93, 1)),
    }
    found = costs(options.rounds, streams)
    rows: list[tuple[str, float, float]] = []
    for (workload, row), limit in LIMITS.items():
        ratio = found[(row, workload, "encode")] / found[(FLOOR, workload, "encode")]
        rows.append((f"{workload} {row}: x floor", ratio, limit))
    for title, (slope, _) in growth(options.rounds, (size // 8, size // 4, size // 2, size)).items():
        rows.append((f"growth of {title}: exponent", slope, EXPONENT_LIMIT))
    print(table(["measured in this run", "is", "limit"], [[name, f"{is_:.2f}", limit] for name, is_, limit in rows]))
    failed = [name for name, is_, limit in rows if is_ > limit]
    if failed and not options.report_only:
        print(f"benchmarks: over the limit: {'; '.join(failed)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
