"""Check what the documents promise: links lead somewhere, imports resolve, verbs and make targets exist, examples are named.

usage: python scripts/docs_check.py
"""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/README.md")})


def broken_links(document: Path, text: str) -> list[str]:
    """Relative links whose file is not there."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    return [f"the link {link!r} leads nowhere" for link in links if not (document.parent / link).exists()]


def broken_code(text: str) -> list[str]:
    """Python blocks that do not compile, and imports of this package that do not resolve."""
    found: list[str] = []
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        try:
            tree = ast.parse(block)
        except SyntaxError as error:
            found.append(f"a Python block does not compile: {error}")
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dragent_stream"):
                module = importlib.import_module(node.module or "")
                found += [
                    f"{node.module} has no {alias.name}" for alias in node.names if not hasattr(module, alias.name)
                ]
    return found


def unknown_commands(text: str, verbs: set[str], targets: set[str]) -> list[str]:
    """Verbs and make targets that do not exist."""
    named = set(re.findall(r"\bdragent-stream ([a-z]+)\b", text)) - verbs
    made = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.M)) - targets
    return [*(f"there is no dragent-stream {verb}" for verb in named), *(f"there is no make {name}" for name in made)]


def main() -> int:
    """Print each broken promise with its document; 1 if there are any."""
    listed = subprocess.run(
        [sys.executable, "-c", "from dragent_stream.cli import main; main()", "--help"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    verbs = {*re.findall(r"^│ ([a-z]+) {2,}", listed, re.M)}
    rules = re.findall(r"^([a-z -]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    targets = {target for rule in rules for target in rule.split()}
    problems = 0
    for document in DOCUMENTS:
        text = document.read_text("utf-8")
        for problem in [*broken_links(document, text), *broken_code(text), *unknown_commands(text, verbs, targets)]:
            print(f"{document.relative_to(ROOT)}: {problem}")
            problems += 1
    print(f"{len(DOCUMENTS)} documents, {problems} broken promises")
    return min(problems, 1)


if __name__ == "__main__":
    sys.exit(main())
