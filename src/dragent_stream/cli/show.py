"""Put a timeline where the user wants it: on the terminal, or into a picture."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dragent_stream.cli.picture import draw_html, draw_png, draw_svg, draw_text, summary
from dragent_stream.cli.screen import printable
from dragent_stream.cli.timeline import Timeline
from dragent_stream.cli.writing import output
from dragent_stream.errors import ConversionError, missing_extra

__all__ = ("picture_kind", "print_timeline", "write_picture")

_STYLES = {"text": "blue", "reasoning": "magenta", "call": "dark_orange", "step": "bright_black", "subagent": "cyan"}


def picture_kind(target: str) -> str:
    """The suffix of a picture's file.

    Raises:
        ConversionError: It is none that can be drawn.
    """
    suffix = Path(target).suffix.lower()
    if suffix not in (".svg", ".png", ".html"):
        raise ConversionError(f"{target} must end in .svg, .png or .html")
    return suffix


def write_picture(line: Timeline, title: str, target: str) -> None:
    """Draw a timeline into a file.

    Raises:
        MissingExtraError: A PNG needs `dragent-stream[cli]`.
    """
    suffix = picture_kind(target)
    if suffix == ".png":
        try:
            picture = draw_png(line, title)
        except ImportError as error:
            raise missing_extra("cli", error) from error
    else:
        picture = (draw_svg if suffix == ".svg" else draw_html)(line, title).encode()
    with output(target) as write:
        write(picture)


def print_timeline(line: Timeline, console: Console) -> None:
    """Draw a timeline with characters."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, max_width=20)
    grid.add_column(no_wrap=True)
    for kind, label, cells in draw_text(line, console.width - 24):
        grid.add_row(Text(printable(label)), Text(cells, _STYLES[kind]))
    console.print(Text(printable(summary(line)), "dim"))
    console.print(grid)
    console.print(Text(printable(f"{line.terminal or 'no terminal event'} {line.error}".strip()), "bold"))
