"""What `bench controller` and `bench broker` have in common: options, and the run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
from gantry_cli.options import json_option
from gantry_protocol.errors import ConfigError, GantryError
from gantry_protocol.hosts import join_address, split_address

from gantry_lab.bench.results import machine
from gantry_lab.bench.running import Run
from gantry_lab.bench.showing import scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gantry_cli.options import CommandT

    from gantry_lab.bench.suite import Bench, StageT, WishT


def epilog(bench: Bench[Any, Any], examples: Sequence[str]) -> str:
    """The cases and the examples, below the options."""
    width = max(len(case.name) for case in bench.cases) + 1
    cases = "\n".join(f"  {case.name:{width}}{case.text}" for case in bench.cases)
    shown = "\n".join(
        f"  python -m gantry_lab bench {bench.name} {example}" for example in examples
    )
    return f"\b\nCases:\n{cases}\n\n\b\nExamples:\n{shown}"


def case_options(
    bench: Bench[Any, Any], *, runs: int, seconds: float, warmup_s: float, kills: str, against: str
) -> Callable[[CommandT], CommandT]:
    """`--case`, `--list`, `--json`, and the fields of `Wish`.

    Args:
        bench: whose cases.
        runs: the default, as are `seconds` and `warmup_s`.
        seconds: see `Wish`, as for the next ones.
        warmup_s: before that.
        kills: help.
        against: help.
    """
    named = [case.name for case in bench.cases if case.named_only]
    default = f"all but {', '.join(named)}" if named else "all"
    options = (
        click.option(
            "--case",
            "cases",
            multiple=True,
            metavar="NAME",
            type=click.Choice([case.name for case in bench.cases]),
            help=f"One of those below; may be given several times. [default: {default}]",
        ),
        click.option(
            "--list", "only_list", is_flag=True, help="List the cases, and how long they take."
        ),
        click.option("--runs", default=runs, show_default=True, type=click.IntRange(1, 1000)),
        click.option(
            "--seconds",
            default=seconds,
            show_default=True,
            type=click.FloatRange(0.2, 600),
            help="What is counted of each run, after a warm-up.",
        ),
        click.option(
            "--warmup",
            "warmup_s",
            default=warmup_s,
            show_default=True,
            metavar="SECONDS",
            type=click.FloatRange(0, 600),
            help="Before what is counted; a JVM needs more.",
        ),
        click.option("--kills", type=click.IntRange(1, 100_000), help=kills),
        click.option("--against", metavar="HOST:PORT", callback=_address, help=against),
        click.option(
            "--label",
            default=bench.name,
            show_default=True,
            help="Name of the benchmark in its lines.",
        ),
        json_option("Print one JSON object per line."),
    )

    def add(command: CommandT) -> CommandT:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def run_cases(
    bench: Bench[WishT, StageT],
    wish: WishT,
    *,
    cases: tuple[str, ...],
    only_list: bool,
    as_json: bool,
) -> None:
    """Run them, or only list them.

    Raises:
        GantryError: a case failed or could not run; the others have run.
        Abort: it was told to end.
    """
    import uvloop

    if only_list:
        for case in bench.cases:
            click.echo(f"{case.name:20} {case.seconds(wish) / 60:5.1f} min  {case.text}")
        return
    before = machine()
    try:
        with scratch() as directory:
            run = Run(bench, bench.chosen(cases), wish, directory, as_json=as_json)
            uvloop.run(run.all())
            run.show(before)
            if run.failed:
                raise GantryError("\n".join(run.failed + run.refused))
    except asyncio.CancelledError:
        raise click.Abort from None
    if run.refused:
        raise GantryError("\n".join(run.refused))


def _address(_: click.Context, option: click.Parameter, text: str | None) -> str | None:
    return None if text is None else parse_address(text, str(option.opts[0]))


def parse_address(text: str, option: str = "--against") -> str:
    """`HOST:PORT` as given on the command line.

    Raises:
        ConfigError: it is not one.
    """
    try:
        host, port = split_address(text)
    except GantryError as error:
        raise ConfigError(f"{option} needs HOST:PORT: {error}") from error
    return join_address(host, port)
