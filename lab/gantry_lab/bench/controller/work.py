"""What the slots of a load do: the honest write, the consistent read, the preparation.

The write is 1001, AlterSyncStateSet: the one that a running master sends. Each is a compare-and-set
on the epoch that the last one returned, so none is a repetition, none can be answered without the
log, and each slot works on a group of its own. Where many writes must meet on few groups it is 1003
of a broker that comes back at another address, which every controller must log, too. The read is
1004, which every broker polls with, and which our controllers answer linearizably.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.codes import ResponseCode

from gantry_lab.bench.controller import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

DONE = frozenset({int(ResponseCode.SUCCESS)})
NOWHERE = "127.0.0.1:9"  # the discard port: nobody listens where these brokers claim to be


class SetChanges:
    """1001: slot `n` is the master of group `first + n`."""

    codes = DONE

    def __init__(self, slots: int, first: int = 0) -> None:
        self._changes = [wire.SetChange(slot, first + slot) for slot in range(slots)]

    def first(self, slot: int) -> bytes:
        """The change that is next."""
        return self._changes[slot].next()

    def following(self, slot: int) -> bytes:
        """One change after another."""
        change = self._changes[slot]
        change.acknowledged()
        return change.next()


class Widenings:
    """1001 once per group: all three replicas become members of the set."""

    codes = DONE

    def __init__(self, slots: int, groups: Iterable[int]) -> None:
        numbers = list(groups)
        self._frames = [_widenings(slot, numbers[slot::slots]) for slot in range(slots)]

    def first(self, slot: int) -> bytes | None:
        """The next group."""
        return next(self._frames[slot], None)

    following = first


class Reads:
    """1004, of group `n` modulo `groups` by slot `n`."""

    codes = DONE

    def __init__(self, slots: int, groups: int) -> None:
        self._frames = [wire.replica_info(slot, slot % groups) for slot in range(slots)]

    def first(self, slot: int) -> bytes:
        """The slot's question."""
        return self._frames[slot]

    following = first


class Registrations:
    """1003: broker 2 comes back at another address each time; slots meet on `groups` groups."""

    codes = DONE

    def __init__(self, slots: int, groups: int) -> None:
        self._slots = slots
        self._groups = groups
        self._changes = [wire.Registration(slot) for slot in range(slots)]
        self._turns = [0] * slots

    def first(self, slot: int) -> bytes:
        """The next group's registration."""
        turn = self._turns[slot]
        self._turns[slot] = turn + 1
        return self._changes[slot].of((slot + turn * self._slots) % self._groups, turn)

    following = first


class Scripts:
    """Groups to prepare: each slot takes one after the other, and its steps in order.

    Args:
        slots: how many at once.
        groups: their numbers.
        replicas: of each; broker 1 becomes the master.
        registered: so many of them register, too; None for all.
        alive: whether all of them beat once, for long.
        address: where broker `n` of a group listens.
    """

    codes = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.CONTROLLER_MASTER_STILL_EXIST)})

    def __init__(
        self,
        slots: int,
        groups: Iterable[int],
        *,
        replicas: int,
        registered: int | None = None,
        alive: bool = False,
        address: Callable[[int, int], str] = lambda _group, _broker_id: NOWHERE,
    ) -> None:
        numbers = list(groups)
        self._ids = range(1, replicas + 1)
        self._registered = replicas if registered is None else registered
        self._alive = alive
        self._address = address
        self._steps = [self._births(slot, numbers[slot::slots]) for slot in range(slots)]

    def first(self, slot: int) -> bytes | None:
        """The next step of the slot's present group."""
        return next(self._steps[slot], None)

    following = first

    def _births(self, opaque: int, groups: Iterable[int]) -> Iterator[bytes]:
        for group in groups:
            yield from self._birth(opaque, group)

    def _birth(self, opaque: int, group: int) -> Iterator[bytes]:
        """What brokers of the old kind say at their first start."""
        for broker_id in self._ids:
            yield wire.apply_id(opaque, group, broker_id, self._address(group, broker_id))
        for broker_id in self._ids[: self._registered]:
            yield wire.register(opaque, group, broker_id, self._address(group, broker_id))
        yield wire.elect(opaque, group, 1)
        for broker_id in self._ids if self._alive else ():
            address = self._address(group, broker_id)
            yield wire.heartbeat(opaque, group, broker_id, address, oneway=False)


def _widenings(opaque: int, groups: Iterable[int]) -> Iterator[bytes]:
    for group in groups:
        yield wire.SetChange(opaque, group, (b"1", b"1,2,3")).next()
