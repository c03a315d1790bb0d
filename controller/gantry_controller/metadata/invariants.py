"""Invariants of a broker group: of each value, and of each step from one to the next."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_protocol.types import BrokerId

    from gantry_controller.metadata.state import BrokerGroup, Member


def check_group(new: BrokerGroup, old: BrokerGroup | None) -> None:
    """The invariants of one group and of one step; a failure is a bug, and ends the process."""
    if old is None or new.members is not old.members:
        ids = [member.broker_id for member in new.members]
        assert is_ascending(ids), new
        assert not ids or ids[-1] < new.next_broker_id, new
    assert _are_of(new.members, new.sync_state_set), new
    assert not new.fenced or _are_of(new.members, new.fenced), new
    assert not new.fenced or not set(new.fenced) & set(new.sync_state_set), new
    assert new.master_id is None or new.master_id in new.sync_state_set, new
    assert not new.removed or (not new.members and new.declaration is None), new
    assert not new.retired or new.declaration is not None, new
    if old is None:
        return
    assert new.master_epoch >= old.master_epoch, (old, new)
    assert new.next_broker_id >= old.next_broker_id, (old, new)
    step = new.sync_state_set_epoch - old.sync_state_set_epoch
    assert step > 0 or (step == 0 and new.sync_state_set == old.sync_state_set), (old, new)
    if new.master_id is not None and new.master_epoch == old.master_epoch:
        assert new.master_id == old.master_id, (old, new)
        assert new.master_incarnation == old.master_incarnation, (old, new)


def is_ascending(ids: Sequence[BrokerId]) -> bool:
    """Whether each is above the one before, so that none comes twice."""
    for item, following in pairwise(ids):  # noqa: SIM110 - a generator costs as much again
        if item >= following:
            return False
    return True


def _are_of(members: tuple[Member, ...], ids: tuple[BrokerId, ...]) -> bool:
    """Whether ``ids`` ascend and are all of members, which ascend themselves: in one walk."""
    rest = iter(members)
    for broker_id in ids:
        for member in rest:
            if member.broker_id == broker_id:
                break
        else:
            return False
    return True
