"""Locks of mapped queues: asked of the master that takes messages for the queue, and only there.

Clients name such a queue by its number, with a broker name that stands for the whole cluster. The
lock is that of the group's own queue. What another group has is asked of its master, once.

Two rules keep a queue that moves from having two owners. Nobody is told that he owns a queue that
is about to move: whoever was told before is known to the controllers when it does, and they hand
the owners over (``owners_follow``). Where the queue has come to, nobody is told before these are
known (``LockBook.learn``).
"""

from collections.abc import Callable
from typing import Final

from gantry_protocol.bodies import (
    LockBatchBody,
    LockedQueues,
    MessageQueue,
    decode_body,
    encode_body,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.command import request as new_request
from gantry_protocol.errors import WireError
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX
from gantry_protocol.remoting.asking import Outcome
from msgspec.structs import replace

from gantry_broker.clients.lock_keeping import LockBook
from gantry_broker.clients.view import GroupView

STATIC: Final = "__syslo__"
"""How the broker name of a mapped queue begins (``MixAll.LOGICAL_QUEUE_MOCK_BROKER_PREFIX``)."""

CALL_TIMEOUT_S = 0.8  # clients give such a request 1 s

Owns = Callable[[list[MessageQueue]], None]


class MappedLocks:
    """See the module."""

    def __init__(self, view: GroupView, locks: LockBook) -> None:
        self._view = view
        self._locks = locks

    def lock(self, wish: LockBatchBody, connection: int, owns: Owns, *, passed_on: bool) -> None:
        """Take or renew locks of this group's queues and of mapped ones; ``owns`` comes once.

        Args:
            wish: of the client.
            connection: that it came by.
            owns: is told what the client owns now.
            passed_on: another master asks; what this group does not have is not asked for.
        """
        here, elsewhere = self._sorted(wish.mq_set)
        left = 1 + (0 if passed_on else len(elsewhere))
        owned: list[MessageQueue] = []

        def more(queues: list[MessageQueue]) -> None:
            nonlocal left
            owned.extend(queues)
            left -= 1
            if not left:
                owns(owned)

        if not passed_on:
            for group, queues in elsewhere.items():
                self._ask(group, replace(wish, mq_set=queues), more)
        self._locks.lock(
            wish.consumer_group,
            wish.client_id,
            list(here),
            connection,
            lambda found: more([here[own] for own in found if self._may_be_owned(own, here[own])]),
        )

    def unlock(self, wish: LockBatchBody, connection: int) -> None:
        """Give locks up; those of other groups run out."""
        places = map(self._place, wish.mq_set)
        here = [own for own in places if own and own.broker_name == self._view.broker_name]
        self._locks.unlock(wish.consumer_group, wish.client_id, here, connection)

    def _sorted(
        self, queues: list[MessageQueue]
    ) -> tuple[dict[MessageQueue, MessageQueue], dict[str, list[MessageQueue]]]:
        """This group's queues, with the names that the client gave them; others' by group."""
        here: dict[MessageQueue, MessageQueue] = {}
        elsewhere: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            own = self._place(queue)
            if own is None:
                continue
            if own.broker_name != self._view.broker_name:
                elsewhere.setdefault(own.broker_name, []).append(queue)
            elif self._may_be_owned(own, queue):
                here[own] = queue
        return here, elsewhere

    def _place(self, queue: MessageQueue) -> MessageQueue | None:
        """The broker group's own queue that a client means; None: nobody has it."""
        known = self._view.queues.of(queue.topic)
        if not queue.broker_name.startswith(STATIC):
            is_number = known is None or queue.queue_id < MAPPED_QUEUES_MAX
            return queue if queue.broker_name == self._view.broker_name and is_number else None
        if known is None or not 0 <= queue.queue_id < len(known.queues):
            return None
        segment = known.queues[queue.queue_id].open
        return MessageQueue(segment.group, segment.queue_id, queue.topic)

    def _may_be_owned(self, own: MessageQueue, named: MessageQueue) -> bool:
        """Whether a client may be told now that it owns this group's queue ``own``.

        A group that is gone tells nobody: its queues are about to begin anew elsewhere.
        """
        if named == own:
            return True  # a queue of this group alone
        book = self._view.queues
        if book.maps.is_gone(own.broker_name) or not book.takes(own.topic, own.queue_id):
            return False
        if own.queue_id < MAPPED_QUEUES_MAX or self._locks.knows(own):
            return True
        self._locks.learn([own])
        return False

    def _ask(self, group: str, wish: LockBatchBody, owns: Owns) -> None:
        command = new_request(RequestCode.LOCK_BATCH_MQ, {PASSED_ON: "true"}, encode_body(wish))

        def answered(outcome: Outcome) -> None:
            found: list[MessageQueue] = []
            if isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.SUCCESS:
                try:
                    found = decode_body(LockedQueues, outcome.body).lock_ok_mq_set
                except WireError:
                    found = []  # it grants nothing
            owns(found)

        self._view.queues.masters.ask(group, command, answered, CALL_TIMEOUT_S)


PASSED_ON: Final = "gantryPassedOn"
"""In a request's fields: another master asks on a client's behalf."""
