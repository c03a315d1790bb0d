"""Routes, as name servers tell them, and as clients of gRPC get them.

Every broker group stands for one broker with the id 0, which is reached where the client reaches
this proxy now: the endpoints in its request. So clients need one address, and a proxy none.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import msgspec
from gantry_protocol.bodies.route import (
    MASTER_ID,
    PERM_READ,
    PERM_WRITE,
    MappedQueuesOfGroup,
    TopicRouteData,
)

from gantry_proxy.messages import MESSAGE_TYPES, PERMISSIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

ANY_QUEUE = -1
# Any message may be sent to any topic.
TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE")


class GroupQueues(msgspec.Struct, frozen=True):
    """The queues of a topic in one broker group.

    Attributes:
        broker_name: the group's.
        address: at which its master is reached.
        reads: the number of queues that may be read.
        writes: and of those that may be written.
        mapped: of a topic whose queues are mapped to groups, how many there are in the cluster.
        takes: the numbers of those that the group takes messages for.
    """

    broker_name: str
    address: str
    reads: int
    writes: int
    mapped: int = 0
    takes: frozenset[int] = frozenset()


def queues_of(data: TopicRouteData) -> tuple[GroupQueues, ...]:
    """The groups in an answer of 105, by name; those without a master's address are left out."""
    mapped = data.topic_queue_mapping_by_broker or {}
    nothing = MappedQueuesOfGroup()
    addresses = {item.broker_name: item.broker_addrs.get(MASTER_ID) for item in data.broker_datas}
    return tuple(
        GroupQueues(
            item.broker_name,
            address,
            item.read_queue_nums if item.perm & PERM_READ else 0,
            item.write_queue_nums if item.perm & PERM_WRITE else 0,
            mapped.get(item.broker_name, nothing).total_queues,
            frozenset(mapped.get(item.broker_name, nothing).curr_id_map),
        )
        for item in sorted(data.queue_datas, key=lambda item: item.broker_name)
        if (address := addresses.get(item.broker_name))
    )


def add_queues(response: Any, topic: Any, endpoints: Any, groups: Sequence[GroupQueues]) -> None:
    """Fill in a QueryRouteResponse: a ``MessageQueue`` for each queue."""
    for group in groups:
        for number in range(max(group.reads, group.writes)):
            reads, writes = number < group.reads, number < group.writes
            name = "READ_WRITE" if reads and writes else "READ" if reads else "WRITE"
            queue = response.message_queues.add()
            _place(queue, topic, endpoints, group.broker_name, number)
            queue.permission = PERMISSIONS[name]
            queue.accept_message_types.extend(MESSAGE_TYPES[name] for name in TYPES)


def add_assignments(
    response: Any, topic: Any, endpoints: Any, groups: Sequence[GroupQueues], *, in_order: bool
) -> None:
    """Fill in a QueryAssignmentResponse: with POP, everybody may take from everywhere.

    Of a group that consumes in order each queue is asked by itself, since one that is being worked
    on would hold up the others.
    """
    for group in groups:
        for number in range(group.reads) if in_order else (ANY_QUEUE,) if group.reads else ():
            queue = response.assignments.add().message_queue
            _place(queue, topic, endpoints, group.broker_name, number)
            queue.permission = PERMISSIONS["READ_WRITE" if group.writes else "READ"]


def _place(queue: Any, topic: Any, endpoints: Any, broker_name: str, number: int) -> None:
    queue.topic.CopyFrom(topic)
    queue.id = number
    queue.broker.name = broker_name
    queue.broker.id = MASTER_ID
    queue.broker.endpoints.CopyFrom(endpoints)


def writable(groups: Sequence[GroupQueues]) -> list[tuple[GroupQueues, int]]:
    """Every queue that may be written, in an order that is the same at every proxy."""
    return [(group, number) for group in groups for number in range(group.writes)]


def of_message_group(
    queues: Sequence[tuple[GroupQueues, int]], message_group: str
) -> tuple[GroupQueues, int]:
    """The queue of a message group: the one with the highest score for it.

    A queue that is added takes its share of the message groups and moves no others. ``queues`` must
    not be empty.
    """
    return max(
        queues,
        key=lambda place: zlib.crc32(f"{place[0].broker_name}/{place[1]}/{message_group}".encode()),
    )


def of_mapped(groups: Sequence[GroupQueues], message_group: str) -> tuple[GroupQueues, int] | None:
    """The mapped queue of a message group, by its number, and who takes messages for it.

    None if the topic's queues are not mapped. Any group passes on what another one takes, so a
    route that is old leads to the same queue.
    """
    count = max((group.mapped for group in groups), default=0)
    if not count:
        return None
    number = max(range(count), key=lambda at: zlib.crc32(f"{at}/{message_group}".encode()))
    return next((group for group in groups if number in group.takes), groups[0]), number
