"""The template floor: what the frames cost when nothing is read and nothing decided.

A byte template per message and one escaped string per delta, through the two async generators that any bridge has (the
upstream and the bridge itself). No bridge in CPython can be faster without dropping the generator or the JSON escape.
"""

from collections.abc import AsyncGenerator, AsyncIterable
from json.encoder import encode_basestring_ascii as escape

_PREFIX = '{"type":"TEXT_MESSAGE_CONTENT","messageId":"00000000-0000-4000-8000-000000000000","delta":'


async def floor_sse(deltas: AsyncIterable[str]) -> AsyncGenerator[bytes]:
    """One frame per delta, like the frames of a text message."""
    prefix = b"data: " + _PREFIX.encode()
    async for delta in deltas:
        yield prefix + escape(delta).encode() + b"}\n\n"
