"""Ask for every shape with litellm, streamed (`stream_chunk_builder`) and whole; arguments and output as in client_openai.py."""

import json
import os
import sys
from importlib.metadata import version

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it is fetched

import litellm  # noqa: E402

litellm.suppress_debug_info = True
litellm.telemetry = False
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("f", "g")]


def plain(answer):
    fields = answer.model_dump(mode="json", exclude_none=True)
    for choice in fields["choices"]:
        choice["message"].pop("provider_specific_fields", None)  # the same again
        choice.pop("provider_specific_fields", None)
        choice["message"]["content"] = choice["message"].get("content") or None
    return {key: fields.get(key) for key in ("choices", "usage", "service_tier", "system_fingerprint")}


def ask(name, **more):
    return litellm.completion(
        model=f"openai/{name}",
        messages=[{"role": "user", "content": "hi"}],
        api_base=sys.argv[1],
        api_key="none",
        max_retries=0,
        tools=TOOLS,
        **more,
    )


def streamed(name):
    chunks = list(ask(name, stream=True, stream_options={"include_usage": True}))
    return plain(litellm.stream_chunk_builder(chunks))


def whole(name):
    return plain(ask(name))


def attempt(work, name):
    try:
        return {"answer": work(name)}
    except Exception as error:
        return {"raised": type(error).__name__}


def read(name):
    both = {"streamed": attempt(streamed, name), "whole": attempt(whole, name)}
    sent = "answer" in both["whole"] and (both["whole"]["answer"]["usage"] or {}).get("total_tokens")
    for answer in both.values():
        if "answer" in answer and not sent:
            del answer["answer"]["usage"]  # litellm counts for itself what the server did not say
        elif "answer" in answer:
            usage = answer["answer"]["usage"]
            answer["answer"]["usage"] = [usage.get(key) for key in ("prompt_tokens", "completion_tokens", "total_tokens")]
    return both


shapes = {name: read(name) for name in json.load(sys.stdin)}
json.dump({"version": version("litellm"), "shapes": shapes}, sys.stdout)
