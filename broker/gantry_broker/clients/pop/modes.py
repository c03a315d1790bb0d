"""Modes of consumer groups, POP or pull, and the queues that each of their members gets.

SetMessageRequestMode (401), GetAllMessageRequestMode (402) and QueryAssignment (400). Upstream:
``QueryAssignmentProcessor``, ``MessageRequestModeManager``. A mode is a record of the log, so the
next master knows it. A client that balances by itself never asks, and pulls.
"""

from typing import Any

from gantry_protocol.bodies import MessageQueue, decode_request, encode_body
from gantry_protocol.bodies.codec import Body
from gantry_protocol.bodies.inspection import RequestModes
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients import topic_rules
from gantry_broker.clients.core.pop.assignment import AssignmentQuestion, shares
from gantry_broker.clients.core.pop.records import ModeSet
from gantry_broker.clients.pop.book import PopBook
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import SendOutcome

MODES_MAX = 10_000  # topics and groups with a mode of their own
_PULL, _POP = "PULL", "POP"
_BROADCASTING = "BROADCASTING"


class RequestMode(Body, frozen=True):
    """SetMessageRequestMode (401)."""

    topic: str
    consumer_group: str
    mode: str = _PULL
    pop_share_queue_num: int = 0


class RequestModeRequests:
    """See the module."""

    def __init__(self, view: GroupView, book: PopBook, sessions: Sessions) -> None:
        self._view = view
        self._book = book
        self._sessions = sessions

    def change(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """SetMessageRequestMode (401)."""
        wish = decode_request(RequestMode, request.body)
        if topic_rules.is_retry(wish.topic):
            remark = "retry topic is not allowed to set mode"
            return reply(request, ResponseCode.NO_PERMISSION, remark)
        if self._view.store.topics.lookup(wish.topic) is None:
            return reply(request, *topic_rules.unknown_topic(wish.topic))
        if wish.mode not in (_PULL, _POP):
            remark = f"{wish.mode[:64]!r} is no mode: write {_PULL} or {_POP}"
            return reply(request, ResponseCode.INVALID_PARAMETER, remark)
        refusal = self._view.accepting_writes()
        if refusal is not None:
            return reply(request, *refusal)
        if not self._book.ready:
            return self._not_read(request)
        modes = self._book.ledger.modes
        if (wish.topic, wish.consumer_group) not in modes and len(modes) >= MODES_MAX:
            remark = f"[OVERLOAD]{MODES_MAX} topics and groups have a mode, there is no room"
            return reply(request, ResponseCode.SYSTEM_BUSY, remark)

        def done(outcome: SendOutcome) -> None:
            if not request.is_oneway:
                conn.reply(request, reply(request, outcome.code, outcome.remark))

        event = ModeSet(
            wish.topic, wish.consumer_group, wish.mode == _POP, wish.pop_share_queue_num
        )
        self._book.record([event], done)
        return None

    def all(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """GetAllMessageRequestMode (402)."""
        if not self._book.ready:
            return self._not_read(request)
        found: dict[str, dict[str, Any]] = {}
        for mode in self._book.ledger.modes.values():
            body = RequestMode(mode.topic, mode.group, _name(mode), mode.share_queues)
            found.setdefault(mode.topic, {})[mode.group] = body
        return reply(request, body=encode_body(RequestModes(found)))

    def _not_read(self, request: RemotingCommand) -> RemotingCommand:
        remark = "what earlier masters wrote of POP is being read"
        return reply(request, ResponseCode.SYSTEM_BUSY, self._book.failure or remark)

    def assignment(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """QueryAssignment (400); ``{}`` tells the client to keep what it has."""
        question = decode_request(AssignmentQuestion, request.body)
        mode = self._book.ledger.modes.get((question.topic, question.consumer_group))
        queues = self._queues(question, mode)
        if queues is None:
            return reply(request, body=encode_body({}))
        name = _PULL if mode is None else _name(mode)
        found = [{"messageQueue": queue, "mode": name} for queue in queues]
        return reply(request, body=encode_body({"messageQueueAssignments": found}))

    def _queues(
        self, question: AssignmentQuestion, mode: ModeSet | None
    ) -> list[MessageQueue] | None:
        """The queues of a member; None where nobody can say."""
        topic = self._view.store.topics.lookup(question.topic)
        book = self._view.queues
        if (
            topic is None
            or not self._book.ready
            or not book.maps.is_known_to(self._view.broker_name)
        ):
            return None
        groups = sorted({self._view.broker_name, *book.maps.masters})
        queues = [
            MessageQueue(group, queue_id, question.topic)
            for group in groups
            for queue_id in range(topic.read_queue_nums)
        ]
        if question.message_model == _BROADCASTING:
            return queues
        members = sorted(self._sessions.client_ids(question.consumer_group))
        if not members:
            return None
        return shares(question, mode, queues, members)


def _name(mode: ModeSet) -> str:
    return _POP if mode.is_pop else _PULL
