"""A bar chart as SVG, written by hand so that the benchmarks need no plotting library."""

from collections.abc import Mapping
from html import escape

_BAR, _GAP, _LABEL, _WIDTH = 18, 8, 390, 900


def bars(title: str, values: Mapping[str, float]) -> str:
    """Horizontal bars, shortest first; our own in another colour. Values are nanoseconds."""
    ordered = sorted(values.items(), key=lambda pair: pair[1])
    longest = ordered[-1][1]
    scale = (_WIDTH - _LABEL - 90) / longest
    lines: list[str] = []
    for place, (name, value) in enumerate(ordered):
        top = 44 + place * (_BAR + _GAP)
        colour = "#2f7d5b" if "ours" in name else "#9a9a9a" if "floor" in name else "#b9772f"
        lines.append(
            f'<text x="{_LABEL - 8}" y="{top + 13}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{_LABEL}" y="{top}" width="{value * scale:.1f}" height="{_BAR}" fill="{colour}"/>'
            f'<text x="{_LABEL + value * scale + 6:.1f}" y="{top + 13}">{value / 1000:.2f} µs</text>'
        )
    height = 44 + len(ordered) * (_BAR + _GAP) + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="12" y="24" font-size="15">{escape(title)}</text>\n' + "\n".join(lines) + "\n</svg>\n"
    )
