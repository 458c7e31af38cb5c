"""Chat Completions in both directions: a whole completion to its stream, and a stream to the whole completion."""

from dragent_stream.chat_completions.assemble import (
    ChatCompletionAssembler,
    assemble_chat_completion,
    assemble_chat_completion_async,
)
from dragent_stream.chat_completions.sanitize import (
    OPENAI_CHAT_FIELDS,
    STRICT_CHAT_FIELDS,
    sanitize_streaming_chat_body,
)
from dragent_stream.chat_completions.schema import ChatCompletion, read_chat_completion
from dragent_stream.chat_completions.synthesize import (
    stream_chat_completion_sse,
    synthesize_chat_completion_chunks,
    synthesize_chat_completion_sse,
)

__all__ = (
    "OPENAI_CHAT_FIELDS",
    "STRICT_CHAT_FIELDS",
    "ChatCompletion",
    "ChatCompletionAssembler",
    "assemble_chat_completion",
    "assemble_chat_completion_async",
    "read_chat_completion",
    "sanitize_streaming_chat_body",
    "stream_chat_completion_sse",
    "synthesize_chat_completion_chunks",
    "synthesize_chat_completion_sse",
)
