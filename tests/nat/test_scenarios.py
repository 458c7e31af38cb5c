"""Whole runs of a real tool-calling agent over HTTP."""

import asyncio
import re
from collections.abc import AsyncGenerator

import anyio
import pytest
import pytest_asyncio
from nat_agents import configuration, slow_states
from nat_events import calls_with_results, judged
from nat_scenarios import SCENARIOS, Scenario, call, calls, text
from nat_server import Served, serve, user_says

from dragent_stream.testing.chunks import finish_chunk, text_chunk
from dragent_stream.testing.model import Hold, ModelRequest, Turn

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


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def direct() -> AsyncGenerator[Served, None]:
    """An agent whose `add` answers directly."""
    async with serve(
        lambda url: configuration(url, _type="dragent_tool_calling_agent", return_direct=["add"])
    ) as server:
        yield server


async def test_a_tool_that_returns_direct_answers_in_text_too(direct: Served) -> None:
    direct.play(calls(call("c1", "add", '{"a":1,"b":2}')))
    run_input = user_says("1 and 2?")
    lines = judged(await direct.run(run_input), run_input)
    assert lines == ["call c1 add", 'end c1 {"a":1,"b":2}', "result c1 3", "text 3", "finished"]


async def test_other_tools_beside_one_that_returns_direct_go_to_the_model(direct: Served) -> None:
    direct.play(calls(call("c1", "mul", '{"a":1,"b":2}')), text("Two."))
    run_input = user_says("1 times 2?")
    lines = judged(await direct.run(run_input), run_input)
    assert lines == ["call c1 mul", 'end c1 {"a":1,"b":2}', "result c1 2", "text Two.", "finished"]


async def test_the_history_goes_to_the_model_and_is_not_streamed_again(served: Served) -> None:
    run_input = user_says("and twice that?")
    run_input["messages"][:0] = [
        {"id": "s", "role": "system", "content": "Be brief."},
        {"id": "u1", "role": "user", "content": "1 and 2?"},
        {
            "id": "a1",
            "role": "assistant",
            "content": "Let me see.",
            "toolCalls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}],
        },
        {"id": "t1", "role": "tool", "toolCallId": "c1", "content": "3"},
        {"id": "r1", "role": "reasoning", "content": "Easy."},
        {"id": "a2", "role": "assistant", "content": "OLD ANSWER 3."},
    ]
    served.play(calls(call("c1", "add", '{"a":3,"b":3}')), text("It is 6."))
    events = await served.run(run_input)
    lines = judged(events, run_input)
    assert "OLD ANSWER" not in str(events)
    assert lines[-2:] == ["text It is 6.", "finished"]
    told = str(served.model.requests[0].messages)
    assert "Be brief." in told
    assert "OLD ANSWER 3." in told
    assert "Let me see." in told
    assert '"b"' in told
    assert "Easy." not in told


async def test_a_call_id_of_the_history_is_not_used_again(served: Served) -> None:
    run_input = user_says("again")
    spent = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    run_input["messages"][:0] = [
        {"id": "u1", "role": "user", "content": "1 and 2?"},
        {"id": "a1", "role": "assistant", "toolCalls": [spent]},
        {"id": "t1", "role": "tool", "toolCallId": "c1", "content": "3"},
    ]
    served.play(calls(call("c1", "add", '{"a":3,"b":3}')), text("6."))
    events = await served.run(run_input)
    judged(events, run_input)
    assert [result for _, result in calls_with_results(events).values()] == ["6"]
    assert "c1" not in calls_with_results(events)


async def test_the_usage_of_all_model_calls_stands_on_the_end(served: Served) -> None:
    served.play(calls(call("c1", "add", '{"a":1,"b":2}')), text("3."))
    events = await served.run()
    assert events[-1]["usage"] == [{"model": "test-model", "inputTokens": 14, "outputTokens": 6, "totalTokens": 20}]


async def test_the_usage_of_a_nested_agent_is_counted_once(served: Served) -> None:
    served.play(calls(call("c1", "helper", '{"input_message":"hi"}')), text("So."), inner=[text("hello")])
    events = await served.run()
    assert sum(entry["inputTokens"] for entry in events[-1]["usage"]) == 21


async def test_a_client_that_goes_during_text_stops_the_model_within_a_second(served: Served) -> None:
    served.play([text_chunk("Once upon "), text_chunk("a time "), Hold(), *text("the end")])
    async with served.client.stream(
        "POST", "/agui", json=user_says("a story"), headers={"x-api-key": "alice"}
    ) as response:
        async for line in response.aiter_lines():
            if "a time" in line:
                break
    with anyio.fail_after(1):
        await served.model.requests[0].disconnected.wait()
    assert served.model.requests[0].chunks_sent == 2


async def test_a_client_that_goes_during_a_tool_stops_it_and_no_model_is_called_again(served: Served) -> None:
    while not slow_states.empty():
        slow_states.get_nowait()
    served.play(calls(call("c1", "slow", '{"what":"x"}')), text("never"))
    async with served.client.stream(
        "POST", "/agui", json=user_says("take your time"), headers={"x-api-key": "alice"}
    ) as response:
        async for line in response.aiter_lines():
            if "TOOL_CALL_END" in line:
                break
        with anyio.fail_after(5):
            assert await slow_states.get() == "started"
    with anyio.fail_after(1):
        assert await slow_states.get() == "cancelled"
    # The next run is served, and is the model's next request.
    served.play(text("Hello"))
    run_input = user_says("hi")
    assert judged(await served.run(run_input), run_input) == ["text Hello", "finished"]
    assert len(served.model.requests) == 1


async def test_two_users_at_once_each_get_their_own_run(served: Served) -> None:
    both_here = asyncio.Event()
    asked: set[str] = set()

    async def choose(request: ModelRequest) -> Turn:
        name = "alice" if "alice" in str(request.messages) else "bob"
        number = "1" if name == "alice" else "2"
        asked.add(name)
        if len(asked) == 2:
            both_here.set()
        await both_here.wait()
        if request.messages[-1]["role"] == "tool":
            return text(f"{name} ", "has ", str(request.messages[-1]["content"]))
        return calls(call("c1", "add", f'{{"a":{number},', f'"b":{number}}}'))

    served.play()
    served.script.chooser = choose
    inputs = {name: user_says(f"I am {name}") for name in ("alice", "bob")}
    with anyio.fail_after(20):
        runs = await asyncio.gather(
            *(served.run(run_input, **{"x-api-key": name}) for name, run_input in inputs.items())
        )
    for (name, run_input), events, number in zip(inputs.items(), runs, (1, 2), strict=True):
        assert judged(events, run_input) == [
            "call c1 add",
            f'end c1 {{"a":{number},"b":{number}}}',
            f"result c1 {2 * number}",
            f"text {name} has {2 * number}",
            "finished",
        ]
        assert events[0]["threadId"] == events[-1]["threadId"] == run_input["threadId"]
        assert events[0]["runId"] == events[-1]["runId"] == run_input["runId"]


async def test_a_workflow_without_a_stream_answers_in_one_text() -> None:
    plain = {"_type": "t_plain_workflow"}
    async with serve(lambda url: {**configuration(url), "workflow": plain}) as server:
        run_input = user_says("hi")
        assert judged(await server.run(run_input), run_input) == ["text You said 'hi'.", "finished"]


async def test_nats_own_agent_runs_on_the_route_as_well() -> None:
    async with serve(lambda url: configuration(url, _type="tool_calling_agent")) as server:
        server.play(calls(call("c1", "add", '{"a":1,"b":2}')), text("3."))
        run_input = user_says("1 and 2?")
        lines = judged(await server.run(run_input), run_input)
        assert lines == ["call c1 add", 'end c1 {"a":1,"b":2}', "result c1 3", "text 3.", "finished"]


async def test_a_cut_answer_that_the_agent_asks_for_again_does_not_end_the_run() -> None:
    retry = {"max_retries": 1, "token_increment": 10}
    async with serve(lambda url: configuration(url, truncation_retry=retry)) as server:
        server.play([text_chunk("Half an"), finish_chunk("length")], text("Half an answer, whole."))
        run_input = user_says("answer")
        lines = judged(await server.run(run_input), run_input)
        assert lines == ["text Half an", "text Half an answer, whole.", "finished"]


PICK = {"name": "pick", "description": "Let the user pick.", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize("version", [None, "1.0"])
async def test_a_tool_of_the_client_ends_the_run_and_its_result_goes_on(served: Served, version: str | None) -> None:
    more = {"protocolVersion": version} if version else {}
    run_input = user_says("which?", tools=[PICK], **more)
    served.play(
        calls(call("c1", "add", '{"a":1,"b":2}'), call("c2", "pick", '{"of":', '"two"}', index=1)), text("never")
    )
    events = await served.run(run_input)
    assert judged(events, run_input) == [
        "call c1 add",
        "call c2 pick",
        'end c1 {"a":1,"b":2}',
        'end c2 {"of":"two"}',
        "result c1 3",
        "finished",
    ]
    assert events[-1]["outcome"].get("pendingToolCallIds") == (["c2"] if version else None)
    assert len(served.model.requests) == 1
    shown = [tool["function"]["name"] for tool in served.model.requests[0].body["tools"]]
    assert shown[-1] == "pick"
    assert "add" in shown

    asked = [
        {"id": c["toolCallId"], "type": "function", "function": {"name": c["toolCallName"], "arguments": "{}"}}
        for c in events
        if c["type"] == "TOOL_CALL_START"
    ]
    again = user_says("which?", tools=[PICK], **more)
    again["messages"] += [
        {"id": "a1", "role": "assistant", "toolCalls": asked},
        {"id": "t1", "role": "tool", "toolCallId": "c1", "content": "3"},
        {"id": "t2", "role": "tool", "toolCallId": "c2", "content": "the first"},
    ]
    served.play(text("The first, then."))
    assert judged(await served.run(again), again) == ["text The first, then.", "finished"]
    assert "the first" in str(served.model.requests[0].messages[-1]["content"])


async def test_a_tool_of_one_client_is_not_shown_to_the_model_of_another(served: Served) -> None:
    served.play(text("a"), text("b"))
    await served.run(user_says("with", tools=[PICK]))
    await served.run(user_says("without"))
    with_pick, without = ([t["function"]["name"] for t in r.body["tools"]] for r in served.model.requests)
    assert "pick" in with_pick
    assert "pick" not in without
