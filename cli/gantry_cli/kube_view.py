"""Parts of the commands that look at, and write into, resources in a Kubernetes cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_operator.preview.announce import Announcement

    from gantry_cli.options import CommandT


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


def show(found: Announcement) -> None:
    """Print a plan."""
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
