"""The page in a real browser: type, watch, stop, fail, leave and come back."""

import os
import re
from typing import Any

import httpx
from conftest import SCREENSHOTS, GuidedServer
from playwright.sync_api import Page, expect


def say(page: Page, text: str) -> None:
    page.keyboard.type(text)  # the message box has the focus from the start
    page.keyboard.press("Enter")


def shoot(page: Page, name: str) -> None:
    """Keep a picture for the documentation, where `SCREENSHOTS=1 make test-browser` asks for new ones."""
    if os.environ.get("SCREENSHOTS"):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"{name}.png", animations="disabled")


def test_text_streams_in_as_it_is_written(open_page: Any, server: GuidedServer) -> None:
    page = open_page()
    say(page, "say hello")
    expect(page.locator(".message.user")).to_have_text("say hello")
    expect(page.locator(".message.assistant.streaming")).to_have_text("Streams arrive as **")
    expect(page.locator(".reasoning summary")).to_have_text("Thought")
    expect(page.locator("#status")).to_have_attribute("data-state", "running")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(page.get_by_role("button", name="Send")).to_be_hidden()
    server.open("more")
    expect(page.locator("#status")).to_have_attribute("data-state", "done")
    expect(page.locator(".message.assistant strong")).to_have_text("deltas")
    expect(page.locator(".message.assistant li")).to_have_count(3)
    expect(page.locator(".message.assistant pre")).to_have_text("async for event in run:\n    print(event)")
    expect(page.locator(".streaming")).to_have_count(0)
    expect(page.locator("#counters")).to_contain_text("42 tokens in (test-model)")
    expect(page.locator("#events li").first).to_contain_text("RUN_STARTED")
    expect(page.locator("#events li").last).to_contain_text("success")
    shoot(page, "text")


def test_two_parallel_calls_fill_and_finish_each_in_its_own_time(open_page: Any, server: GuidedServer) -> None:
    page = open_page(color_scheme="dark")
    say(page, "compare the weather")
    oslo, lima = page.locator('[data-call-id="call_a"]'), page.locator('[data-call-id="call_b"]')
    for call, arguments in ((oslo, '{"city": "Os'), (lima, '{"city": "Li')):
        expect(call).to_have_attribute("data-state", "arguments")
        expect(call.locator(".arguments")).to_have_text(arguments)
    shoot(page, "calls-filling")
    server.open("arguments")
    for call, arguments in ((oslo, '{ "city": "Oslo" }'), (lima, '{ "city": "Lima" }')):
        expect(call).to_have_attribute("data-state", "working")
        expect(call.locator(".arguments")).to_have_text(arguments)
    server.open("second")
    expect(lima).to_have_attribute("data-state", "done")
    expect(lima.locator(".result")).to_contain_text('"celsius": 21')
    expect(oslo).to_have_attribute("data-state", "working")
    server.open("first")
    expect(oslo).to_have_attribute("data-state", "done")
    expect(oslo.locator(".result")).to_contain_text('"celsius": -3')
    expect(page.locator(".message.assistant").last).to_have_text("Oslo has snow at -3 °C, Lima is clear at 21 °C.")
    expect(page.locator("#status")).to_have_attribute("data-state", "done")
    # The two calls stand in one message, with the text that announced them.
    expect(page.locator(".message.assistant").first.locator(".call")).to_have_count(2)
    shoot(page, "calls-done")


def test_escape_stops_the_run_and_the_agent(open_page: Any, server: GuidedServer) -> None:
    page = open_page()
    say(page, "count forever")
    expect(page.locator(".message.assistant")).to_have_text("One, two, three")
    page.keyboard.press("Escape")
    expect(page.locator("#status")).to_have_attribute("data-state", "stopped")
    expect(page.locator("#events li").last).to_contain_text("cancelled")
    expect(page.locator(".notice")).to_have_text("Stopped.")
    expect(page.locator(".message.assistant")).to_have_text("One, two, three")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert server.closed.wait(1)
    shoot(page, "stopped")
    # The conversation goes on, with what was said so far.
    say(page, "say hello")
    server.open("more")
    expect(page.locator("#status")).to_have_attribute("data-state", "done")


def test_an_error_is_shown_and_the_run_can_be_tried_again(open_page: Any, server: GuidedServer) -> None:
    page = open_page()
    say(page, "please fail")
    error = page.get_by_role("alert")
    expect(error).to_contain_text(re.compile(r"The agent failed\. Reference: \w{8} \(STREAM_ERROR\)"))
    expect(page.locator("body")).not_to_contain_text("password")
    expect(page.locator("#status")).to_have_attribute("data-state", "error")
    expect(page.locator(".message.assistant")).to_have_text("I will try")
    shoot(page, "error")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".message.user")).to_have_count(1)
    expect(page.locator('#events li[data-type="RUN_ERROR"]')).to_have_count(2)


def test_a_refused_run_says_why(open_page: Any, server: GuidedServer) -> None:
    page = open_page()
    refusal = (
        '{"error": {"code": "too_many_runs", "message": "the server is streaming its limit of 1 runs; try again"}}'
    )
    page.route("**/agui", lambda route: route.fulfill(status=503, content_type="application/json", body=refusal))
    say(page, "say hello")
    expect(page.get_by_role("alert")).to_contain_text(
        "(HTTP 503): the server is streaming its limit of 1 runs; try again"
    )
    open_page.problems[:] = [
        problem for problem in open_page.problems if "503" not in problem and "Agent" not in problem
    ]


def test_a_server_that_is_gone_says_so(open_page: Any, server: GuidedServer) -> None:
    page = open_page()
    page.route("**/agui", lambda route: route.abort())
    say(page, "say hello")
    expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached")
    open_page.problems.clear()


def test_a_reload_keeps_the_conversation_and_its_events(open_page: Any, server: GuidedServer) -> None:
    page = open_page()
    server.open("more")
    say(page, "say hello")
    expect(page.locator("#status")).to_have_attribute("data-state", "done")
    shown = page.locator("#events li").count()
    page.reload()
    expect(page.locator(".message.user")).to_have_text("say hello")
    expect(page.locator(".message.assistant li")).to_have_count(3)
    expect(page.locator("#events li")).to_have_count(shown)
    say(page, "again hello")
    expect(page.locator(".message.user")).to_have_count(2)
    expect(page.locator(".message.assistant")).to_have_count(2)


def test_a_reload_in_the_middle_of_a_run_closes_the_agent_and_keeps_what_was_said(
    open_page: Any, server: GuidedServer
) -> None:
    page = open_page()
    say(page, "count forever")
    expect(page.locator(".message.assistant")).to_have_text("One, two, three")
    page.reload()
    assert server.closed.wait(1)
    expect(page.locator(".message.assistant")).to_have_text("One, two, three")
    expect(page.locator(".notice")).to_contain_text("left while the agent was answering")
    assert httpx.get(server.url + "health").json() == {"status": "ok", "activeRuns": 0}


def test_everything_can_be_reached_by_keyboard(open_page: Any, server: GuidedServer) -> None:
    page = open_page()
    server.open("more")
    page.keyboard.type("say")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("in two lines hello")
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_have_attribute("data-state", "done")
    expect(page.locator(".message.user")).to_have_text("say\nin two lines hello")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#prompt")).to_have_value("say\nin two lines hello")
    page.locator("#events").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#events li.current pre")).to_contain_text('"type": "RUN_STARTED"')
    page.keyboard.press("f")
    page.keyboard.type("reasoning_m")
    expect(page.locator("#events li:visible")).to_have_count(3)
    page.locator("#messages").focus()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("Alt+d")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.keyboard.press("Alt+e")
    expect(page.locator("#timeline")).to_be_hidden()
    page.keyboard.press("Alt+n")
    expect(page.locator(".message")).to_have_count(0)
    page.reload()
    expect(page.locator(".message")).to_have_count(0)


def test_what_a_model_writes_is_never_markup(open_page: Any, server: GuidedServer) -> None:
    page = open_page()
    say(page, "<img src=x onerror=alert(1)> hello")
    server.open("more")
    expect(page.locator(".message.user")).to_have_text("<img src=x onerror=alert(1)> hello")
    expect(page.locator("#messages img")).to_have_count(0)


def test_a_narrow_window_puts_the_events_below(open_page: Any, server: GuidedServer) -> None:
    page = open_page(viewport={"width": 420, "height": 820}, color_scheme="dark")
    server.open("more")
    say(page, "say hello")
    expect(page.locator("#status")).to_have_attribute("data-state", "done")
    chat, timeline = page.locator("#chat").bounding_box(), page.locator("#timeline").bounding_box()
    assert chat and timeline
    assert timeline["y"] >= chat["y"] + chat["height"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    shoot(page, "narrow")
