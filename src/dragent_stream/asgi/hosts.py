"""Which names of the server a request may use: the guard against DNS rebinding.

A web page can point its own name at 127.0.0.1 and then talk to a server there as if it were its own; what the browser
still says is that name, in `Host`. A server that is only for this machine therefore answers to this machine's names only.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dragent_stream.errors import ConversionError

__all__ = ["LOOPBACK_HOSTS", "AllowedHosts", "hosts_for_bind"]

LOOPBACK_HOSTS = ("localhost", "*.localhost", "127.0.0.1", "::1")
"""The names of this machine; 127.0.0.1 stands for all of 127.0.0.0/8."""


def hosts_for_bind(address: str, allowed: Sequence[str] | None = None) -> Sequence[str] | None:
    """The hosts that a server on this address should answer to.

    Args:
        address: What the server listens on.
        allowed: Hosts that were asked for.

    Returns:
        On a loopback address its names and those asked for; elsewhere those asked for, None (all) without them.
    """
    if not _is_loopback(_bare(address)):
        return allowed or None
    return (*LOOPBACK_HOSTS, *(allowed or ()))


class AllowedHosts:
    """ASGI middleware that refuses requests to other hosts with 421 before anything else looks at them.

    Args:
        app: The application.
        allowed: Names or addresses, of any port or with one: `example.com`, `*.example.com` (names below it),
            `example.com:8443`, `127.0.0.1`, `::1` or `[::1]`; `*` for all.

    Raises:
        ConversionError: An entry is no host.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        self._app = app
        self._allowed = {_checked(entry) for entry in allowed}
        self._suffixes = tuple(entry[1:] for entry in self._allowed if entry.startswith("*."))
        self._names = ", ".join(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] in ("http", "websocket") and not self._allows(_hosts(scope)):
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            message = (
                f"host: this server answers to {self._names}, not to {', '.join(_hosts(scope)) or 'no host'!r}; "
                "name further hosts with allowed_hosts"
            )
            error = {"code": "host_not_allowed", "message": message, "field": "host"}
            await JSONResponse({"error": error}, status_code=421)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _allows(self, hosts: list[str]) -> bool:
        if "*" in self._allowed:
            return True
        if len(hosts) != 1:  # two of them are two opinions about who is meant
            return False
        host, port = _split(hosts[0].strip().lower())
        host = _bare(host)
        if host in self._allowed or f"{host}:{port}" in self._allowed or f"[{host}]:{port}" in self._allowed:
            return True
        if "127.0.0.1" in self._allowed and _is_loopback(host) and host.startswith("127."):
            return True
        return bool(self._suffixes) and host.endswith(self._suffixes)


def _hosts(scope: Scope) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"host"]


def _split(host: str) -> tuple[str, str]:
    """Host and port of an authority; a port that is none makes no host."""
    if host.startswith("["):
        name, closed, port = host.partition("]")
        if not closed or (port and not port.startswith(":")):
            return "", ""
        host, port = name + "]", port[1:]
    else:
        host, _, port = host.partition(":")
    return (host, port) if port.isdecimal() or not port else ("", "")


def _bare(host: str) -> str:
    """Without the brackets of an IPv6 address, its several spellings, and the dot that may end a name."""
    bare = host.removesuffix(".")
    if bare.startswith("[") and bare.endswith("]"):
        bare = bare[1:-1]
    if ":" in bare:
        try:
            return ip_address(bare).compressed
        except ValueError:
            return bare
    return bare


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _checked(entry: str) -> str:
    host = entry.strip().lower()
    name = host.removeprefix("*.")
    if host == "*":
        return host
    if not name or any(mark in name for mark in "/*@?# ") or (host != name and name.startswith("[")):
        raise ConversionError(f"{entry!r} in allowed_hosts is no host; give a name or an address, as in 'example.com'")
    if name.count(":") == 1:  # a port; an IPv6 address has more colons
        return host
    if name.startswith("[") and not name.endswith("]"):
        bare, port = _split(name)
        return f"[{_bare(bare)}]:{port}"
    return _bare(host)
