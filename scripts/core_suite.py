"""Run the core suite in other environments than `.venv`, each with a folder of its own below `.venvs`.

usage: python scripts/core_suite.py pythons|lowest

`pythons`: with the locked packages, on every supported Python of this machine but the one of `.venv`.
`lowest`: on the oldest supported Python of this machine, with the lowest versions that pyproject.toml allows.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
UV = ROOT / ".tools" / "bin" / "uv"
SUPPORTED = ("3.11", "3.12", "3.13")
EXTRAS = ("cli", "asgi", "openai", "langchain", "fabric")
# Node's clients and the speed guard are the same on every Python; Fabric's lowest has a runtime of its own (make test-fabric).
ELSEWHERE = ("tests/clients", "tests/benchmarks")
# LangGraph is the tests' alone: in 1.0 its prebuilt nodes answer errors themselves, which these tests are about.
GRAPHS = ("tests/asgi/test_graphs_in_tools.py", "tests/asgi/test_langchain_history.py")
ELSEWHERE_LOWEST = (*ELSEWHERE, *GRAPHS, "tests/fabric")
# The warnings of old packages are theirs; ours are errors.
OLD_WARNINGS = ("-o", "filterwarnings=ignore", "-W", "error:::dragent_stream")


def version_of(python: str | Path) -> str:
    """Its minor version, such as 3.11; empty where it does not run."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        return subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def pythons() -> dict[str, Path]:
    """The supported Pythons of this machine by version: those on the path, then pyenv's."""
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found: dict[str, Path] = {}
    for version in SUPPORTED:
        for python in (Path(f"python{version}"), *sorted(home.glob(f"{version}.*/bin/python"))):
            if version_of(python) == version:
                found[version] = python
                break
    return found


def prepared(name: str, python: Path, install: list[str], more: dict[str, str]) -> Path:
    """The Python of an environment, which is made anew when the project file, the lock or the installation has changed."""
    home = ROOT / ".venvs" / name
    files = (ROOT / "pyproject.toml").read_bytes() + (ROOT / "uv.lock").read_bytes()
    stamp = hashlib.sha256(files + f"{python} {install}".encode()).hexdigest()
    ready = home / ".ready"
    if not (ready.exists() and ready.read_text() == stamp):
        env = {**os.environ, "UV_PYTHON": str(python), **more}
        subprocess.run([UV, "venv", "--quiet", "--clear", home], check=True, cwd=ROOT, env=env)
        subprocess.run([UV, *install], check=True, cwd=ROOT, env=env)
        ready.write_text(stamp)
    return home / "bin" / "python"


def passes(name: str, python: Path, *options: str, elsewhere: tuple[str, ...] = ELSEWHERE) -> bool:
    """Run the suite."""
    print(f"== {name}", flush=True)
    ignored = [f"--ignore={folder}" for folder in elsewhere]
    return subprocess.run([python, "-m", "pytest", "-q", *options, *ignored], cwd=ROOT, check=False).returncode == 0


def on_other_pythons() -> list[str]:
    """Run the locked packages; gives what failed."""
    failed: list[str] = []
    here = pythons()
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    sync = ["sync", "--quiet", "--frozen", "--no-default-groups", "--group", "test", *extras]
    for version in SUPPORTED:
        name = f"python-{version}"
        if version == version_of(ROOT / ".venv" / "bin" / "python"):
            continue
        if version not in here:
            print(f"== {name} is not on this machine", flush=True)
        elif not passes(name, prepared(name, here[version], sync, {"UV_PROJECT_ENVIRONMENT": f".venvs/{name}"})):
            failed.append(name)
    return failed


def on_lowest_versions() -> list[str]:
    """Run the lowest direct dependencies; gives what failed."""
    oldest = pythons() or {version_of(sys.executable): Path(sys.executable)}
    python = ROOT / ".venvs" / "lowest" / "bin" / "python"
    install = ["pip", "install", "--quiet", "--python", str(python), "--resolution", "lowest-direct"]
    install += ["--group", "test", "--editable", f".[{','.join(EXTRAS)}]"]
    prepared("lowest", oldest[min(oldest)], install, {})
    return [] if passes("lowest versions", python, *OLD_WARNINGS, elsewhere=ELSEWHERE_LOWEST) else ["lowest versions"]


RUNS = {"pythons": on_other_pythons, "lowest": on_lowest_versions}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in RUNS:
        sys.exit(f"usage: python scripts/core_suite.py {'|'.join(RUNS)}")
    if failed := RUNS[sys.argv[1]]():
        sys.exit(f"failed: {', '.join(failed)}")
