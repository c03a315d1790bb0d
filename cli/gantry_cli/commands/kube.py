"""`gantry kube`: resources in a Kubernetes cluster, as kubectl reaches it (`kubectl gantry …`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from gantry_operator.preview.announce import announce, read_manifests
from gantry_operator.preview.client import named_file, namespace_of, reading
from gantry_operator.preview.overview import overview

from gantry_cli.options import asynchronous
from gantry_cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_operator.preview.announce import Announcement

    from gantry_cli.options import CommandT

REFUSED = 1
TAKES_OVER = "Who takes a mastership over is decided then: whoever is furthest, if that differs. "


def kube_options(command: CommandT) -> CommandT:
    """`--kubeconfig`, `--namespace`: where kubectl would look."""
    kubeconfig = click.option(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig file. [default: $KUBECONFIG or ~/.kube/config]",
    )
    namespace = click.option(
        "-n", "--namespace", help="Namespace. [default: that of the kubeconfig's context]"
    )
    return kubeconfig(namespace(command))


def output_option(what: str) -> Callable[[CommandT], CommandT]:
    """`-o json`, as kubectl has it."""
    return click.option(
        "-o", "--output", type=click.Choice(["text", "json"]), default="text", help=what
    )


@click.group()
def kube() -> None:
    """Look at resources in a Kubernetes cluster, and at what a change of them would do.

    Nothing here changes anything. kubectl finds the same commands as kubectl gantry.
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
            _show(announcement)
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


def _show(found: Announcement) -> None:
    course = found.course
    click.echo(f"{found.kind} {found.namespace}/{found.name}: {_headline(found)}")
    if found.approval:
        click.echo(f"  Nothing is restarted before spec.update.approved is {found.approval}.")
    for number, step in enumerate(course.steps, start=1):
        gap = f"  (sends wait about {step.gap_ms} ms)" if step.gap_ms else ""
        click.echo(f"{number:4}. {step.message}{gap}")
    if course.refused:
        click.echo(f"  Refused, {course.refused}: {course.message}")
    elif course.waits:
        click.echo(f"  Then it waits, {course.waits}: {course.message}")


def _headline(found: Announcement) -> str:
    course = found.course
    if course.refused:
        return "refused"
    if not course.steps:
        return "nothing would change" if not course.waits else "nothing would be done"
    count = len(course.disruptive)
    if not count:
        return "no pod is taken away and no mastership moves"
    moves = sum(len(step.moves) for step in course.steps)
    text = f"{count} disruptive {'step' if count == 1 else 'steps'}"
    if moves:
        text += f", {moves} {'move of a mastership' if moves == 1 else 'moves of masterships'}"
    if found.gap_ms is None:
        return f"{text}; sends wait while a pod restarts, and for how long nobody can tell"
    if not found.gap_ms:
        return f"{text}; sends go on"
    source = "as in the last change" if found.measured else "the bound of a hand-over"
    return f"{text}; sends wait about {found.gap_ms} ms at a time ({source})"
