"""Fixtures of the tests against a real NAT. Where NAT is not installed, only what needs none of it is collected."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from importlib import metadata
from typing import TYPE_CHECKING

import pytest_asyncio

if TYPE_CHECKING:
    from nat_server import Served

try:
    metadata.version("nvidia-nat-core")
except metadata.PackageNotFoundError:
    collect_ignore = [
        "test_chat_stream.py",
        "test_clients.py",
        "test_errors.py",
        "test_failures.py",
        "test_gate.py",
        "test_history.py",
        "test_identity.py",
        "test_leaving.py",
        "test_messages.py",
        "test_nat_routes.py",
        "test_plain_workflows.py",
        "test_request_context.py",
        "test_scenarios.py",
        "test_shutdown.py",
        "test_steps.py",
        "test_verify_ssl.py",
    ]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def served() -> AsyncGenerator[Served, None]:
    """A per-user agent with all test tools."""
    from nat_agents import configuration
    from nat_server import serve

    async with serve(configuration) as server:
        yield server
