"""Record one request to an OpenAI-compatible endpoint as a trace. No key and no header is ever written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import httpx

from dragent_stream.answer_body import chunks_of_bodies, reads_of_response
from dragent_stream.errors import AnswerError, ConversionError, UpstreamError
from dragent_stream.trace import record_chunks

__all__ = ("endpoint_of", "read_body", "read_headers", "record_request")

_ENDPOINT = "/chat/completions"


def endpoint_of(url: str) -> str:
    """Complete a base URL such as `http://host/v1`; a URL of the endpoint itself is left as it is.

    Raises:
        ConversionError: It is no http(s) URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConversionError(f"{_public(url)!r} is no http(s) URL; give the endpoint, e.g. http://127.0.0.1:8000/v1")
    path = parts.path.rstrip("/")
    return urlunsplit(parts._replace(path=path if path.endswith(_ENDPOINT) else path + _ENDPOINT))


def _public(url: str) -> str:
    """The URL without what may hold a secret: user, password, query, fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def read_headers(lines: list[str], key: str | None) -> dict[str, str]:
    """Read `Name: value` headers, and put the key into Authorization unless a header is there.

    Raises:
        ConversionError: A line is no header. The message does not repeat it: it may be a key.
    """
    headers: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not name.strip().isascii():
            raise ConversionError(f"--header number {number} is no header; write it as 'Name: value'")
        headers[name.strip().lower()] = value.strip()
    if key is not None:
        headers.setdefault("authorization", f"Bearer {key}")
    return headers


def read_body(path: str) -> dict[str, Any]:
    """Read the request's JSON body and ask for a stream.

    Raises:
        ConversionError: It is no JSON object.
        OSError: It cannot be read.
    """
    try:
        body = json.loads(Path(path).read_bytes())
    except ValueError as error:
        raise ConversionError(f"{path} is not JSON ({error}); it must be the request's body") from None
    if not isinstance(body, dict):
        raise ConversionError(f"{path} holds no JSON object; it must be the request's body")
    return cast("dict[str, Any]", body) | {"stream": True}


async def record_request(
    url: str,
    body: Mapping[str, Any],
    headers: Mapping[str, str],
    target: str,
    *,
    transport: httpx.AsyncBaseTransport | None = None,
) -> int:
    """Send the request and write what comes to a trace, line by line as it comes.

    Args:
        url: The endpoint.
        body: The request's body.
        headers: Sent, and nowhere written.
        target: The trace's file; not made where the endpoint refuses.
        transport: Of httpx, for tests.

    Returns:
        The number of chunks.

    Raises:
        UpstreamError: The endpoint cannot be reached, refuses, breaks off, or its answer is not whole; in the last two
            cases the trace holds what came.
    """
    timeout = httpx.Timeout(30.0, read=None)
    # a user in the URL, or a netrc entry, would otherwise replace the header
    auth = _as_it_is if "authorization" in headers else httpx.USE_CLIENT_DEFAULT
    chunks = 0
    try:
        async with (
            httpx.AsyncClient(timeout=timeout, transport=transport) as client,
            client.stream("POST", url, json=body, headers=dict(headers), auth=auth) as response,
        ):
            if response.status_code != 200:
                await response.aread()
                raise UpstreamError(_refusal(response, headers))
            answer = chunks_of_bodies(reads_of_response(response.aiter_bytes()))
            stream = record_chunks(
                answer, target, source="dragent-stream record", url=_public(url), model=body.get("model")
            )
            async for _ in stream:
                chunks += 1
    except httpx.InvalidURL as error:
        raise ConversionError(f"{_public(url)!r} is no URL: {error}") from None
    except (httpx.HTTPError, AnswerError) as error:
        came = f" after {chunks} chunks, which {target} holds" if chunks else ""
        reason = str(error) or type(error).__name__
        raise UpstreamError(f"{_public(url)}: {_without(reason, headers)}{came}") from None
    return chunks


def _as_it_is(request: httpx.Request) -> httpx.Request:
    return request


def _refusal(response: httpx.Response, headers: Mapping[str, str]) -> str:
    status = response.status_code
    remedy = {
        401: "; give a key with --key-env NAME, or a --header",
        403: "; the key may not use this model",
        404: "; is this the base URL, ending in /v1?",
    }.get(status, "")
    if 300 <= status < 400:
        remedy = "; give the URL that it redirects to"
    text = " ".join(_without(response.text, headers).split())[:300]
    return f"{_public(str(response.request.url))} answered {status}: {text or response.reason_phrase}{remedy}"


def _without(text: str, headers: Mapping[str, str]) -> str:
    """Text of the server without the secrets that were sent to it."""
    for value in headers.values():
        for secret in {value, value.removeprefix("Bearer ")}:
            if len(secret) > 3:
                text = text.replace(secret, "***")
    return text
