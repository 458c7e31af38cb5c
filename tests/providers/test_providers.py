"""The real LangChain packages of the providers over sockets: what they give comes out whole, live and from a recording."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ag_ui.core import RunAgentInput
from answers import ARGUMENTS, PROVIDERS, REDACTED, SIGNATURE, TEXT, text_answer
from lang_graphs import add, run_of, texts_of
from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk
from langgraph.checkpoint.memory import InMemorySaver
from provider_server import ProviderServer

from dragent_stream.asgi import langchain_source
from dragent_stream.trace import record_chunks, replay_trace

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# Each provider in each form of output that its package has.
FORMS = {
    "anthropic": ("anthropic", {}),
    "anthropic, v1": ("anthropic", {"output_version": "v1"}),
    "bedrock": ("bedrock", {}),
    "bedrock, v1": ("bedrock", {"output_version": "v1"}),
    "gemini": ("gemini", {}),
    "gemini, v1": ("gemini", {"output_version": "v1"}),
    "openai chat": ("openai", {}),
    "openai chat, v1": ("openai", {"output_version": "v1"}),
    "responses, v0": ("responses", {"output_version": "v0"}),
    "responses, responses/v1": ("responses", {"output_version": "responses/v1"}),
    "responses, v1": ("responses", {"output_version": "v1"}),
}
SIGNING = [form for form in FORMS if "openai chat" not in form]


@contextmanager
def serving(form: str, *answers: bytes) -> Iterator[tuple[Any, ProviderServer]]:
    """A chat model of the real package, and the server that it asks."""
    name, options = FORMS[form]
    with ProviderServer(list(answers), PROVIDERS[name].content_type) as server:
        yield _model(name, server.url, options), server


def _model(name: str, url: str, options: dict[str, Any]) -> Any:
    if name == "anthropic":
        from langchain_anthropic import ChatAnthropic

        thinking = {"type": "enabled", "budget_tokens": 1024}
        return ChatAnthropic(  # type: ignore[call-arg]
            model="claude-sonnet-4-5",
            base_url=url,
            api_key="k",
            max_tokens=2000,
            thinking=thinking,
            max_retries=0,
            **options,
        )
    if name == "bedrock":
        from langchain_aws import ChatBedrockConverse

        return ChatBedrockConverse(
            model="anthropic.claude-sonnet-4-20250514-v1:0",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="a",
            aws_secret_access_key="b",
            **options,
        )
    if name == "gemini":
        from langchain_google_genai import ChatGoogleGenerativeAI

        return ChatGoogleGenerativeAI(
            model="gemini-2.5-flash", google_api_key="k", base_url=url, max_retries=1, include_thoughts=True, **options
        )
    from langchain_openai import ChatOpenAI

    if name == "responses":
        options = {**options, "use_responses_api": True, "store": False, "include": ["reasoning.encrypted_content"]}
    return ChatOpenAI(model="gpt-5", base_url=url, api_key="k", max_retries=0, stream_usage=True, **options)


def answer_of(form: str, **options: Any) -> bytes:
    return PROVIDERS[FORMS[form][0]].answer(**options)


def assert_whole(form: str, events: list[dict[str, Any]], turns: int = 1) -> None:
    """The run holds what the provider's answer holds."""
    said = PROVIDERS[FORMS[form][0]].said
    assert texts_of(events)[0] == TEXT
    assert texts_of(events, "REASONING_MESSAGE_CONTENT") == ([said.thought] if said.thought else [])
    arguments = "".join(event["delta"] for event in events if event["type"] == "TOOL_CALL_ARGS")
    assert json.loads(arguments) == json.loads(ARGUMENTS)
    assert [event["toolCallName"] for event in events if event["type"] == "TOOL_CALL_START"] == ["add"]
    sealed = [event for event in events if event["type"] == "REASONING_ENCRYPTED_VALUE"]
    assert [event["encryptedValue"] for event in sealed if event["subtype"] == "message"] == said.sealed
    signed = [event["encryptedValue"] for event in sealed if event["subtype"] == "tool-call"]
    assert signed == ([said.signed_call] if said.signed_call else [])


@pytest.mark.parametrize("form", FORMS)
async def test_a_streamed_answer_comes_out_whole_and_as_langchain_adds_it_up(form: str) -> None:
    with serving(form, answer_of(form)) as (model, _):
        chunks = [chunk async for chunk in model.astream("what is 1 + 2?")]
    events = await run_of(chunks)
    assert events[-1]["type"] == "RUN_FINISHED"
    assert_whole(form, events)
    total: Any = sum(chunks[1:], chunks[0])
    assert isinstance(total, AIMessageChunk)
    assert total.text == texts_of(events)[0]
    (usage,) = events[-1]["usage"]
    wanted = PROVIDERS[FORMS[form][0]].said.usage
    assert {key: usage[key] for key in wanted} == wanted
    assert usage["inputTokens"] == total.usage_metadata["input_tokens"]  # type: ignore[index]
    assert usage["outputTokens"] == total.usage_metadata["output_tokens"]  # type: ignore[index]
    assert [call["args"] for call in total.tool_calls] == [json.loads(ARGUMENTS)]


@pytest.mark.parametrize("form", FORMS)
async def test_the_whole_message_behind_its_chunks_adds_nothing(form: str) -> None:
    from langchain_core.messages import message_chunk_to_message

    with serving(form, answer_of(form)) as (model, _):
        chunks = [chunk async for chunk in model.astream("what is 1 + 2?")]
    whole = message_chunk_to_message(sum(chunks[1:], chunks[0]))
    assert await run_of([*chunks, whole]) == await run_of(chunks)
    assert_whole(form, await run_of([whole]))


@pytest.mark.parametrize("form", FORMS)
async def test_events_v3_of_a_model_come_out_whole(form: str) -> None:
    with serving(form, answer_of(form)) as (model, _):
        stream = await model.astream_events("what is 1 + 2?", version="v3")
        events = await run_of([event async for event in stream])
    said = PROVIDERS[FORMS[form][0]].said
    assert texts_of(events)[0] == TEXT
    thought = "".join(texts_of(events, "REASONING_MESSAGE_CONTENT"))
    # LangChain makes one block of the parts of a v0 summary, which have no numbers then.
    assert thought == (said.thought.replace("Quick.\n\n", "Quick.") if form == "responses, v0" else said.thought)
    sealed = [event["encryptedValue"] for event in events if event["type"] == "REASONING_ENCRYPTED_VALUE"]
    assert set(said.sealed) <= set(sealed)


@pytest.mark.parametrize("form", [form for form in FORMS if "gemini" not in form])
async def test_a_call_that_reached_the_limit_is_not_ended(form: str) -> None:
    provider = PROVIDERS[FORMS[form][0]]
    with serving(form, answer_of(form, stop=provider.length, cut=True)) as (model, _):
        events = await run_of([chunk async for chunk in model.astream("what is 1 + 2?")])
    assert events[-1]["type"] == "RUN_ERROR"
    assert events[-1]["code"] == "length"
    assert "TOOL_CALL_END" not in [event["type"] for event in events]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", ["messages", ["messages", "updates"], ["values", "messages"]], ids=str)
async def test_an_agent_with_a_tool_comes_out_whole_live_and_from_its_recording(
    form: str, mode: Any, tmp_path: Path
) -> None:
    file = tmp_path / "run.jsonl"
    with serving(form, answer_of(form), text_answer(FORMS[form][0])) as (model, _):
        agent = create_agent(model, [add])
        asked: Any = {"messages": [("user", "what is 1 + 2?")]}
        live = await run_of(record_chunks(agent.astream(asked, stream_mode=mode), file))
    assert_whole(form, live)
    assert [event["content"] for event in live if event["type"] == "TOOL_CALL_RESULT"] == ["3"]
    assert texts_of(live)[1] == "It is 3."
    assert await run_of(replay_trace(file)) == live


# The way back.


def request(messages: list[dict[str, Any]], tools: Any = ()) -> RunAgentInput:
    fields = {"threadId": "t", "runId": "r", "state": {}, "tools": list(tools), "context": [], "forwardedProps": {}}
    return RunAgentInput.model_validate({**fields, "messages": messages})


TOOL = {
    "name": "add",
    "description": "adds",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}


def conversation_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages that a client builds from a run."""
    found: dict[str, dict[str, Any]] = {}
    calls: dict[str, dict[str, Any]] = {}
    for event in events:
        kind = event["type"]
        if kind == "REASONING_MESSAGE_START":
            found[event["messageId"]] = {"id": event["messageId"], "role": "reasoning", "content": ""}
        elif kind == "TEXT_MESSAGE_START":
            found[event["messageId"]] = {"id": event["messageId"], "role": "assistant", "content": ""}
        elif kind in ("REASONING_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT"):
            found[event["messageId"]]["content"] += event["delta"]
        elif kind == "TOOL_CALL_START":
            parent = event["parentMessageId"]
            message = found.setdefault(parent, {"id": parent, "role": "assistant", "content": ""})
            function = {"name": event["toolCallName"], "arguments": ""}
            calls[event["toolCallId"]] = {"id": event["toolCallId"], "type": "function", "function": function}
            message.setdefault("toolCalls", []).append(calls[event["toolCallId"]])
        elif kind == "TOOL_CALL_ARGS":
            calls[event["toolCallId"]]["function"]["arguments"] += event["delta"]
        elif kind == "REASONING_ENCRYPTED_VALUE":
            owner = calls if event["subtype"] == "tool-call" else found
            owner[event["entityId"]]["encryptedValue"] = event["encryptedValue"]
    return list(found.values())


@pytest.mark.parametrize("form", SIGNING)
async def test_the_second_request_holds_the_signed_thought(form: str) -> None:
    question = {"id": "u1", "role": "user", "content": "what is 1 + 2?"}
    with serving(form, answer_of(form), text_answer(FORMS[form][0])) as (model, server):
        agent = langchain_source(model)
        first = request([question], [TOOL])
        said = conversation_of(await run_of(agent(first), first))
        result = {"id": "x", "role": "tool", "toolCallId": said[-1]["toolCalls"][0]["id"], "content": "3"}
        second = request([question, *said, result], [TOOL])
        await run_of(agent(second), second)
    assert_signed(form, server.requests[1])


@pytest.mark.parametrize("form", SIGNING)
async def test_a_graph_that_remembers_sends_the_signed_thought_in_the_next_turn(form: str) -> None:
    question = {"id": "u1", "role": "user", "content": "what is 1 + 2?"}
    ends = [text_answer(FORMS[form][0], number) for number in (2, 3)]
    with serving(form, answer_of(form), *ends) as (model, server):
        graph = create_agent(model, [add], checkpointer=InMemorySaver())
        agent = langchain_source(graph)
        first = request([question])
        events = await run_of(agent(first), first)
        assert_whole(form, events)
        result = next(event for event in events if event["type"] == "TOOL_CALL_RESULT")
        told = {"id": "x", "role": "tool", "toolCallId": result["toolCallId"], "content": result["content"]}
        thoughts_and_call, last = conversation_of(events)[:-1], conversation_of(events)[-1]
        again = {"id": "u2", "role": "user", "content": "thanks"}
        second = request([question, *thoughts_and_call, told, last, again])
        await run_of(agent(second), second)
        stored = (await graph.aget_state({"configurable": {"thread_id": "t"}})).values["messages"]
    assert [message.type for message in stored] == ["human", "ai", "tool", "ai", "human", "ai"]
    assert_signed(form, server.requests[1], exact=True)
    assert_signed(form, server.requests[2], exact=True)


def assert_signed(form: str, sent: dict[str, Any], *, exact: bool = False) -> None:
    """The request holds what the provider has signed, in the provider's own form."""
    provider = FORMS[form][0]
    said = PROVIDERS[provider].said
    if provider == "anthropic":
        blocks = sent["messages"][1]["content"]
        assert blocks[0] == {"type": "thinking", "thinking": said.thought, "signature": SIGNATURE}
        assert {"type": "redacted_thinking", "data": REDACTED} in blocks
        assert {block["type"] for block in blocks} == {"thinking", "redacted_thinking", "text", "tool_use"}
    elif provider == "bedrock":
        blocks = sent["messages"][1]["content"]
        assert blocks[0] == {"reasoningContent": {"reasoningText": {"text": said.thought, "signature": SIGNATURE}}}
        assert {"reasoningContent": {"redactedContent": REDACTED}} in blocks
        assert any("toolUse" in block for block in blocks)
    elif provider == "gemini":
        parts = sent["contents"][1]["parts"]
        (call,) = [part for part in parts if "functionCall" in part]
        assert call["thoughtSignature"] == SIGNATURE
        assert [part.get("thoughtSignature") for part in parts if "text" in part and not part.get("thought")][
            -1
        ] == REDACTED
    else:
        (thought,) = [item for item in sent["input"] if item.get("type") == "reasoning"]
        assert thought["encrypted_content"] == SIGNATURE
        assert [part["text"] for part in thought["summary"]] == (
            ["**One**\n\nQuick.", "**Two**\n\nThen."] if exact else [said.thought]
        )
        kinds = [item.get("type") for item in sent["input"]]
        assert kinds.index("reasoning") < kinds.index("function_call") < kinds.index("function_call_output")
