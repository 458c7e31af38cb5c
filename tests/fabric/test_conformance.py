"""The check of an adapter passes what keeps Fabric's rules, and names each rule that an adapter breaks."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from nemo_fabric_adapter_contract.models import AgentRunError, AgentRunResult, AgentRunStatus

from dragent_stream.fabric import ChunkStreamAdapter, write_descriptor
from dragent_stream.options import ConverterOptions
from dragent_stream.testing import finish_chunk, text_chunk
from dragent_stream.testing.fabric import ADAPTER_RULES, check_adapter

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "fabric"


async def source(question: Any) -> AsyncIterator[Any]:
    if question == "empty":
        return
    if question == "invalid":
        yield {"text": "x"}
    if question == "oversized":
        yield {**text_chunk("x"), "citations": ["x" * 2**20]}
    yield text_chunk("a")
    if question == "slow":
        await asyncio.Event().wait()
    yield finish_chunk()


ALL = {"empty": "empty", "invalid": "invalid", "oversized": "oversized", "slow": "slow", "deadline": 0.2}


def broken(adapter: Any, **options: Any) -> dict[str, str]:
    """The broken rules and how."""
    with pytest.raises(AssertionError) as caught:
        check_adapter(adapter, **options)
    first, *lines = str(caught.value).splitlines()
    assert first.startswith("the adapter breaks ")
    found: dict[str, str] = {}
    for line in lines:
        rule, how = line[2:].split(": ", 1)
        found[rule] = f"{found[rule]}; {how}" if rule in found else how
    assert set(found) <= set(ADAPTER_RULES)
    return found


@pytest.mark.parametrize("adapter", [source, ChunkStreamAdapter(source)], ids=["source", "object"])
def test_an_adapter_of_this_library_keeps_the_rules(adapter: Any) -> None:
    check_adapter(adapter)
    check_adapter(adapter, **ALL)


async def test_the_check_works_in_an_async_test_too() -> None:
    check_adapter(source, **ALL)


def test_a_class_is_an_adapter_too() -> None:
    class Adapter(ChunkStreamAdapter):
        def __init__(self) -> None:
            super().__init__(source)

    check_adapter(Adapter, **ALL)


@pytest.mark.parametrize("kind", ["module", "script"])
def test_a_descriptor_is_run_as_its_process(tmp_path: Path, kind: str) -> None:
    if kind == "module":
        path = write_descriptor(tmp_path, "a", module="agent", python=sys.executable, pythonpath=EXAMPLE)
    else:
        script = tmp_path / "adapter.py"
        text = (EXAMPLE / "agent.py").read_text("utf-8").replace("serve_adapter", "serve_binding")
        script.write_text(text, "utf-8")
        path = write_descriptor(tmp_path, "a", script=script)
    check_adapter(path, input="hello")
    check_adapter(str(path), input={"any": "JSON"})
    assert broken(path, input="fail").keys() == {"many"}


class Adapter:
    """Keeps the rules by itself; the subclasses break one each."""

    def __init__(self) -> None:
        self.runs = 0

    async def start(self, payload: Any) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def invoke(self, request: Any, context: Any) -> Any:
        return AgentRunResult(status=AgentRunStatus.SUCCEEDED, output={"response": "a"})

    async def invoke_openai_stream(self, request: Any, context: Any, emit: Any) -> Any:
        self.runs += 1
        try:
            async with asyncio.timeout(0.1):
                await self.stream(request.input, emit)
        except TimeoutError:
            return self.failed("timeout")
        except Exception as error:
            return self.failed(type(error).__name__)
        return await self.invoke(request, context)

    async def stream(self, question: Any, emit: Any) -> None:
        async for chunk in source(question):
            await emit(chunk)

    def failed(self, code: str) -> Any:
        error = AgentRunError(code=code, message="m")
        return AgentRunResult(status=AgentRunStatus.FAILED, output=None, error=error)


def test_an_adapter_by_hand_keeps_the_rules() -> None:
    adapter = Adapter()
    check_adapter(adapter, runs=lambda: adapter.runs, **ALL)


class StartFails(Adapter):
    async def start(self, payload: Any) -> None:
        raise KeyError("OPENAI_API_KEY")


class StopFails(Adapter):
    async def stop(self) -> None:
        raise RuntimeError("no")


class SaysNothing(Adapter):
    async def stream(self, question: Any, emit: Any) -> None:
        pass


class Fails(Adapter):
    async def stream(self, question: Any, emit: Any) -> None:
        await emit(text_chunk("a"))
        raise RuntimeError("no")


class Streamless(Adapter):
    invoke_openai_stream = None  # type: ignore[assignment]


class Raises(Adapter):
    async def invoke_openai_stream(self, request: Any, context: Any, emit: Any) -> Any:
        self.runs += 1
        await self.stream(request.input, emit)
        raise RuntimeError("no")


class RaisesWhatFabricRaises(Adapter):
    async def invoke_openai_stream(self, request: Any, context: Any, emit: Any) -> Any:
        self.runs += 1
        await self.stream(request.input, emit)
        return await self.invoke(request, context)


class LetsCancellationOut(Adapter):
    async def invoke_openai_stream(self, request: Any, context: Any, emit: Any) -> Any:
        self.runs += 1
        await self.stream(request.input, emit)
        raise asyncio.CancelledError


class Exits(Adapter):
    async def invoke_openai_stream(self, request: Any, context: Any, emit: Any) -> Any:
        raise SystemExit(1)


class RunsTwice(Adapter):
    async def invoke_openai_stream(self, request: Any, context: Any, emit: Any) -> Any:
        await super().invoke_openai_stream(request, context, emit)
        return await super().invoke_openai_stream(request, context, emit)


class OnlyOnce(Adapter):
    async def stream(self, question: Any, emit: Any) -> None:
        if self.runs == 1:
            await super().stream(question, emit)


class NoInvoke(Adapter):
    async def invoke(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    async def invoke_openai_stream(self, request: Any, context: Any, emit: Any) -> Any:
        result = await Adapter().invoke_openai_stream(request, context, emit)
        self.runs += 1
        return result


class MappingForResult(Adapter):
    async def invoke(self, request: Any, context: Any) -> Any:
        return {"status": "succeeded"}


class TalksWhenAskedForNothing(Adapter):
    async def stream(self, question: Any, emit: Any) -> None:
        await emit(text_chunk("a"))


class Hangs(Adapter):
    async def invoke_openai_stream(self, request: Any, context: Any, emit: Any) -> Any:
        if request.input == "slow":
            await asyncio.sleep(1)
        return await super().invoke_openai_stream(request, context, emit)


class RunsAgainForNobody(Adapter):
    async def invoke_openai_stream(self, request: Any, context: Any, emit: Any) -> Any:
        result = await super().invoke_openai_stream(request, context, emit)
        if result.error is not None and "Lifecycle" in result.error.code:
            return await super().invoke_openai_stream(request, context, emit)
        return result


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        (StartFails, {"start"}),
        (StopFails, {"stop"}),
        (SaysNothing, {"many"}),
        (Fails, {"many"}),
        (Streamless, {"many"}),
        (Raises, {"many"}),
        (RaisesWhatFabricRaises, {"invalid"}),
        (LetsCancellationOut, {"many"}),
        (Exits, {"many"}),
        (RunsTwice, {"once"}),
        (OnlyOnce, {"again"}),
        (NoInvoke, {"invoke"}),
        (MappingForResult, {"many"}),
        (TalksWhenAskedForNothing, {"empty", "deadline"}),
        (Hangs, {"deadline"}),
        (RunsAgainForNobody, {"once"}),
    ],
)
def test_a_broken_rule_is_named(kind: type[Adapter], rules: set[str]) -> None:
    adapter = kind()
    told = {**ALL, "runs": lambda: adapter.runs}
    if kind is RaisesWhatFabricRaises or kind is RunsAgainForNobody:
        del told["invalid"], told["oversized"]
    found = broken(adapter, **told)
    assert rules <= set(found), found


SCRIPT = """
import json, os, sys, urllib.request, http.client
for line in sys.stdin:
    request = json.loads(line)
    operation, payload = request["operation"], request["payload"]
    output = None
    if operation == "invoke_openai_stream":
        stream = payload["stream"]
        ids = {name: stream[name] for name in ("runtime_id", "invocation_id", "request_id")}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
        records = [{"type": "chunk", "sequence": 0, **ids, "chunk": chunk}, {"type": "end", "sequence": 1, **ids}]
        BREAK
        body = b"".join(b"%X\\r\\n%b\\r\\n" % (len(r), r) for r in (json.dumps(r).encode() + b"\\n" for r in records))
        import socket
        with socket.create_connection(("127.0.0.1", stream["port"])) as connection:
            connection.sendall((
                "POST /openai-stream HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nAuthorization: Bearer " + stream["token"] +
                "\\r\\nContent-Type: application/x-ndjson\\r\\nTransfer-Encoding: chunked\\r\\n"
                "Expect: 100-continue\\r\\nConnection: close\\r\\n\\r\\n"
            ).encode())
            connection.recv(1000)
            try:
                connection.sendall(body + b"0\\r\\n\\r\\n")
                connection.recv(1000)
            except OSError:
                pass
        AFTER
    if operation.startswith("invoke"):
        output = RESULT
    print(json.dumps({"operation": operation, "outcome": {"status": "succeeded", "output": output}}), flush=True)
    if operation == "stop":
        break
"""
RESULT = '{"status": "succeeded", "output": None}'


@pytest.mark.parametrize(
    ("change", "rule", "how"),
    [
        (("", ""), None, ""),
        (("BREAK", "records.pop()"), "end", "without an end record"),
        (("BREAK", "records[0]['sequence'] = 7"), "chunks", "the sequence is not 0"),
        (("BREAK", "chunk['id'] = ''"), "chunks", "the chunk is invalid: id"),
        (("BREAK", "chunk['x'] = 'x' * 2**20"), "chunks", "1 MiB"),
        (("BREAK", "records.append(records[-1])"), "chunks", "the sequence"),
        (("AFTER", "print('debug', flush=True)"), "many", "stdout is Fabric's alone"),
        (("AFTER", "os._exit(3)"), "many", "its process ended with 3"),
        (("print(json", "operation = 'start'; print(json"), "many", "an answer to start"),
        ((RESULT, '{"status": "done", "output": None}'), "result", "the status is 'done'"),
        ((RESULT, '{"status": "succeeded"}'), "result", "the result has no output"),
        ((RESULT, '{"status": "failed", "output": None}'), "result", "failed without an error"),
        ((RESULT, '{"status": "failed", "output": 1, "error": {"code": ""}}'), "result", "no code or no message"),
        ((RESULT, '{"status": "succeeded", "output": 1, "error": {}}'), "result", "succeeded with an error"),
        ((RESULT, '{"status": "succeeded", "output": 1, "notes": 1}'), "result", "has notes, which Fabric refuses"),
        ((RESULT, "[]"), "result", "a list, not an object"),
        (("break\n", "import time; print('x', flush=True); break\n"), "stop", "stdout is Fabric's alone"),
    ],
)
def test_a_process_that_breaks_the_wire_is_told_how(
    tmp_path: Path, change: tuple[str, str], rule: str | None, how: str
) -> None:
    text = SCRIPT.replace("RESULT", RESULT)
    text = text.replace(*change) if change[0] else text
    script = tmp_path / "adapter.py"
    script.write_text(text.replace("        BREAK\n", "").replace("        AFTER\n", ""), "utf-8")
    path = write_descriptor(tmp_path, "a", script=script)
    if rule is None:
        check_adapter(path)
    else:
        found = broken(path, timeout=10)
        assert how in found[rule], found


def test_a_process_that_hangs_is_told_and_ended(tmp_path: Path) -> None:
    script = tmp_path / "adapter.py"
    script.write_text("import time; time.sleep(60)", "utf-8")
    path = write_descriptor(tmp_path, "a", script=script)
    assert broken(path, timeout=0.5) == {"start": "start did not end within 0.5 s"}


def test_a_target_that_swallows_its_cancellation_holds_nothing_up() -> None:
    async def swallow(question: Any) -> AsyncIterator[Any]:
        yield text_chunk("a")
        while question == "slow":
            try:
                await asyncio.sleep(0.2)
            except asyncio.CancelledError:
                pass

    adapter = ChunkStreamAdapter(swallow, options=ConverterOptions(close_timeout=0.05))
    check_adapter(adapter, slow="slow", deadline=0.5)


def test_what_is_no_adapter_is_refused() -> None:
    with pytest.raises(TypeError, match="a descriptor's path, an adapter, or a source, not int"):
        check_adapter(3)


def test_every_rule_says_what_it_wants() -> None:
    assert all(sentence.endswith(".") for sentence in ADAPTER_RULES.values())
    assert json.loads(json.dumps(dict(ADAPTER_RULES))) == ADAPTER_RULES
