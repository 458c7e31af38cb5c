"""Text that can be written as UTF-8: halves of surrogate pairs joined, lone ones replaced."""

from __future__ import annotations

__all__ = ["well_formed"]


def well_formed(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced: it can be written as UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
