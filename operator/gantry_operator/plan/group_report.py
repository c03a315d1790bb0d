"""Conditions of one broker group: whether it serves, and in how many copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator.plan.minimum import minimum_now
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from gantry_operator.models import BrokerGroup
    from gantry_operator.plan.conditions import Conditions
    from gantry_operator.plan.members import ObservedGroup


def report_group(
    conditions: Conditions, group: BrokerGroup | None, joined: ObservedGroup | None
) -> None:
    """Available, InSync and FullyReplicated; `joined` is None if the group is not known."""
    _available(conditions, joined)
    _replication(conditions, group, joined)


def _available(conditions: Conditions, joined: ObservedGroup | None) -> None:
    """Available: a master serves at the current epoch."""
    if joined is None:
        text = "The controllers do not know the group yet."
        conditions.set("Available", "False", Reason.WAITING_FOR_QUORUM, text)
        return
    view, master = joined.view, joined.master()
    if master is None:
        if view.master_epoch == 0:
            reason = Reason.WAITING_FOR_QUORUM
            text = f"{len(view.members)} of {view.replicas or '?'} members have registered."
        else:
            reason, text = Reason.NO_MASTER, f"There is no master since epoch {view.master_epoch}."
            if view.no_master_reason:
                reason = Reason.ELECTION_HELD_BACK
                text = f"Nobody is elected: {view.no_master_reason}."
        conditions.set("Available", "False", reason, text)
        return
    pod = joined.pod_of(master)
    name = pod.name if pod else f"Broker {master.broker_id}"
    if joined.serves():
        text = f"{name} is master at epoch {view.master_epoch}."
        conditions.set("Available", "True", Reason.MASTER_ELECTED, text)
        return
    if view.no_master_reason:
        text = f"Nobody is elected: {view.no_master_reason}."
        conditions.set("Available", "False", Reason.ELECTION_HELD_BACK, text)
        return
    why = "its pod is not Ready" if master.alive else "it gives no sign of life"
    text = f"{name} is master at epoch {view.master_epoch}, but {why}."
    conditions.set("Available", "False", Reason.NO_MASTER, text)


def _replication(
    conditions: Conditions, group: BrokerGroup | None, joined: ObservedGroup | None
) -> None:
    """InSync: enough members for acknowledgements. FullyReplicated: all that are wished."""
    if group is None:
        conditions.keep("InSync")
        conditions.keep("FullyReplicated")
        return
    wished = group.spec.replicas - len(group.spec.fenced_now)
    minimum = group.spec.min_in_sync
    if joined is not None:
        minimum = minimum_now(joined.view, minimum)
    count = len(joined.in_sync()) if joined else 0
    text = f"{count} of {wished} replicas are in sync; at least {minimum} are needed."
    if count == 1 and wished > 1:
        reason = Reason.LAST_IN_SYNC_REPLICA
    else:
        reason = Reason.ENOUGH_IN_SYNC if count >= minimum else Reason.BELOW_MIN_IN_SYNC
    conditions.set("InSync", "True" if count >= minimum else "False", reason, text)
    if count >= wished:
        text = f"All {wished} replicas are in sync."
        conditions.set("FullyReplicated", "True", Reason.ALL_IN_SYNC, text)
    else:
        text = f"{count} of {wished} replicas are in sync."
        conditions.set("FullyReplicated", "False", Reason.REPLICA_CATCHING_UP, text)
