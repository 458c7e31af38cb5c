"""Unit tests on a recorded run: no model, no network, the same events every time.

The fixtures come with dragent-stream; there is nothing to set up. `weather.jsonl` was recorded once.
"""

from support_agent import tools_used


def test_the_weather_run_uses_both_tools(agui_replay):
    events = agui_replay("weather.jsonl")
    assert tools_used(events) == {"forecast": "18 degrees, dry", "clothes": "a light jacket"}


def test_the_weather_run_is_valid_agui(agui_replay, assert_agui):
    assert_agui(agui_replay("weather.jsonl"))


def test_the_answer_is_streamed_in_pieces(agui_replay):
    events = agui_replay("weather.jsonl")
    pieces = [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert "".join(pieces) == "Let me look. Take a light jacket: 18 degrees, dry."
    assert len(pieces) > 2
