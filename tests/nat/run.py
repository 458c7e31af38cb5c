"""Run these tests against several NATs, each in an environment of its own with exact pins.

usage: python tests/nat/run.py [--prepare] [NAME ...]

A NAME is a file of `requirements/` without `.txt`, or its part after `nat-`; all of them without one. `--prepare` only
makes the environments.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
UV = ROOT / ".tools" / "bin" / "uv"
PYTEST = ["-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider", "-q"]
# The warnings of NAT and its packages are theirs; ours are errors.
WARNINGS = ["-o", "filterwarnings=ignore", "-W", "error:::dragent_stream"]
FOLDERS = {"core-alone": "core_alone", "datarobot-genai": "beside_datarobot"}
"""Environments with tests of their own; all others run the tests of this folder."""


def environments() -> list[str]:
    """The names of all environments: the newest NAT first, and those with tests of their own last."""
    return sorted((file.stem for file in (HERE / "requirements").glob("*.txt")), reverse=True)


def prepared(name: str) -> Path:
    """The Python of an environment, which is made anew when its pins or the project file have changed."""
    requirements = HERE / "requirements" / f"{name}.txt"
    stamp = hashlib.sha256(requirements.read_bytes() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    home = ROOT / ".venvs" / name
    python, ready = home / "bin" / "python", home / ".ready"
    if not (ready.exists() and ready.read_text() == stamp):
        if not python.exists():
            subprocess.run([UV, "venv", "--quiet", "--clear", home], check=True, cwd=ROOT)
        install = [UV, "pip", "install", "--quiet", "--python", python]
        subprocess.run([UV, "pip", "sync", "--quiet", "--python", python, requirements], check=True, cwd=ROOT)
        subprocess.run([*install, "--no-deps", "--editable", ROOT], check=True, cwd=ROOT)
        ready.write_text(stamp)
    return python


def main(arguments: list[str]) -> int:
    names = [argument for argument in arguments if argument != "--prepare"]
    known = environments()
    chosen = [name if name in known else f"nat-{name}" for name in names] or known
    if unknown := [name for name in chosen if name not in known]:
        print(f"no such environment: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    if "--prepare" in arguments:
        for name in chosen:
            prepared(name)
        return 0
    failed: list[str] = []
    for name in chosen:
        print(f"== {name}", flush=True)
        tests = HERE / FOLDERS.get(name, "")
        ignored = [f"--ignore={HERE / folder}" for folder in FOLDERS.values() if name not in FOLDERS]
        if subprocess.run([prepared(name), *PYTEST, *WARNINGS, *ignored, str(tests)], cwd=ROOT, check=False).returncode:
            failed.append(name)
    print("failed: " + ", ".join(failed) if failed else f"{len(chosen)} environments passed", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
