"""Which graphs of a run are a tool's own: what they stream is no part of the conversation.

Only LangChain's callbacks know it. A graph's structure does not tell a tool's agent from one that a node has from a
method, a `functools.partial` or a look-up, and what that one says is the graph's answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler

__all__ = ["GraphsInTools"]

_NAMESPACE = (
    "langgraph_checkpoint_ns"  # of the task that a run belongs to: the graph's namespace and the task, "a:1|b:2"
)


class GraphsInTools(BaseCallbackHandler):
    """Follows the runs of one run; give it as a callback."""

    run_inline = True  # a graph is known before its first part

    def __init__(self) -> None:
        self._tasks: dict[UUID, str] = {}  # by run inside of a tool: the task that runs the tool
        self._graphs: set[tuple[str, ...]] = set()

    @property
    def ignore_llm(self) -> bool:
        """Tokens are none of its business."""
        return True

    @property
    def ignore_chat_model(self) -> bool:
        """Nor is the start of a chat model."""
        return True

    def has(self, namespace: Sequence[str]) -> bool:
        """Whether the graph that streams from this namespace runs inside of a tool."""
        return tuple(namespace) in self._graphs

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """All runs below this one are the tool's."""
        task = str((metadata or {}).get(_NAMESPACE) or "")
        self._tasks[run_id] = self._tasks.get(parent_run_id or run_id, task)

    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: dict[str, Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """A graph, a task of a graph, or a chain in one."""
        task = self._tasks.get(parent_run_id) if parent_run_id else None
        if task is None:
            return
        self._tasks[run_id] = task
        own = str((metadata or {}).get(_NAMESPACE) or "")
        if own != task:  # a task of a graph that the tool runs
            self._graphs.add(tuple(own.split("|")[:-1]))
