"""Output of commands: aligned columns for people, JSON lines for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


def print_json(value: Any) -> None:
    """One value on one line."""
    click.echo(msgspec.json.encode(value).decode())


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Left-aligned columns, two blanks apart, as kubectl prints them."""
    cells = [[str(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    for row in cells:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(line.rstrip())
