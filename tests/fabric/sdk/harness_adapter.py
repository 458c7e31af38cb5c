"""An adapter of the common host without streaming, as the bundled ones are: it remembers its conversation and answers once."""

from __future__ import annotations

import os
from typing import Any

from nemo_fabric_adapter_contract.models import (
    AgentConfig,
    AgentRunError,
    AgentRunRequest,
    AgentRunResult,
    AgentRunStatus,
    RuntimeContext,
)
from nemo_fabric_adapters.common import lifecycle


class Harness:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    async def start(self, payload: dict[str, Any]) -> None:
        if os.environ.get("HARNESS_START") == "fail":
            raise KeyError("OPENAI_API_KEY")

    async def invoke(self, request: AgentRunRequest, context: RuntimeContext) -> AgentRunResult:
        self.heard.append(request.input)
        if request.input == "fail":
            error = AgentRunError(code="harness_refused", message="the harness's own words")
            return AgentRunResult(status=AgentRunStatus.FAILED, output=None, error=error)
        if request.input == "raise":
            raise lifecycle.LifecycleError("harness_broken", "the harness's own words")
        return AgentRunResult(status=AgentRunStatus.SUCCEEDED, output={"response": " | ".join(map(str, self.heard))})

    async def stop(self) -> None:
        pass


if __name__ == "__main__":
    lifecycle.serve(Harness, config_loader=AgentConfig.from_mapping)
