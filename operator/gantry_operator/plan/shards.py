"""The groups of a BrokerGroup: itself, or each of its shards.

Rules about a group are asked once for each, with an observation that is about that one alone; rules
about pods get all of the groups. Nothing else knows how many there are.

Of a resource for which fewer shards are wished than its pods host, the last ones leave (`shrink`):
they serve until they are retired, and are no part of it any more from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.admin import GroupView
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable

from gantry_operator import names
from gantry_operator.plan.members import ObservedGroup

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_operator.plan.observed import BrokerObserved, ShardView


def each_group(seen: BrokerObserved) -> tuple[BrokerObserved, ...]:
    """The observation of each group, in the order of their indices."""
    if not seen.shards:
        return (seen,)
    return tuple(
        msgspec.structs.replace(seen, view=one.view, shard=one.name, shards=())
        for one in seen.shards
    )


def is_leaving(part: BrokerObserved) -> bool:
    """Whether a group is a shard that is not wished any more."""
    if not part.shard or part.group is None or part.group.spec.shards is None:
        return False
    return names.shard_index(part.shard) >= part.group.spec.shards


def is_on_record(part: BrokerObserved) -> bool:
    """Whether clients may still be led to a group by this owner, as far as anybody says."""
    if isinstance(part.view, GroupView):
        return part.view.uid == part.uid and not part.view.retired
    return not isinstance(part.view, NotDeclared)


def wished_groups(seen: BrokerObserved) -> tuple[BrokerObserved, ...]:
    """The groups that are to be there."""
    return tuple(part for part in each_group(seen) if not is_leaving(part))


def present_groups(seen: BrokerObserved) -> tuple[BrokerObserved, ...]:
    """The groups that are to be there, and those that have not left yet."""
    return tuple(part for part in each_group(seen) if not is_leaving(part) or is_on_record(part))


def joined(parts: Iterable[BrokerObserved]) -> tuple[ObservedGroup, ...]:
    """The groups that the controllers know, joined with their pods."""
    return tuple(
        ObservedGroup(part.view, part.pods, part.shard)
        for part in parts
        if isinstance(part.view, GroupView)
    )


def known_groups(seen: BrokerObserved) -> tuple[ObservedGroup, ...]:
    """The groups that are present and known."""
    return joined(present_groups(seen))


def all_groups(seen: BrokerObserved) -> tuple[ObservedGroup, ...]:
    """The same if they know every group; none if there is one that they do not."""
    known = known_groups(seen)
    return known if len(known) == len(present_groups(seen)) else ()


def born(groups: tuple[ObservedGroup, ...]) -> tuple[ObservedGroup, ...]:
    """The groups that have had a master; all if none has.

    A shard that was added has none before enough pods host it, and what waits for it would wait
    for itself. It holds nothing yet that could be lost.
    """
    return tuple(group for group in groups if group.view.master_epoch > 0) or groups


def view_of_all(shards: Iterable[ShardView]) -> NotDeclared | Unreachable:
    """A word on all shards: that the controllers cannot be asked, if so of any."""
    silent = (one.view for one in shards if isinstance(one.view, Unreachable))
    return next(silent, NotDeclared())
