"""A log that begins later: who has not come that far begins anew there, by itself."""

from __future__ import annotations

import pytest
from gantry_broker.replica import Role
from gantry_broker.replica import effects as fx
from support.replicas import Group

OLD, NEW = b"o" * 100, b"n" * 100


def lagging() -> Group:
    """Broker 3 has the first 100 bytes, is outside the set and away; the master has 200."""
    group = Group(3)
    group.elect(1)
    group.write(1, OLD)
    group.unreachable.add(3)
    group.cut_links(3)
    group.elect(1, {1, 2})
    group.write(1, NEW)
    return group


def test_a_replica_that_ends_below_the_masters_start_begins_anew_there_and_joins() -> None:
    group = lagging()
    master, replica = group[1], group[3]
    assert (master.facts.confirm, replica.facts.end) == (200, 100)
    master.trim(200)
    group.write(1, b"later")
    group.unreachable.clear()
    group.tick(1000)
    assert fx.CutLog(200, reset=True) in replica.asked(fx.CutLog)
    assert (replica.disk.start, bytes(replica.disk.log)) == (200, b"later")
    assert master.last_proposal().sync_state_set == {1, 2, 3}
    group.accept(master)
    group.elect(3)
    assert group[3].core.role is Role.MASTER
    assert group[3].facts.confirm == 205


def test_who_goes_on_below_the_new_start_is_sent_away_and_begins_anew() -> None:
    """A connected replica outside the set does not keep a full disk full."""
    group = Group(3)
    group.held.add(3)
    group.elect(1, {1, 2})
    group.write(1, OLD + NEW)
    master, replica = group[1], group[3]
    assert (master.core.master.members[3].sent, master.facts.confirm) == (0, 200)
    assert master.core.master.copying_from(counted=False) == [(0, 3)]
    assert master.core.master.copying_from(counted=True) == [(200, 2)]
    master.trim(100)
    assert master.core.master.members[3].link is None
    assert master.core.master.members[2].link is not None
    group.release(3)
    group.tick(1000)
    assert fx.CutLog(100, reset=True) in replica.asked(fx.CutLog)
    assert (replica.disk.start, bytes(replica.disk.log)) == (100, NEW)
    assert master.last_proposal().sync_state_set == {1, 2, 3}


def test_who_has_come_as_far_keeps_its_link() -> None:
    group = Group(3)
    group.elect(1)
    group.write(1, OLD)
    links = set(group[1].core.master.links())
    group[1].trim(100)
    assert set(group[1].core.master.links()) == links
    group.write(1, NEW)
    assert group[1].facts.confirm == 200


def test_a_start_above_confirm_is_a_fault_of_ours() -> None:
    group = Group(3)
    group.elect(1)
    group.held |= {2, 3}
    group.write(1, OLD)
    assert group[1].facts.confirm == 0
    with pytest.raises(AssertionError, match="above 0"):
        group[1].trim(50)
