"""`gantry controllers`: who takes part in the controller quorum, who leads it, how it reads.

Everything is asked of the leader's admin API and shown as it answers; what it refuses, and why, is
its own sentence. Nothing is retried: a second try may mean something else than the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from gantry_protocol.admin import LeaseRequest, MemberRequest, TransferRequest
from gantry_protocol.admin_client.outcomes import Unreachable
from gantry_protocol.errors import GantryError
from gantry_protocol.hosts import join_address
from pydantic import ValidationError

from gantry_cli.admin import AdminClient
from gantry_cli.options import admin_options, asynchronous, json_option
from gantry_cli.output import print_json, print_table
from gantry_cli.target import admin_of

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_protocol.admin import PeerView, QuorumView
    from pydantic import BaseModel

MEMBERS = "/v1/quorum/members"
LEASE = "/v1/quorum/lease"
NODE = click.IntRange(1, 999_999_999)


@click.group(
    epilog="""\b
A member that is lost for good is replaced in four steps, by one under a new number:
  gantry controller --join --node-id 4 --bind 10.0.0.4 --cluster-uid 5f3a --data-dir /var/lib/gantry
  gantry controllers add 4 10.0.0.4       node 4 receives the log, and does not vote yet
  gantry controllers promote 4            once it has caught up; says how far it is if not
  gantry controllers remove 2             the lost one

\b
Examples:
  gantry controllers list
  gantry controllers transfer 3           before node 1's machine is maintained
  gantry controllers list --json | jq .peers
  gantry controllers lease                whether the leader reads by lease; off at first""",
)
def controllers() -> None:
    """Show and change who takes part in the controller quorum, and who leads it.

    Voters decide, learners only receive. Members change one at a time; the quorum goes on answering
    meanwhile. A member that only lost its disk needs none of this: start it again with an empty
    directory (or with --rejoin, if its files are damaged), and the others will fill it and let it
    vote. What to do when, step by step: docs/controllers.md.
    """


@controllers.command("list")
@admin_options
@json_option("Print what the leader says, as one JSON object.")
@asynchronous
async def list_(controllers: str | None, token_file: Path | None, as_json: bool) -> None:
    """List the members: who votes, who leads, who keeps up.

    MATCH is how far a member's log is known to agree with the leader's, HEARD when the leader last
    heard from it, PRIORITY its --election-priority; all three are known to the leader alone, and of
    others. "filling" behind a role: its disk is new, so it does not count until the others have
    filled it; "silent": the leader does not hear it, so nobody knows whether it counts.
    """
    _show(await _leaders_view(controllers, token_file), as_json=as_json)


@controllers.command()
@click.argument("node", type=NODE, required=False)
@admin_options
@json_option("Print the quorum as it is then, as one JSON object.")
@asynchronous
async def transfer(
    node: int | None, controllers: str | None, token_file: Path | None, as_json: bool
) -> None:
    """Hand leadership over to NODE, or to the voter that is furthest.

    Writes wait for it, usually for less than a tenth of a second and for one election time-out at
    most. It is refused if NODE does not answer or may not vote. With election priorities, a
    preferred member takes leadership back after a while.
    """
    wish = TransferRequest(target=node)
    await _change(controllers, token_file, as_json, "POST", "/v1/quorum/transfer", wish)


@controllers.command()
@click.argument("node", type=NODE)
@click.argument("address", metavar="HOST[:RAFT[:REMOTING[:HTTP]]]")
@admin_options
@json_option("Print the quorum as it is then, as one JSON object.")
@asynchronous
async def add(
    node: int, address: str, controllers: str | None, token_file: Path | None, as_json: bool
) -> None:
    """Take NODE in, at this address, as a learner.

    Start it first, or afterwards: gantry controller --join --node-id NODE, with an empty directory
    and the cluster uid of the others. It receives the log and is never counted until it is
    promoted. Give a new machine a new number; a number is never used for two disks.
    """
    try:
        wish = MemberRequest(node=node, address=address)
    except ValidationError as error:
        raise GantryError(f"{address!r} is no address: {error.errors()[0]['msg']}.") from error
    await _change(controllers, token_file, as_json, "POST", MEMBERS, wish)


@controllers.command()
@click.argument("node", type=NODE)
@admin_options
@json_option("Print the quorum as it is then, as one JSON object.")
@asynchronous
async def promote(
    node: int, controllers: str | None, token_file: Path | None, as_json: bool
) -> None:
    """Let the learner NODE vote.

    Refused until it has caught up and answers, with how far it is: a quorum must never have to wait
    for a member that is still receiving the log.
    """
    await _change(controllers, token_file, as_json, "POST", f"{MEMBERS}/{node}/promote")


@controllers.command()
@click.argument("node", type=NODE)
@admin_options
@json_option("Print the quorum as it is then, as one JSON object.")
@asynchronous
async def remove(
    node: int, controllers: str | None, token_file: Path | None, as_json: bool
) -> None:
    """Take NODE out; it may be the leader, who then hands over.

    Refused if too few of those who would be left answer. Stop the process afterwards: it no longer
    takes part, and cannot disturb the others.
    """
    await _change(controllers, token_file, as_json, "DELETE", f"{MEMBERS}/{node}")


@controllers.command(
    epilog="""\b
Examples:
  gantry controllers lease                what is set, and whether the leader holds a lease now
  gantry controllers lease on
  gantry controllers lease --json | jq .lease"""
)
@click.argument("wish", type=click.Choice(["show", "on", "off"]), default="show")
@admin_options
@json_option("Print the quorum, with its lease, as one JSON object.")
@asynchronous
async def lease(wish: str, controllers: str | None, token_file: Path | None, as_json: bool) -> None:
    """Show, or set, whether the leader answers reads by lease.

    A read must show all that was acknowledged before it was asked. Without leases (the default) the
    leader first hears from a quorum that it still leads: one heartbeat for all reads that wait, and
    none while writes go on. With leases the voters promise to elect nobody else for most of an
    election time-out, and while that holds the leader answers at once. Both are as correct.

    Leave it off unless the leader's reads are what you wait for. While it is on, nobody stands for
    election early when the leader's process dies: a crash then stops writes for one to two election
    time-outs (0.4 to 0.8 s) instead of about 0.2 s. And where the machines' clocks may run at rates
    that differ by more than a tenth, a lease proves nothing.

    The setting is in the log: it holds for all members and outlives restarts. Why it is safe, and
    what happens while it changes: docs/adr/0020-lease-reads.md.
    """
    if wish == "show":
        view = await _leaders_view(controllers, token_file)
    else:
        setting = LeaseRequest(enabled=wish == "on")
        view = await _changed(controllers, token_file, "PUT", LEASE, setting)
    if as_json:
        print_json(view.model_dump(by_alias=True))
    else:
        click.echo(_about_lease(view))


async def _change(
    controllers: str | None,
    token_file: Path | None,
    as_json: bool,
    method: str,
    path: str,
    wish: BaseModel | None = None,
) -> None:
    view = await _changed(controllers, token_file, method, path, wish)
    _show(view, as_json=as_json)


async def _changed(
    controllers: str | None,
    token_file: Path | None,
    method: str,
    path: str,
    wish: BaseModel | None,
) -> QuorumView:
    target = await admin_of(controllers, token_file)
    async with AdminClient(target.controllers, target.token) as admin:
        return await admin.change(method, path, wish)


async def _leaders_view(controllers: str | None, token_file: Path | None) -> QuorumView:
    target = await admin_of(controllers, token_file)
    async with AdminClient(target.controllers, target.token) as client:
        with client.of(cluster="") as admin:
            view = await admin.view()
    if isinstance(view, Unreachable):
        asked = ", ".join(
            join_address(endpoint.host, endpoint.port) for endpoint in target.controllers
        )
        raise GantryError(
            f"{view.reason.removesuffix('.')}; asked was {asked}, which must be addresses of their "
            "admin API (port 9880 by default), and the token theirs."
        )
    return view


def _about_lease(view: QuorumView) -> str:
    """What is set, and what that means at this moment."""
    if view.lease is None or not view.lease.enabled:
        return "Reads by lease are off: the leader hears from a quorum before it answers."
    if view.lease.valid:
        return f"Reads by lease are on: leader {view.name} holds a lease and answers at once."
    holder = f"leader {view.name} holds none" if view.role == "leader" else "nobody leads"
    return f"Reads by lease are on, but {holder} at the moment; reads are as safe, and take longer."


def _show(view: QuorumView, *, as_json: bool) -> None:
    if as_json:
        print_json(view.model_dump(by_alias=True))
        return
    print_table(
        ("NODE", "NAME", "ROLE", "ADDRESS", "MATCH", "HEARD", "PRIORITY"),
        [_row(view, peer) for peer in view.peers],
    )


def _row(view: QuorumView, peer: PeerView) -> tuple[object, ...]:
    heard = peer.last_contact_ms
    return (
        peer.id,
        peer.name,
        "leader" if peer.id == view.leader_id else _role(view, peer),
        peer.address,
        "-" if peer.match_index is None else peer.match_index,
        "-" if heard is None else f"{heard} ms ago",
        "-" if peer.priority is None else peer.priority,
    )


def _role(view: QuorumView, peer: PeerView) -> str:
    """What it is; with a new disk it is being filled, and votes for nothing until it is."""
    if peer.counted is None and view.leader_id == view.node_id:
        return f"{peer.role}, silent"
    return peer.role if peer.counted is not False else f"{peer.role}, filling"
