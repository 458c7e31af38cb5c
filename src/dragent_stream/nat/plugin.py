"""The front end that NAT runs: its FastAPI plugin with our worker."""

from typing import Any

from dragent_stream.nat.imports import Config
from dragent_stream.nat.server_imports import FastApiFrontEndPlugin

__all__ = ["DragentStreamFrontEnd"]


class DragentStreamFrontEnd(FastApiFrontEndPlugin):
    """NAT's FastAPI front end; the worker adds the AG-UI route."""

    def __init__(self, full_config: Config) -> None:
        super().__init__(full_config)
        # Without dask NAT never sets it, and fails at shutdown for want of it (1.6 to 1.9).
        self._dask_client = None

    def get_worker_class(self) -> type[Any]:
        """The worker class; uvicorn imports it by name in its own process."""
        from dragent_stream.nat.worker import DragentStreamWorker

        return DragentStreamWorker
