"""The descriptor says what Fabric reads, and nothing is overwritten unasked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from dragent_stream.errors import ConversionError
from dragent_stream.fabric import write_descriptor


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
