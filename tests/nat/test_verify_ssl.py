"""`verify_ssl` never reaches a model's provider."""

from contextlib import asynccontextmanager
from typing import Any

import pytest
from nat.builder.framework_enum import LLMFrameworkEnum
from nat.cli.register_workflow import register_llm_client
from nat.cli.type_registry import GlobalTypeRegistry, TypeRegistry
from nat.llm.openai_llm import OpenAIModelConfig

from dragent_stream.nat.verify_ssl import patch_crewai_clients, strip_verify_ssl, without_verify_ssl

CONFIG = {"model_name": "m", "temperature": 0.5, "verify_ssl": False}


class CrewConfig(OpenAIModelConfig, name="t_crew_llm"):
    pass


@register_llm_client(config_type=CrewConfig, wrapper_type=LLMFrameworkEnum.CREWAI)
async def crew_client(config: CrewConfig, builder: Any) -> Any:
    yield config.model_dump(exclude_unset=True, exclude={"type"})  # as nat.plugins.crewai.llm does


@register_llm_client(config_type=CrewConfig, wrapper_type=LLMFrameworkEnum.LANGCHAIN)
async def langchain_client(config: CrewConfig, builder: Any) -> Any:
    yield config.model_dump(exclude_unset=True, exclude={"type"})


@asynccontextmanager
async def built(framework: LLMFrameworkEnum) -> Any:
    info = GlobalTypeRegistry.get().get_llm_client(CrewConfig, framework)
    async with info.build_fn(CrewConfig(**CONFIG), None) as client:
        yield client


def test_arguments_lose_it() -> None:
    assert strip_verify_ssl(CONFIG) == {"model_name": "m", "temperature": 0.5}


def test_a_configuration_keeps_its_value_and_does_not_dump_it() -> None:
    config = OpenAIModelConfig(**CONFIG)
    copy = without_verify_ssl(config)
    assert copy.verify_ssl is False  # type: ignore[attr-defined]
    assert "verify_ssl" not in copy.model_dump(exclude_unset=True)
    assert config.model_dump(exclude_unset=True)["verify_ssl"] is False


@pytest.mark.parametrize("framework", [LLMFrameworkEnum.CREWAI, LLMFrameworkEnum.LANGCHAIN])
async def test_only_crewai_clients_are_given_a_configuration_without_it(framework: LLMFrameworkEnum) -> None:
    patch_crewai_clients()
    async with built(framework) as arguments:
        assert ("verify_ssl" in arguments) is (framework != LLMFrameworkEnum.CREWAI)
        assert arguments["temperature"] == 0.5


def test_a_second_patch_changes_nothing() -> None:
    patch_crewai_clients()
    before = TypeRegistry.get_llm_client
    patch_crewai_clients()
    assert TypeRegistry.get_llm_client is before
