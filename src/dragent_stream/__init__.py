"""Any stream of OpenAI-style chat chunks, and the agent's own steps next to it, as one valid AG-UI run."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragent_stream.chat_completions import (
        assemble_chat_completion,
        sanitize_streaming_chat_body,
        synthesize_chat_completion_chunks,
        synthesize_chat_completion_sse,
    )
    from dragent_stream.errors import (
        AnswerError,
        ConversionError,
        DragentStreamError,
        MissingExtraError,
        RecordedError,
        SSEError,
        TraceFormatError,
        UpstreamError,
    )
    from dragent_stream.ledger import RunLedger
    from dragent_stream.options import ConverterOptions
    from dragent_stream.response import DRAgentEventResponse
    from dragent_stream.run import stream_agui_run, stream_agui_sse
    from dragent_stream.sse import ChatSSEDecoder, SSEDecoder
    from dragent_stream.step_adaptor import AgentStep, StepConverter
    from dragent_stream.stream_converter import ChunkConverter, convert_chunks_to_agui_events
    from dragent_stream.trace import convert_trace, read_trace, record_chunks, replay_trace

__all__ = [
    "AgentStep",
    "AnswerError",
    "ChatSSEDecoder",
    "ChunkConverter",
    "ConversionError",
    "ConverterOptions",
    "DRAgentEventResponse",
    "DragentStreamError",
    "MissingExtraError",
    "RecordedError",
    "RunLedger",
    "SSEDecoder",
    "SSEError",
    "StepConverter",
    "TraceFormatError",
    "UpstreamError",
    "assemble_chat_completion",
    "convert_chunks_to_agui_events",
    "convert_trace",
    "read_trace",
    "record_chunks",
    "replay_trace",
    "sanitize_streaming_chat_body",
    "stream_agui_run",
    "stream_agui_sse",
    "synthesize_chat_completion_chunks",
    "synthesize_chat_completion_sse",
]

# A room loads when it is entered: pytest loads this package in every project that has it, for its fixtures alone.
_ROOMS = {
    "AgentStep": "step_adaptor",
    "AnswerError": "errors",
    "ChatSSEDecoder": "sse",
    "ChunkConverter": "stream_converter",
    "ConversionError": "errors",
    "ConverterOptions": "options",
    "DRAgentEventResponse": "response",
    "DragentStreamError": "errors",
    "MissingExtraError": "errors",
    "RecordedError": "errors",
    "RunLedger": "ledger",
    "SSEDecoder": "sse",
    "SSEError": "errors",
    "StepConverter": "step_adaptor",
    "TraceFormatError": "errors",
    "UpstreamError": "errors",
    "assemble_chat_completion": "chat_completions",
    "convert_chunks_to_agui_events": "stream_converter",
    "convert_trace": "trace",
    "read_trace": "trace",
    "record_chunks": "trace",
    "replay_trace": "trace",
    "sanitize_streaming_chat_body": "chat_completions",
    "stream_agui_run": "run",
    "stream_agui_sse": "run",
    "synthesize_chat_completion_chunks": "chat_completions",
    "synthesize_chat_completion_sse": "chat_completions",
}


def __getattr__(name: str) -> object:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
