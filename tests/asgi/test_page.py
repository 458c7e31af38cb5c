"""The page's files as they are served and as they are packed."""

import json
from importlib.resources import files
from pathlib import Path

import pytest
from asgi_wire import exchange

from dragent_stream.asgi import create_app

ROOT = Path(__file__).parents[2]
STATIC = files("dragent_stream.asgi.page") / "static"


async def test_browsers_get_the_page_and_programs_a_pointer() -> None:
    app = create_app(lambda _: [], page=True, title="My <agent>", path="/run")
    page = await exchange(app, "GET", "/", headers={"accept": "text/html,*/*;q=0.8"})
    assert page.headers["content-type"].startswith("text/html")
    assert b"<title>My &lt;agent&gt;</title>" in page.body
    assert b'content="/run"' in page.body
    assert (await exchange(app, "GET", "/", headers={"accept": "*/*"})).json == {"status": "ok", "agui": "/run"}


async def test_there_is_no_page_unless_wanted() -> None:
    assert (await exchange(create_app(lambda _: []), "GET", "/", headers={"accept": "text/html"})).status == 404


@pytest.mark.parametrize("target", ["/", "/page/app.js", "/page/style.css"])
async def test_the_page_loads_from_its_own_origin_alone(target: str) -> None:
    app = create_app(lambda _: [], page=True)
    done = await exchange(app, "GET", target, headers={"accept": "text/html"})
    assert done.status == 200
    assert done.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert done.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("target", ["/page/../__init__.py", "/page/%2e%2e/__init__.py", "/page/nothing.js"])
async def test_nothing_else_is_served(target: str) -> None:
    assert (await exchange(create_app(lambda _: [], page=True), "GET", target)).status == 404


def test_the_bundle_was_built_from_the_versions_of_the_lock_file() -> None:
    lock = json.loads((ROOT / "page" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    built = json.loads((STATIC / "versions.json").read_text(encoding="utf-8"))
    locked = {name.removeprefix("node_modules/"): entry["version"] for name, entry in lock.items() if name}
    assert built.items() <= locked.items()
    assert built["@ag-ui/client"] == lock[""]["dependencies"]["@ag-ui/client"]


@pytest.mark.parametrize("name", ["index.html", "style.css"])
def test_the_packed_files_are_those_of_the_source(name: str) -> None:
    assert (STATIC / name).read_text(encoding="utf-8") == (ROOT / "page" / "src" / name).read_text(encoding="utf-8")


def test_the_bundle_asks_no_other_host_for_code() -> None:
    document = (STATIC / "index.html").read_text(encoding="utf-8")
    assert 'src="http' not in document
    assert 'href="http' not in document
