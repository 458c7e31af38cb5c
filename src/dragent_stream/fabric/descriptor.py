"""Write the descriptor (`*.fabric-adapter.json`) by which Fabric finds an adapter."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dragent_stream.errors import ConversionError

__all__ = ["DESCRIPTOR_SUFFIX", "adapter_descriptor", "next_steps", "write_descriptor"]

DESCRIPTOR_SUFFIX = ".fabric-adapter.json"
"""Fabric reads no descriptor whose name ends otherwise."""

_ADAPTER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9][A-Za-z0-9_-]*)*")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def adapter_descriptor(
    adapter_id: str,
    *,
    module: str | None = None,
    script: str | Path | None = None,
    python: str | Path | None = None,
    pythonpath: str | Path | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The descriptor of an adapter with native OpenAI streaming, for Fabric 0.2 to 0.5.

    Args:
        adapter_id: The id that `HarnessConfig.adapter_id` names, e.g. `acme.support`.
        module: The module that ends in `serve_adapter(...)`: kind `python`, run by Fabric in the common host's way.
        script: The file that ends in `serve_binding(...)`: kind `process`. Give one of the two.
        python: The interpreter with this library. For a module Fabric's own choice where None (`ADAPTER_PYTHON`,
            `VIRTUAL_ENV`, ...), for a script the running one.
        pythonpath: The directory from which the module is imported, if it is not installed.
        env: More environment variables of the process; never secrets, Fabric writes them into its plans.

    Raises:
        ConversionError: The id or the module is not well-formed, or not exactly one of `module` and `script` was given.
    """
    if not _ADAPTER_ID.fullmatch(adapter_id):
        raise ConversionError(f"adapter_id must be words joined by dots, like acme.support, not {adapter_id!r}")
    if (module is None) == (script is None):
        raise ConversionError("give either module (common host) or script (process without it)")
    variables = dict(env or {})
    if pythonpath is not None:
        variables["PYTHONPATH"] = str(Path(pythonpath).resolve())
    runner: dict[str, Any]
    if module is not None:
        if not _MODULE.fullmatch(module):
            raise ConversionError(f"module must be an importable name like acme.adapter, not {module!r}")
        runner = {"module": module} | ({"python": str(python)} if python is not None else {})
    else:
        runner = {"command": str(python or sys.executable), "script": str(Path(str(script)).resolve())}
    if variables:
        runner["env"] = variables
    return {
        "contract_version": "fabric.adapter/v1alpha2",
        "adapter_id": adapter_id,
        "adapter_kind": "python" if module is not None else "process",
        "runner": runner,
        "capabilities": {"streaming": True},
    }


def write_descriptor(
    directory: str | Path,
    adapter_id: str,
    *,
    module: str | None = None,
    script: str | Path | None = None,
    python: str | Path | None = None,
    pythonpath: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    overwrite: bool = False,
    exists_remedy: str = "overwrite=True replaces it",
) -> Path:
    """Write `adapter_descriptor(...)` as `<adapter_id>.fabric-adapter.json`.

    Name the file in `discovery.local_paths` of the Fabric configuration, or install it under
    `<data>/share/nemo-fabric/`.

    Args:
        directory: Where to; made if it does not exist.
        adapter_id: See `adapter_descriptor`, and so the next five.
        module: See `adapter_descriptor`.
        script: See `adapter_descriptor`.
        python: See `adapter_descriptor`.
        pythonpath: See `adapter_descriptor`.
        env: See `adapter_descriptor`.
        overwrite: Replace a file that is there.
        exists_remedy: What the error says of a file that is there.

    Returns:
        The file.

    Raises:
        ConversionError: As `adapter_descriptor`, or the file exists and `overwrite` is not set.
    """
    descriptor = adapter_descriptor(
        adapter_id, module=module, script=script, python=python, pythonpath=pythonpath, env=env
    )
    path = Path(directory) / f"{adapter_id}{DESCRIPTOR_SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("w" if overwrite else "x", encoding="utf-8") as file:
            file.write(json.dumps(descriptor, indent=2) + "\n")
    except FileExistsError:
        raise ConversionError(f"{path} exists; {exists_remedy}") from None
    return path


def next_steps(path: Path) -> list[str]:
    """What the author of a descriptor does next, in lines; first what does not look right yet."""
    descriptor: dict[str, Any] = json.loads(path.read_text("utf-8"))
    runner, adapter_id = descriptor["runner"], descriptor["adapter_id"]
    python: str | None = runner.get("python") or runner.get("command")
    steps = [f"note: {problem}" for problem in _problems(runner, python)]
    if python is not None:
        steps.append(f"Python is {python}; python= or --python names another one")
        steps.append(f'in Fabric: discovery.local_paths: ["{path.resolve()}"], harness.adapter_id: "{adapter_id}"')
    else:
        place = f"share/nemo-fabric/adapters/{adapter_id}/{path.name}"
        steps += [
            "Python is the one that Fabric finds: ADAPTER_PYTHON, VIRTUAL_ENV, its own",
            "in your package's pyproject.toml, with hatchling:",
            "  [tool.hatch.build.targets.wheel.shared-data]",
            f'  "{path.name}" = "{place}"',
            f'in Fabric, where that package is installed: harness.adapter_id: "{adapter_id}"',
        ]
    steps.append(f'in your tests: dragent_stream.testing.fabric.check_adapter("{path}")')
    return steps


def _problems(runner: Mapping[str, Any], python: str | None) -> Iterator[str]:
    module: str | None = runner.get("module")
    if module is None:
        if not Path(runner["script"]).is_file():
            yield f"{runner['script']} is no file yet"
        return
    pythonpath: str | None = runner.get("env", {}).get("PYTHONPATH")
    if not _is_importable(module, pythonpath):
        where = f"{pythonpath} or this environment" if pythonpath else "this environment"
        remedy = "--pythonpath names the directory that holds it" if python else "Fabric's Python needs it installed"
        yield f"{module} is not in {where}; {remedy}"
    if python == sys.executable and find_spec("nemo_fabric_adapters") is None:
        yield "serve_adapter needs Fabric's packages in that Python: pip install 'dragent-stream[fabric]'"


def _is_importable(module: str, pythonpath: str | None) -> bool:
    """Whether the module will be found, as far as can be seen without running anything."""
    if pythonpath is not None:
        place = Path(pythonpath).joinpath(*module.split("."))
        if place.with_suffix(".py").is_file() or place.is_dir():
            return True
    try:
        return find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False
