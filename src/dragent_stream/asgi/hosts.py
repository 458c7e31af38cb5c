"""Which names of the server a request may use: the guard against DNS rebinding.

A web page can point its own name at 127.0.0.1 and then talk to a server there as if it were its own; what the browser
still says is that name, in `Host`. A server that is only for this machine therefore answers to this machine's names only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dragent_stream.errors import ConversionError

__all__ = ["LOOPBACK_HOSTS", "AllowedHosts", "HostRules", "hosts_for_bind"]

# RFC 3986, authority: a name or an IPv4 address, or an IPv6 one in brackets; then perhaps a port.
_AUTHORITY = re.compile(r"(?:(?P<name>[\w.-]+)|\[(?P<address>[0-9a-f:.]+)\])(?::(?P<port>[0-9]+))?", re.ASCII)

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
    if not _is_loopback(address.lower()):
        return allowed or None
    return (*LOOPBACK_HOSTS, *(allowed or ()))


class HostRules:
    """The hosts that are allowed.

    Args:
        allowed: Names or addresses, for any port or with one: `example.com`, `*.example.com` (names below it),
            `example.com:8443`, `127.0.0.1` (with all of 127.0.0.0/8), `::1` or `[::1]`; `*` for all.

    Raises:
        ConversionError: An entry is no host, or there is none.
    """

    def __init__(self, allowed: Sequence[str]) -> None:
        if isinstance(allowed, str):
            raise ConversionError(f"allowed_hosts must be a list of hosts, not a text; write [{allowed!r}]")
        if not allowed:
            raise ConversionError("allowed_hosts is empty, so no request would be served; None allows any host")
        self._entries = {_checked(entry) for entry in allowed}
        self._suffixes = tuple(entry[1:] for entry in self._entries if entry.startswith("*."))
        self.names = ", ".join(allowed)

    def allow(self, hosts: Sequence[str]) -> bool:
        """Whether a request with these `Host` headers is served; one with two leaves open who is meant, and is not."""
        if "*" in self._entries:
            return True
        if len(hosts) != 1:
            return False
        host, port = _split(hosts[0].strip().lower())
        if host in self._entries or (port and f"{host}:{port}" in self._entries):
            return True
        if "127.0.0.1" in self._entries and host.startswith("127.") and _is_loopback(host):
            return True
        return bool(self._suffixes) and host.endswith(self._suffixes)


class AllowedHosts:
    """ASGI middleware that refuses requests to other hosts with 421 before anything else looks at them."""

    def __init__(self, app: ASGIApp, rules: HostRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in ("http", "websocket") or self._rules.allow(hosts := _hosts(scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            message = (
                f"host: this server answers to {self._rules.names}, not to {', '.join(hosts) or 'no host'!r}; "
                "name further hosts with allowed_hosts"
            )
            error = {"code": "host_not_allowed", "message": message, "field": "host"}
            await JSONResponse({"error": error}, status_code=421)(scope, receive, send)


def _hosts(scope: Scope) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"host"]


def _split(authority: str) -> tuple[str, str]:
    """Host and port of an authority, the host as `HostRules` keeps it; nothing where it is none."""
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return "", ""
    name, address, port = match.group("name", "address", "port")
    return (f"[{_compressed(address)}]" if address else name.removesuffix(".")), port or ""


def _compressed(address: str) -> str:
    """An IPv6 address in its one short spelling."""
    try:
        return ip_address(address).compressed
    except ValueError:
        return address


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _checked(entry: str) -> str:
    """An entry as a request's host is read."""
    host = entry.strip().lower()
    if host == "*":
        return host
    if host.count(":") > 1 and "[" not in host:
        host = f"[{host}]"
    name, port = _split(host.removeprefix("*."))
    if not name or (host.startswith("*.") and name.startswith("[")):
        raise ConversionError(f"{entry!r} in allowed_hosts is no host; give a name or an address, as in 'example.com'")
    return ("*." if host.startswith("*.") else "") + name + (f":{port}" if port else "")
