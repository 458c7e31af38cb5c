"""The chunks of one turn, whose end is a success only where the turn's result is one.

The end of the SDK's stream says nothing: whether the turn succeeded stands in its result alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from types import AsyncGeneratorType, TracebackType
from typing import Any, TypeVar, cast

from dragent_stream.answer_end import holds_content
from dragent_stream.errors import UpstreamError
from dragent_stream.fabric.answer import answer_chunks, usage_chunk
from dragent_stream.fabric.contract import field
from dragent_stream.fabric.failure import result_error, turn_error
from dragent_stream.fabric.open_turn import FabricStream, OpenTurn
from dragent_stream.usage import Usage

__all__ = ["TurnReader", "fabric_chunks", "result_usage", "turn_chunks"]

E = TypeVar("E")


def fabric_chunks(stream: FabricStream) -> AsyncGenerator[Any, None]:
    """The stream of one turn as a chunk source: for `create_app`, `stream_agui_sse` and whoever else takes chunks.

    ```python
    app = create_app(lambda run_input: fabric_chunks(runtime.invoke_openai_stream(input=...)))
    ```

    The turn is read at its own speed from this call on, and runs out when the reader leaves, as with `convert_fabric_stream`.
    A turn whose chunks said nothing gives the answer in its result. Give the stream itself to nobody: its end is no success.

    Args:
        stream: `runtime.invoke_openai_stream(...)`; nobody else may iterate it or await its result.

    Raises:
        UpstreamError: From the iterator: the turn failed; its code is Fabric's, the SDK's exception is its cause.
    """
    turn = OpenTurn(stream)
    return TurnReader(turn, cast("AsyncGeneratorType[Any, None]", turn_chunks(turn)))


async def turn_chunks(turn: OpenTurn) -> AsyncGenerator[Any, None]:
    """`fabric_chunks` of an open turn, which is left when the iterator ends."""
    counted = spoke = False
    try:
        async for chunk in turn:
            counted = counted or bool(field(chunk, "usage"))
            spoke = spoke or not isinstance(chunk, Mapping) or holds_content(cast("Mapping[str, Any]", chunk))
            yield chunk
        result = await turn.result()
    except UpstreamError:
        raise
    except Exception as error:
        raise turn_error(error) from error
    finally:
        turn.leave()
    if (failure := result_error(result)) is not None:
        raise failure
    if not spoke:
        for chunk in answer_chunks(result):
            yield chunk
    if not counted and (usage := result_usage(result)):
        yield usage_chunk(usage)


class TurnReader(AsyncGenerator[E, None]):
    """A generator over a turn, and the one thing that a generator cannot do: notice that it is dropped before it began."""

    def __init__(self, turn: OpenTurn, items: AsyncGeneratorType[E, None]) -> None:
        self._turn = turn
        self._items = items

    async def asend(self, value: None) -> E:
        """The next item."""
        return await self._items.asend(value)

    async def athrow(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
        /,
    ) -> E:
        """End it with an exception."""
        self._turn.leave()
        return await self._items.athrow(typ if isinstance(typ, BaseException) else typ())

    async def aclose(self) -> None:
        """End it early; nothing happens where it has ended."""
        self._turn.leave()
        if not self._items.ag_running:  # a pull that another task is waiting in ends by itself now
            await self._items.aclose()

    def __del__(self) -> None:
        self._turn.leave()


def result_usage(result: Any) -> Usage | None:
    """Fabric's `RunUsage`, for a turn whose chunks counted nothing."""
    usage = field(result, "usage")
    names = ("input_tokens", "output_tokens", "total_tokens", "", "cached_input_tokens")
    counts = [field(usage, name) if name else None for name in names]
    found = Usage(*(count if type(count) is int else None for count in counts))
    return found if any(count is not None for count in found) else None
