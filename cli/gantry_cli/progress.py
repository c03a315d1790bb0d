"""Bars for whatever takes long: on stderr, and only where that is a terminal.

What a command prints for others to read is on stdout alone. What may take hours says where it is in
plain lines where there is no terminal (`estimated`).
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

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


TOLD_EVERY_S = 15.0  # between two plain lines
MINUTES_FROM_S = 90.0


class Show(Protocol):
    """A place where an estimate is shown."""

    def __call__(self, text: str, done: float) -> None:
        """What was done last, and the share of everything that is done, from 0 to 1."""


class Estimate:
    """The progress of a list of parts, each of which was estimated beforehand.

    Args:
        total_s: the estimate of all parts.
        show: is told whenever a step is done.
        say: prints a line.
    """

    def __init__(self, total_s: float, show: Show, say: Callable[[str], None]) -> None:
        self._total_s = total_s
        self._done_s = 0.0
        self._show = show
        self._say = say

    def part(self, name: str, steps: int, seconds: float) -> Callable[[], None]:
        """A part of `steps` steps that take `seconds` together; call the result after each."""
        counted = 0

        def step() -> None:
            nonlocal counted
            counted += 1
            self._done_s += seconds / steps
            share = min(self._done_s / self._total_s, 1.0)
            self._show(f"{name}: {counted} of {steps}", share)

        return step

    def say(self, name: str, text: str) -> None:
        """Something a part has to tell."""
        self._say(f"{name}: {text}")


class Plainly:
    """Lines instead of a bar, one each quarter of a minute at most.

    Args:
        say: prints a line.
        clock: seconds; its zero does not matter.
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._say = say
        self._clock = clock
        self._begun_s = self._told_s = clock()

    def __call__(self, text: str, done: float) -> None:
        """See `Show`; what is left is as slow as what is done."""
        now_s = self._clock()
        if now_s < self._told_s + TOLD_EVERY_S or done <= 0:
            return
        self._told_s = now_s
        left_s = (now_s - self._begun_s) * (1 - done) / done
        left = f"{left_s:.0f} s" if left_s < MINUTES_FROM_S else f"{left_s / 60:.0f} min"
        self._say(f"{text}; about {left} left")


def tally(say: Callable[[str], None], what: str, total: int) -> Callable[[int], None]:
    """Says now and then how many of `total` there are; tell the result how many have come."""
    show, done = Plainly(say, time.monotonic), 0

    def told(more: int) -> None:
        nonlocal done
        done += more
        show(f"{done:,} of {total:,} {what}", min(done / total, 1.0))

    return told


@contextmanager
def estimated(total_s: float) -> Iterator[Estimate]:
    """Shows how far parts have come that take `total_s` together: a bar, or lines now and then."""
    if not sys.stderr.isatty():
        say = _on_stderr
        yield Estimate(total_s, Plainly(say, time.monotonic), say)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0)
        show = lambda text, done: bar.update(task, description=text, completed=done)  # noqa: E731
        yield Estimate(total_s, show, bar.console.print)


def _on_stderr(text: str) -> None:
    click.echo(text, err=True)
