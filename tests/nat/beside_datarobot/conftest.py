"""Only where datarobot-genai is installed."""

from importlib import metadata

try:
    metadata.version("datarobot-genai")
except metadata.PackageNotFoundError:
    collect_ignore_glob = ["test_*.py"]
