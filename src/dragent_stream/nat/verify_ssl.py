"""Keep NAT's `verify_ssl` out of arguments that go to the model's provider.

`verify_ssl` is a setting of NAT's own HTTP clients. NAT's CrewAI client passes it on when it is set: litellm then
writes it into the request body, and CrewAI's native OpenAI client fails with an unexpected keyword argument
(NAT 1.6 to 1.9, `nat.plugins.crewai.llm`).
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["strip_verify_ssl"]


def strip_verify_ssl(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without `verify_ssl`, at the top and inside `additional_drop_params`-like nesting.

    Args:
        arguments: Keyword arguments for `crewai.LLM` or `litellm.completion`, or the dump of a NAT LLM config.

    Returns:
        A new dict; nested mappings are copied where they held the key.
    """
    return {
        key: strip_verify_ssl(value) if isinstance(value, Mapping) else value
        for key, value in arguments.items()
        if key != "verify_ssl"
    }
