"""Event streams without I/O: SSE, and the chunks that a chat server's bytes hold."""

from dragent_stream.sse.chat import ChatSSEDecoder, decode_chat_chunks
from dragent_stream.sse.events import ServerSentEvent, SSEDecoder, encode_sse_frame

__all__ = ("ChatSSEDecoder", "SSEDecoder", "ServerSentEvent", "decode_chat_chunks", "encode_sse_frame")
