"""How benchmarks show what they do, and what they have found: bars, tables, lines.

The bars are on stderr and only where that is a terminal; figures alone are on stdout.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gantry_cli.bench.results import HEADINGS, rows
from gantry_cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gantry_cli.bench.results import Line, Machine


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
    """A directory that ends with the measurement; after a failure it stays, for its logs."""
    path = Path(tempfile.mkdtemp(prefix="gantry-bench-"))
    try:
        yield path
    except Exception:
        click.echo(f"What was measured on is left in {path}", err=True)
        raise
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=total)
        yield lambda case: bar.update(task, advance=1, description=case)


@contextmanager
def told() -> Iterator[Callable[..., None]]:
    """Shows what is being done, and the share that is done if known, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _text, _share=None: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def tell(text: str, share: float | None = None) -> None:
            bar.update(
                task,
                description=text,
                total=None if share is None else 1.0,
                completed=share or 0.0,
            )

        yield tell
