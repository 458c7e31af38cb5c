"""Whole runs of a real tool-calling agent over HTTP."""

import re

import pytest
from nat_events import calls_with_results, judged
from nat_scenarios import SCENARIOS, Scenario
from nat_server import Served, user_says

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("version", [None, "1.0"], ids=["client_before_1.0", "client_1.0"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_an_agent_runs(served: Served, scenario: Scenario, version: str | None) -> None:
    served.play(*scenario.turns, inner=list(scenario.inner))
    run_input = user_says("please")
    if version:
        run_input["protocolVersion"] = version
    events = await served.run(run_input)
    lines = judged(events, run_input)
    assert len(lines) == len(scenario.tells), lines
    for line, expected in zip(lines, scenario.tells, strict=True):
        assert re.fullmatch(expected[1:], line) if expected.startswith("~") else line == expected, lines
    if events[-1]["type"] == "RUN_FINISHED":
        calls_with_results(events)
    else:
        assert events[-1]["message"]
