"""The descriptor says what Fabric reads, and nothing is overwritten unasked."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from dragent_stream.errors import ConversionError
from dragent_stream.fabric import write_descriptor
from dragent_stream.fabric.descriptor import next_steps


def test_a_module_becomes_an_adapter_of_the_common_host(tmp_path: Path) -> None:
    path = write_descriptor(tmp_path / "new", "acme.support", module="acme.adapter", python="py", pythonpath=tmp_path)
    assert path.name == "acme.support.fabric-adapter.json"
    assert json.loads(path.read_text("utf-8")) == {
        "contract_version": "fabric.adapter/v1alpha2",
        "adapter_id": "acme.support",
        "adapter_kind": "python",
        "runner": {"module": "acme.adapter", "python": "py", "env": {"PYTHONPATH": str(tmp_path)}},
        "capabilities": {"streaming": True},
    }


def test_a_script_becomes_a_process_of_this_interpreter(tmp_path: Path) -> None:
    path = write_descriptor(tmp_path, "acme", script=tmp_path / "adapter.py")
    descriptor = json.loads(path.read_text("utf-8"))
    assert descriptor["adapter_kind"] == "process"
    assert descriptor["runner"] == {"command": sys.executable, "script": str(tmp_path / "adapter.py")}


def test_a_descriptor_is_replaced_only_when_asked(tmp_path: Path) -> None:
    path = write_descriptor(tmp_path, "acme", module="one")
    with pytest.raises(ConversionError, match="exists"):
        write_descriptor(tmp_path, "acme", module="two")
    assert json.loads(path.read_text("utf-8"))["runner"]["module"] == "one"
    write_descriptor(tmp_path, "acme", module="two", overwrite=True)
    assert json.loads(path.read_text("utf-8"))["runner"]["module"] == "two"


def test_the_next_steps_of_a_descriptor_for_this_machine(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("", "utf-8")
    path = write_descriptor(tmp_path, "acme", module="agent", python=sys.executable, pythonpath=tmp_path)
    assert next_steps(path) == [
        f"Python is {sys.executable}; python= or --python names another one",
        f'in Fabric: discovery.local_paths: ["{path}"], harness.adapter_id: "acme"',
        f'in your tests: dragent_stream.testing.fabric.check_adapter("{path}")',
    ]


def test_the_next_steps_of_a_descriptor_for_a_package_name_its_place(tmp_path: Path) -> None:
    steps = next_steps(write_descriptor(tmp_path, "acme.support", module="json"))
    assert '  "acme.support.fabric-adapter.json" = ' in "\n".join(steps)
    assert '"share/nemo-fabric/adapters/acme.support/acme.support.fabric-adapter.json"' in "\n".join(steps)
    table = tomllib.loads("\n".join(line for line in steps if line.startswith("  ")))
    assert list(table["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]) == [
        "acme.support.fabric-adapter.json"
    ]


@pytest.mark.parametrize("inside", ["", "inside"])
def test_what_does_not_look_right_is_noted(tmp_path: Path, inside: str) -> None:
    pythonpath = tmp_path / inside if inside else None
    path = write_descriptor(tmp_path, "acme", module="no_such.agent", python="py", pythonpath=pythonpath)
    where = f"{tmp_path / inside} or this environment" if inside else "this environment"
    note = f"note: no_such.agent is not in {where}; --pythonpath names the directory that holds it"
    assert next_steps(path)[0] == note
    portable = write_descriptor(tmp_path, "portable", module="no_such.agent")
    assert next_steps(portable)[0].endswith("is not in this environment; Fabric's Python needs it installed")
    path = write_descriptor(tmp_path, "other", script=tmp_path / "adapter.py")
    assert next_steps(path)[0] == f"note: {tmp_path / 'adapter.py'} is no file yet"
    (tmp_path / "adapter.py").write_text("", "utf-8")
    assert not next_steps(path)[0].startswith("note")


@pytest.mark.parametrize(
    ("adapter_id", "arguments", "named"),
    [
        ("../x", {"module": "m"}, "adapter_id"),
        ("", {"module": "m"}, "adapter_id"),
        ("a", {"module": "no module"}, "module"),
        ("a", {"module": "m.py/x"}, "module"),
        ("a", {}, "either module"),
        ("a", {"module": "m", "script": "s"}, "either module"),
    ],
)
def test_a_wrong_description_is_refused_by_name(
    tmp_path: Path, adapter_id: str, arguments: dict[str, str], named: str
) -> None:
    with pytest.raises(ConversionError, match=named):
        write_descriptor(tmp_path, adapter_id, **arguments)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
