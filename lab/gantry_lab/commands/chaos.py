"""`chaos`: faults from Chaos Mesh manifests on a running cluster, proved, healed, judged."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click
import msgspec
from gantry_cli.options import asynchronous, json_option
from gantry_cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_chaos.report.page import ReportPage

    from gantry_lab.chaos.scenario import Options, Scenario
    from gantry_lab.chaos.stage import ChaosStage

LAB_IMAGE = "gantry-test/lab:dev"
REPORT = Path(".gantry") / "chaos" / "report.html"
KIND_NAMESPACE = "gantry"
SEED_MAX = 2**31

on_option = click.option(
    "--on",
    "where",
    default="local",
    show_default=True,
    type=click.Choice(["local", "kind"]),
    help="The cluster of 'gantry local up', or the kind cluster that kubectl talks to (as root, on "
    "the machine that runs its nodes).",
)
namespace_option = click.option(
    "-n",
    "--namespace",
    default=KIND_NAMESPACE,
    show_default=True,
    help="With --on kind: of the group, and of objects that name none.",
)
kubeconfig_option = click.option(
    "--kubeconfig",
    envvar="KUBECONFIG",
    metavar="FILE",
    help="With --on kind: which cluster. [env: KUBECONFIG]",
)
image_option = click.option(
    "--image",
    envvar="GANTRY_LAB_IMAGE",
    default=LAB_IMAGE,
    show_default=True,
    help="With --on kind: what the load's pod runs; e2e/cluster/lab-image.sh makes it. "
    "[env: GANTRY_LAB_IMAGE]",
)
group_option = click.option(
    "--group", metavar="NAME", help="The BrokerGroup under load. [default: the only one]"
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(0, SEED_MAX),
    help="Decides which pods are struck where the manifest leaves it open. [default: random]",
)
report_option = click.option(
    "--report",
    default=REPORT,
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The HTML page; .md, .json and a folder for each scenario are put beside it.",
)
manifests_argument = click.argument(
    "manifests", nargs=-1, required=True, type=click.Path(path_type=Path)
)


@click.group(
    epilog="""\b
Examples:
  python -m gantry_lab chaos plan e2e/scenarios/kill-master.yaml    whom it would strike, and when
  python -m gantry_lab chaos run e2e/scenarios/kill-master.yaml     on the cluster of gantry local
  python -m gantry_lab chaos run --on kind e2e/scenarios/*.yaml --report report.html
  python -m gantry_lab chaos heal                                  after a run was killed

\b
A manifest is one of Chaos Mesh: PodChaos, NetworkChaos (partition, loss, delay) or a Workflow of
them; docs/experiments.md lists what is read. What is not understood is refused.
A run that is interrupted or killed heals what it did; heal is for when even that was prevented."""
)
def chaos() -> None:
    """Strike a cluster with faults from manifests, and judge what clients saw."""


@chaos.command(
    epilog="""\b
Exit codes:
  0   every fault was proved to have bitten, and every checker passed
  1   a checker found something: lost, duplicated, two masters, never served again, …
  2   bad input: nothing was done
  75  a scenario could not be played, or a fault is not proved: nothing is known

\b
Examples:
  python -m gantry_lab chaos run kill.yaml --seed 7
  python -m gantry_lab chaos run e2e/scenarios/*.yaml --on kind --report build/chaos/report.html
  python -m gantry_lab chaos run kill.yaml --limit-ms 3000 --json"""
)
@manifests_argument
@on_option
@namespace_option
@kubeconfig_option
@group_option
@image_option
@seed_option
@click.option(
    "--seconds-before",
    default=3.0,
    show_default=True,
    type=click.FloatRange(0, 3600),
    help="How long the load runs before the first step.",
)
@click.option(
    "--seconds-after",
    default=3.0,
    show_default=True,
    type=click.FloatRange(0, 3600),
    help="How long it goes on once writes flow after the last step.",
)
@click.option(
    "--limit-ms",
    type=click.FloatRange(0, min_open=True),
    help="Fail when a client could not write for longer. [default: it is only told]",
)
@report_option
@json_option("Print the verdict as one JSON object.")
@asynchronous
async def run(
    manifests: tuple[Path, ...],
    where: str,
    namespace: str,
    kubeconfig: str | None,
    group: str | None,
    image: str,
    seed: int | None,
    seconds_before: float,
    seconds_after: float,
    limit_ms: float | None,
    report: Path,
    as_json: bool,
) -> int:
    """Play MANIFESTS one after another under load, and judge each.

    A load sends and consumes all the time, changes topics, and reads who is master. Each fault is
    proved to have bitten before it is healed.
    """
    from gantry_chaos.report.summary import document, exit_code

    from gantry_lab.chaos.scenario import Options, load

    seed = Random().randrange(SEED_MAX) if seed is None else seed  # noqa: S311 -- told, no secret
    report = _made(report)
    stage = await _stage(where, namespace, kubeconfig, group, image, report.parent)
    scenarios = [load(manifest, stage) for manifest in manifests]
    _no_two_of_one_name(scenarios)
    options = Options(seed, seconds_before, seconds_after, limit_ms)
    facts = _facts(stage, seed)
    pages = await _run(stage, scenarios, options, report, facts)
    if as_json:
        print_json(document(facts, pages))
    else:
        click.echo(f"Report: {report}")
    return exit_code(pages)


@chaos.command(
    epilog="""\b
Examples:
  python -m gantry_lab chaos plan kill.yaml --seed 7
  python -m gantry_lab chaos plan e2e/scenarios/*.yaml --on kind"""
)
@manifests_argument
@on_option
@namespace_option
@kubeconfig_option
@group_option
@seed_option
@json_option("Print one JSON object per step.")
@asynchronous
async def plan(
    manifests: tuple[Path, ...],
    where: str,
    namespace: str,
    kubeconfig: str | None,
    group: str | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Show what MANIFESTS would do to which pods; nothing is done.

    Pods are those of this moment; a run chooses when each fault begins. Without --seed, all that
    may be chosen are shown.
    """
    from gantry_lab.chaos.planning import HEADINGS, steps
    from gantry_lab.chaos.scenario import load

    stage = await _stage(where, namespace, kubeconfig, group, LAB_IMAGE, REPORT.parent)
    pods = await asyncio.to_thread(stage.pods)
    for manifest in manifests:
        scenario = load(manifest, stage)
        found = steps(scenario.timeline, pods, seed)
        if as_json:
            for step in found:
                print_json({"manifest": str(manifest), **msgspec.to_builtins(step)})
            continue
        click.echo(f"{manifest}: {len(found)} faults, {scenario.timeline.end_s:g} s")
        print_table(HEADINGS, [step.row() for step in found])


@chaos.command(
    epilog="""\b
Examples:
  python -m gantry_lab chaos heal
  python -m gantry_lab chaos heal --report build/chaos/report.html"""
)
@kubeconfig_option
@report_option
def heal(kubeconfig: str | None, report: Path) -> None:
    """Undo what runs with this --report left behind when they were killed.

    Reads the journals beside the report. It may be repeated, and refuses while a run is alive.
    """
    from gantry_chaos.inject.shell import Shell
    from gantry_chaos.run import heal as heal_all

    healed = heal_all(report.absolute().parent, Shell(_kubectl(kubeconfig)))
    for fault in healed:
        click.echo(f"{fault}: healed")
    if not healed:
        click.echo("Nothing was left behind.")


@chaos.command(
    epilog="""\b
Exit codes:
  0   every checker that is concerned passed
  1   a checker found something, or could not decide
  2   a file is no history, or holds nothing that can be judged

\b
Examples:
  python -m gantry_lab chaos check .gantry/chaos/kill-master/history.tsv
  python -m gantry_lab chaos check history.tsv --not-drained --json

\b
Operations on groups (get, alter, designate) must be linearizable: some order has to explain every
answer, and so does the order of the log that the answers name. Reads and elections of masters, and
messages, are judged as after 'python -m gantry_lab chaos run'."""
)
@click.argument("file", metavar="HISTORY", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--drained/--not-drained",
    default=True,
    show_default=True,
    help="Whether consumers had read to the end; what is missing is lost only then.",
)
@json_option("Print each verdict as one JSON object.")
def check(file: Path, drained: bool, as_json: bool) -> int:
    """Judge the recorded HISTORY of some clients; no cluster is needed."""
    from gantry_chaos.history.lines import read
    from gantry_chaos.history.operations import history
    from gantry_chaos.report import recorded

    try:
        found = history(read(file), file)
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}.") from error
    strange = recorded.unknown(found)
    if strange:
        raise click.UsageError(f"No checker knows {', '.join(strange)} in {file}.")
    verdicts = recorded.verdicts(found, drained=drained)
    if not verdicts:
        raise click.UsageError(f"{file} holds no operation, so there is nothing to judge.")
    if as_json:
        for verdict in verdicts:
            print_json(verdict)
    else:
        click.echo("\n".join(recorded.told(verdicts)))
    return 0 if all(verdict.passed for verdict in verdicts) else 1


@chaos.command(
    epilog="""\b
Example:
  python -m gantry_lab chaos tier --json < question.json

\b
The question is JSON: url, endpoint, region, uid (of the group), brokers (URLs of their status),
masters (by epoch). Keys are read from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""
)
@json_option("Print the verdict as one JSON object.")
@asynchronous
async def tier(as_json: bool) -> int:
    """Judge a tier against what is known of its group, read from standard input.

    A run on kind starts this in the load's pod, from where the store can be reached.
    """
    from gantry_broker.tier.stores.credentials import Credentials
    from gantry_protocol.errors import ConfigError

    from gantry_lab.chaos.tiering import Question, judge

    try:
        asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    except msgspec.DecodeError as error:
        raise ConfigError(f"Standard input holds no question about a tier: {error}.") from error
    verdict = await judge(asked, Credentials.from_environment(os.environ))
    if as_json:
        print_json(verdict)
    else:
        click.echo(f"{verdict.checker} {'passed' if verdict.passed else 'FAILED'}")
        for violation in verdict.violations:
            click.echo(f"  {violation}")
    return 0 if verdict.passed else 1


def _made(report: Path) -> Path:
    """Where the report will be; its folder exists from here on."""
    found = report.absolute()
    try:
        found.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(
            f"The folder of --report {report} cannot be made: {error.strerror}."
        ) from error
    return found


async def _stage(
    where: str,
    namespace: str,
    kubeconfig: str | None,
    group: str | None,
    image: str,
    folder: Path,
) -> ChaosStage:
    if where == "local":
        from gantry_cli.target import local_settings

        from gantry_lab.chaos.local_stage import open_local

        return await open_local(local_settings(), group)
    from gantry_lab.chaos.kind_stage import open_kind

    return await asyncio.to_thread(open_kind, kubeconfig, namespace, group, image, folder)


async def _run(
    stage: ChaosStage,
    scenarios: list[Scenario],
    options: Options,
    report: Path,
    facts: dict[str, str],
) -> list[ReportPage]:
    """Play all; the report is written after each, so that an interrupted run leaves one, too."""
    from gantry_chaos.report.outcome import told
    from gantry_chaos.watchdog import Watchdog

    from gantry_lab.chaos.reporting import write
    from gantry_lab.chaos.scenario import play

    pages: list[ReportPage] = []
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with ExitStack() as watched:
        if stage.kubectl:  # on processes there is nothing that outlives a run
            watched.enter_context(Watchdog(report.parent, stage.kubectl))
        for number, scenario in enumerate(scenarios, 1):
            click.echo(f"{scenario.name} ({number} of {len(scenarios)})", err=True)
            folder = report.parent / scenario.name
            pages.append(await play(scenario, stage, folder, options, _teller()))
            for line in told(pages[-1]):
                click.echo(line, err=True)
            write(report, facts, pages)
    return pages


def _teller() -> Callable[[str], None]:
    began_s = time.monotonic()

    def tell(said: str) -> None:
        click.echo(f"  {time.monotonic() - began_s:6.1f} s  {said}", err=True)

    return tell


def _facts(stage: ChaosStage, seed: int) -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "gantry": version("gantry"),
        "cluster": stage.kind,
        "group": f"{stage.namespace}/{stage.group}",
        "seed": str(seed),
        "processors": str(os.cpu_count()),
    }


def _no_two_of_one_name(scenarios: list[Scenario]) -> None:
    names = [scenario.name for scenario in scenarios]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise click.UsageError(
            f"Two manifests are named {twice[0]}, and so would be their folders beside the report."
        )


def _kubectl(kubeconfig: str | None) -> tuple[str, ...]:
    return ("kubectl", *((f"--kubeconfig={kubeconfig}",) if kubeconfig else ()))
