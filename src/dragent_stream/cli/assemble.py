"""A recorded stream to the complete chat completion that it adds up to."""

from __future__ import annotations

from typing import Any

from dragent_stream.chat_completions import ChatCompletionAssembler
from dragent_stream.cli.reading import Problem, Recording
from dragent_stream.cli.screen import say
from dragent_stream.errors import ConversionError, TraceFormatError, UpstreamError
from dragent_stream.fields import fields_of
from dragent_stream.foreign import describe
from dragent_stream.trace import read_trace

__all__ = ("assemble_recording",)

_BESIDE_CHOICES = frozenset({"id", "object", "created", "model", "usage"})


def assemble_recording(recording: Recording, on_problem: Problem) -> dict[str, Any]:
    """Put the chunks of a recording together.

    Args:
        recording: A trace of any shape.
        on_problem: Called with each line that cannot be read, and with the failure of a stream that failed.

    Returns:
        The completion. Lines that are no chunks, such as tool results, are left out, with a warning that counts them.

    Raises:
        TraceFormatError: No line is a chunk with a choice, or one is broken; says what the first one looks like.
    """
    if recording.kind == "events":
        raise TraceFormatError(
            "holds AG-UI events, no chunks", source=recording.name, remedy="check it with: dragent-stream validate"
        )
    assembler = ChatCompletionAssembler()
    taken = left_out = 0
    first = ""
    for item in read_trace(recording.lines, name=recording.name, on_problem=on_problem):
        if item.kind == "chunk" and not _is_chunk(item.value):
            left_out += 1
            first = first or f"the first looks like {describe(item.value)}"
        elif item.kind == "chunk":
            taken += 1
            try:
                assembler.feed(item.value)
            except UpstreamError as error:
                on_problem(TraceFormatError(f"the stream failed: {error}", source=recording.name, line=item.line))
                break
            except ConversionError as error:
                raise TraceFormatError(str(error), source=recording.name, line=item.line) from None
        elif item.kind in ("error", "cut"):
            on_problem(TraceFormatError(f"the stream failed: {item.value}", source=recording.name, line=item.line))
    completion = assembler.finish() if taken else {}
    if not completion.get("choices"):
        raise TraceFormatError("holds no chunk with a choice" + (f"; {first}" if first else ""), source=recording.name)
    if left_out:
        were = "1 line is no chunk and is" if left_out == 1 else f"{left_out} lines are no chunks and are"
        say(f"{recording.name}: {were} left out; {first}")
    return completion


def _is_chunk(value: object) -> bool:
    """It has choices, or is what else comes between those that have: an error, or the usage alone."""
    fields = fields_of(value)
    return fields is not None and ("choices" in fields or bool(fields.get("error")) or fields.keys() <= _BESIDE_CHOICES)
