"""The FastAPI worker: NAT's routes, the AG-UI route, health routes, and step adaptors that fit each route."""

from contextvars import ContextVar
from typing import Any

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dragent_stream.nat import identity
from dragent_stream.nat.frontend import DragentStreamFrontEndConfig
from dragent_stream.nat.health import add_health_routes
from dragent_stream.nat.imports import Config, SessionManager, StepAdaptor
from dragent_stream.nat.route import AguiRoute
from dragent_stream.nat.server_imports import FastApiFrontEndPluginWorker
from dragent_stream.nat.step_adaptor import AguiStepAdaptor, SilentStepAdaptor
from dragent_stream.options import ConverterOptions

__all__ = ["DragentStreamWorker"]

_path: ContextVar[str] = ContextVar("dragent_stream_path", default="")


class DragentStreamWorker(FastApiFrontEndPluginWorker):
    """NAT's worker with the AG-UI route.

    Works under `_type: fastapi` with `runner_class: dragent_stream.nat.worker.DragentStreamWorker` too, with the
    default settings of the AG-UI route.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        front_end: Any = config.general.front_end
        self._settings = (
            front_end if isinstance(front_end, DragentStreamFrontEndConfig) else DragentStreamFrontEndConfig()
        )
        identity.configure(self._settings.auth_key_variable)
        identity.patch()

    def build_app(self) -> FastAPI:
        """NAT's app; the health routes come first, because the first of two equal routes wins."""
        app = super().build_app()
        add_health_routes(app)
        app.add_middleware(_RememberPath)
        return app

    async def add_default_route(self, app: FastAPI, session_manager: SessionManager) -> None:
        """NAT's routes of the workflow, and the AG-UI route on the same sessions."""
        await super().add_default_route(app, session_manager)
        settings = self._settings
        route = AguiRoute(
            session_manager,
            options=ConverterOptions(nested=settings.nested_output),
            keep_alive=settings.keep_alive_seconds,
        )

        async def agui(request: Any) -> Any:
            return await route(request)

        for path in {settings.agui_path, settings.agui_path.rstrip("/") + "/"}:
            app.router.routes.append(Route(path, agui, methods=["POST"]))

    def get_step_adaptor(self) -> StepAdaptor:
        """What NAT's own routes make of steps: AG-UI on the generate routes, nothing on the OpenAI routes.

        NAT calls it once for each request, and writes whatever an adaptor returns into the stream of the route.
        """
        path = _path.get()
        if any(path == p or path == f"{p}/stream" for p in self._openai_paths()):
            return SilentStepAdaptor(self.front_end_config.step_adaptor)
        if path.endswith("/stream"):
            return AguiStepAdaptor(self.front_end_config.step_adaptor)
        return super().get_step_adaptor()

    def _openai_paths(self) -> list[str]:
        endpoints: list[Any] = [self.front_end_config.workflow, *self.front_end_config.endpoints]
        names = ("openai_api_path", "openai_api_v1_path", "legacy_openai_api_path")
        return [path for endpoint in endpoints for name in names if (path := getattr(endpoint, name, None))]


class _RememberPath:
    """Remembers the path of the request, which NAT does not tell `get_step_adaptor`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            _path.set(scope["path"])
        await self._app(scope, receive, send)
