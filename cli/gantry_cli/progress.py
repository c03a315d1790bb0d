"""Bars for whatever takes long: on stderr, and only where that is a terminal.

What a command prints for others to read is on stdout alone.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


@contextmanager
def counted(
    what: str, total: int | None, *, printing: bool = False
) -> Iterator[Callable[[], None]]:
    """Shows how many there were, and of how many if that is known; call the result for each.

    Args:
        what: is counted.
        total: how many there will be; None if nobody knows.
        printing: the command prints them, so that a bar would stand among them on a terminal.
    """
    if not sys.stderr.isatty() or (printing and sys.stdout.isatty()):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
