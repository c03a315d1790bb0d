"""`gantry kube`: resources in a Kubernetes cluster, as kubectl reaches it (`kubectl gantry …`)."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from gantry_operator.preview.announce import announce, read_manifests
from gantry_operator.preview.client import named_file, namespace_of, reading
from gantry_operator.preview.overview import overview

from gantry_cli.commands import doctor, operate, pod_logs, replay, report
from gantry_cli.kube_view import kube_options, output_option, show
from gantry_cli.options import asynchronous
from gantry_cli.output import print_json

REFUSED = 1
TAKES_OVER = "Who takes a mastership over is decided then: whoever is furthest, if that differs. "


@click.group()
def kube() -> None:
    """Look at resources in a Kubernetes cluster and operate them, through the API server alone.

    plan, status, doctor, logs, report and replay change nothing. The others write one field of a
    BrokerGroup, with your own rights, and the operator does the rest; what they write may as well
    be kept in a manifest. kubectl finds the same commands as kubectl gantry.
    """


@kube.command(
    epilog="""\b
Examples:
  gantry kube plan -f orders.yaml             the steps that would follow
  kubectl gantry plan -f orders.yaml -o json  the same, for programs
  kustomize build . | gantry kube plan -f -

\b
It ends with 1 if the operator would refuse the change."""
)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    help="Manifest; - is standard input. May be given several times.",
)
@output_option("json: one line for each resource.")
@kube_options
@asynchronous
async def plan(
    files: tuple[Path, ...], output: str, kubeconfig: str | None, namespace: str | None
) -> int:
    """Say what the operator would do if a manifest were applied, step by step.

    It is the operator's own planner, asked for the world as its last report and the API server
    have it, and again for each world that would follow. Nothing is changed.
    """
    wishes = read_manifests(files, sys.stdin.read() if Path("-") in files else "")
    file = named_file(kubeconfig)
    async with reading(file) as api:
        found = await announce(api, wishes, namespace or namespace_of(file))
    for announcement in found:
        if output == "json":
            print_json(announcement)
        else:
            show(announcement)
    if output == "text":
        moves = any(step.moves for one in found for step in one.course.steps)
        click.echo(f"\n{TAKES_OVER if moves else ''}Nothing was changed.")
    return REFUSED if any(one.course.refused for one in found) else 0


@kube.command(
    epilog="""\b
Examples:
  gantry kube status              the groups of the context's namespace
  kubectl gantry status -n mq
  gantry kube status -o json | jq 'select(.why != "") | .name'"""
)
@output_option("json: one line for each resource.")
@kube_options
@asynchronous
async def status(output: str, kubeconfig: str | None, namespace: str | None) -> None:
    """Show who leads, what is not as wished and why, and the last change and failover.

    It is what the operator last wrote into the status of the resources.
    """
    file = named_file(kubeconfig)
    home = namespace or namespace_of(file)
    async with reading(file) as api:
        found = await overview(api, home)
    for one in found:
        if output == "json":
            print_json(one)
            continue
        click.echo(f"{one.kind} {one.name}: {one.summary}; {one.serves}")
        for note in one.notes:
            click.echo(f"  {note}")
        if one.why:
            click.echo(f"  Why: {one.why}")
    if not found and output == "text":
        click.echo(f"Namespace {home} has no groups.")


for command in (doctor.doctor, pod_logs.logs, report.report, replay.replay, *operate.COMMANDS):
    kube.add_command(command)
