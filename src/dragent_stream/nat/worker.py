"""The FastAPI worker: NAT's routes, the AG-UI route, health routes, and step adaptors that fit each route."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from ag_ui.core import RunAgentInput
from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from dragent_stream.nat import identity, nat_streams
from dragent_stream.nat.frontend import DragentStreamFrontEndConfig
from dragent_stream.nat.gate import Gate, request_path
from dragent_stream.nat.health import add_health_routes
from dragent_stream.nat.imports import Config, SessionManager, StepAdaptor, StepAdaptorMode, WorkflowBuilder
from dragent_stream.nat.open_runs import OpenRuns, drain_on_signals
from dragent_stream.nat.route import AguiRoute
from dragent_stream.nat.server_imports import FastApiFrontEndPluginWorker
from dragent_stream.nat.sessions import RequestSessionManager
from dragent_stream.nat.shared_models import lift_connection_limit, share_models
from dragent_stream.nat.step_adaptor import AguiStepAdaptor, SilentStepAdaptor
from dragent_stream.options import ConverterOptions

__all__ = ["DragentStreamWorker"]


class DragentStreamWorker(FastApiFrontEndPluginWorker):
    """NAT's worker with the AG-UI route.

    Works under `_type: fastapi` with `runner_class: dragent_stream.nat.worker.DragentStreamWorker` too, with the
    default settings of the AG-UI route.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        front_end: Any = config.general.front_end
        settings = front_end if isinstance(front_end, DragentStreamFrontEndConfig) else DragentStreamFrontEndConfig()
        self._settings = settings
        self._runs = OpenRuns(settings.max_concurrent_runs)
        self._options = ConverterOptions(nested=settings.nested_output, expose_errors=settings.expose_errors)
        identity.configure(
            settings.auth_key_variable, audience=settings.auth_audience, require_expiry=settings.auth_require_expiry
        )
        identity.patch()
        nat_streams.patch()
        lift_connection_limit()

    def build_app(self) -> FastAPI:
        """NAT's app; the health routes come first, because the first of two equal routes wins."""
        app = super().build_app()
        add_health_routes(app)
        settings = self._settings
        gate = Middleware(
            Gate,
            runs=self._runs,
            run_paths=self._run_paths(),
            session_managers=lambda: self._session_managers,
            auth_required=settings.auth_required,
            max_body_bytes=settings.max_body_bytes,
        )
        app.user_middleware.append(gate)  # inside of CORS, so that a browser can read a refusal
        nats_lifespan = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncGenerator[Any, None]:
            async with nats_lifespan(app) as state:
                with drain_on_signals(self._runs, settings.shutdown_grace_seconds):
                    yield state
                await self._runs.drain(0)

        app.router.lifespan_context = lifespan
        return app

    async def _create_session_manager(
        self, builder: WorkflowBuilder, entry_function: str | None = None
    ) -> SessionManager:
        """NAT's sessions, made safe for a server."""
        share_models(builder)
        manager = await RequestSessionManager.opened(
            self.config,
            builder,
            entry_function,
            runs=self._runs,
            max_users=self._settings.max_users,
            options=self._options,
        )
        self._session_managers.append(manager)
        return manager

    async def add_default_route(self, app: FastAPI, session_manager: SessionManager) -> None:
        """NAT's routes of the workflow, and the AG-UI route on the same sessions."""
        await super().add_default_route(app, session_manager)
        assert isinstance(session_manager, RequestSessionManager)
        settings = self._settings
        route = AguiRoute(session_manager, options=self._options, keep_alive=settings.keep_alive_seconds)

        async def agui(request: Request) -> Response:
            return await route(request)

        path = settings.agui_path
        app.add_api_route(
            path,
            agui,
            methods=["POST"],
            response_class=Response,
            description="One run of the workflow as AG-UI events.",
            openapi_extra=_agui_operation(path),
            responses={200: {"content": {"text/event-stream": {}}, "description": "The events of the run."}},
        )
        for other in self._agui_paths() - {path}:
            app.add_api_route(other, agui, methods=["POST"], response_class=Response, include_in_schema=False)

    def get_step_adaptor(self) -> StepAdaptor:
        """What NAT's own routes make of steps: AG-UI on the generate routes, nothing on the OpenAI routes.

        NAT calls it once for each request, and writes whatever an adaptor returns into the stream of the route.
        """
        path, config = request_path.get(), self.front_end_config.step_adaptor
        if config.mode == StepAdaptorMode.OFF or path in self._openai_paths():
            return SilentStepAdaptor(config)
        if path.endswith("/stream"):
            return AguiStepAdaptor(config, self._options)
        return super().get_step_adaptor()

    def _agui_paths(self) -> set[str]:
        path = self._settings.agui_path
        return {path, path.rstrip("/") + "/"}

    def _openai_paths(self) -> set[str]:
        return self._paths(("openai_api_path", "openai_api_v1_path", "legacy_openai_api_path"), ("", "/stream"))

    def _run_paths(self) -> set[str]:
        generate = self._paths(("path", "legacy_path"), ("", "/stream", "/full", "/atif"))
        return generate | self._openai_paths() | self._agui_paths()

    def _paths(self, names: tuple[str, ...], endings: tuple[str, ...]) -> set[str]:
        endpoints: list[Any] = [self.front_end_config.workflow, *self.front_end_config.endpoints]
        bases = [path for endpoint in endpoints for name in names if (path := getattr(endpoint, name, None))]
        return {base + ending for base in bases for ending in endings}


def _agui_operation(path: str) -> dict[str, Any]:
    """The request body for the OpenAPI page; its definitions stand inside of it."""
    place = f"#/paths/{path.replace('~', '~0').replace('/', '~1')}/post/requestBody/content/application~1json/schema"
    schema = RunAgentInput.model_json_schema(by_alias=True, ref_template=place + "/$defs/{model}")
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
