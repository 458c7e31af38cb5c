"""Keep NAT's `verify_ssl` out of what goes to the model's provider.

`verify_ssl` is a setting of NAT's own HTTP clients. NAT's CrewAI client passes it on when a configuration sets it:
litellm then writes it into the request's body, and CrewAI's OpenAI client fails with an unexpected keyword argument
(NAT 1.6 to 1.9, `nat.plugins.crewai.llm`). It is taken out at both places: where arguments for `crewai.LLM` or litellm
are put together, and where NAT builds a CrewAI client from a configuration.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from dragent_stream.nat.imports import LLMFrameworkEnum, TypeRegistry

__all__ = ["patch_crewai_clients", "strip_verify_ssl", "without_verify_ssl"]


def strip_verify_ssl(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for `crewai.LLM` or `litellm.completion` without `verify_ssl`."""
    return {key: value for key, value in arguments.items() if key != "verify_ssl"}


def without_verify_ssl(config: BaseModel) -> BaseModel:
    """A copy of an LLM configuration whose `verify_ssl` keeps its value and is in no dump of what was set."""
    copy = config.model_copy()
    copy.__pydantic_fields_set__.discard("verify_ssl")
    return copy


def patch_crewai_clients() -> None:
    """Give NAT's CrewAI clients such a copy; a second call changes nothing, other frameworks are left alone."""
    original: Any = TypeRegistry.get_llm_client
    if getattr(original, "strips_verify_ssl", False):
        return

    def get_llm_client(self: TypeRegistry, config_type: type[Any], wrapper_type: str) -> Any:
        info = original(self, config_type, wrapper_type)
        if wrapper_type != LLMFrameworkEnum.CREWAI:
            return info
        build: Callable[[BaseModel, Any], Any] = info.build_fn

        def build_without(config: BaseModel, builder: Any) -> Any:
            return build(without_verify_ssl(config), builder)

        return info.model_copy(update={"build_fn": build_without})

    get_llm_client.strips_verify_ssl = True  # pyright: ignore[reportFunctionMemberAccess]
    TypeRegistry.get_llm_client = get_llm_client
