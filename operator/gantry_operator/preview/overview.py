"""One screen about the groups of a namespace: `gantry kube status`.

All of it stands in the status of the resources, so that it costs the controllers nothing and works
from wherever kubectl does. What is not as wished is said in the operator's words, which end with
what to do about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from gantry_protocol.errors import GantryError

from gantry_operator.api.errors import ApiError
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, FRONT_GROUP
from gantry_operator.models import BrokerGroupStatus, ControllerGroupStatus, FrontGroupStatus
from gantry_operator.plan.conditions import find

if TYPE_CHECKING:
    from gantry_operator.api.protocol import Body, ReadOnlyApi
    from gantry_operator.models import Condition
    from gantry_operator.models.changes import ChangeStatus, FailoverStatus

NOT_SEEN = "Not seen by an operator yet"
_WARNS = ("DiskFull", "LogDamaged", "Altered", "QueuesMoving")
_STATUS: dict[str, Any] = {
    CONTROLLER_GROUP.kind: ControllerGroupStatus,
    BROKER_GROUP.kind: BrokerGroupStatus,
    FRONT_GROUP.kind: FrontGroupStatus,
}


class Overview(msgspec.Struct, frozen=True, rename="camel"):
    """One resource.

    Attributes:
        summary: the one line of `kubectl get`.
        serves: who leads, where clients are led.
        notes: all else that somebody may want to know.
        why: why it is not Ready, and what to do; empty if it is.
    """

    kind: str
    namespace: str
    name: str
    summary: str
    serves: str
    notes: tuple[str, ...]
    why: str


async def overview(api: ReadOnlyApi, namespace: str) -> list[Overview]:
    """The groups of a namespace, the quorums first.

    Raises:
        GantryError: the API server cannot be read.
    """
    found: list[Overview] = []
    for kind in (CONTROLLER_GROUP, BROKER_GROUP, FRONT_GROUP):
        try:
            bodies = [body async for body in api.list_all(kind, namespace)]
        except ApiError as error:
            raise GantryError(
                f"The {kind.plural} of namespace {namespace} cannot be read: {error.message}."
            ) from error
        bodies.sort(key=lambda body: str(body["metadata"]["name"]))
        found += [of_body(kind.kind, namespace, body) for body in bodies]
    return found


def of_body(kind: str, namespace: str, body: Body) -> Overview:
    """One resource, by its status."""
    given = body.get("status") or {"observedGeneration": -1}
    status = _STATUS[kind].model_validate(given)
    conditions: tuple[Condition, ...] = status.conditions
    ready = find(conditions, "Ready")
    seen = status.observed_generation == body["metadata"].get("generation")
    notes = [text for name in _WARNS if (text := _message(conditions, name))]
    if isinstance(status, BrokerGroupStatus):
        notes = [*_of_brokers(status), *notes]
    why = "" if ready is None or ready.status == "True" else ready.message
    if ready is not None and not seen:
        why = "The operator has not seen the newest spec yet."
    return Overview(
        kind=kind,
        namespace=namespace,
        name=body["metadata"]["name"],
        summary=status.summary if ready is not None else NOT_SEEN,
        serves=_serves(status),
        notes=tuple(notes),
        why=why,
    )


def _message(conditions: tuple[Condition, ...], name: str) -> str:
    found = find(conditions, name)
    return found.message if found is not None and found.status == "True" else ""


def _serves(status: ControllerGroupStatus | BrokerGroupStatus | FrontGroupStatus) -> str:
    if isinstance(status, ControllerGroupStatus):
        return f"{status.leader.pod} leads" if status.leader is not None else "nobody leads"
    if isinstance(status, FrontGroupStatus):
        return f"clients at {status.address}" if status.address else "clients at the brokers"
    asleep = find(status.conditions, "Hibernated")
    if asleep is not None and asleep.status == "True":
        return "nobody is served"
    if status.shards is not None:
        return f"{status.shards.ready} shards Ready"
    if status.master is None:
        return "no master"
    who = status.master.pod or f"broker {status.master.broker_id}"
    return f"{who} is master at epoch {status.master.epoch}, {status.in_sync} in sync"


def _of_brokers(status: BrokerGroupStatus) -> list[str]:
    notes = [
        f"{_home(member.replica, member.broker_id)}: {member.state}"
        for member in status.members
        if member.state not in ("InSync", "Hibernated")
    ]
    if status.tier is not None:
        tier = find(status.conditions, "TierHealthy")
        lag = status.tier.lag_seconds
        how = f"{lag} s behind at {status.tier.observed_at}" if lag is not None else "lag unknown"
        trouble = f"; {tier.message}" if tier is not None and tier.status == "False" else ""
        notes.append(f"Tier: {how}{trouble}")
    if status.last_change is not None:
        notes.append(told_change(status.last_change))
    if status.last_failover is not None:
        notes.append(told_failover(status.last_failover))
    return notes


def _home(replica: int | None, broker_id: int) -> str:
    return f"replica {replica}" if replica is not None else f"broker {broker_id}"


def told_change(change: ChangeStatus) -> str:
    """A change in one line: what was foreseen, what was measured."""
    foreseen = _gap(change.predicted_gap_ms, "nobody could tell")
    measured = _gap(change.measured_gap_ms, "not measured")
    when = f"ended {change.finished_at}" if change.finished_at else "under way"
    lost = f", {change.lost_bytes} bytes lost" if change.lost_bytes is not None else ""
    return (
        f"Last change: {change.kind} {change.id}, {change.steps} steps, {when}; gap foreseen "
        f"{foreseen}, measured {measured}{lost}"
    )


def told_failover(failover: FailoverStatus) -> str:
    """A failover in one line, segment by segment."""
    segments = (
        ("noticed after", failover.notice_ms),
        ("elected after", failover.election_ms),
        ("written to after", failover.resume_ms),
        ("gap", failover.gap_ms),
    )
    told = ", ".join(f"{word} {ms} ms" for word, ms in segments if ms is not None)
    lost = f", {failover.lost_bytes} bytes lost" if failover.lost_bytes is not None else ""
    return f"Last failover: {failover.elected_at} ({failover.seen}): {told or 'no figures'}{lost}"


def _gap(ms: int | None, unknown: str) -> str:
    return f"{ms} ms" if ms is not None else unknown
