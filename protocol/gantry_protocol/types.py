"""The integers that must not be mixed up, and the one value built of them.

A ``Term`` and an ``Index`` belong to the controller's Raft log; an ``Epoch`` and an ``Offset``
belong to a broker group and its commit log. Distinct types let the type checker refuse an offset
where an epoch is due. This module holds no behaviour.
"""

from typing import NewType

import msgspec

Term = NewType("Term", int)
Index = NewType("Index", int)
NodeId = NewType("NodeId", int)
BrokerId = NewType("BrokerId", int)
Epoch = NewType("Epoch", int)
Offset = NewType("Offset", int)


class EpochEntry(msgspec.Struct, frozen=True):
    """One line of a group's lineage: ``epoch`` wrote the log from ``start_offset`` on.

    Both members grow strictly from entry to entry (RocketMQ ``EpochFileCache``).
    """

    epoch: Epoch
    start_offset: Offset
