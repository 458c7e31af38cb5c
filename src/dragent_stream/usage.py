"""Token usage: read in any provider's spelling, summed over the model calls of a run."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from dragent_stream.fields import Fields, fields_of

__all__ = ["Usage", "UsageTotals", "read_usage"]

_MAX_COUNT = 2**53 - 1  # what JavaScript can count (spec 1.0, TokenUsage)
_Key: TypeAlias = tuple[str, str]
_WIRE_NAMES = (
    "provider",
    "model",
    "inputTokens",
    "outputTokens",
    "totalTokens",
    "reasoningTokens",
    "cachedInputTokens",
    "cacheWriteInputTokens",
)


def _sum(*counts: int | None) -> int:
    return min(sum(count or 0 for count in counts), _MAX_COUNT)


class Usage(NamedTuple):
    """Token counts of one model call as far as it is known; None is not zero."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None

    def plus(self, other: Usage) -> Usage:
        """The sum, field by field; a count that neither side knows stays unknown."""
        return Usage(*(b if a is None else a if b is None else a + b for a, b in zip(self, other, strict=True)))

    def updated(self, later: Usage) -> Usage:
        """A later word on the same call: what it does not say, or has only a placeholder for, stays."""
        return Usage(*(b or a for a, b in zip(self, later, strict=True)))

    def consistent(self) -> Usage:
        """The same counts with totals that hold their parts (spec 1.0, TokenUsage).

        Some providers count reasoning beside the answer (xAI, evalstate/fast-agent#276) and cached input beside the rest
        (Anthropic).
        """
        spent, given, total, reasoning, cached, written = self
        if reasoning and (reasoning > (given or 0) or (total is not None and total == _sum(spent, given, reasoning))):
            given = _sum(given, reasoning)
        parts = _sum(cached, written)
        if parts > (spent or 0):
            spent = _sum(spent, parts)
        if total is not None and total < _sum(spent, given):
            total = _sum(spent, given)
        return Usage(spent, given, total, reasoning, cached, written)


class UsageTotals:
    """The usage of a whole run: every model call once, summed per provider and model.

    The chunk path repeats a call's total so far, and its last word on each count is the one; the step path reports each
    call when it ends.
    """

    __slots__ = ("_calls", "_chunks_count", "_root_steps", "_totals")

    def __init__(self) -> None:
        self._totals: dict[_Key, Usage] = {}
        self._root_steps: dict[_Key, Usage] = {}
        self._calls: dict[str, tuple[_Key, Usage]] = {}  # that are open, by the id of their LangChain message
        self._chunks_count = False  # the chunks report usage, so the root agent's steps need not

    def from_chunk(self, usage: Usage, *, provider: str, model: str, adds: bool, call: str = "") -> None:
        """What a chunk says a model call has used so far.

        Args:
            usage: The counts.
            provider: Who served it, where it is known.
            model: Its model.
            adds: The counts are what came since the chunk before. Totals that are given as such nevertheless, with the
                same input again, are taken as totals.
            call: Tells model calls apart that run at the same time.
        """
        known = self._calls.get(call)
        if known:
            before = known[1]
            repeated = before.input_tokens and usage.input_tokens and usage.input_tokens >= before.input_tokens
            usage = before.plus(usage) if adds and not repeated else before.updated(usage)
        self._chunks_count = True
        self._root_steps.clear()
        self._calls[call] = (provider or (known[0][0] if known else ""), model), usage

    def from_step(self, usage: Usage, *, model: str, nested: bool) -> None:
        """What a finished model call of the step path has used; the root agent's count if the chunks say nothing."""
        if nested:
            _add(self._totals, ("", model), usage)
        elif not self._chunks_count:
            _add(self._root_steps, ("", model), usage)

    def call_ended(self) -> None:
        """The next chat chunk's usage is another model call's."""
        if "" in self._calls:
            _add(self._totals, *self._calls.pop(""))

    def entries(self) -> list[dict[str, Any]]:
        """The `usage` list of a terminal event: camelCase, only what is known."""
        for key, usage in self._calls.values():
            _add(self._totals, key, usage)
        self._calls.clear()
        for key, usage in self._root_steps.items():
            _add(self._totals, key, usage)
        self._root_steps.clear()
        return [
            {
                name: value
                for name, value in zip(_WIRE_NAMES, (provider or None, model or None, *usage), strict=True)
                if value is not None
            }
            for (provider, model), usage in ((key, usage.consistent()) for key, usage in self._totals.items())
        ]


def _add(totals: dict[_Key, Usage], key: _Key, usage: Usage) -> None:
    totals[key] = totals.get(key, Usage()).plus(usage.consistent())


def read_usage(value: object) -> Usage | None:
    """Token counts in the spelling of OpenAI (both APIs), LangChain or Anthropic; None where there is nothing but placeholders."""
    usage = fields_of(value)
    if not usage:
        return None
    prompt_details = _details(usage, "prompt_tokens_details", "input_token_details", "input_tokens_details")
    answer_details = _details(usage, "completion_tokens_details", "output_token_details", "output_tokens_details")
    counts = Usage(
        _count(usage, "prompt_tokens", "input_tokens"),
        _count(usage, "completion_tokens", "output_tokens"),
        _count(usage, "total_tokens"),
        _first_count(_count(answer_details, "reasoning_tokens", "reasoning"), _count(usage, "reasoning_tokens")),
        _first_count(
            _count(prompt_details, "cached_tokens", "cache_read"),
            _count(usage, "prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens"),
        ),
        _first_count(_count(prompt_details, "cache_creation"), _count(usage, "cache_creation_input_tokens")),
    )
    return counts if any(counts) else None


def _details(usage: Fields, *names: str) -> Fields:
    for name in names:
        if found := fields_of(usage.get(name)):
            return found
    return {}


def _count(fields: Fields, *keys: str) -> int | None:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT:
            return value
    return None


def _first_count(first: int | None, second: int | None) -> int | None:
    return second if first is None else first
