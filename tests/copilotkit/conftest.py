"""Where CopilotKit's runtime is not installed (`make test-copilotkit` does it), nothing here is collected."""

from pathlib import Path

if not (Path(__file__).parent / "node_modules" / "@copilotkit" / "runtime").exists():
    collect_ignore_glob = ["test_*.py"]
