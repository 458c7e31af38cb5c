"""What a model does in each scenario, and the run that comes of it.

A line of `tells` may begin with `~`: the rest is a regular expression.
"""

from dataclasses import dataclass, field
from importlib.util import find_spec

from dragent_stream.testing.chunks import (
    finish_chunk,
    reasoning_chunk,
    text_chunk,
    tool_call_chunk,
    usage_chunk,
)
from dragent_stream.testing.model import Cut, Fail, Turn

PROFILER = find_spec("nat.plugins.profiler") is not None


def text(*pieces: str) -> Turn:
    """A turn that answers."""
    return [text_chunk("", role="assistant"), *map(text_chunk, pieces), finish_chunk(), usage_chunk(7, 3)]


def call(call_id: str, name: str, *fragments: str, index: int = 0) -> list[dict]:
    """The deltas of one call."""
    first = tool_call_chunk("", call_id=call_id, name=name, index=index)
    return [first, *(tool_call_chunk(fragment, index=index) for fragment in fragments)]


def calls(*deltas: list[dict]) -> Turn:
    """A turn that calls."""
    return [*(chunk for group in deltas for chunk in group), finish_chunk("tool_calls"), usage_chunk(7, 3)]


@dataclass(frozen=True)
class Scenario:
    """One run."""

    name: str
    turns: tuple[Turn, ...]
    tells: tuple[str, ...]
    inner: tuple[Turn, ...] = field(default=())


ADD = call("c1", "add", '{"a":1,', '"b":2}')
ADDED = ("call c1 add", 'end c1 {"a":1,"b":2}', "result c1 3")
NESTED_THOUGHTS = ("thought twelve",) if PROFILER else ()

SCENARIOS = [
    Scenario("text", (text("Hel", "lo"),), ("text Hello", "finished")),
    Scenario("one_tool", (calls(ADD), text("It is ", "3.")), (*ADDED, "text It is 3.", "finished")),
    Scenario(
        "parallel",
        (calls(ADD, call("c2", "mul", '{"a":3,"b":4}', index=1)), text("3 and 12.")),
        (
            "call c1 add",
            "call c2 mul",
            'end c1 {"a":1,"b":2}',
            'end c2 {"a":3,"b":4}',
            "~result c[12] (3|12)",
            "~result c[12] (3|12)",
            "text 3 and 12.",
            "finished",
        ),
    ),
    Scenario(
        "parallel_same_tool",
        (
            calls(call("c1", "add", '{"a":1,"b":2}'), call("c2", "add", '{"a":10,"b":20}', index=1)),
            text("3 and 30."),
        ),
        (
            "call c1 add",
            "call c2 add",
            'end c1 {"a":1,"b":2}',
            'end c2 {"a":10,"b":20}',
            "~result (c1 3|c2 30)",
            "~result (c1 3|c2 30)",
            "text 3 and 30.",
            "finished",
        ),
    ),
    Scenario(
        "interleaved",
        (
            calls(
                call("c1", "add"),
                call("c2", "mul", index=1),
                [
                    tool_call_chunk('{"a":1,', index=0),
                    tool_call_chunk('{"a":3,', index=1),
                    tool_call_chunk('"b":2}', index=0),
                    tool_call_chunk('"b":4}', index=1),
                ],
            ),
            text("Done."),
        ),
        (
            "call c1 add",
            "call c2 mul",
            'end c1 {"a":1,"b":2}',
            'end c2 {"a":3,"b":4}',
            "~result c[12] (3|12)",
            "~result c[12] (3|12)",
            "text Done.",
            "finished",
        ),
    ),
    Scenario(
        "two_turns_without_text",
        (calls(ADD), calls(call("c2", "mul", '{"a":3,"b":4}')), text("12.")),
        (*ADDED, "call c2 mul", 'end c2 {"a":3,"b":4}', "result c2 12", "text 12.", "finished"),
    ),
    Scenario(
        "three_turns_without_text",
        (
            calls(ADD),
            calls(call("c2", "mul", '{"a":3,"b":4}')),
            calls(call("c3", "add", '{"a":12,"b":1}')),
            text("13."),
        ),
        (
            *ADDED,
            "call c2 mul",
            'end c2 {"a":3,"b":4}',
            "result c2 12",
            "call c3 add",
            'end c3 {"a":12,"b":1}',
            "result c3 13",
            "text 13.",
            "finished",
        ),
    ),
    Scenario(
        "same_id_again",
        (calls(ADD), calls(call("c1", "mul", '{"a":3,"b":4}')), text("12.")),
        (
            *ADDED,
            r"~call (?!c1 )\S+ mul",
            r'~end (?!c1 )\S+ \{"a":3,"b":4\}',
            r"~result (?!c1 )\S+ 12",
            "text 12.",
            "finished",
        ),
    ),
    Scenario(
        "text_tool_text",
        ([text_chunk("Let me "), text_chunk("see."), *calls(ADD)], text("It is 3.")),
        ("text Let me see.", *ADDED, "text It is 3.", "finished"),
    ),
    Scenario(
        "no_arguments",
        (calls(call("c1", "now")), text("Noon.")),
        ("call c1 now", "end c1 {}", "result c1 noon utc", "text Noon.", "finished"),
    ),
    Scenario(
        "bad_arguments",
        (calls(call("c1", "add", '{"a":"x"}')), calls(call("c2", "add", '{"a":1,"b":2}')), text("3.")),
        (
            "call c1 add",
            'end c1 {"a":"x"}',
            r"~(?s)result c1 Error.*",
            "call c2 add",
            'end c2 {"a":1,"b":2}',
            "result c2 3",
            "text 3.",
            "finished",
        ),
    ),
    Scenario(
        "bad_arguments_beside_good_ones",
        (calls(call("c1", "add", '{"a":"x"}'), call("c2", "add", '{"a":1,"b":2}', index=1)), text("3.")),
        (
            "call c1 add",
            "call c2 add",
            'end c1 {"a":"x"}',
            'end c2 {"a":1,"b":2}',
            "result c2 3",
            r"~(?s)result c1 Error.*",
            "text 3.",
            "finished",
        ),
    ),
    Scenario(
        "unknown_tool",
        (calls(call("c1", "divide", '{"a":1}')), text("I cannot.")),
        ("call c1 divide", 'end c1 {"a":1}', r"~(?s)result c1 Error.*divide.*", "text I cannot.", "finished"),
    ),
    Scenario(
        "tool_raises",
        (calls(call("c1", "fail", '{"reason":"rain"}')), text("It failed.")),
        (
            "call c1 fail",
            'end c1 {"reason":"rain"}',
            "~(?s)result c1 Error.*failed: rain.*",
            "text It failed.",
            "finished",
        ),
    ),
    Scenario(
        "parallel_with_one_failing",
        (calls(ADD, call("c2", "fail", '{"reason":"rain"}', index=1)), text("Half.")),
        (
            "call c1 add",
            "call c2 fail",
            'end c1 {"a":1,"b":2}',
            'end c2 {"reason":"rain"}',
            "result c1 3",
            "~(?s)result c2 Error.*failed: rain.*",
            "text Half.",
            "finished",
        ),
    ),
    Scenario("model_500_at_once", ([Fail(500, "out of order")],), ("error STREAM_ERROR",)),
    Scenario("model_500_in_the_second_turn", (calls(ADD), [Fail(500, "out of order")]), (*ADDED, "error STREAM_ERROR")),
    Scenario(
        "connection_lost_in_text",
        ([text_chunk("Half an "), text_chunk("ans"), Cut()],),
        ("text Half an ans", "error STREAM_ERROR"),
    ),
    Scenario(
        "connection_lost_in_arguments",
        ([*call("c1", "add", '{"a":1,'), Cut()],),
        ("call c1 add", "error STREAM_ERROR"),
    ),
    Scenario(
        "length_in_text",
        ([text_chunk("Half an ans"), finish_chunk("length")],),
        ("text Half an ans", "error STREAM_ERROR"),
    ),
    Scenario(
        "length_in_arguments",
        ([*call("c1", "add", '{"a":1,'), finish_chunk("length")],),
        ("call c1 add", "error length"),
    ),
    # langchain-openai drops reasoning_content before NAT sees it.
    Scenario("reasoning", ([reasoning_chunk("Hm."), *text("Yes.")],), ("text Yes.", "finished")),
    Scenario(
        "nested_agent",
        (calls(call("c1", "helper", '{"input_message":"3 times 4?"}')), text("The helper says 12.")),
        (
            "call c1 helper",
            'end c1 {"input_message":"3 times 4?"}',
            "step_started mul",
            "step_finished mul",
            *NESTED_THOUGHTS,
            "result c1 twelve",
            "text The helper says 12.",
            "finished",
        ),
        inner=(calls(call("c1", "mul", '{"a":3,"b":4}')), text("twelve")),
    ),
    Scenario(
        "recursion_limit",
        tuple(calls(call(f"c{n}", "add", f'{{"a":{n},"b":1}}')) for n in range(9)),
        (
            *(
                line
                for n in range(7)
                for line in (f"call c{n} add", f'end c{n} {{"a":{n},"b":1}}', f"result c{n} {n + 1}")
            ),
            "~text .*could not produce a final answer.*",
            "finished",
        ),
    ),
]
