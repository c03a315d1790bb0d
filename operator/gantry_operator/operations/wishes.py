"""Wishes of people, as the fields of a BrokerGroup that say so, and their end in its status.

Pure functions of the resource as it is. Each refuses at once, in a sentence, what the operator
would refuse later; what only the operator can know it decides itself, and its status says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from gantry_protocol.errors import GantryError

from gantry_operator.models import BrokerGroupStatus
from gantry_operator.plan.approval import told
from gantry_operator.plan.conditions import find
from gantry_operator.plan.fencing import told_fenced
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gantry_operator.api.protocol import Body

_UNSEEN: dict[str, Any] = {"observedGeneration": -1}


class End(msgspec.Struct, frozen=True):
    """The end of what was wished."""

    done: bool
    message: str


class SpecWish(msgspec.Struct, frozen=True):
    """A change of a few fields.

    Attributes:
        spec: a merge patch of the spec; empty if it is as wished already.
        message: what is asked for, for people.
        ended: the end, by the resource; None while it goes on.
    """

    spec: dict[str, Any]
    message: str
    ended: Callable[[Body], End | None]


def approval(body: Body, change: str | None) -> SpecWish:
    """The change that waits, or the one that is named and waits, is to go.

    Raises:
        GantryError: none waits, or another one does.
    """
    name, status = _name(body), _status(body)
    update = (body.get("spec") or {}).get("update") or {}
    if update.get("strategy") != "Supervised":
        raise GantryError(
            f"Changes of {name} wait for nobody: spec.update.strategy is Automatic. Set it to "
            "Supervised to approve each."
        )
    pending = status.pending_change
    if pending is None:
        late = "" if _is_seen(body) else " The operator has not seen the newest spec yet: try again"
        raise GantryError(f"No change of {name} waits for approval.{late}")
    if change not in (None, pending.id):
        raise GantryError(
            f"Change {change} of {name} does not wait; {pending.id} does: {told(pending)}."
        )

    def ended(now: Body) -> End | None:
        if not _is_seen(now):
            return None
        waits = _status(now).pending_change
        if waits is not None and waits.id != pending.id:
            return End(False, f"Another change waits by now, {waits.id}: {told(waits)}.")
        if waits is not None or not _is_ready(now):
            return None
        return End(True, f"Change {pending.id} of {name} is carried out.")

    text = f"Change {pending.id} of {name} is approved: {told(pending)}."
    return SpecWish({"update": {"approved": pending.id}}, text, ended)


def switchover(body: Body, to: int | None, request: str) -> SpecWish:
    """The mastership is to move, to a replica or to the best one.

    Raises:
        GantryError: it cannot.
    """
    name, status = _name(body), _status(body)
    if (body.get("spec") or {}).get("shards") is not None:
        raise GantryError(
            f"{name} has shards, each with a master of its own: move one by the admin API of the "
            "controllers, POST /v1/groups/CLUSTER/SHARD/elect."
        )
    replicas = status.in_sync_replicas
    if to is not None and to not in replicas:
        listed = ", ".join(map(str, replicas)) or "none"
        raise GantryError(
            f"Replica {to} of {name} is not in sync (in sync: {listed}): it would lose messages. "
            "Choose another, or wait."
        )
    master = status.master
    if master is not None and to is not None and master.replica == to:
        raise GantryError(f"Replica {to} of {name} is the master already.")

    def ended(now: Body) -> End | None:
        found = _status(now).switchover
        if found is None or found.id != request or found.state == "InProgress":
            return None
        return End(found.state == "Completed", f"{found.state}: {found.message}")

    where = f"to replica {to}" if to is not None else "to the replica that is furthest"
    whence = f" from {master.pod}" if master is not None and master.pod else ""
    text = f"The mastership of {name} is asked to move{whence} {where} (request {request})."
    return SpecWish({"switchover": {"id": request, "to": to}}, text, ended)


def fencing(body: Body, ordinals: Iterable[int], *, fenced: bool) -> SpecWish:
    """Replicas are to take no part for a while, or to be let in again.

    Raises:
        GantryError: there is no such replica, or nobody would be left.
    """
    name, spec = _name(body), body.get("spec") or {}
    replicas, before = int(spec.get("replicas", 3)), set(spec.get("fenced") or ())
    named = set(ordinals)
    strange = sorted(one for one in named if one >= replicas and (fenced or one not in before))
    if strange:
        raise GantryError(
            f"{name} has no replica {strange[0]}: its replicas are 0 to {replicas - 1}."
        )
    now = before | named if fenced else before - named
    if fenced and len([one for one in now if one < replicas]) >= replicas:
        raise GantryError(
            f"Nobody of {name} would serve if all replicas were fenced; to stop all of them: "
            "kubectl gantry hibernate."
        )
    listed = ", ".join(f"replica {one}" for one in sorted(named))

    def ended(later: Body) -> End | None:
        if not _is_seen(later):
            return None
        if fenced and (why := _kept_back(later)):
            return End(False, why)
        out = told_fenced(_status(later), range(replicas))
        if (out >= named if fenced else out.isdisjoint(named)) and _is_ready(later):
            return End(True, f"{'Fenced' if fenced else 'Let in again'} in {name}: {listed}.")
        return None

    text = f"To be {'fenced' if fenced else 'let in again'} in {name}: {listed}."
    return SpecWish({} if now == before else {"fenced": sorted(now)}, text, ended)


def _kept_back(body: Body) -> str:
    """Why the operator does not fence; empty if it does."""
    found = find(_status(body).conditions, "Progressing")
    return found.message if found is not None and found.reason == Reason.UNSAFE_FENCE else ""


def forgetting(body: Body, broker_id: int, request: str) -> SpecWish:
    """A member that is gone is to be struck from the record.

    Raises:
        GantryError: it is not known, or not gone.
    """
    name, status = _name(body), _status(body)
    if (body.get("spec") or {}).get("shards") is not None:
        raise GantryError(
            f"{name} has shards, each with members of its own: use gantry forget SHARD --member "
            f"{broker_id}, with the token of the controllers."
        )
    members = {one.broker_id: one for one in status.members}
    member = members.get(broker_id)
    if member is None:
        known = ", ".join(map(str, sorted(members))) or "none"
        raise GantryError(f"{name} has no member with broker id {broker_id}; it has: {known}.")
    if member.role == "Master" or member.state not in ("Lost", "Fenced"):
        what = "the master" if member.role == "Master" else member.state
        raise GantryError(
            f"Broker {broker_id} of {name} is {what}: only a member that is gone can be forgotten."
        )

    def ended(now: Body) -> End | None:
        found = _status(now).forget
        if found is None or found.id != request or found.state == "InProgress":
            return None
        return End(found.state == "Completed", f"{found.state}: {found.message}")

    text = f"Broker {broker_id} of {name} is to be struck from the record (request {request})."
    return SpecWish({"forget": {"id": request, "brokerId": broker_id}}, text, ended)


def hibernation(body: Body, *, asleep: bool) -> SpecWish:
    """The pods are to stop, or to start again."""
    name = _name(body)

    def ended(now: Body) -> End | None:
        if not _is_seen(now) or not _is_ready(now):
            return None
        found = find(_status(now).conditions, "Hibernated")
        if asleep != (found is not None and found.status == "True"):
            return None
        return End(True, f"{name} {'sleeps' if asleep else 'is awake'}.")

    is_so = bool((body.get("spec") or {}).get("hibernated", False)) == asleep
    text = f"{name} is {'to sleep: its pods stop' if asleep else 'to wake: its pods start'}."
    return SpecWish({} if is_so else {"hibernated": asleep}, text, ended)


def summary(body: Body) -> str:
    """The one line of `kubectl get`; empty before the operator has seen the newest spec."""
    return _status(body).summary if _is_seen(body) else ""


def _name(body: Body) -> str:
    return f"BrokerGroup {body['metadata']['namespace']}/{body['metadata']['name']}"


def _status(body: Body) -> BrokerGroupStatus:
    return BrokerGroupStatus.model_validate(body.get("status") or _UNSEEN)


def _is_seen(body: Body) -> bool:
    return bool(_status(body).observed_generation == body["metadata"].get("generation"))


def _is_ready(body: Body) -> bool:
    ready = find(_status(body).conditions, "Ready")
    return ready is not None and ready.status == "True"
