"""`gantry_lab bench`: benchmarks on this machine, a command for each file of cases."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from gantry_cli.options import json_option
from gantry_protocol.errors import ConfigError, GantryError
from gantry_protocol.hosts import join_address, split_address

from gantry_lab.bench import suite
from gantry_lab.bench.results import machine
from gantry_lab.bench.suite import Wish

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gantry_lab.bench.suite import Bench

BENCHES = tuple(suite.bench(name) for name in ("failover", "controller", "broker"))


@click.group(
    epilog="""\b
Examples:
  python -m gantry_lab bench failover         write gaps by kind of failure, 5 runs each
  python -m gantry_lab bench failover --case sigkill --runs 20 --json
  python -m gantry_lab bench controller       throughput of a quorum, and lost leaders
  python -m gantry_lab bench broker           messages per second, and lost masters"""
)
def bench() -> None:
    """Measure Gantry on this machine."""


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


def _options(of: Bench) -> list[click.Option]:
    """`--case`, `--list`, `--json`, and the fields of `Wish`."""
    named = [case.name for case in of.case if case.named_only]
    lose = sorted({case.losses for case in of.case if case.losses})
    default = f"all but {', '.join(named)}" if named else "all"
    found = [
        click.Option(
            ["--case", "cases"],
            multiple=True,
            metavar="NAME",
            type=click.Choice([case.name for case in of.case]),
            help=f"One of those below; may be given several times. [default: {default}]",
        ),
        click.Option(
            ["--list", "only_list"], is_flag=True, help="List the cases, and how long they take."
        ),
        click.Option(
            ["--runs"],
            default=int(of.defaults["runs"]),
            show_default=True,
            type=click.IntRange(1, 1000),
        ),
        click.Option(
            ["--label"],
            default=of.name,
            show_default=True,
            help="Name of the benchmark in its lines.",
        ),
    ]
    if "seconds" in of.defaults:
        found += [
            click.Option(
                ["--seconds"],
                default=of.defaults["seconds"],
                show_default=True,
                type=click.FloatRange(0.2, 600),
                help="What is counted of each run, after a warm-up.",
            ),
            click.Option(
                ["--warmup", "warmup_s"],
                default=of.defaults["warmup_s"],
                show_default=True,
                metavar="SECONDS",
                type=click.FloatRange(0, 600),
                help="Before what is counted; a JVM needs more.",
            ),
            click.Option(
                ["--kills"],
                type=click.IntRange(1, 100_000),
                help="Processes to lose in the cases that lose them. "
                f"[default: {' or '.join(map(str, lose))}]",
            ),
            click.Option(
                ["--against"],
                metavar="HOST:PORT",
                callback=_address,
                help="One of the servers that run already, of any make, instead of ours; a name "
                "server will do for brokers. Groups group-0000000 and on, or topics that begin "
                "with gantry-bench, are written to.",
            ),
        ]
    if any(case.time.log for case in of.case):
        found += [
            click.Option(
                ["--log-mib"],
                default=2048,
                show_default=True,
                type=click.IntRange(16, 64 * 1024),
                help="Length of the log in pull-cold and catch-up; four times as much disk is "
                "needed.",
            ),
            click.Option(
                ["--queues"],
                default=1_000_000,
                show_default=True,
                type=click.IntRange(1_000, 10_000_000),
                help="How many queues queues-1m makes.",
            ),
            click.Option(
                ["--rounds"],
                type=click.Path(dir_okay=False, path_type=Path),
                help="Keep the finished rounds of kills-1000 in this file, and go on after those "
                "in it. It is removed when all are done.",
            ),
        ]
    return found


def _epilog(of: Bench) -> str:
    width = max(len(case.name) for case in of.case) + 1
    cases = "\n".join(f"  {case.name:{width}}{case.text}" for case in of.case)
    shown = "\n".join(
        f"  python -m gantry_lab bench {of.name} {example}" for example in of.examples
    )
    return f"\b\nCases:\n{cases}\n\n\b\nExamples:\n{shown}"


def _command(of: Bench) -> click.Command:
    @json_option("Print one JSON object per line.")
    def run(
        cases: tuple[str, ...],
        only_list: bool,
        as_json: bool,
        log_mib: int = 2048,
        seconds: float = 0.0,
        warmup_s: float = 0.0,
        **wish: Any,
    ) -> None:
        asked = Wish(seconds=seconds, warmup_s=warmup_s, log_bytes=log_mib << 20, **wish)
        run_cases(of, asked, cases=cases, only_list=only_list, as_json=as_json)

    command = click.command(
        of.name,
        help=f"{of.text}\n\nServers are processes of their own, and sync every write to disk. The "
        "load is this process: it shares the processors with them, and what it costs is printed. "
        "Fails after the last case if one of them cannot run.",
        short_help=of.text,
        epilog=_epilog(of),
    )(run)
    command.params = [*_options(of), *command.params]
    return command


for _bench in BENCHES:
    bench.add_command(_command(_bench))


def run_cases(
    of: Bench, wish: Wish, *, cases: tuple[str, ...], only_list: bool, as_json: bool
) -> None:
    """Run them, or only list them.

    Raises:
        GantryError: a case failed or could not run; the others have run.
        Abort: it was told to end.
    """
    import uvloop

    from gantry_lab.bench.running import BenchRun

    if only_list:
        for case in of.case:
            click.echo(f"{case.name:20} {case.seconds(wish) / 60:5.1f} min  {case.text}")
        return
    before = machine()
    try:
        with scratch() as directory:
            run = BenchRun(of.chosen(cases), wish, directory, as_json=as_json)
            uvloop.run(run.all())
            run.show(before)
            if run.failed:
                raise GantryError("\n".join(run.failed + run.refused))
    except asyncio.CancelledError:
        raise click.Abort from None
    if run.refused:
        raise GantryError("\n".join(run.refused))


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
