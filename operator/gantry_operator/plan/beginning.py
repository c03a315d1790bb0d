"""A group that begins from the tier of one that is gone: its copies are adopted, once.

Replicas copy the tier by themselves. What they hold then is of epochs that these controllers never
decided, so they refuse it, as it may be the controllers that are wrong. Here a person has said
beforehand that it is meant: `spec.bootstrap`.

Rule protected: that word counts for the beginning only. Once the group has had a master, copies
that are refused are a matter for `gantry adopt`. What it refuses: to begin with fewer copies than
replicas are wished.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator.models.bootstrap import BootstrapStatus
from gantry_operator.plan.actions import AdoptCopies

if TYPE_CHECKING:
    from gantry_operator.models import BrokerGroupSpec
    from gantry_operator.plan.members import ObservedGroup

Begun = tuple[BootstrapStatus | None, list[AdoptCopies]]
DONE = "The group began from the tier."


def begin(group: ObservedGroup | None, spec: BrokerGroupSpec, old: BootstrapStatus | None) -> Begun:
    """Rule: as many copies as replicas are adopted; see the module.

    Args:
        group: what the controllers know; None while they know or say nothing.
        spec: the wish.
        old: what came of it so far.
    """
    if spec.bootstrap is None or (old is not None and old.state == "Completed"):
        return old, []
    if group is None:
        return old or _waiting("The controllers do not know the group yet."), []
    master = group.master()
    if master is not None and master.alive:
        return BootstrapStatus(state="Completed", message=DONE), []
    if group.view.master_broker_id is not None:
        return _waiting(
            f"The controllers remember masters of {group.view.name}. If they were the former "
            f"group's, delete this BrokerGroup, end that record (gantry forget "
            f"{group.view.name}), and create it again."
        ), []
    refused = [member for member in group.view.members if member.refused]
    copies = sorted(member.broker_id for member in refused)
    if refused and max(member.epoch for member in refused) <= group.view.master_epoch:
        return _waiting("The copies are adopted; one of them is elected."), []
    if len(copies) < spec.replicas:
        return _waiting(
            f"{len(copies)} of {spec.replicas} replicas have copied the tier at shard "
            f"{spec.bootstrap.from_tier.shard}; what another one waits for is in its log."
        ), []
    adoption = AdoptCopies(broker_ids=tuple(copies))
    return _waiting("All replicas have copied the tier; the controllers adopt them."), [adoption]


def _waiting(message: str) -> BootstrapStatus:
    return BootstrapStatus(state="InProgress", message=message)
