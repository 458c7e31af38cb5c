"""What a provider's word for the end of an answer means.

The word is lower-cased, cut at ":" ("content_filter: PROHIBITED_CONTENT", HKUDS/Vibe-Trading#308), freed of an enum's
name ("FinishReason.SAFETY") and spelled with underscores ("endTurn", "tool-calls"); then it is looked up, and a word that
is not listed is told by its parts. What stays unknown ends the answer, but is no sign that it is complete.

Sources: the enums of OpenAI, Anthropic, Bedrock, Gemini, Mistral, DeepSeek, Cohere, xAI and Zhipu; LiteLLM's
`_FINISH_REASON_MAP`; zed-industries/zed#57009, laravel/ai#955, camel-ai/camel#4209, BerriAI/litellm#21744.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, TypeAlias

__all__ = ["Finish", "read_finish"]

Finish: TypeAlias = Literal["stop", "calls", "length", "content_filter", "failed", "unknown"]

_WORDS: dict[Finish, str] = {
    "stop": """
        complete completed done end end_of_text end_of_turn end_turn eos eos_token eot finish finished pause_turn stop
        stop_sequence stop_token stop_word stopped success succeeded
    """,
    "calls": """
        function_call function_calls requires_action tool_call tool_calls tool_plan tool_use tools
    """,
    "length": """
        context_full context_length_exceeded context_window_exceeded incomplete length length_limit max_completion_tokens
        max_length max_new_tokens max_output_tokens max_seq_len max_tokens max_tokens_reached model_context_window_exceeded
        model_length out_of_tokens token_limit token_limit_reached
    """,
    "content_filter": """
        blocked blocklist content_filter content_filtered content_policy_violation error_toxic guardrail_intervened
        guardrails image_prohibited_content image_recitation image_safety model_armor moderation policy_violation
        profanity prohibited_content recitation refusal refused risk_control safety sensitive spii
    """,
    "failed": """
        abort aborted cancel canceled cancelled engine_overloaded error error_limit exception failed failure
        insufficient_system_resource interrupted invalid_request language malformed_function_call malformed_model_output
        malformed_response malformed_tool_use missing_thought_signature network_error no_image overloaded
        rate_limit repetition repetition_truncation timed_out timeout too_many_tool_calls unexpected_tool_call
        user_cancel
    """,
}
_MEANING: dict[str, Finish] = {word: finish for finish, words in _WORDS.items() for word in words.split()}

# For words that are not listed, in this order: "malformed_safety_response" failed, "max_thinking_length" is a length.
_PARTS: tuple[tuple[Finish, re.Pattern[str]], ...] = (
    (
        "failed",
        re.compile("error|fail|malform|invalid|abort|cancel|timeout|insufficient|overload|exception|unavailable"),
    ),
    (
        "content_filter",
        re.compile("filter|safety|unsafe|prohibit|block|policy|moderat|guardrail|refus|sensitive|violat"),
    ),
    ("length", re.compile("length|max_|context|truncat|limit|exceed|incomplete")),
    ("calls", re.compile("tool|function")),
    ("stop", re.compile("(^|_)(complete|completed|done|end|eos|eot|finish|finished|stop)(_|$)")),
)
_HUMP = re.compile("(?<=[a-z0-9])(?=[A-Z])")
_BREAKS = re.compile(r"[\s/-]+")


@lru_cache(maxsize=256)
def read_finish(reason: str) -> Finish | None:
    """The meaning of a finish reason; None where there is none."""
    word, _, rest = reason.strip().partition(":")
    if not (word := _spelled(word)):
        return read_finish(rest) if rest else None
    if (known := _MEANING.get(word)) is not None:
        return known
    if rest and (more := read_finish(rest)) not in (None, "unknown"):
        return more
    for finish, part in _PARTS:
        if part.search(word):
            return finish
    return "unknown"


def _spelled(word: str) -> str:
    name = word.strip().rpartition(".")[2]
    return _BREAKS.sub("_", _HUMP.sub("_", name).lower()).removeprefix("finish_reason_").strip("_")
