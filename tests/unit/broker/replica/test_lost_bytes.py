"""A member of the set that comes back with less than it acknowledged: a copied or restored volume.

A disk that keeps its promises cannot do that. Until it has caught up, the member must not be in the
set: whoever is elected there would lack acknowledged records.
"""

from __future__ import annotations

from gantry_broker.replica import effects as fx
from gantry_protocol.types import BrokerId
from support.replicas import Group


def ids(*numbers: int) -> frozenset[BrokerId]:
    return frozenset(map(BrokerId, numbers))


def restored(group: Group, number: int, size: int) -> None:
    """The broker is back on a copy of its volume from when the log had ``size`` bytes."""
    group.held = {number}
    disk = group[number].disk
    del disk.log[size:]
    disk.flushed = size
    group.restart(number, "2")
    group.held = set()


def test_it_leaves_the_set_before_anything_is_sent_to_it() -> None:
    group = Group(3)
    group.elect(1)
    group.write(1, b"0123456789")
    restored(group, 2, 4)
    group[2].saving = False  # so it does not answer the handshake
    group.tell(1, [2])
    assert group[1].last_proposal().sync_state_set == ids(1, 3)


def test_it_is_back_when_it_holds_everything_again() -> None:
    group = Group(3)
    group.elect(1)
    group.write(1, b"0123456789")
    restored(group, 2, 4)
    group.tell(1, [2])
    assert group[1].last_proposal().sync_state_set == ids(1, 3)
    group.accept(group[1])
    group.tick(40)
    assert group[2].disk.log == b"0123456789"
    assert group[1].last_proposal().sync_state_set == ids(1, 2, 3)


def test_a_member_that_lacks_only_what_is_not_confirmed_stays() -> None:
    group = Group(3)
    group.elect(1)
    group.write(1, b"0123")
    group[3].flushing = False
    group.write(1, b"456789")
    assert group[1].facts.confirm == 4
    restored(group, 2, 4)
    group.tell(1, [2])
    group.tick(40)
    assert group[1].asked(fx.Propose) == []
