"""`imports.py` for the server's side of NAT, which is loaded only where a server runs: it takes long."""

from dragent_stream.errors import missing_extra

__all__ = [
    "FastApiFrontEndPlugin",
    "FastApiFrontEndPluginWorker",
    "HTTPInteractiveRunner",
    "common_utils",
    "generate",
    "v1_chat_completions",
]

try:
    from nat.front_ends.fastapi.fastapi_front_end_plugin import FastApiFrontEndPlugin
    from nat.front_ends.fastapi.fastapi_front_end_plugin_worker import FastApiFrontEndPluginWorker
    from nat.front_ends.fastapi.http_interactive_runner import HTTPInteractiveRunner
    from nat.front_ends.fastapi.routes import common_utils, generate, v1_chat_completions
except ImportError as error:
    # SQLAlchemy wants greenlet, which NAT does not bring along (1.6 to 1.9); its error names no module.
    raise missing_extra("nat", ImportError(str(error), name=error.name or "greenlet")) from error
