"""The conversation reaches the model as it was: calls as calls, results as results, on every NAT."""

from typing import Any

import pytest
from nat_agents import configuration
from nat_events import judged
from nat_scenarios import call, calls, text
from nat_server import Served, serve, user_says

from dragent_stream.nat.imports import MESSAGES_KEEP_TOOLS

pytestmark = pytest.mark.asyncio(loop_scope="session")

KINDS = ["per_user_tool_calling_agent", "dragent_tool_calling_agent"]
PICK = {"name": "pick", "description": "Let the user pick.", "parameters": {"type": "object", "properties": {}}}


def asked(*pairs: tuple[str, str, str]) -> dict[str, Any]:
    made = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in pairs]
    return {"id": f"a-{pairs[0][0]}", "role": "assistant", "content": "", "toolCalls": made}


def result(call_id: str, content: str) -> dict[str, Any]:
    return {"id": f"t-{call_id}", "role": "tool", "toolCallId": call_id, "content": content}


def told(served: Served) -> list[dict[str, Any]]:
    """What the model was sent last, without what has no value."""
    return [{k: v for k, v in message.items() if v} for message in served.model.requests[-1].messages]


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_and_results_of_the_history_are_calls_and_results_to_the_model(kind: str) -> None:
    async with serve(lambda url: configuration(url, _type=kind)) as server:
        run_input = user_says("And now?")
        run_input["messages"][:0] = [
            {"id": "s", "role": "system", "content": "Be brief."},
            {"id": "u1", "role": "user", "content": "1 and 2, 3 times 4?"},
            {**asked(("c1", "add", '{"a":1,"b":2}'), ("c2", "mul", '{"a":3,"b":4}')), "content": "See:"},
            result("c1", "3"),
            result("c2", ""),
            {"id": "a2", "role": "assistant", "content": "OLD 3 and 12."},
        ]
        server.play(text("Nothing."))
        events = await server.run(run_input)
        assert judged(events, run_input) == ["text Nothing.", "finished"]
        messages = told(server)[-7:]
        assert [message["role"] for message in messages] == [
            "system",
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
            "user",
        ]
        assert [(c["id"], c["function"]["name"]) for c in messages[2]["tool_calls"]] == [("c1", "add"), ("c2", "mul")]
        assert messages[2]["content"] == "See:"
        assert messages[3] == {"role": "tool", "tool_call_id": "c1", "content": "3"}
        assert messages[4]["tool_call_id"] == "c2"
        assert "called the tool" not in str(messages)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_result_of_a_clients_tool_is_a_result_and_no_users_word(kind: str) -> None:
    async with serve(lambda url: configuration(url, _type=kind)) as server:
        run_input = user_says("Which?", tools=[PICK])
        run_input["messages"] += [asked(("c1", "pick", "{}")), result("c1", "the first")]
        server.play(calls(call("c2", "add", '{"a":1,"b":2}')), text("The first."))
        events = await server.run(run_input)
        assert judged(events, run_input)[-2:] == ["text The first.", "finished"]
        first = [m for m in server.model.requests[0].messages if m["role"] != "system"]
        assert [message["role"] for message in first] == ["user", "assistant", "tool"]
        assert first[1]["tool_calls"][0]["function"]["name"] == "pick"
        assert (first[2]["tool_call_id"], first[2]["content"]) == ("c1", "the first")


async def test_a_nested_agent_does_not_get_the_clients_history(served: Served) -> None:
    run_input = user_says("And now?")
    run_input["messages"][:0] = [
        {"id": "u1", "role": "user", "content": "1 and 2?"},
        asked(("c1", "add", '{"a":1,"b":2}')),
        result("c1", "3"),
    ]
    served.play(calls(call("c2", "helper", '{"input_message":"hello"}')), text("So."), inner=[text("hi")])
    await served.run(run_input)
    inner = next(request for request in served.model.requests if request.body["model"] == "inner-model")
    assert [m["content"] for m in inner.messages if m["role"] != "system"] == ["hello"]


async def test_parts_of_a_users_message_go_along_with_the_history(served: Served) -> None:
    run_input = user_says("x")
    image = {"type": "image", "source": {"type": "data", "value": "AAAA", "mimeType": "image/png"}}
    run_input["messages"] = [
        {"id": "u1", "role": "user", "content": "1 and 2?"},
        asked(("c1", "add", '{"a":1,"b":2}')),
        result("c1", "3"),
        {"id": "u2", "role": "user", "content": [{"type": "text", "text": "look"}, image]},
    ]
    served.play(text("I see."))
    await served.run(run_input)
    assert told(served)[-1]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]


async def test_an_agent_that_is_not_of_this_package_is_told_in_words_where_nat_drops_the_rest() -> None:
    async with serve(lambda url: configuration(url, _type="tool_calling_agent")) as server:
        run_input = user_says("And now?")
        run_input["messages"][:0] = [
            {"id": "u1", "role": "user", "content": "1 and 2?"},
            asked(("c1", "add", '{"a":1,"b":2}')),
            result("c1", "3"),
        ]
        server.play(text("Nothing."))
        await server.run(run_input)
        roles = [message["role"] for message in told(server) if message["role"] != "system"]
        assert roles == (
            ["user", "assistant", "tool", "user"] if MESSAGES_KEEP_TOOLS else ["user", "assistant", "user"]
        )
        assert '"b"' in str(told(server))
