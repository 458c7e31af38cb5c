"""The front end `_type: dragent_stream`: NAT's FastAPI server with the AG-UI route beside NAT's own."""

import os
import socket
from collections.abc import AsyncGenerator
from typing import Any, Literal

from pydantic import Field

from dragent_stream.errors import DragentStreamError
from dragent_stream.nat.identity import DEFAULT_KEY_VARIABLE
from dragent_stream.nat.imports import Config, FastApiFrontEndConfig, register_front_end
from dragent_stream.nat.names import FRONT_END

__all__ = ["DragentStreamFrontEndConfig", "FrontEndError", "check_agent", "check_auth", "check_port"]


class FrontEndError(DragentStreamError):
    """The front end cannot start; says what to change."""


class DragentStreamFrontEndConfig(FastApiFrontEndConfig, name=FRONT_END):
    """NAT's FastAPI settings, and those of the AG-UI route."""

    agui_path: str = Field(default="/agui", description="Path of the AG-UI route (POST a RunAgentInput, read SSE).")
    auth_key_variable: str = Field(
        default=DEFAULT_KEY_VARIABLE,
        description="Environment variable with the key (HS256) of X-DataRobot-Authorization-Context.",
    )
    auth_required: bool = Field(
        default=False,
        description="Refuse (401) every request without a valid signed context; health routes stay open.",
    )
    auth_audience: str | None = Field(
        default=None, description="The `aud` that a signed context must name; any, or none, is accepted where unset."
    )
    auth_require_expiry: bool = Field(
        default=False, description="Refuse a signed context without `exp`; one is valid for ever by default."
    )
    expose_errors: bool = Field(
        default=False,
        description="Send exception texts to clients; off, they get a reference, under which the log has the rest.",
    )
    max_concurrent_runs: int = Field(
        default=256, ge=1, description="Runs at once, on all routes; one more is refused with 503."
    )
    max_users: int = Field(
        default=1000,
        ge=1,
        description="Users for whom a per-user workflow is kept; for one more, the user idle for longest is dropped.",
    )
    max_body_bytes: int = Field(default=8 * 1024 * 1024, ge=1, description="A larger body is refused with 413.")
    shutdown_grace_seconds: float = Field(
        default=10.0,
        ge=0,
        description="What open runs are given to end at SIGINT and SIGTERM, before they are stopped.",
    )
    nested_output: Literal["reasoning", "hide"] = Field(
        default="reasoning", description="Show what models inside tools and sub-agents say as reasoning, or hide it."
    )
    keep_alive_seconds: float = Field(default=15.0, gt=0, description="Silence after which a comment is sent.")


@register_front_end(config_type=DragentStreamFrontEndConfig)
async def dragent_stream_front_end(
    config: DragentStreamFrontEndConfig, full_config: Config
) -> AsyncGenerator[Any, None]:
    """Check what can be checked before the server starts, then give NAT the front end."""
    from dragent_stream.nat.plugin import DragentStreamFrontEnd

    check_agent(full_config)
    check_auth(config)
    check_port(config.host, config.port)
    yield DragentStreamFrontEnd(full_config=full_config)


def check_agent(config: Config) -> None:
    """See that the workflow's model and tools exist; a per-user workflow is built only when its first user comes.

    Raises:
        FrontEndError: One is missing; names it and what the configuration has.
    """
    workflow = config.workflow
    kind = getattr(workflow, "type", "?")
    llm_name = getattr(workflow, "llm_name", None)
    if llm_name is not None and str(llm_name) not in config.llms:
        have = ", ".join(config.llms) or "none"
        raise FrontEndError(
            f"workflow {kind}: llm_name is {str(llm_name)!r}, but llms has {have}; add it under `llms:`"
        )
    known = {*config.functions, *config.function_groups}
    for name in getattr(workflow, "tool_names", None) or ():
        # A function of a group is named group__function, or group.function before 1.5.
        if str(name) not in known and not any(
            str(name).startswith(f"{group}{sep}") for group in known for sep in ("__", ".")
        ):
            have = ", ".join(sorted(known)) or "none"
            raise FrontEndError(
                f"workflow {kind}: tool_names has {str(name)!r}, but there is no such function or function group "
                f"({have}); add it under `functions:`"
            )


def check_auth(config: DragentStreamFrontEndConfig) -> None:
    """See that whoever must be signed can be verified.

    Raises:
        FrontEndError: `auth_required` is on, and there is no key.
    """
    if config.auth_required and not os.environ.get(config.auth_key_variable):
        raise FrontEndError(
            f"auth_required needs the key of the signed contexts: set it in {config.auth_key_variable} "
            "(auth_key_variable names another variable)"
        )


def check_port(host: str, port: int) -> None:
    """See that the port is free; uvicorn would find out only after everything is loaded.

    Raises:
        FrontEndError: It is taken, or may not be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise FrontEndError(
                f"cannot listen on {host}:{port}: {error.strerror or error}; choose another with --port, "
                "or stop what uses it"
            ) from error
