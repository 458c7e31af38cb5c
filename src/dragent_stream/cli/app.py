"""The verbs of `dragent-stream`: their options, and which module does the work."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec, cast

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from dragent_stream.cli.reading import open_recording, timed_events
from dragent_stream.cli.screen import error_console, printable, say, screen
from dragent_stream.cli.writing import output
from dragent_stream.errors import ConversionError, DragentStreamError, TraceFormatError, missing_extra

__all__ = ("run",)

P = ParamSpec("P")

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
    try:
        app(list(args), prog_name="dragent-stream")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def _verb(function: Callable[P, None]) -> Callable[P, None]:
    """End a verb with an exit code and a message, whatever happens; typer would print tracebacks or lose the code."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            # the reader has what it wanted (`| head`); the interpreter must not flush into the closed pipe on its way out
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except DragentStreamError as error:
            say(str(error))
            raise typer.Exit(2) from None
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            say(f"{where}{error.strerror or error}")
            raise typer.Exit(2) from None

    return guarded


class _Problems:
    """Lines that could not be read: each is said, and the verb ends in 2."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: TraceFormatError) -> None:
        self.count += 1
        say(str(error))

    def end(self) -> None:
        if self.count:
            raise typer.Exit(2)


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
@_verb
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
    problems = _Problems()
    with output(target) as write:
        convert_one(source, write, to=to.value, run=not no_run, thread_id=thread_id, run_id=run_id, on_problem=problems)
    problems.end()


def _convert_directory(source: Path, target: Path, to: To, run: bool, workers: int) -> None:
    from dragent_stream.cli.convert import Outcome, convert_many, plan_jobs

    jobs, done = plan_jobs(source, target, to=to.value, run=run)
    failed: list[Outcome] = []
    events = 0
    console = error_console()
    columns = (TextColumn("converting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(jobs))

        def on_outcome(outcome: Outcome) -> None:
            nonlocal events
            events += outcome.events
            progress.advance(task)
            if outcome.problems:
                failed.append(outcome)

        convert_many(jobs, workers, on_outcome)
    for outcome in sorted(failed, key=lambda outcome: outcome.source):
        for problem in outcome.problems:
            say(problem)
    say(f"{len(jobs) - len(failed)} converted ({events} events), {done} done before, {len(failed)} failed")
    if failed:
        raise typer.Exit(2)


@app.command()
@_verb
def replay(
    source: Source,
    speed: Annotated[float, typer.Option(min=0.0, help="2 is twice as fast; 0 is without pauses.")] = 1.0,
) -> None:
    """Play a recording in the terminal, at the pace it was recorded."""
    from dragent_stream.cli.replay import play

    problems = _Problems()
    with open_recording(source) as recording:
        play(timed_events(recording, problems), screen(), speed=speed)
    problems.end()


@app.command()
@_verb
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
    problems = _Problems()
    found = events = 0
    with open_recording(source) as recording:
        for item in validate_recording(recording, lifecycle=not no_run, run_input=run_input, on_problem=problems):
            if isinstance(item, Finding):
                found += 1
                print_line(f"{recording.name}:{item.line}: {item.rule}: {item.message}")
            else:
                events = item
        print_line(f"{recording.name}: {events} events, {found or 'no'} violation{'' if found == 1 else 's'}")
    problems.end()
    if found:
        raise typer.Exit(1)


def _read_object(path: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConversionError(f"{path} is not JSON ({error}); it must be a {what}") from None
    if not isinstance(value, dict):
        raise ConversionError(f"{path} holds no JSON object; it must be a {what}")
    return cast("dict[str, Any]", value)


@app.command()
@_verb
def show(
    source: Source,
    target: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="An .svg, .png or .html file.")
    ] = None,
) -> None:
    """Draw a recording as bars over time: messages, reasoning, calls and their results."""
    from dragent_stream.cli.timeline import timeline_of

    suffix = Path(target).suffix.lower() if target is not None else ""
    if target is not None and suffix not in (".svg", ".png", ".html"):
        raise ConversionError(f"{target} must end in .svg, .png or .html")
    problems = _Problems()
    with open_recording(source) as recording:
        events = list(timed_events(recording, problems))
        title = Path(recording.name).name
    line = timeline_of(events, clock=any(timed.clock for timed in events))
    if target is None:
        _print_timeline(line)
    else:
        _write_picture(line, title, target, suffix)
    problems.end()


def _write_picture(line: Any, title: str, target: str, suffix: str) -> None:
    from dragent_stream.cli.picture import draw_html, draw_png, draw_svg

    if suffix == ".png":
        try:
            picture = draw_png(line, title)
        except ImportError as error:
            raise missing_extra("cli", error) from error
    else:
        picture = (draw_svg if suffix == ".svg" else draw_html)(line, title).encode()
    with output(target) as write:
        write(picture)


def _print_timeline(line: Any) -> None:
    from dragent_stream.cli.picture import draw_text, summary

    console = screen()
    styles = {"text": "blue", "reasoning": "magenta", "call": "dark_orange", "step": "bright_black", "subagent": "cyan"}
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, max_width=20)
    grid.add_column(no_wrap=True)
    for kind, label, cells in draw_text(line, console.width - 24):
        grid.add_row(Text(printable(label)), Text(cells, styles[kind]))
    console.print(Text(printable(summary(line)), "dim"))
    console.print(grid)
    console.print(Text(printable(f"{line.terminal or 'no terminal event'} {line.error}".strip()), "bold"))


@app.command()
@_verb
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
@_verb
def synthesize(
    source: Annotated[str, typer.Argument(metavar="FILE|-", help="A complete chat.completion as JSON.")],
    usage: Annotated[bool, typer.Option("--usage", help="End with the chunk that carries the usage.")] = False,
    target: Target = None,
) -> None:
    """Write the SSE stream that a complete chat completion would have come as."""
    from pydantic import ValidationError

    from dragent_stream.chat_completions import synthesize_chat_completion_sse

    completion = _read_object(source, "chat.completion")
    try:
        with output(target) as write:
            for frame in synthesize_chat_completion_sse(completion, usage):
                write(frame.encode())
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise ConversionError(f"{source} is no chat.completion: {place}: {first['msg']}") from None


@app.command()
@_verb
def assemble(source: Source, target: Target = None) -> None:
    """Write the complete chat completion that a recorded stream adds up to."""
    from dragent_stream.chat_completions import ChatCompletionAssembler
    from dragent_stream.trace import read_trace

    problems = _Problems()
    assembler = ChatCompletionAssembler()
    with open_recording(source) as recording:
        for item in read_trace(recording.lines, name=recording.name, on_problem=problems):
            if item.kind == "chunk":
                assembler.feed(item.value)
            elif item.kind in ("error", "cut"):
                problems(TraceFormatError(f"the stream failed: {item.value}", source=recording.name, line=item.line))
    completion = assembler.finish()
    with output(target) as write:
        write(json.dumps(completion).encode() + b"\n")
    problems.end()


@app.command()
@_verb
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
    expose_errors: Annotated[bool, typer.Option("--expose-errors", help="Send exception texts to clients.")] = False,
) -> None:
    """Serve an agent to AG-UI clients."""
    try:
        from dragent_stream.asgi.app import create_app
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
        expose_errors=expose_errors,
        title=Path(target).name or target,
    )
    run_server(
        served,
        host,
        port,
        announce=lambda url: say(f"serving {target} at {url}{path}" + (f", the page at {url}/" if page else "")),
    )


@fabric.command()
@_verb
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
