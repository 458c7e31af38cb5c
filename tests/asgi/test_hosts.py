"""Which hosts a server answers to: its own names with any port and in any spelling, and nobody else's."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from asgi_wire import exchange, run_input
from starlette.applications import Starlette
from starlette.routing import Mount

from dragent_stream.asgi import LOOPBACK_HOSTS, create_app
from dragent_stream.asgi.hosts import hosts_for_bind
from dragent_stream.errors import ConversionError
from dragent_stream.testing.chunks import finish_chunk, text_chunk


async def agent(run_input: Any) -> list[Any]:
    return [text_chunk("Hello"), finish_chunk()]


async def status_for(host: str, *allowed: str, target: str = "/health") -> int:
    app = create_app(agent, allowed_hosts=allowed or LOOPBACK_HOSTS)
    return (await exchange(app, "GET", target, headers={"host": host})).status


@pytest.mark.parametrize(
    "host",
    [
        *(
            "localhost",
            "localhost:8000",
            "LOCALHOST:1",
            "localhost.",
            "localhost.:80",
            "app.localhost",
            "app.localhost:3",
        ),
        *("127.0.0.1", "127.0.0.1:8000", "127.1.2.3", "127.255.255.254:9"),
        *("[::1]", "[::1]:8000", "[0:0:0:0:0:0:0:1]:8000"),
    ],
)
async def test_a_loopback_server_answers_to_the_names_of_this_machine(host: str) -> None:
    assert await status_for(host) == 200


@pytest.mark.parametrize(
    "host",
    [
        *(
            "evil.test",
            "evil.test:8000",
            "localhost.evil.test",
            "evil-localhost",
            "notlocalhost",
            "127.0.0.1.evil.test",
        ),
        *("127.evil.test", "128.0.0.1", "0.0.0.0", "192.168.1.5:8000", "[::2]", "[::1", "[::1]x", "[evil.test]", "::1"),
        *(
            "localhost:80:80",
            "localhost:evil",
            "localhost@evil.test",
            "evil.test#localhost",
            "localhost/",
            " ",
            ".",
            ":80",
        ),
        *("evil.test, localhost", ".localhost.evil", "127.0.0.1 evil.test", "2130706433", "127.1"),
    ],
)
async def test_it_answers_to_no_other_name(host: str) -> None:
    assert await status_for(host) == 421


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/agui"),
        ("POST", "/agui/r/stop"),
        ("GET", "/"),
        ("GET", "/page/app.js"),
        ("GET", "/ping"),
        ("GET", "/no"),
    ],
)
async def test_no_route_is_open_to_a_foreign_host(method: str, target: str) -> None:
    asked: list[Any] = []
    app = create_app(asked.append, page=True, allowed_hosts=LOOPBACK_HOSTS)
    done = await exchange(app, method, target, run_input(), {"host": "evil.test:8000"})
    assert done.status == 421
    assert done.json == {
        "error": {
            "code": "host_not_allowed",
            "message": "host: this server answers to localhost, *.localhost, 127.0.0.1, ::1, not to 'evil.test:8000'; "
            "name further hosts with allowed_hosts",
            "field": "host",
        }
    }
    assert asked == []


async def test_a_foreign_host_gets_no_leave_from_cors_either() -> None:
    app = create_app(agent, allow_origins=["*"], allowed_hosts=LOOPBACK_HOSTS)
    headers = {"host": "evil.test", "origin": "http://evil.test", "access-control-request-method": "POST"}
    done = await exchange(app, "OPTIONS", "/agui", headers=headers)
    assert done.status == 421
    assert not any(name.startswith("access-control") for name in done.headers)


async def test_no_host_and_two_hosts_are_refused() -> None:
    app = create_app(agent, allowed_hosts=LOOPBACK_HOSTS)
    assert (await exchange(app, "GET", "/health", headers={"host": ""})).status == 421
    assert (await exchange(app, "GET", "/health", headers={"host": "localhost", "Host": "evil.test"})).status == 421


async def test_without_allowed_hosts_any_host_is_served_for_a_proxy_may_be_in_front() -> None:
    assert (await exchange(create_app(agent), "GET", "/health", headers={"host": "any.test"})).status == 200


@pytest.mark.parametrize(
    ("allowed", "host", "status"),
    [
        ("example.com", "example.com", 200),
        ("example.com", "Example.com:8443", 200),
        ("example.com", "sub.example.com", 421),
        ("*.example.com", "sub.example.com:1", 200),
        ("*.example.com", "a.b.example.com", 200),
        ("*.example.com", "example.com", 421),
        ("*.example.com", "badexample.com", 421),
        ("example.com:8443", "example.com:8443", 200),
        ("example.com:8443", "example.com", 421),
        ("example.com:8443", "example.com:80", 421),
        ("10.0.0.7", "10.0.0.7:8000", 200),
        ("[2001:db8::1]", "[2001:db8:0::1]:80", 200),
        ("2001:db8::1", "[2001:db8::1]", 200),
        ("[2001:db8::1]:90", "[2001:db8::1]:90", 200),
        ("[2001:db8::1]:90", "[2001:db8::1]:91", 421),
        ("127.0.0.1", "localhost", 421),
        ("*", "anything.test", 200),
    ],
)
async def test_further_hosts_are_names_wildcards_and_addresses_with_or_without_port(
    allowed: str, host: str, status: int
) -> None:
    assert await status_for(host, allowed) == status


@pytest.mark.parametrize(
    "entry", ["", " ", "http://example.com", "example.com/agui", "*.", "ex*mple.com", "*example.com"]
)
def test_what_is_no_host_is_refused_when_the_application_is_made(entry: str) -> None:
    with pytest.raises(ConversionError, match="in allowed_hosts is no host; give a name or an address"):
        create_app(agent, allowed_hosts=[entry])


def test_a_text_and_an_empty_list_are_no_hosts() -> None:
    with pytest.raises(ConversionError, match=r"a list of hosts, not a text; write \['localhost'\]"):
        create_app(agent, allowed_hosts="localhost")
    with pytest.raises(ConversionError, match="no request would be served; None allows any host"):
        create_app(agent, allowed_hosts=[])


async def test_an_application_that_is_mounted_keeps_its_own_hosts() -> None:
    outer = Starlette(routes=[Mount("/agent", create_app(agent, allowed_hosts=["example.com"]))])
    assert (await exchange(outer, "GET", "/agent/health", headers={"host": "example.com"})).status == 200
    assert (await exchange(outer, "GET", "/agent/health", headers={"host": "evil.test"})).status == 421


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "localhost", "::1", "[::1]"])
def test_a_server_on_a_loopback_address_answers_to_loopback_hosts_and_those_asked_for(address: str) -> None:
    assert hosts_for_bind(address) == LOOPBACK_HOSTS
    assert hosts_for_bind(address, ["box.test"]) == (*LOOPBACK_HOSTS, "box.test")


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.5", "box.test", ""])
def test_a_server_on_another_address_answers_to_any_host_unless_some_are_named(address: str) -> None:
    assert hosts_for_bind(address) is None
    assert hosts_for_bind(address, ["box.test"]) == ["box.test"]


async def test_serve_on_loopback_keeps_a_page_out_that_points_its_own_name_here(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(json.dumps({"choices": [{"delta": {"content": "Hello"}, "finish_reason": "stop"}]}) + "\n")
    command = [sys.executable, "-m", "dragent_stream", "serve", str(trace), "--port", "0", "--allow-host", "box.test"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env={**os.environ, "COLUMNS": "500"}
    )
    assert process.stdout
    try:
        with anyio.fail_after(20):
            said = (await process.stdout.readline()).decode()
            found = re.search(r"http://127\.0\.0\.1:(\d+)/agui", said)
            assert found, said
            port = int(found[1])
            answers = {
                host: await answer_to(port, host)
                for host in (f"localhost:{port}", f"127.0.0.1:{port}", "box.test", "evil.test")
            }
    finally:
        process.kill()
        await process.communicate()
    assert [answer.partition(b"\r\n")[0][9:12] for answer in answers.values()] == [b"200", b"200", b"200", b"421"]
    assert b"Hello" in answers["box.test"]
    assert b"host_not_allowed" in answers["evil.test"]


async def answer_to(port: int, host: str) -> bytes:
    """What a run that is asked for under this host gets, to its last byte."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(run_input(runId=host)).encode()
    head = f"POST /agui HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    return answer
