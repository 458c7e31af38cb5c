"""NeMo Fabric: native OpenAI streaming from the adapter, over the wire, into AG-UI.

`ChunkStreamAdapter` and `serve_adapter` stand on Fabric's common host (extra `[fabric]`); `OpenAIStreamSink` and
`serve_binding` do without it; `convert_fabric_stream` turns the SDK's stream into an AG-UI run and needs only the SDK
that made the stream, `fabric_chunks` makes it a chunk source, and `fabric_source` its runtimes an agent of `create_app`. Fabric
0.2 to 0.5.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragent_stream.fabric.adapter import ChunkStreamAdapter, serve_adapter
    from dragent_stream.fabric.binding import serve_binding
    from dragent_stream.fabric.consumer import convert_fabric_sse, convert_fabric_stream
    from dragent_stream.fabric.contract import FabricStreamError
    from dragent_stream.fabric.descriptor import write_descriptor
    from dragent_stream.fabric.normalize import ChunkNormalizer
    from dragent_stream.fabric.open_turn import drain_fabric_stream, wait_fabric_drains
    from dragent_stream.fabric.sink import OpenAIStreamSink, StreamTransport
    from dragent_stream.fabric.source import FabricSource, fabric_source
    from dragent_stream.fabric.turn_chunks import fabric_chunks

__all__ = (
    "ChunkNormalizer",
    "ChunkStreamAdapter",
    "FabricSource",
    "FabricStreamError",
    "OpenAIStreamSink",
    "StreamTransport",
    "convert_fabric_sse",
    "convert_fabric_stream",
    "drain_fabric_stream",
    "fabric_chunks",
    "fabric_source",
    "serve_adapter",
    "serve_binding",
    "wait_fabric_drains",
    "write_descriptor",
)

_MODULES = {
    "ChunkNormalizer": "normalize",
    "ChunkStreamAdapter": "adapter",
    "FabricSource": "source",
    "FabricStreamError": "contract",
    "OpenAIStreamSink": "sink",
    "StreamTransport": "sink",
    "convert_fabric_sse": "consumer",
    "convert_fabric_stream": "consumer",
    "drain_fabric_stream": "open_turn",
    "fabric_chunks": "turn_chunks",
    "fabric_source": "source",
    "serve_adapter": "adapter",
    "serve_binding": "binding",
    "wait_fabric_drains": "open_turn",
    "write_descriptor": "descriptor",
}


def __getattr__(name: str) -> Any:
    # On first use: the sink and the consumer must work where the adapter's packages are not installed.
    if name in _MODULES:
        return getattr(import_module(f"dragent_stream.fabric.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
