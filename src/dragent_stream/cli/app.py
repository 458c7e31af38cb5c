"""The verbs of `dragent-stream`: their options, and which module does the work."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dragent_stream.cli.endings import Problems, verb
from dragent_stream.cli.reading import open_recording, timed_events
from dragent_stream.cli.screen import error_console, printable, say, screen, warnings_to
from dragent_stream.cli.signals import abandon_stdout, raise_if_heard
from dragent_stream.cli.writing import check_apart, output
from dragent_stream.errors import ConversionError, DragentStreamError, missing_extra
from dragent_stream.foreign import describe

__all__ = ("run",)

app = typer.Typer(
    name="dragent-stream",
    help="Any stream of OpenAI-style chat chunks as one valid AG-UI run.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
fabric = typer.Typer(name="fabric", help="NeMo Fabric adapters.", no_args_is_help=True)
app.add_typer(fabric)

Source = Annotated[str, typer.Argument(metavar="FILE|-", help="A trace, chunk JSONL or an SSE capture; - is stdin.")]
Target = Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Where to; stdout if not given.")]


class To(StrEnum):
    """How converted events are written."""

    JSONL = "jsonl"
    SSE = "sse"


def run(args: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    code = 0
    try:
        with warnings_to(say):
            app(list(args), prog_name="dragent-stream")
    except SystemExit as ended:
        # typer and rich print helps and versions; for them a reader that goes away is a failure
        left = isinstance(ended.__context__, BrokenPipeError)
        code = 0 if left else ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()
    return code


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print_line(version("dragent-stream"))
        raise typer.Exit(0)


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    pass


def print_line(text: str) -> None:
    """Write one line to standard output."""
    sys.stdout.write(printable(text) + "\n")


@app.command()
@verb
def convert(
    source: Annotated[str, typer.Argument(metavar="FILE|DIR|-", help="A trace, or a directory of traces.")],
    to: Annotated[To, typer.Option(help="Lines of JSON, or SSE frames.")] = To.JSONL,
    no_run: Annotated[bool, typer.Option("--no-run", help="Without RUN_STARTED and RUN_FINISHED.")] = False,
    thread_id: Annotated[str | None, typer.Option(help="The run's threadId.")] = None,
    run_id: Annotated[str | None, typer.Option(help="The run's runId.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes, for a directory.")] = 1,
    target: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE|DIR", help="Where to; stdout if not given.")
    ] = None,
) -> None:
    """Convert a trace to AG-UI events; or every trace of a directory, going on where a run before this one stopped."""
    from dragent_stream.cli.convert import convert_one

    if source != "-" and Path(source).is_dir():
        if target is None or thread_id is not None or run_id is not None:
            raise ConversionError("a directory needs -o DIR, and ids are taken from the paths of its files")
        _convert_directory(Path(source), Path(target), to, not no_run, jobs)
        return
    check_apart(source, target)
    with Problems() as problems, output(target) as write:
        convert_one(source, write, to=to.value, run=not no_run, thread_id=thread_id, run_id=run_id, on_problem=problems)


def _convert_directory(source: Path, target: Path, to: To, run: bool, workers: int) -> None:
    from dragent_stream.cli.convert import Outcome, convert_many, plan_jobs

    plan = plan_jobs(source, target, to=to.value, run=run)
    jobs = plan.jobs
    if plan.left_out:
        say(f"left out, as a .json file is converted only by its name: {', '.join(map(str, plan.left_out))}")
    noted: list[Outcome] = []
    events = 0
    console = error_console()
    columns = (TextColumn("converting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console)
    task = progress.add_task("", total=len(jobs))
    with progress if console.is_terminal else nullcontext():

        def on_outcome(outcome: Outcome) -> None:
            nonlocal events
            events += outcome.events
            progress.advance(task)
            if outcome.problems or outcome.warnings:
                noted.append(outcome)

        try:
            convert_many(jobs, workers, on_outcome)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"what is whole in {target} is kept, run it again to go on") from None
    for outcome in sorted(noted, key=lambda outcome: outcome.source):
        for line in (*outcome.warnings, *outcome.problems):
            say(line)
    failed = sum(bool(outcome.problems) for outcome in noted)
    say(f"{len(jobs) - failed} converted ({events} events), {plan.done} done before, {failed} failed")
    if failed:
        raise typer.Exit(2)


@app.command()
@verb
def replay(
    source: Source,
    speed: Annotated[
        float | None,
        typer.Option(min=0.0, help="2 is twice as fast; 0 is without pauses. 1 in a terminal, 0 elsewhere."),
    ] = None,
) -> None:
    """Play a recording, in the terminal at the pace it was recorded."""
    from dragent_stream.cli.replay import play

    console = screen()
    if speed is None:
        speed = 1.0 if console.is_terminal else 0.0
    with Problems() as problems, open_recording(source) as recording:
        play(timed_events(recording, problems), console, speed=speed)


@app.command()
@verb
def validate(
    source: Annotated[
        str | None,
        typer.Argument(metavar="FILE|-", help="AG-UI events as JSONL or SSE, or a trace.", show_default=False),
    ] = None,
    request: Annotated[
        str | None, typer.Option(metavar="FILE", help="The RunAgentInput; judges ids, tools and versions too.")
    ] = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="The events are no whole run.")] = False,
    rules: Annotated[bool, typer.Option("--rules", help="Print the rules and stop.")] = False,
) -> None:
    """Check AG-UI events, or what a trace converts to. Exit 1 if a rule is broken, each with its line."""
    from dragent_stream.check import RULES
    from dragent_stream.cli.validate import TRANSPORT_RULES, Finding, validate_recording

    if rules:
        for rule, sentence in {**RULES, **TRANSPORT_RULES}.items():
            print_line(f"{rule:4} {sentence}")
        return
    if source is None:
        raise ConversionError("name a file to check, or - for stdin")
    run_input = None if request is None else _read_object(request, "RunAgentInput")
    events = 0
    with Problems() as problems, open_recording(source) as recording:
        for item in validate_recording(recording, lifecycle=not no_run, run_input=run_input, on_problem=problems):
            if isinstance(item, Finding):
                problems.violations += 1
                print_line(f"{recording.name}:{item.line}: {item.rule}: {item.message}")
            else:
                events = item
        found = problems.violations
        print_line(f"{recording.name}: {events} events, {found or 'no'} violation{'' if found == 1 else 's'}")


def _read_object(path: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConversionError(f"{path} is not JSON ({error}); it must be a {what}") from None
    if not isinstance(value, dict):
        raise ConversionError(f"{path} holds no JSON object; it must be a {what}")
    return cast("dict[str, Any]", value)


@app.command()
@verb
def show(
    source: Source,
    target: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="An .svg, .png or .html file.")
    ] = None,
) -> None:
    """Draw a recording as bars over time: messages, reasoning, calls and their results."""
    from dragent_stream.cli.show import picture_kind, print_timeline, write_picture
    from dragent_stream.cli.timeline import timeline_of

    if target is not None:
        picture_kind(target)
    with Problems() as problems:
        with open_recording(source) as recording:
            events = list(timed_events(recording, problems))
            title = Path(recording.name).name
        line = timeline_of(events, clock=any(timed.clock for timed in events))
        if target is None:
            print_timeline(line, screen())
        else:
            write_picture(line, title, target)


@app.command()
@verb
def record(
    url: Annotated[str, typer.Argument(metavar="URL", help="An OpenAI-compatible endpoint, e.g. http://host/v1.")],
    body: Annotated[str, typer.Option(metavar="FILE", help="The request's JSON body; stream is switched on.")],
    target: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="The trace.")],
    key_env: Annotated[str | None, typer.Option(metavar="NAME", help="The environment variable with the key.")] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="'NAME: VALUE'", help="More headers.")] = None,
) -> None:
    """Record one streamed request as a trace. Keys and headers are never written."""
    from dragent_stream.cli.record import endpoint_of, read_body, read_headers, record_request

    key = None
    if key_env is not None and not (key := os.environ.get(key_env)):
        raise ConversionError(f"the environment variable {key_env} is not set; export the key in it")
    chunks = asyncio.run(record_request(endpoint_of(url), read_body(body), read_headers(header or [], key), target))
    say(f"{chunks} chunks in {target}")


@app.command()
@verb
def synthesize(
    source: Annotated[str, typer.Argument(metavar="FILE|-", help="A complete chat.completion as JSON.")],
    usage: Annotated[bool, typer.Option("--usage", help="End with the chunk that carries the usage.")] = False,
    target: Target = None,
) -> None:
    """Write the SSE stream that a complete chat completion would have come as."""
    from pydantic import ValidationError

    from dragent_stream.chat_completions import synthesize_chat_completion_sse

    check_apart(source, target)
    completion = _read_object(source, "chat.completion")
    if not completion.get("choices"):
        raise ConversionError(f"{source} is no chat.completion; it looks like {describe(completion)}")
    try:
        with output(target) as write:
            for frame in synthesize_chat_completion_sse(completion, usage):
                write(frame.encode())
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise ConversionError(f"{source} is no chat.completion: {place}: {first['msg']}") from None
    except DragentStreamError as error:
        raise ConversionError(f"{source} is no chat.completion: {error}") from None


@app.command()
@verb
def assemble(source: Source, target: Target = None) -> None:
    """Write the complete chat completion that a recorded stream adds up to."""
    from dragent_stream.cli.assemble import assemble_recording

    check_apart(source, target)
    with Problems() as problems:
        with open_recording(source) as recording:
            completion = assemble_recording(recording, problems)
        with output(target) as write:
            write(json.dumps(completion).encode() + b"\n")


@app.command()
@verb
def serve(
    target: Annotated[str, typer.Argument(metavar="AGENT", help="A trace, an endpoint's URL, or module:agent.")],
    model: Annotated[str | None, typer.Option(help="The endpoint's model.")] = None,
    key_env: Annotated[str | None, typer.Option(metavar="NAME", help="The variable with the endpoint's key.")] = None,
    system: Annotated[str, typer.Option(help="A system message for the endpoint's model.")] = "",
    speed: Annotated[float, typer.Option(min=0.0, help="Of a trace; 0 is without pauses.")] = 1.0,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    path: Annotated[str, typer.Option(help="Where runs are posted.")] = "/agui",
    page: Annotated[bool, typer.Option(help="A chat page with an event timeline at /.")] = True,
    coalesce_ms: Annotated[float, typer.Option(min=0.0, help="Milliseconds that deltas may wait to be merged.")] = 16.0,
    allow_origin: Annotated[list[str] | None, typer.Option(help="A site that may use this one (CORS).")] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A further name that requests may use; without it, on loopback only loopback's names."),
    ] = None,
    expose_errors: Annotated[bool, typer.Option("--expose-errors", help="Send exception texts to clients.")] = False,
) -> None:
    """Serve an agent to AG-UI clients."""
    try:
        from dragent_stream.asgi.app import create_app
        from dragent_stream.asgi.hosts import hosts_for_bind
        from dragent_stream.asgi.serve import resolve_agent, run_server
    except ImportError as error:
        raise error if isinstance(error, DragentStreamError) else missing_extra("asgi", error) from error
    key = None
    if key_env is not None and not (key := os.environ.get(key_env)):
        raise ConversionError(f"the environment variable {key_env} is not set; export the key in it")
    agent = resolve_agent(target, model=model, api_key=key, system=system, speed=speed or None)
    served = create_app(
        agent,
        path=path,
        page=page,
        coalesce_ms=coalesce_ms,
        allow_origins=allow_origin or (),
        allowed_hosts=hosts_for_bind(host, allow_host),
        expose_errors=expose_errors,
        title=Path(target).name or target,
    )
    run_server(
        served,
        host,
        port,
        announce=lambda url: say(f"serving {target} at {url}{path}" + (f", the page at {url}/" if page else "")),
    )
    raise_if_heard()


@fabric.command()
@verb
def init(
    adapter_id: Annotated[str, typer.Argument(metavar="ID", help="What HarnessConfig.adapter_id names.")],
    module: Annotated[str | None, typer.Option(help="The module that ends in serve_adapter(...).")] = None,
    script: Annotated[
        str | None, typer.Option(metavar="FILE", help="The file that ends in serve_binding(...).")
    ] = None,
    python: Annotated[
        str | None, typer.Option(metavar="FILE", help="The interpreter; this one if not given.", show_default=False)
    ] = None,
    pythonpath: Annotated[str | None, typer.Option(metavar="DIR", help="Where the module lies.")] = None,
    portable: Annotated[
        bool, typer.Option("--portable", help="Without paths of this machine, for a package: Fabric finds Python.")
    ] = False,
    directory: Annotated[str, typer.Option("-o", "--output", metavar="DIR", help="Where to.")] = ".",
    force: Annotated[bool, typer.Option("--force", help="Replace a descriptor that is there.")] = False,
) -> None:
    """Write the descriptor that makes an agent known to NeMo Fabric, and say what comes next."""
    from dragent_stream.fabric.descriptor import next_steps, write_descriptor

    if (module is None) == (script is None):
        raise ConversionError("give either --module (in the common host) or --script (a process of its own)")
    if portable and (script or python or pythonpath):
        raise ConversionError(
            "--portable goes with --module alone: a script and an interpreter are paths of this machine"
        )
    path = write_descriptor(
        directory,
        adapter_id,
        module=module,
        script=script,
        python=python or (sys.executable if module and not portable else None),
        pythonpath=pythonpath,
        overwrite=force,
        exists_remedy="--force replaces it",
    )
    print_line(str(path))
    sys.stderr.write("".join(f"{printable(line)}\n" for line in next_steps(path)))
