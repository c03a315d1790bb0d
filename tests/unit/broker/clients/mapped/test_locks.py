"""Locks of mapped queues: where they are asked for, and when nobody is told that he has one."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest
from gantry_broker.clients.mapped.locks import STATIC, MappedLocks
from gantry_protocol.bodies import (
    LockBatchBody,
    LockedQueues,
    MessageQueue,
    decode_body,
    encode_body,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import reply
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX, MappedQueue, Segment
from support.group_view import LocksInMemory
from support.mapped_group import HERE, SERVING, THERE, TOPIC, MappedGroup, at

CAME = MAPPED_QUEUES_MAX


class Locks(LocksInMemory):
    """They answer when the test says so, and learn what it tells them."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.held: list[Callable[[], None]] = []
        self.to_learn: set[MessageQueue] = set()
        self.known: set[MessageQueue] = set()

    def lock(
        self,
        group: str,
        client_id: str,
        queues: list[MessageQueue],
        connection: int,
        owns: Callable[[list[MessageQueue]], None],
    ) -> None:
        self.held.append(
            lambda: super(Locks, self).lock(group, client_id, queues, connection, owns)
        )
        if not self.holds:
            self.release()

    def release(self) -> None:
        self.held.pop()()

    def learn(self, queues: Collection[MessageQueue]) -> None:
        self.to_learn.update(queues)

    def knows(self, queue: MessageQueue) -> bool:
        return queue in self.known


class Asked:
    """A group's mapped locks and who asks for them."""

    def __init__(self, mapped: MappedGroup) -> None:
        self.locks = Locks()
        mapped.group.consumers.locks = self.locks  # type: ignore[assignment]
        self._mapped = MappedLocks(mapped.group, self.locks)

    def lock(self, *numbers: int, name: str = STATIC, passed_on: bool = False) -> list[list[int]]:
        told: list[list[int]] = []

        def owns(queues: list[MessageQueue]) -> None:
            assert all(queue.broker_name == name for queue in queues)
            told.append(sorted(queue.queue_id for queue in queues))

        self._mapped.lock(wish(*numbers, name=name), 1, owns, passed_on=passed_on)
        return told

    def unlock(self, *numbers: int) -> None:
        self._mapped.unlock(wish(*numbers), 1)


def wish(*numbers: int, name: str = STATIC) -> LockBatchBody:
    return LockBatchBody("g", "client", [MessageQueue(name, number, TOPIC) for number in numbers])


def came(number: int = 0, target: str = "") -> MappedQueue:
    """A queue that was elsewhere before."""
    return MappedQueue((Segment(THERE, 0, number), Segment(HERE, 9, number + CAME)), target, 1)


def own(queue_id: int) -> MessageQueue:
    return MessageQueue(HERE, queue_id, TOPIC)


@pytest.fixture
async def asked(mapped: MappedGroup) -> Asked:
    await mapped.begin()
    return Asked(mapped)


def answer(mapped: MappedGroup, *numbers: int) -> None:
    _, command, done = mapped.masters.asked.pop()
    queues = [MessageQueue(STATIC, number, TOPIC) for number in numbers]
    done(reply(command, body=encode_body(LockedQueues(queues))))


async def test_each_queue_is_asked_for_where_it_is(mapped: MappedGroup, asked: Asked) -> None:
    mapped.tell(at(HERE), at(THERE, 1), at(HERE, 2))
    told = asked.lock(0, 1, 2, 9)
    (group, command, _) = mapped.masters.asked[0]
    assert (group, command.code) == (THERE, RequestCode.LOCK_BATCH_MQ)
    assert decode_body(LockBatchBody, command.body).mq_set == wish(1).mq_set
    assert told == []
    answer(mapped, 1)
    assert told == [[0, 1, 2]]
    assert asked.lock(0, 1, passed_on=True) == [[0]]
    assert mapped.masters.asked == []


async def test_what_another_master_refuses_is_owned_by_nobody(
    mapped: MappedGroup, asked: Asked
) -> None:
    mapped.tell(at(HERE), at(THERE, 1))
    told = asked.lock(0, 1)
    mapped.masters.answer(ResponseCode.SYSTEM_BUSY)
    assert told == [[0]]


async def test_nobody_is_told_that_he_owns_a_queue_that_is_about_to_move(
    mapped: MappedGroup, asked: Asked
) -> None:
    """The next group would not know him."""
    mapped.tell(at(HERE), at(HERE, 1))
    assert asked.lock(0, 1) == [[0, 1]]
    mapped.tell(at(HERE, 0, THERE), at(HERE, 1), epoch=2)
    assert asked.lock(0, 1) == [[1]]
    mapped.tell(at(HERE), at(HERE, 1), epoch=3)
    assert asked.lock(0, 1) == [[0, 1]], "it does not move after all"


async def test_nor_is_one_who_has_waited_until_it_was(mapped: MappedGroup, asked: Asked) -> None:
    mapped.tell(at(HERE), at(HERE, 1))
    asked.locks.holds = True
    told = asked.lock(0, 1)
    mapped.tell(at(HERE, 0, THERE), at(HERE, 1), epoch=2)
    asked.locks.release()
    assert told == [[1]]


async def test_a_queue_that_has_come_has_no_owner_before_its_owners_are_known(
    mapped: MappedGroup, asked: Asked
) -> None:
    mapped.tell(came(), at(HERE, 1), at(THERE, 2))
    assert asked.locks.to_learn == {own(CAME)}, "they are asked for as soon as it is here"
    asked.locks.to_learn.clear()
    assert asked.lock(0, 1) == [[1]]
    assert asked.locks.to_learn == {own(CAME)}, "and again if that was too early"
    asked.locks.known = {own(CAME)}
    assert asked.lock(0, 1) == [[0, 1]]


async def test_a_master_that_has_not_read_the_maps_tells_nobody(mapped: MappedGroup) -> None:
    """Its predecessor may have given the queue away."""
    await mapped.begin()
    mapped.tell(at(HERE))
    asked = Asked(mapped)
    assert asked.lock(0) == [[0]]
    await mapped.begin(epoch=2)
    assert asked.lock(0) == [[]]
    mapped.tell(at(HERE), epoch=1)
    assert asked.lock(0) == [[0]]


async def test_a_group_that_is_gone_tells_nobody(mapped: MappedGroup, asked: Asked) -> None:
    """Its queues are about to begin anew at another one."""
    others = {name: address for name, address in SERVING.items() if name != HERE}
    mapped.tell(at(HERE))
    assert asked.lock(0) == [[0]]
    mapped.tell(at(HERE), masters=others)
    assert asked.lock(0) == [[]]
    mapped.tell(at(HERE), masters={})
    assert asked.lock(0) == [[0]], "with nobody left nothing begins anew"


async def test_older_clients_lock_the_queues_of_this_group_alone(
    mapped: MappedGroup, asked: Asked
) -> None:
    mapped.tell(came(), at(HERE, 1, THERE))
    assert asked.lock(0, 1, CAME, name=HERE) == [[0, 1]]
    assert asked.lock(0, name=THERE) == [[]]


async def test_a_queue_that_moves_is_given_up(mapped: MappedGroup, asked: Asked) -> None:
    mapped.tell(at(HERE), at(THERE, 1))
    asked.lock(0)
    mapped.tell(at(HERE, 0, THERE), at(THERE, 1), epoch=2)
    assert asked.locks.is_held("g")
    asked.unlock(0, 1)
    assert not asked.locks.is_held("g")
