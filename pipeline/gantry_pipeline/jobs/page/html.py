"""The frame around plots and tables: one self-contained page, readable in light and in dark."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2129; --soft: #667085; --paper: #fff; --rule: #d9dee5;
  --mark: #2563a8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #98a2b3; --paper: #14171c;
  --rule: #323842; --mark: #6aa9ec; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 900px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p.sub, p.none { color: var(--soft); margin-top: 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--rule); }
td.n, th.n { text-align: right; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
.grid { stroke: var(--rule); } .line { fill: none; stroke: var(--mark); stroke-width: 2; }
.dot, .bar { fill: var(--mark); }
"""


def page(title: str, subtitle: str, sections: Sequence[tuple[str, str]]) -> str:
    """The whole document.

    Args:
        title: plain text.
        subtitle: plain text.
        sections: (heading as plain text, body as HTML).
    """
    body = "".join(f"<h2>{escape(heading)}</h2>{content}" for heading, content in sections)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f'<h1>{escape(title)}</h1><p class="sub">{escape(subtitle)}</p>{body}</body></html>\n'
    )


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; columns whose first cell is a number are set to the right."""
    right = (
        [isinstance(cell, (int, float)) for cell in rows[0]] if rows else [False] * len(headings)
    )
    marks = [' class="n"' if yes else "" for yes in right]
    head = "".join(
        f"<th{mark}>{escape(name)}</th>" for name, mark in zip(headings, marks, strict=True)
    )
    lines = "".join(
        "<tr>"
        + "".join(f"<td{mark}>{_cell(cell)}</td>" for cell, mark in zip(row, marks, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else escape(str(value))
