"""Convert a folder of recorded traces on Ray Data: the same pure function as `dragent-stream convert`, spread out.

    python examples/ray/convert_on_ray.py FOLDER -o OUT

One row per trace goes in, its AG-UI events come out, one JSON Lines file per trace. The same trace gives the same bytes
on every worker, so a run that broke off can be repeated. A trace that cannot be read is a row with an `error`; it stops
nothing.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import ray.data

from dragent_stream.errors import DragentStreamError
from dragent_stream.trace import convert_trace


def convert(row: dict[str, Any]) -> dict[str, Any]:
    """One trace (`path`, `bytes`) to its events, one per line."""
    name = Path(row["path"]).name
    events: list[str] = []
    error = ""
    try:
        events.extend(convert_trace(row["bytes"].splitlines(keepends=True), thread_id=name, run_id=name, name=name))
    except DragentStreamError as problem:
        error = str(problem)
    return {"name": name, "events": "".join(f"{event}\n" for event in events), "error": error}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("-o", "--out", type=Path, required=True)
    options = arguments.parse_args()
    if not any(options.folder.glob("*.jsonl")):
        print(f"no *.jsonl trace in {options.folder}", file=sys.stderr)
        return 2

    options.out.mkdir(parents=True, exist_ok=True)
    traces = ray.data.read_binary_files(str(options.folder), include_paths=True, file_extensions=["jsonl"])
    failed = 0
    for row in traces.map(convert).iter_rows():
        (options.out / row["name"]).write_text(row["events"])
        if row["error"]:
            failed += 1
            print(row["error"], file=sys.stderr)
    print(f"{len(list(options.out.glob('*.jsonl')))} converted, {failed} with errors")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
