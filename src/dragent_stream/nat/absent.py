"""Stand-ins for our agents and our front end where they cannot be imported: who asks for one is told what is missing.

NAT lists them like the real ones, takes any settings, and says the error in one line when a configuration names them. They need
nvidia-nat-core alone, which is there, because its loader is what imports this.
"""

import logging
from collections.abc import AsyncGenerator
from typing import Any

from pydantic import model_validator

from dragent_stream.errors import DragentStreamError, missing_extra
from dragent_stream.nat.names import (
    FRONT_END,
    PER_USER_AGENT,
    PUBLISHED_PER_USER_AGENT,
    SHARED_AGENT,
    published_name_is_free,
)

__all__ = ["stand_in_for_agents", "stand_in_for_front_end"]

logger = logging.getLogger("dragent_stream")


def stand_in_for_agents(error: ImportError) -> None:
    """Give NAT our agents' names; a configuration that uses one is refused with what importing them raised."""
    told = _told(error)
    try:
        from nat.cli.register_workflow import register_function
        from nat.data_models.function import FunctionBaseConfig
    except ImportError:  # a NAT whose names have moved
        logger.warning("%s", told)
        return
    names = [SHARED_AGENT, PER_USER_AGENT, *([PUBLISHED_PER_USER_AGENT] if published_name_is_free() else [])]
    for name in names:
        register_function(config_type=_refusing(FunctionBaseConfig, name, told))(_never_built)


def stand_in_for_front_end(error: ImportError) -> None:
    """Give NAT our front end's name; a configuration that uses it, and starting it, is refused in the same way."""
    told = _told(error)
    try:
        from nat.cli.register_workflow import register_front_end
        from nat.front_ends.fastapi.fastapi_front_end_config import FastApiFrontEndConfig
    except ImportError:
        logger.warning("%s", told)
        return
    register_front_end(config_type=_refusing(FastApiFrontEndConfig, FRONT_END, told))(_never_built)


def _refusing(base: Any, name: str, told: str) -> type[Any]:
    from click import ClickException  # NAT's own; any other exception here is a traceback of NAT's command

    class Settings(base, name=name, extra="allow"):  # pyright: ignore[reportGeneralTypeIssues, reportCallIssue]
        @model_validator(mode="before")
        @classmethod
        def refuse(cls, _: Any) -> Any:
            raise ClickException(told)

    return Settings


async def _never_built(*_: Any) -> AsyncGenerator[Any, None]:
    raise NotImplementedError
    yield


def _told(error: ImportError) -> str:
    return str(error if isinstance(error, DragentStreamError) else missing_extra("nat", error))
