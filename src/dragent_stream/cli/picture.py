"""Draw a timeline: as SVG, as an HTML page that needs nothing else, as PNG, or with characters in a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from html import escape

from dragent_stream.cli.timeline import Bar, Kind, Timeline

__all__ = ("draw_html", "draw_png", "draw_svg", "draw_text", "summary")

_COLORS: dict[Kind | str, str] = {
    "text": "#2f6fde",
    "reasoning": "#8a63d2",
    "call": "#e07b1f",
    "step": "#93a1b0",
    "subagent": "#5d7186",
    "waiting": "#f6d7b4",
    "result": "#2c9a5b",
    "error": "#cf3b3b",
}
_INK, _MUTED, _GRID, _PAPER, _STRIPE = "#1c2733", "#66737f", "#e3e8ed", "#ffffff", "#f7f9fb"
_FONT = "'Inter', 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"
_MONO = "'SF Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace"
_WIDTH, _LEFT, _RIGHT, _TOP, _ROW, _BAR = 1120, 190, 28, 84, 44, 16
_MOST = 300
"""Rows of a picture; a PNG of more would not fit into memory everywhere."""
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_CHAR = 6.4
"""Width of a character of the small monospaced text, in px: SVG cannot measure text, so it is cut by count."""


def draw_svg(line: Timeline, title: str) -> str:
    """Draw a timeline as a self-contained SVG picture, 1120 px wide."""
    bars = line.bars[:_MOST]
    bottom = _TOP + _ROW * max(len(bars), 1)
    height = bottom + 74
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="{_FONT}" role="img" aria-label="{_text("Timeline of " + title)}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="{_PAPER}"/>',
        f'<text x="24" y="33" font-size="17" font-weight="600" fill="{_INK}">{_text(_cut(title, 90))}</text>',
        f'<text x="24" y="54" font-size="12" fill="{_MUTED}">{_text(summary(line))}</text>',
    ]
    scale = _Scale(line)
    parts.extend(
        f'<rect x="0" y="{_TOP + row * _ROW}" width="{_WIDTH}" height="{_ROW}" fill="{_STRIPE}"/>'
        for row in range(0, len(bars), 2)
    )
    for at in scale.ticks():
        x = scale.x(at)
        parts.append(f'<path d="M{x:.1f} {_TOP - 6}V{bottom}" stroke="{_GRID}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{_TOP - 11}" font-size="11" fill="{_MUTED}" text-anchor="middle">'
            f"{_text(scale.label(at))}</text>"
        )
    for row, bar in enumerate(bars):
        parts.extend(_draw_bar(bar, _TOP + row * _ROW, scale, line))
    if not bars:
        parts.append(f'<text x="{_LEFT}" y="{_TOP + 26}" font-size="13" fill="{_MUTED}">nothing was said</text>')
    x = scale.x(line.end)
    color = _COLORS["error"] if line.terminal == "RUN_ERROR" else _COLORS["result"]
    if line.terminal:
        parts.append(f'<path d="M{x:.1f} {_TOP - 6}V{bottom}" stroke="{color}" stroke-width="1.5"/>')
    parts.extend(_draw_legend(bottom + 26))
    ending = f"RUN_ERROR: {line.error}" if line.terminal == "RUN_ERROR" else line.terminal or "no terminal event"
    color = color if line.terminal else _COLORS["error"]
    parts.append(
        f'<text x="{_WIDTH - _RIGHT}" y="{bottom + 56}" font-size="12" font-weight="600" fill="{color}" '
        f'text-anchor="end">{_text(_cut(ending, 120))}</text>'
    )
    return "".join([*parts, "</svg>\n"])


class _Scale:
    """From times to pixels."""

    def __init__(self, line: Timeline) -> None:
        self._start = line.start
        self._span = max(line.end - line.start, 1e-9)
        self._unit = line.unit
        size = 10.0 ** math.floor(math.log10(self._span / 10))
        step = next(size * factor for factor in (1, 2, 5, 10) if self._span / (size * factor) <= 10)
        self._step = max(step, 1.0) if line.unit == "events" else step

    def x(self, time: float) -> float:
        return _LEFT + (time - self._start) / self._span * (_WIDTH - _LEFT - _RIGHT)

    def ticks(self) -> Iterator[float]:
        count = 0
        while (at := count * self._step) <= self._span * 1.0001:
            yield self._start + at
            count += 1

    def label(self, at: float) -> str:
        value = at - self._start
        if self._unit == "events":
            return f"{value:g}"
        if self._step < 0.001:
            return f"{value * 1000:.3g} ms"
        return f"{value * 1000:.0f} ms" if self._span < 1 else f"{value:g} s"


def _draw_bar(bar: Bar, top: float, scale: _Scale, line: Timeline) -> Iterator[str]:
    color = _COLORS[bar.kind]
    x, end = scale.x(bar.start), scale.x(bar.end)
    width = max(end - x, 3)
    y = top + 6
    tip = f"{bar.label}: {bar.text}" + (f"\nresult: {bar.result}" if bar.result is not None else "")
    yield f"<g><title>{_text(_cut(tip, 2000))}</title>"
    yield f'<text x="24" y="{top + 19}" font-size="13" font-weight="600" fill="{_INK}">{_text(_cut(bar.label, 20))}</text>'
    yield f'<text x="24" y="{top + 34}" font-size="11" fill="{_MUTED}">{_text(_span_of(bar, scale, line))}</text>'
    if bar.result_at is not None:
        until = scale.x(bar.result_at)
        if until > end:
            yield (
                f'<rect x="{end:.1f}" y="{y + 4}" width="{until - end:.1f}" height="{_BAR - 8}" '
                f'fill="{_COLORS["waiting"]}"/>'
            )
    yield f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="3" fill="{color}"'
    yield ' fill-opacity="0.85"/>' if bar.closed else f' fill-opacity="0.35" stroke="{color}" stroke-dasharray="4 3"/>'
    last = -9.0
    for mark in bar.marks:
        at = scale.x(mark)
        if at - last >= 2.5:
            yield f'<path d="M{at:.1f} {y + 3}v{_BAR - 6}" stroke="#ffffff" stroke-opacity="0.75"/>'
            last = at
    if bar.result_at is not None:
        at, middle = scale.x(bar.result_at), y + _BAR / 2
        yield (
            f'<path d="M{at:.1f} {middle - 7}l7 7l-7 7l-7 -7z" fill="{_COLORS["result"]}" '
            f'stroke="{_PAPER}" stroke-width="1.5"/>'
        )
    said = " ".join(bar.text.split())
    if bar.result is not None:
        said += f"  →  {' '.join(bar.result.split()) or '(empty)'}"
    room = int((_WIDTH - _RIGHT - x) / _CHAR)
    anchor, at = ("start", x) if room >= min(len(said), 40) else ("end", _WIDTH - _RIGHT - 6)
    room = room if anchor == "start" else int((_WIDTH - _RIGHT - _LEFT) / _CHAR)
    yield (
        f'<text x="{at:.1f}" y="{top + 36}" font-size="10.5" font-family="{_MONO}" fill="{_MUTED}" '
        f'text-anchor="{anchor}">{_text(_cut(said, room))}</text></g>'
    )


def _span_of(bar: Bar, scale: _Scale, line: Timeline) -> str:
    end = bar.end if bar.result_at is None else max(bar.result_at, bar.end)
    kind = {"text": "text", "reasoning": "", "call": "tool call"}.get(bar.kind, bar.kind)
    length = f"{end - bar.start:.2f} s" if line.unit == "s" else f"{end - bar.start:.0f} events"
    return ", ".join(part for part in (kind, length, "" if bar.closed else "never closed") if part)


def _draw_legend(y: float) -> Iterator[str]:
    x = 24.0
    for name, word in (
        ("text", "text"),
        ("reasoning", "reasoning"),
        ("call", "arguments of a call"),
        ("waiting", "tool at work"),
        ("result", "result"),
        ("step", "step"),
    ):
        shape = (
            f'<path d="M{x + 6} {y - 6}l6 6l-6 6l-6 -6z" fill="{_COLORS[name]}"/>'
            if name == "result"
            else f'<rect x="{x}" y="{y - 5}" width="14" height="10" rx="2" fill="{_COLORS[name]}"/>'
        )
        yield f'{shape}<text x="{x + 20}" y="{y + 4}" font-size="11" fill="{_MUTED}">{word}</text>'
        x += 44 + len(word) * 6.2
    yield f'<text x="{x}" y="{y + 4}" font-size="11" fill="{_MUTED}">white ticks: one delta each</text>'


def summary(line: Timeline) -> str:
    """Say in a line what happened."""
    calls = sum(bar.kind == "call" for bar in line.bars)
    messages = sum(bar.kind == "text" for bar in line.bars)
    length = f"{line.end - line.start:.2f} s" if line.unit == "s" else "no clock: positions of events"
    # a trace has no thread of its own; the converter's stand-in says nothing
    named = [f"thread {_cut(line.thread_id, 40)}"] if line.thread_id not in ("", "trace-thread") else []
    if len(line.bars) > _MOST:
        named.append(f"the first {_MOST} of {len(line.bars)} rows")
    counted = [_count(line.events, "event"), _count(messages, "message"), _count(calls, "tool call"), length]
    return "  ·  ".join([*counted, *named])


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def draw_html(line: Timeline, title: str) -> str:
    """Draw a timeline as one HTML page: the picture, then what was said in full."""
    rows = "".join(
        f'<details><summary><b style="color:{_COLORS[bar.kind]}">{escape(bar.label)}</b> '
        f"<span>{bar.start - line.start:.2f} – {bar.end - line.start:.2f} {line.unit}</span></summary>"
        f"<pre>{_text(bar.text) or '(nothing)'}</pre>"
        + (f"<p>result</p><pre>{_text(bar.result) or '(empty)'}</pre>" if bar.result is not None else "")
        + "</details>"
        for bar in line.bars
    )
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{_text(title)}</title>'
        '<meta name="viewport" content="width=device-width"><style>'
        f"body{{margin:24px auto;max-width:{_WIDTH}px;font:14px/1.5 {_FONT};color:{_INK}}}"
        "svg{width:100%;height:auto}details{border-top:1px solid #e3e8ed;padding:6px 24px}"
        "summary{cursor:pointer}summary span,p{color:#66737f;font-size:12px}"
        "pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:4px 0;font-size:12px}"
        f"</style><body>{draw_svg(line, title)}{rows}</body></html>\n"
    )


def draw_png(line: Timeline, title: str) -> bytes:
    """Draw a timeline as PNG, twice the size of the SVG.

    Raises:
        ImportError: resvg-py is absent.
    """
    import resvg_py

    # before 0.3.1 zoom must be an int
    return bytes(resvg_py.svg_to_bytes(svg_string=draw_svg(line, title), zoom=2))


def draw_text(line: Timeline, width: int) -> Iterator[tuple[Kind, str, str]]:
    """Draw a timeline with characters.

    Args:
        line: The timeline.
        width: Characters for the bars, at least 10.

    Yields:
        Per row: its kind, its label, and its bar.
    """
    span, room = max(line.end - line.start, 1e-9), max(width, 10)

    def column(time: float) -> int:
        return min(int((time - line.start) / span * room), room - 1)

    for bar in line.bars:
        first, last = column(bar.start), column(bar.end)
        cells = " " * first + "█" * (last - first + 1)
        if bar.result_at is not None:
            cells += "─" * max(column(bar.result_at) - last - 1, 0)
            cells = cells[: max(column(bar.result_at), first + 1)] + "◆"
        yield bar.kind, bar.label, cells.ljust(room)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 1, 1)] + "…"


def _text(text: str) -> str:
    """Escape for XML, which has no form for control characters and lone surrogates."""
    return escape(_UNFIT.sub("\ufffd", text))
