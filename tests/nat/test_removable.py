"""NAT can be deleted: the core imports without it, and the edge says what it needs."""

import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest

import dragent_stream

PACKAGE = Path(dragent_stream.__file__).parent

IMPORT_THE_CORE = """
import importlib, pkgutil, sys
import dragent_stream
assert dragent_stream.__path__[0].startswith(sys.argv[1]), dragent_stream.__path__
for name in sorted(m.name for m in pkgutil.iter_modules(dragent_stream.__path__) if not m.ispkg):
    importlib.import_module("dragent_stream." + name)
assert not [name for name in sys.modules if name == "nat" or name.startswith("nat.")]
"""


def test_the_core_imports_with_the_folder_deleted(tmp_path: Path) -> None:
    copy = tmp_path / "dragent_stream"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(copy / "nat")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{IMPORT_THE_CORE}"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr


def test_without_nat_the_import_names_the_extra(tmp_path: Path) -> None:
    program = """
import sys
from importlib import metadata
real = metadata.version
def version(name):
    if name == "nvidia-nat-core":
        raise metadata.PackageNotFoundError(name)
    return real(name)
metadata.version = version
try:
    import dragent_stream.nat.register
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "nvidia-nat-core is not installed" in done.stdout
    assert "pip install 'dragent-stream[nat]'" in done.stdout


@pytest.mark.parametrize("absent", ["jwt", "langchain_core", "nat.plugins"])
@pytest.mark.parametrize("module", ["register", "identity", "route", "workflow"])
def test_without_a_package_of_the_extra_every_import_names_it(tmp_path: Path, absent: str, module: str) -> None:
    program = f"""
import sys
sys.modules[{absent!r}] = None
from dragent_stream.errors import MissingExtraError
try:
    import dragent_stream.nat.{module}
except MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(absent)
    assert done.stdout.endswith(" is not installed; it comes with the extra: pip install 'dragent-stream[nat]'\n")


@pytest.mark.parametrize("version", ["1.5.2", "1.10.0", "2.0.0", "0.0.0.dev1", "unknown"])
def test_a_version_out_of_range_is_named_with_the_remedy(tmp_path: Path, version: str) -> None:
    program = f"""
from importlib import metadata
metadata.version = lambda name: {version!r}
try:
    import dragent_stream.nat.imports
except ImportError as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert f"UnsupportedNatError nvidia-nat-core {version} is installed" in done.stdout
    assert "pip install 'nvidia-nat-core>=1.6,<1.10'" in done.stdout


def test_the_edge_is_where_the_entry_points_say() -> None:
    for group in ("nat.plugins", "nat.front_ends"):
        (point,) = entry_points(group=group, name="dragent_stream")
        assert find_spec(point.module) is not None
