"""The old architecture, to measure the new one against: one request at a time, through the log.

RocketMQ's controllers let one event thread append a request, wait until it is committed, and take
the next; the JRaft one sends its reads through the log as well (ADR 0021). Here a queue in front of
the node does the same: the next request is handed on when the one before is answered, and a read is
an entry that applies as nothing. What the node then does with that one request, and the heartbeats
of brokers, which stay out of the log, are as in the other architecture.

Refused: requests beyond ``WAITING_MAX``.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from gantry_protocol.types import NodeId

from gantry_controller.node.node import RaftNode
from gantry_controller.node.pending import Done, ReadDone
from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.errors import Overloaded

WAITING_MAX = 20_000  # as many as the node itself takes (``NodeOptions.proposals_max``)

_Begin = Callable[[Done], None]


class SerialQueue:
    """Stands where the node stands, for whoever proposes and reads.

    Attributes:
        refused: requests that found the queue full.
    """

    def __init__(self, node: RaftNode) -> None:
        """Nothing waits."""
        self.refused = 0
        self._node = node
        self._waiting: deque[tuple[_Begin, Done]] = deque()
        self._busy = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def node_id(self) -> NodeId:
        """This node."""
        return self._node.node_id

    @property
    def leader_id(self) -> NodeId | None:
        """Who leads, as far as this node knows."""
        return self._node.leader_id

    @property
    def is_serving_leader(self) -> bool:
        """Whether this node leads and has applied all that was committed before it did."""
        return self._node.is_serving_leader

    def propose(self, command: bytes, done: Done) -> None:
        """As ``RaftNode.propose``, when all requests before it are answered."""
        self._enter(lambda answered: self._node.propose(command, answered), done)

    def read(self, done: ReadDone, *, anywhere: bool = False) -> None:
        """As ``RaftNode.read``, by an entry in the log; so only the leader answers, ever."""
        self._enter(lambda answered: self._node.change(RaftCore.barrier, answered), done)

    def set_lease(self, done: Done, *, on: bool) -> None:
        """As ``RaftNode.set_lease``; no read here is by a lease."""
        self._enter(lambda answered: self._node.set_lease(answered, on=on), done)

    def _enter(self, begin: _Begin, done: Done) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self.refused += 1
            limit = f"{WAITING_MAX} requests already wait for their turn; try again later."
            done(Overloaded(limit))
            return
        self._waiting.append((begin, done))
        self._next()

    def _next(self) -> None:
        if self._busy or not self._waiting:
            return
        self._busy = True
        begin, done = self._waiting.popleft()

        def answered(outcome: Any) -> None:
            self._busy = False
            done(outcome)
            self._next()

        begin(answered)
