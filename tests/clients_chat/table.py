"""Every completion shape against every client, over a real local server: equal, or the client's own limit.

`python tests/clients_chat/table.py` prints the table; `--write` puts it into `docs/chat-clients.md`, `--check` fails if
that is not what the clients do now. The clients run in environments of their own, which `make test-chat-clients` installs.
`limits.json` holds for each client what it cannot do: what is seen of it, and how the table names it.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette

from dragent_stream.asgi.completions import chat_completions_route
from dragent_stream.chat_completions import assemble_chat_completion, read_chat_completion

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
OTHER_PYTHON = ROOT / ".venvs" / "chat-clients" / "bin" / "python"
AGENTS_PYTHON = ROOT / ".venvs" / "chat-agents" / "bin" / "python"
NODE = ROOT / "scripts" / "node"
SHAPES: dict[str, dict[str, Any]] = json.loads((HERE / "shapes.json").read_text("utf-8"))
LIMITS: dict[str, dict[str, dict[str, str]]] = json.loads((HERE / "limits.json").read_text("utf-8"))
TABLE = ROOT / "docs" / "chat-clients.md"
GYM = HERE / "gym.md"
_HEAD = """# Completions and clients

What a client reads from the stream of `synthesize_chat_completion_sse`, for every shape of a completion, over a real
local server. *equal*: nothing is lost. Everything else is the limit of the client named. OpenAI's clients are held
against the completion itself, all others against their own answer to the same request without streaming (what they never
show is equal there). Null keys count as absent; for litellm and llama-index, empty texts too. litellm names the model that
was asked for, and counts tokens itself where the server says nothing of usage; both are left out. `make test-chat-clients`
checks this page. npm openai 7 and ai 7 need Node 22; where the system has an older one, it is fetched.

"""
_CLIENT_KEYS = {"parsed", "parsed_arguments"}  # what the SDKs add to the answer


@contextmanager
def server() -> Iterator[str]:
    """The route on a free port; the model's name is the shape that it answers with."""
    app = Starlette(routes=[chat_completions_route(lambda body: SHAPES[body["model"]])])
    started = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[Any] | None = None) -> None:
            await super().startup(sockets)
            started.set()

    running = Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        if not started.wait(30):
            raise RuntimeError("the server did not start within 30 s")
        port = running.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        running.should_exit = True
        thread.join()


def ask(command: list[str], url: str) -> dict[str, Any]:
    """What one client says about all shapes."""
    script, *arguments = command[1:]
    done = subprocess.run(
        [command[0], script, url, *arguments],
        input=json.dumps(list(SHAPES)),
        capture_output=True,
        text=True,
        cwd=HERE,
        env={**os.environ, "NODE_MAJOR": "22"},
    )
    if done.returncode:
        raise RuntimeError(f"{script} failed; are the clients installed (make test-chat-clients)?\n{done.stderr}")
    return json.loads(done.stdout)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None and k not in _CLIENT_KEYS}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def difference(got: Any, expected: Any, path: str = "") -> str:
    """The first places where two answers differ; empty if they are equal."""
    if isinstance(got, dict) and isinstance(expected, dict):
        found = [
            difference(got.get(key), expected.get(key), f"{path}.{key}".lstrip(".")) for key in {**expected, **got}
        ]
        return "; ".join(text for text in found if text)
    if isinstance(got, list) and isinstance(expected, list) and len(got) == len(expected):
        found = [difference(*pair, f"{path}[{i}]") for i, pair in enumerate(zip(got, expected, strict=True))]
        return "; ".join(text for text in found if text)
    return "" if got == expected else f"{path}: {json.dumps(got)} for {json.dumps(expected)}"


def judge_openai(result: dict[str, Any], shape: dict[str, Any]) -> str:
    answer = result.get("answer")
    for choice in (answer or {}).get("choices", []):
        for call in choice["message"].get("tool_calls") or []:
            call.pop("index", None)  # the accumulator's, not the answer's
    found = difference(without_nulls(answer), without_nulls(read_chat_completion(shape)))
    raised = f"raises {result['raised'].splitlines()[0]}" if "raised" in result else ""
    if answer is None or answer.get("object") == "chat.completion.chunk":
        found = "has no answer"
    events = result.get("order", [])  # npm: the events of each call, which must not be reported done before its delta
    if events != [event for call in range(len(events) // 2) for event in (f"delta {call}", f"done {call}")]:
        found += f"; events in the order {events}"
    return ", ".join(text for text in (raised, found) if text)


def judge_chunks(result: dict[str, Any], shape: dict[str, Any]) -> str:
    answer = assemble_chat_completion(result["chunks"])
    return difference(without_nulls(answer), without_nulls(read_chat_completion(shape)))


def judge_itself(result: dict[str, Any], shape: dict[str, Any]) -> str:
    streamed, whole = result["streamed"], result["whole"]
    if "raised" in streamed:
        return f"raises {streamed['raised']}" + (", not streamed too" if "raised" in whole else "")
    if "raised" in whole:
        return f"raises {whole['raised']} where it is not streamed"
    return difference(without_nulls(streamed["answer"]), without_nulls(whole["answer"]))


def observe(url: str) -> dict[str, dict[str, str]]:
    """For each client, what it says about each shape; an empty text is equal."""
    columns: dict[str, dict[str, str]] = {}

    def column(name: str, answers: dict[str, Any], judge: Any) -> None:
        title = name.format(answers["version"])
        columns[title] = {shape: judge(answers["shapes"][shape], SHAPES[shape]) for shape in SHAPES}

    for python in (sys.executable, str(OTHER_PYTHON)):
        answers = ask([python, "client_openai.py"], url)
        column("openai-python {} chunks", answers, judge_chunks)
        column("openai-python {} `.stream()`", answers, judge_openai)
    column("langchain-openai {}", ask([str(OTHER_PYTHON), "client_langchain.py"], url), judge_itself)
    column("litellm {}", ask([str(OTHER_PYTHON), "client_litellm.py"], url), judge_itself)
    column("llama-index openai-like {}", ask([str(OTHER_PYTHON), "client_llama_index.py"], url), judge_itself)
    column("pydantic-ai {}", ask([str(AGENTS_PYTHON), "client_pydantic_ai.py"], url), judge_itself)
    column("openai-agents {}", ask([str(AGENTS_PYTHON), "client_openai_agents.py"], url), judge_itself)
    for major in ("5", "6", "7"):
        column("npm openai {} `.stream()`", ask([str(NODE), "client_openai.mjs", major], url), judge_openai)
    for major in ("5", "6", "7"):
        column("npm ai {}, openai-compatible", ask([str(NODE), "client_ai.mjs", major], url), judge_itself)
    return columns


def families(client: str) -> tuple[str, str]:
    """What the limits call a client: without its version, and with its major version."""
    words = client.replace(",", "").split()
    majors = [word.partition(".")[0] if word[0].isdigit() else word for word in words]
    return " ".join(word for word in words if not word[0].isdigit()), " ".join(majors)


def limit_of(client: str, shape: str) -> dict[str, str]:
    """The known limit of a client: what is `seen`, and what the table says; empty if none."""
    return next((LIMITS[family][shape] for family in families(client) if shape in LIMITS.get(family, {})), {})


def problems(columns: dict[str, dict[str, str]]) -> list[str]:
    """Cells that are neither equal nor the known limit."""
    return [
        f"{client} / {shape}: {seen or 'equal'} (expected: {limit_of(client, shape).get('seen', 'equal')})"
        for client, cells in columns.items()
        for shape, seen in cells.items()
        if seen != limit_of(client, shape).get("seen", "")
    ]


def markdown(clients: Iterable[str]) -> str:
    """The page for these clients."""
    lines = ["| completion | " + " | ".join(clients) + " |", "| --- |" + " --- |" * len([*clients])]
    for shape in SHAPES:
        cells = [limit_of(client, shape).get("limit", "equal") for client in clients]
        lines.append(f"| {shape} | " + " | ".join(cells) + " |")
    return _HEAD + "\n".join(lines) + "\n\n" + GYM.read_text("utf-8")


def main() -> int:
    with server() as url:
        columns = observe(url)
    found = problems(columns)
    text = markdown(columns)
    print(text, end="")
    print("\n".join(found), file=sys.stderr)
    if "--write" in sys.argv:
        TABLE.parent.mkdir(exist_ok=True)
        TABLE.write_text(text, "utf-8")
    elif "--check" in sys.argv and (not TABLE.exists() or TABLE.read_text("utf-8") != text):
        print("docs/chat-clients.md is not current: run tests/clients_chat/table.py --write", file=sys.stderr)
        return 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
