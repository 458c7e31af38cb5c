import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragent_stream.sse import ChatSSEDecoder

Cli = Callable[..., Any]

COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "logprobs": None,
            "message": {"role": "assistant", "content": "Hello \u2028 you", "refusal": None},
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
}


def test_a_completion_becomes_a_stream_and_comes_back(cli: Cli, tmp_path: Path) -> None:
    stream = tmp_path / "stream.sse"
    assert cli("synthesize", "-", "--usage", "-o", stream, stdin=json.dumps(COMPLETION).encode()).code == 0
    chunks = ChatSSEDecoder().feed(stream.read_bytes())
    assert "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]) == (
        "Hello \u2028 you"
    )
    ended = cli("assemble", stream)
    assert (ended.code, json.loads(ended.out)) == (0, COMPLETION)


@pytest.mark.parametrize(
    "content",
    [b"", b"[1]", b"{", b'{"choices": 3}', b'{"choices": [{}]}', b'{"choices": [{"delta": {"content": "a"}}]}'],
)
def test_what_is_no_completion_is_refused(cli: Cli, content: bytes) -> None:
    ended = cli("synthesize", "-", stdin=content)
    assert (ended.code, "chat.completion" in ended.err, ended.out) == (2, True, "")


def test_a_trace_is_assembled(cli: Cli, traces: Path) -> None:
    ended = cli("assemble", traces / "nat1.9_plain.jsonl")
    assert json.loads(ended.out)["choices"][0]["message"]["content"] == "Hello there, this is plain text."


def test_a_stream_that_broke_is_assembled_as_far_as_it_came(cli: Cli) -> None:
    cut = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'
    ended = cli("assemble", "-", stdin=cut)
    assert ended.code == 2
    assert "the stream failed" in ended.err
    assert json.loads(ended.out)["choices"][0]["message"]["content"] == "Hel"


def test_a_fabric_descriptor_is_written_once(cli: Cli, tmp_path: Path) -> None:
    args = ("fabric", "init", "acme.support", "--module", "acme.agent", "-o", tmp_path)
    first = cli(*args)
    assert first.code == 0
    assert json.loads(Path(first.out.strip()).read_text())
    again = cli(*args)
    assert (again.code, "exists" in again.err) == (2, True)
    assert cli(*args, "--force").code == 0


def test_an_adapter_without_code_is_refused(cli: Cli, tmp_path: Path) -> None:
    assert cli("fabric", "init", "acme.support", "-o", tmp_path).code == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["no-such-thing"], "no-such-thing"),
        (["http://127.0.0.1:1/v1"], "--model"),
        (["no_module_like_this:agent"], "no_module_like_this"),
        (["http://127.0.0.1:1/v1", "--model", "m", "--key-env", "NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE"),
    ],
)
def test_what_cannot_be_served_is_told(cli: Cli, args: list[str], said: str) -> None:
    ended = cli("serve", *args)
    assert (ended.code, said in ended.err) == (2, True)


def test_a_trace_is_served(cli: Cli, traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr(
        "dragent_stream.asgi.serve.run_server", lambda app, host, port, announce: served.append((app, host, port))
    )
    trace = traces / "nat1.9_plain.jsonl"
    assert cli("serve", trace, "--port", "0", "--path", "/run").code == 0
    [(app, host, port)] = served
    assert (host, port) == ("127.0.0.1", 0)
    assert "/run" in {route.path for route in app.routes if hasattr(route, "path")}


@pytest.mark.parametrize(
    "args", [["no-verb"], ["convert"], ["convert", "x", "--to", "xml"], ["replay", "x", "--speed", "-1"]]
)
def test_wrong_usage_ends_in_2(cli: Cli, args: list[str]) -> None:
    ended = cli(*args)
    assert (ended.code, ended.out) == (2, "")


def test_the_version_is_the_packages(cli: Cli) -> None:
    from importlib.metadata import version

    assert cli("--version").out == version("dragent-stream") + "\n"
