"""Serve agents to AG-UI clients over HTTP: `create_app`, sources of chunks, and a page (extra `[asgi]`)."""

from __future__ import annotations

from dragent_stream.errors import missing_extra

try:
    from dragent_stream.asgi.app import Agent, Identify, create_app
except ImportError as error:
    raise missing_extra("asgi", error) from error
from dragent_stream.asgi.hosts import LOOPBACK_HOSTS
from dragent_stream.asgi.run_input import RunInputError
from dragent_stream.asgi.sources import langchain_source, openai_source, trace_source
from dragent_stream.step_adaptor import AgentStep

__all__ = [
    "LOOPBACK_HOSTS",
    "Agent",
    "AgentStep",
    "Identify",
    "RunInputError",
    "create_app",
    "langchain_source",
    "openai_source",
    "trace_source",
]
