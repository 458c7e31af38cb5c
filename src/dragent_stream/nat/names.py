"""The `_type` of everything that this package gives to NAT. Imports nothing of NAT."""

from importlib.metadata import entry_points

__all__ = ["FRONT_END", "PER_USER_AGENT", "PUBLISHED_PER_USER_AGENT", "SHARED_AGENT", "published_name_is_free"]

FRONT_END = "dragent_stream"
SHARED_AGENT = "dragent_tool_calling_agent"
PER_USER_AGENT = "dragent_per_user_tool_calling_agent"
PUBLISHED_PER_USER_AGENT = "per_user_tool_calling_agent"
"""The name of the published design."""


def published_name_is_free() -> bool:
    """NAT refuses a `_type` that two packages offer, so a name that datarobot-genai has taken stays its own."""
    return not entry_points(group="nat.plugins", name=PUBLISHED_PER_USER_AGENT)
