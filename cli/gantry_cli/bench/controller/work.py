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

from gantry_cli.bench.controller import wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DONE = frozenset({int(ResponseCode.SUCCESS)})
NOWHERE = "127.0.0.1:9"  # the discard port: nobody listens where these brokers claim to be


class SetChanges:
    """1001: slot `n` is the master of group `n`."""

    codes = DONE

    def __init__(self, slots: int) -> None:
        self._changes = [wire.SetChange(slot, slot) for slot in range(slots)]

    def first(self, slot: int) -> bytes:
        """The change that is next."""
        return self._changes[slot].next()

    def following(self, slot: int) -> bytes:
        """One change after another."""
        change = self._changes[slot]
        change.acknowledged()
        return change.next()


class Reads:
    """1004, of group `n` modulo `groups` by slot `n`."""

    codes = DONE

    def __init__(self, slots: int, groups: int) -> None:
        self._frames = [wire.replica_info(slot, slot % groups) for slot in range(slots)]

    def first(self, slot: int) -> bytes:
        """The slot's question."""
        return self._frames[slot]

    following = first


class Scripts:
    """Groups to prepare: each slot takes one after the other, and its steps in order."""

    codes = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.CONTROLLER_MASTER_STILL_EXIST)})

    def __init__(self, slots: int, groups: Iterable[int], *, replicas: int, alive: bool) -> None:
        numbers = list(groups)
        self._steps = [
            _births(slot, numbers[slot::slots], replicas, alive=alive) for slot in range(slots)
        ]

    def first(self, slot: int) -> bytes | None:
        """The next step of the slot's present group."""
        return next(self._steps[slot], None)

    following = first


def _births(opaque: int, groups: Iterable[int], replicas: int, *, alive: bool) -> Iterator[bytes]:
    """What brokers of the old kind say at their first start; broker 1 becomes the master."""
    for group in groups:
        yield from _birth(opaque, group, replicas, alive=alive)


def _birth(opaque: int, group: int, replicas: int, *, alive: bool) -> Iterator[bytes]:
    ids = range(1, replicas + 1)
    for broker_id in ids:
        yield wire.apply_id(opaque, group, broker_id, NOWHERE)
    for broker_id in ids:
        yield wire.register(opaque, group, broker_id, NOWHERE)
    yield wire.elect(opaque, group, 1)
    if alive:
        for broker_id in ids:
            yield wire.heartbeat(opaque, group, broker_id, NOWHERE, oneway=False)
