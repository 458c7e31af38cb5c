"""The table of completion shapes and clients, and the part of it that needs no other environment than this one."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from dragent_stream.chat_completions import (
    assemble_chat_completion,
    read_chat_completion,
    synthesize_chat_completion_chunks,
)

TABLE = runpy.run_path(str(Path(__file__).parent / "clients_chat" / "table.py"))
SHAPES: dict[str, dict[str, Any]] = TABLE["SHAPES"]


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_comes_back_from_its_stream(name: str) -> None:
    shape = SHAPES[name]
    answer = assemble_chat_completion(synthesize_chat_completion_chunks(shape, include_usage=True))
    assert answer == read_chat_completion(shape)


def test_the_page_names_every_shape_and_every_limit() -> None:
    page: str = TABLE["TABLE"].read_text("utf-8")
    clients = next(line for line in page.splitlines() if line.startswith("| completion |")).strip("| ").split(" | ")[1:]
    assert page == TABLE["markdown"](clients)
    assert set(TABLE["LIMITS"]) <= {name for client in clients for name in TABLE["families"](client)}
    assert all(set(limits) <= set(SHAPES) for limits in TABLE["LIMITS"].values())


def test_openai_python_reads_every_shape_from_a_real_server() -> None:
    with TABLE["server"]() as url:
        answers = TABLE["ask"]([sys.executable, "client_openai.py"], url)
    seen = {
        "openai-python chunks": {name: TABLE["judge_chunks"](answers["shapes"][name], SHAPES[name]) for name in SHAPES},
        "openai-python `.stream()`": {
            name: TABLE["judge_openai"](answers["shapes"][name], SHAPES[name]) for name in SHAPES
        },
    }
    assert TABLE["problems"](seen) == []


def test_a_difference_is_seen_in_a_cell() -> None:
    shape = SHAPES["one tool call"]
    answer = json.loads(json.dumps(read_chat_completion(shape)))
    assert TABLE["judge_openai"]({"answer": answer}, shape) == ""
    answer["choices"][0]["message"]["tool_calls"][0]["id"] = "other"
    late = TABLE["judge_openai"]({"answer": answer, "order": ["done 0", "delta 0"]}, shape)
    assert 'choices[0].message.tool_calls[0].id: "other" for "call_1"' in late
    assert "events in the order ['done 0', 'delta 0']" in late
    assert TABLE["problems"]({"npm openai 6.1 `.stream()`": {"text": "lost", "empty text": ""}}) == [
        "npm openai 6.1 `.stream()` / text: lost (expected: equal)",
        'npm openai 6.1 `.stream()` / empty text: equal (expected: choices[0].message.content: null for "")',
    ]
