"""Health routes at `/`, `/ping` and `/health`, each with and without a slash at the end."""

from fastapi import FastAPI

__all__ = ["add_health_routes"]

PATHS = ("/", "/ping", "/ping/", "/health", "/health/")


async def health() -> dict[str, str]:
    """Say that the server is up; no workflow is touched."""
    return {"status": "healthy"}


def add_health_routes(app: FastAPI) -> None:
    """Add the routes; call it before NAT adds its own `/health`, because the first of two equal routes wins."""
    for path in PATHS:
        app.add_api_route(path, health, methods=["GET"], include_in_schema=path == "/health", tags=["Health"])
