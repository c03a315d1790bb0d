"""A controller of the old architecture, to measure ours against: one request at a time.

RocketMQ's controllers let one event thread append a request, wait until it is committed, and take
the next; the JRaft one sends its reads through the log as well (ADR 0021). Here a queue in front of
the node does the same: the next request is handed on when the one before is answered, and a read is
an entry that applies as nothing. What the node then does with that one request, and the heartbeats
of brokers, which stay out of the log, are as in ours.

``python -m gantry_lab.bench.controller.serial`` runs one, as ``gantry controller`` runs ours. It
refuses requests beyond ``WAITING_MAX``.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from gantry_cli.process import run_process
from gantry_controller.node.node import RaftNode
from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.errors import Overloaded
from gantry_controller.server import Controller, serve
from gantry_controller.settings import ControllerSettings

if TYPE_CHECKING:
    from gantry_controller.node.pending import Done, ReadDone

WAITING_MAX = 20_000  # as many as the node itself takes (``NodeOptions.proposals_max``)

_Begin = Callable[["Done"], None]


class SerialQueue:
    """Requests, each of which begins when the one before is answered."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[_Begin, Done]] = deque()
        self._busy = False

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, begin: _Begin, done: Done) -> None:
        """Call ``begin`` when it is its turn; ``done`` gets the answer, or ``Overloaded``."""
        if len(self._waiting) >= WAITING_MAX:
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


class SerialNode(RaftNode):
    """A node that orders one request at a time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._queue = SerialQueue()

    def propose(self, command: bytes, done: Done) -> None:
        """As ever, when all requests before it are answered."""
        self._queue.enter(partial(super().propose, command), done)

    def read(self, done: ReadDone, *, anywhere: bool = False) -> None:
        """By an entry in the log; so only the leader answers, ever."""
        self._queue.enter(partial(self.change, RaftCore.barrier), done)


class SerialController(Controller):
    """A controller of such nodes."""

    node_type = SerialNode


def main() -> int:
    """Run one member of a quorum; settings are read from the environment."""
    run = partial(serve, make=SerialController)
    return run_process("controller", ControllerSettings, run, {})


if __name__ == "__main__":
    sys.exit(main())
