"""`gantry kube approve`, `switchover`, `fence`, `forget` …: a field of a BrokerGroup each."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from gantry_operator import names
from gantry_operator.operations import wishes
from gantry_operator.operations.asking import ask, find_group, follow, wished
from gantry_operator.preview.announce import announce
from gantry_operator.preview.client import connected, named_file, namespace_of
from gantry_protocol.errors import GantryError

from gantry_cli.kube_view import kube_options, show
from gantry_cli.options import agreed, asynchronous, yes_option

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from gantry_operator.operations.wishes import End, SpecWish
    from gantry_operator.preview.announce import Announcement

FAILED = 1


class Manner(NamedTuple):
    """The options that all of these commands have."""

    dry_run: bool
    wait: bool
    timeout_s: int
    kubeconfig: Path | None
    namespace: str


def manner_options(command: Callable[..., int]) -> Callable[..., int]:
    """`--dry-run`, `--wait`, `--timeout`, and where kubectl would look: the argument `manner`."""

    @functools.wraps(command)
    def packed(
        *,
        dry_run: bool,
        wait: bool,
        timeout_s: int,
        kubeconfig: str | None,
        namespace: str | None,
        **others: object,
    ) -> int:
        file = named_file(kubeconfig)
        manner = Manner(dry_run, wait, timeout_s, file, namespace or namespace_of(file))
        return command(manner=manner, **others)

    dry_run = click.option("--dry-run", is_flag=True, help="Say what would happen, and stop.")
    wait = click.option("--wait", is_flag=True, help="Follow it to its end.")
    timeout = click.option(
        "--timeout",
        "timeout_s",
        type=click.IntRange(1, 86_400),
        default=1800,
        show_default=True,
        metavar="SECONDS",
        help="With --wait: after that end with 1; the operator goes on.",
    )
    return dry_run(wait(timeout(kube_options(packed))))


@click.command(
    epilog="""\b
Examples:
  kubectl gantry approve orders --dry-run         what waits, and what it would do
  kubectl gantry approve orders 3f2a9c1d --wait   let this one go, and follow it

\b
The same in a manifest: spec.update.approved: 3f2a9c1d"""
)
@click.argument("group")
@click.argument("change", required=False)
@manner_options
@asynchronous
async def approve(
    group: str,
    change: str | None,
    manner: Manner,
) -> int:
    """Let the change of GROUP go that waits for approval, if it is CHANGE.

    A group with spec.update.strategy Supervised announces a change that would restart pods, and
    waits. Without CHANGE the one that waits now is meant: give it if you have read about it before,
    since a newer change has another id.
    """
    return await _carry_out(group, lambda body: wishes.approval(body, change), manner)


@click.command(
    epilog="""\b
Examples:
  kubectl gantry switchover orders               to the replica that is furthest
  kubectl gantry switchover orders --to 2 --wait

\b
The same in a manifest: spec.switchover: {id: maintenance-7, to: 2}"""
)
@click.argument("group")
@click.option("--to", type=click.IntRange(0, 8), help="Ordinal of the replica that is to lead.")
@click.option("--id", "request", help="Identity of the request. [default: the time]")
@manner_options
@asynchronous
async def switchover(
    group: str,
    to: int | None,
    request: str | None,
    manner: Manner,
) -> int:
    """Move the mastership of GROUP to another replica that is in sync.

    Sends wait for a moment and lose nothing: the old master gives way when the new one holds all it
    has. Each request is carried out once; one that cannot be is refused for good.
    """
    name = request or _by_hand()
    return await _carry_out(group, lambda body: wishes.switchover(body, to, name), manner)


@click.command(
    epilog="""\b
Examples:
  kubectl gantry fence orders 2 --dry-run
  kubectl gantry fence orders orders-broker-2 --wait

\b
The same in a manifest: spec.fenced: [2]"""
)
@click.argument("group")
@click.argument("members", nargs=-1, required=True, metavar="MEMBER...")
@manner_options
@asynchronous
async def fence(group: str, members: tuple[str, ...], manner: Manner) -> int:
    """Have MEMBERs of GROUP take no part: ordinals, or names of their pods.

    Process and volume stay for you to look at. A fenced replica serves nobody, gets no byte, and is
    never elected, whoever else dies. The mastership moves away first. Refused while writes would
    stop without it.
    """
    ordinals = _ordinals(group, members)
    return await _carry_out(group, lambda body: wishes.fencing(body, ordinals, fenced=True), manner)


@click.command(
    epilog="""\b
Examples:
  kubectl gantry unfence orders 2 --wait

\b
The same in a manifest: spec.fenced: []"""
)
@click.argument("group")
@click.argument("members", nargs=-1, required=True, metavar="MEMBER...")
@manner_options
@asynchronous
async def unfence(group: str, members: tuple[str, ...], manner: Manner) -> int:
    """Let MEMBERs of GROUP in again that are fenced: they catch up, and join."""
    ordinals = _ordinals(group, members)
    return await _carry_out(
        group, lambda body: wishes.fencing(body, ordinals, fenced=False), manner
    )


@click.command(
    epilog="""\b
Examples:
  kubectl gantry forget orders 4 --wait

\b
The same in a manifest: spec.forget: {id: cleanup-7, brokerId: 4}"""
)
@click.argument("group")
@click.argument("broker", type=click.IntRange(1), metavar="BROKER_ID")
@click.option("--id", "request", help="Identity of the request. [default: the time, and the id]")
@manner_options
@asynchronous
async def forget(group: str, broker: int, request: str | None, manner: Manner) -> int:
    """Strike a member of GROUP from the record that is gone, by its id in status.members.

    Refused for one that is alive, in sync, the master, or has a pod to come back in. Should its
    volume turn up, it joins as a new member and is filled.
    """
    name = request or f"{_by_hand()}-{broker}"  # several may be struck within a second
    return await _carry_out(group, lambda body: wishes.forgetting(body, broker, name), manner)


@click.command(
    epilog="""\b
Examples:
  kubectl gantry hibernate orders --dry-run
  kubectl gantry hibernate orders --wait --yes

\b
The same in a manifest: spec.hibernated: true"""
)
@click.argument("group")
@manner_options
@yes_option
@asynchronous
async def hibernate(
    group: str,
    manner: Manner,
    yes: bool,
) -> int:
    """Stop all pods of GROUP, and keep its volumes and members.

    Nobody is served until it wakes. It begins when minInSyncReplicas are in sync, so what was
    acknowledged sleeps on so many volumes at least.
    """
    return await _carry_out(
        group,
        lambda body: wishes.hibernation(body, asleep=True),
        manner,
        confirm=lambda: agreed(f"Nobody is served by {group} until it wakes.", yes=yes),
    )


@click.command(
    epilog="""\b
Examples:
  kubectl gantry wake orders --wait

\b
The same in a manifest: spec.hibernated: false"""
)
@click.argument("group")
@manner_options
@asynchronous
async def wake(
    group: str,
    manner: Manner,
) -> int:
    """Start the pods of a GROUP that sleeps, as the members that they were.

    Nobody is elected who lacks what the group has acknowledged; the first one who has it all may
    be.
    """
    return await _carry_out(group, lambda body: wishes.hibernation(body, asleep=False), manner)


COMMANDS = (approve, switchover, fence, unfence, forget, hibernate, wake)


def _by_hand() -> str:
    return f"by-hand-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}"


def _ordinals(group: str, members: tuple[str, ...]) -> set[int]:
    """Ordinals of members that are named by them, or by their pods."""
    found = set()
    for member in members:
        number = member.removeprefix(names.pod(names.broker_statefulset(group), 0)[:-1])
        if not (number.isascii() and number.isdigit() and len(number) <= 2):
            raise GantryError(
                f"{member!r} is no replica of {group}: name its ordinal, as in 2, or its pod."
            )
        found.add(int(number))
    return found


async def _carry_out(
    group: str,
    decide: Callable[[dict[str, Any]], SpecWish],
    manner: Manner,
    confirm: Callable[[], None] = lambda: None,
) -> int:
    """Says what a wish would do, asks, writes it, and follows it."""
    async with connected(manner.kubeconfig) as api:
        namespace = manner.namespace
        body = await find_group(api, namespace, group)
        wish = decide(body)
        if wish.spec and not await _planned(announce(api, [wished(body, wish)], namespace)):
            return FAILED
        if manner.dry_run:
            click.echo("Nothing was changed.")
            return 0
        if wish.spec:
            confirm()
        wish = await ask(api, namespace, group, decide)
        click.echo(wish.message if wish.spec else "It is as wished already.")
        if not manner.wait:
            return 0
        return await _followed(follow(api, namespace, group, wish, click.echo), manner.timeout_s)


async def _planned(course: Awaitable[list[Announcement]]) -> bool:
    """Prints the operator's plan; false if it would refuse the change."""
    try:
        (found,) = await course
    except GantryError as error:  # who may write one field may not be allowed to list all the rest
        click.echo(f"No plan can be made: {error}")
        return True
    show(found)
    return not found.course.refused


async def _followed(course: Awaitable[End], timeout_s: int) -> int:
    try:
        async with asyncio.timeout(timeout_s):
            end = await course
    except TimeoutError as error:
        raise GantryError(
            f"It is not done after {timeout_s} s; the operator goes on. See gantry kube status."
        ) from error
    click.echo(end.message)
    return 0 if end.done else FAILED
