"""The front end `_type: dragent_stream`: NAT's FastAPI server with the AG-UI route beside NAT's own."""

import socket
from collections.abc import AsyncGenerator
from typing import Any, Literal

from pydantic import Field

from dragent_stream.errors import DragentStreamError
from dragent_stream.nat.identity import DEFAULT_KEY_VARIABLE
from dragent_stream.nat.imports import Config, FastApiFrontEndConfig, register_front_end
from dragent_stream.nat.names import FRONT_END

__all__ = ["DragentStreamFrontEndConfig", "FrontEndError", "check_agent", "check_port"]


class FrontEndError(DragentStreamError):
    """The front end cannot start; says what to change."""


class DragentStreamFrontEndConfig(FastApiFrontEndConfig, name=FRONT_END):
    """NAT's FastAPI settings, and those of the AG-UI route."""

    agui_path: str = Field(default="/agui", description="Path of the AG-UI route (POST a RunAgentInput, read SSE).")
    auth_key_variable: str = Field(
        default=DEFAULT_KEY_VARIABLE,
        description="Environment variable with the key (HS256) of X-DataRobot-Authorization-Context.",
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
