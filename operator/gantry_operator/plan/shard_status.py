"""The status of a BrokerGroup with shards: each is judged as a group, the worst speaks for all.

A condition is True if it is so of every shard. Otherwise it is that of the first shard, by index,
of which it is not, with the shard's name in front; what is False comes before what is Unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from gantry_protocol.admin import GroupView
from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator.models import ShardsStatus
from gantry_operator.models.broker_group_status import PodMasters, WorstShard
from gantry_operator.plan.broker_steps import masters_per_pod
from gantry_operator.plan.conditions import Conditions, find
from gantry_operator.plan.group_report import report_group
from gantry_operator.plan.members import ObservedGroup
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.shards import joined, known_groups, wished_groups

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from gantry_operator.models import Condition
    from gantry_operator.plan.observed import BrokerObserved

_ALL_TRUE = {
    "Available": (Reason.MASTER_ELECTED, "Each of {count} shards has a master that serves."),
    "InSync": (Reason.ENOUGH_IN_SYNC, "Enough replicas of each of {count} shards are in sync."),
    "FullyReplicated": (Reason.ALL_IN_SYNC, "All replicas of each of {count} shards are in sync."),
}
_WELL = ("Available", "FullyReplicated")
"""What makes a shard Ready, the cause before its effects."""


class JudgedShard(msgspec.Struct, frozen=True):
    """A shard and its conditions."""

    name: str
    conditions: tuple[Condition, ...]

    def unlike(self, name: str) -> Condition | None:
        """A condition that is not True; None if it is."""
        found = find(self.conditions, name)
        return None if found is None or found.status == "True" else found

    @property
    def trouble(self) -> Condition | None:
        """The first reason why it is not Ready."""
        return next(filter(None, map(self.unlike, _WELL)), None)


def judge_shards(seen: BrokerObserved, now: dt.datetime) -> tuple[JudgedShard, ...]:
    """Each shard as if it were the only group."""
    judged = []
    for part in wished_groups(seen):
        conditions = Conditions((), seen.meta.generation, now)
        known = None
        if isinstance(part.view, GroupView):
            known = ObservedGroup(part.view, part.pods, part.shard)
        report_group(conditions, seen.group, known)
        judged.append(JudgedShard(part.shard, conditions.result()))
    return tuple(judged)


def report_shards(conditions: Conditions, seen: BrokerObserved, now: dt.datetime) -> None:
    """Available, InSync and FullyReplicated of all shards together."""
    if seen.group is None:
        for name in _ALL_TRUE:
            conditions.keep(name)
        return
    shards = judge_shards(seen, now)
    for name, (reason, words) in _ALL_TRUE.items():
        unlike = [(one.name, found) for one in shards if (found := one.unlike(name)) is not None]
        if not unlike:
            conditions.set(name, "True", reason, words.format(count=len(shards)))
            continue
        shard, worst = min(unlike, key=lambda item: item[1].status != "False")
        more = f" So it is with {len(unlike) - 1} more." if len(unlike) > 1 else ""
        conditions.set(name, worst.status, worst.reason, f"{shard}: {worst.message}{more}")


def summed_up(seen: BrokerObserved, now: dt.datetime) -> dict[str, Any]:
    """The fields of the status that tell of the shards; none while nothing is known of them."""
    if seen.group is None or isinstance(seen.view, Unreachable):
        return {}
    groups, shards = joined(wished_groups(seen)), judge_shards(seen, now)
    troubled = [(one.name, found) for one in shards if (found := one.trouble) is not None]
    ready = len(shards) - len(troubled)
    masters = masters_per_pod(known_groups(seen))
    complete = len(groups) == len(shards)
    fewest = min(len(group.in_sync()) for group in groups) if complete else 0
    return {
        "in_sync": f"{fewest}/{seen.group.spec.replicas}",
        "in_sync_replicas": _in_sync_everywhere(seen, groups) if complete else (),
        "shards": ShardsStatus(
            count=len(groups),
            ready_count=ready,
            ready=f"{ready}/{seen.group.spec.shards}",
            masters=tuple(PodMasters(pod=name, masters=masters[name]) for name in sorted(masters)),
            worst=_worst(troubled),
        ),
    }


def _worst(troubled: Sequence[tuple[str, Condition]]) -> WorstShard | None:
    if not troubled:
        return None
    name, found = min(troubled, key=lambda item: _WELL.index(item[1].type))
    return WorstShard(name=name, condition=found.type, reason=found.reason, message=found.message)


def _in_sync_everywhere(seen: BrokerObserved, groups: Sequence[ObservedGroup]) -> tuple[int, ...]:
    """Ordinals of the pods whose members are in sync in all shards."""
    members = [
        (pod.ordinal, [group.member_in(pod) for group in groups])
        for pod in seen.pods
        if pod.ordinal is not None
    ]
    return tuple(
        sorted(
            ordinal
            for ordinal, here in members
            if all(
                member is not None and member.broker_id in group.in_sync()
                for member, group in zip(here, groups, strict=True)
            )
        )
    )
