"""Confirm offsets of groups as this node has heard them, and whose word counts.

The quorum keeps a floor per group (``metadata.state.Floor``). It costs an entry in the log to raise
one, so that is done in batches: every ``RAISE_EVERY_S`` for the groups whose masters have confirmed
more since, and before each election for the group that is concerned. In between every controller
remembers what masters say in their heartbeats. So a floor lags by a heartbeat while any controller
that heard it lives, and by ``RAISE_EVERY_S`` (with more than ``ROWS_MAX`` groups per
``RAISE_GAP_S`` longer) when all of them lose their power.

Two rules are protected here:

* What a member said of its log may be older than what its master has confirmed since. Every member
  of the set held that by then, so it is not held to be below it: if its process is *vouched for*,
  that is, a master has taken it into the set, or was heard well after it registered. The master
  looks at each member that attaches, and strikes one that holds too little
  (``replica.membership``).
* A process that is not vouched for came after the master. It may be a volume that was put back from
  a copy, so its own word counts, and while others of the set are away it has to wait for them
  (``Overseer``).
"""

from collections.abc import Iterable

import msgspec
from gantry_protocol.types import BrokerId, Epoch

from gantry_controller.liveness.core.table import Heartbeat, HeartbeatTable
from gantry_controller.metadata.confirmed import Floor
from gantry_controller.metadata.events import FloorRow, LiveMember, RaiseFloors
from gantry_controller.metadata.state import BrokerGroup, GroupKey, MetadataState

RAISE_EVERY_S = 5.0
RAISE_GAP_S = 0.1
ROWS_MAX = 500
"""In one event, which then has about 40 kB and takes a millisecond to apply."""

VOUCHED_AFTER_S = 0.3
"""A master has looked at a replica that attaches, or has struck it, within so much time."""


_NOBODY: dict[BrokerId, str] = {}


class HeardFloors:
    """The floors that one node has heard of: at most one per group and member on record.

    Attributes:
        raised: rows that this node has proposed to raise floors with.
    """

    def __init__(self, state: MetadataState, table: HeartbeatTable) -> None:
        self.raised = 0
        self._state = state
        self._table = table
        self._beyond: dict[GroupKey, Floor] = {}  # what the quorum does not know yet
        self._master_heard_s: dict[GroupKey, float] = {}
        self._seen_set: dict[GroupKey, tuple[BrokerId, ...]] = {}
        self._joined: dict[GroupKey, dict[BrokerId, str]] = {}  # processes that masters took in
        self._began_s = float("-inf")  # what is older than this is known from a snapshot
        self._round: list[GroupKey] = []
        self._next_round_s = float("-inf")

    def restored(self, now_s: float) -> None:
        """Forget registrations: they were in events that this node will not see."""
        self._began_s = now_s
        self._beyond.clear()
        self._master_heard_s.clear()
        self._seen_set.clear()
        self._joined.clear()

    def heard(self, key: GroupKey, beat: Heartbeat, now_s: float) -> None:
        """A broker spoke; only the elected process counts. Brokers that name none are not heard."""
        group = self._state.groups.get(key)
        if (
            group is None
            or beat.broker_id != group.master_id
            or not beat.incarnation
            or beat.incarnation != group.master_incarnation
        ):
            return
        self._master_heard_s[key] = now_s
        if beat.confirm_epoch < 0:
            return
        known = self.floor(key)
        if known is None or (
            beat.confirm_offset > known.offset and beat.confirm_epoch >= known.epoch
        ):
            self._beyond[key] = Floor(beat.confirm_epoch, beat.confirm_offset)

    def changed(self, group: BrokerGroup, now_s: float, *, by_master: bool) -> None:
        """The group has changed; ``by_master``: its master, which lives, has changed the set."""
        key = group.key
        before, self._seen_set[key] = self._seen_set.get(key), group.sync_state_set
        if not by_master:
            return
        self._master_heard_s[key] = now_s
        if before is None or before == group.sync_state_set:
            return
        joined = self._joined.setdefault(key, {})
        for member in group.members:
            if member.broker_id in group.sync_state_set and member.broker_id not in before:
                joined[member.broker_id] = member.incarnation

    def forget(self, key: GroupKey, *, group_is_gone: bool) -> None:
        """The floor was given up, with the group or by a person."""
        self._beyond.pop(key, None)
        if group_is_gone:
            self._master_heard_s.pop(key, None)
            self._seen_set.pop(key, None)
            self._joined.pop(key, None)

    def floor(self, key: GroupKey) -> Floor | None:
        """The highest that is known here."""
        heard, agreed = self._beyond.get(key), self._state.floors.get(key)
        if heard is None or (agreed is not None and agreed.offset >= heard.offset):
            return agreed
        return heard

    def row(self, group: BrokerGroup) -> FloorRow | None:
        """News of ``group`` for the quorum before it elects; None if it knows them."""
        heard = self._beyond.get(group.key)
        if heard is None or not group.had_master:
            return None
        agreed = self._state.floors.get(group.key)
        if agreed is not None and agreed.offset >= heard.offset:
            return None
        return FloorRow(group.cluster, group.name, group.master_epoch, heard.epoch, heard.offset)

    def due(self, now_s: float) -> RaiseFloors | None:
        """The next batch to propose; to be called every ``RAISE_GAP_S``."""
        if not self._round:
            if now_s < self._next_round_s:
                return None
            self._next_round_s = now_s + RAISE_EVERY_S
            self._round = list(self._beyond)
        rows: list[FloorRow] = []
        while self._round and len(rows) < ROWS_MAX:
            key = self._round.pop()
            group = self._state.groups.get(key)
            row = None if group is None else self.row(group)
            if row is None:
                self._beyond.pop(key, None)
            else:
                rows.append(row)
        self.raised += len(rows)
        return RaiseFloors(rows=tuple(rows)) if rows else None

    def is_vouched_for(self, group: BrokerGroup, broker_id: BrokerId) -> bool:
        """Whether a master has taken the member's process in, or was heard well after it came."""
        member = group.member(broker_id)
        joined = self._joined.get(group.key, _NOBODY).get(broker_id)
        if member is not None and joined == member.incarnation:
            return True
        heard_s = self._master_heard_s.get(group.key)
        registered_s = self._table.registered_at(group.key, broker_id)
        since_s = self._began_s if registered_s is None else registered_s
        return heard_s is not None and since_s + VOUCHED_AFTER_S <= heard_s

    def lifted(self, group: BrokerGroup, live: Iterable[LiveMember]) -> tuple[LiveMember, ...]:
        """The evidence, with what members of the set surely hold by now."""
        floor = self.floor(group.key)
        if floor is None:
            return tuple(live)
        return tuple(
            _lift(item, floor)
            if item.broker_id in group.sync_state_set
            and not floor.reached_by(item.epoch, item.max_offset)
            and self.is_vouched_for(group, item.broker_id)
            else item
            for item in live
        )


def _lift(member: LiveMember, floor: Floor) -> LiveMember:
    return msgspec.structs.replace(
        member,
        epoch=Epoch(max(member.epoch, floor.epoch)),
        max_offset=max(member.max_offset, floor.offset),
    )
