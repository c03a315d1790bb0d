"""How benchmarks show what they have found: tables, lines, and what failures leave behind."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from gantry_cli.output import print_json, print_table

from gantry_lab.bench.results import HEADINGS, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gantry_lab.bench.results import Line, Machine


def print_lines(lines: Sequence[Line], on: Machine, *, as_json: bool) -> None:
    """The figures, and what they were measured on."""
    if as_json:
        for one in lines:
            print_json(one)
        print_json({"bench": lines[0].bench, "machine": on})
        return
    print_table(HEADINGS, rows(lines))
    click.echo(
        f"{on.cpus} processors ({on.processor}), {on.memory_mib} MiB, Linux {on.kernel}, "
        f"Python {on.python}; load before: {on.load:.2f}"
    )


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory that ends with the measurement; after a failure it stays, for its logs.

    One that is interrupted has not failed.
    """
    path = Path(tempfile.mkdtemp(prefix="gantry-bench-"))
    failed = False
    try:
        yield path
    except Exception:
        failed = True
        click.echo(f"What was measured on is left in {path}", err=True)
        raise
    finally:
        if not failed:
            shutil.rmtree(path, ignore_errors=True)
