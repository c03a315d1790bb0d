"""The side of a replica of one front that reads from it.

The replica serves what it has of queues with several readers, as it does to clients
(``member.replica_reads``). Everything else is the master's to answer, and is said so by a refusal.

Rule protected: its topics' version is told ahead of every answer that was read with them, so a
front never takes records of a former topic for those of one that it knows to be new.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import WireError
from gantry_protocol.types import Epoch

from gantry_broker.remote import messages as wire
from gantry_broker.store.contract import GetResult, QueueRead, Refusal, WasRead

UNANSWERED_MAX = 4_000  # twice what a front asks at once

_ASK_THE_MASTER = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "ask the master")


class ReadHost(Protocol):
    """A replica that may serve reads."""

    @property
    def is_offered(self) -> bool:
        """Whether it may now."""

    @property
    def topics_version(self) -> int:
        """Of the topics that it has."""

    def read_for_front(self, wanted: QueueRead, done: WasRead) -> bool:
        """Read what it has; False where that is the master's to answer."""


class ReadSession:
    """See the module.

    Args:
        host: the replica.
        send: takes each message for the front.

    Attributes:
        unanswered: reads, until they are answered.
    """

    def __init__(self, host: ReadHost, send: Callable[[wire.FromStore], None]) -> None:
        """Nothing is said before ``open``."""
        self.unanswered = 0
        self._host = host
        self._send = send
        self._version = -1  # of topics, as told
        self._offered: bool | None = None  # as told
        self._ended = False

    def open(self) -> None:
        """Say which topics it has, and whether it may be asked."""
        self._send(wire.Welcome(Epoch(0), "", 0))
        self.tell_state(again=True)

    def end(self) -> None:
        """Answer nothing more."""
        self._ended = True

    def tell_state(self, *, again: bool = False) -> None:
        """Say whether it may be asked, and which topics it has, as far as that is news."""
        self._tell_version()
        offered = self._host.is_offered
        if again or offered != self._offered:
            self._offered = offered
            self._tell(wire.State(None, 0, offered))

    def received(self, message: wire.FromFront) -> None:
        """Serve one message.

        Raises:
            WireError: a front does not say that here.
        """
        match message:
            case wire.Read(number=number, queue=queue):
                self._read(number, queue)
            case wire.Ping():
                self.tell_state(again=True)
            case _:
                raise WireError(f"A {type(message).__name__} came, and this replica is only read.")

    def _read(self, number: int, queue: QueueRead) -> None:
        if self.unanswered > UNANSWERED_MAX:
            raise WireError(f"More than {UNANSWERED_MAX} reads wait for an answer.")
        self._tell_version()
        self.unanswered += 1
        if not self._host.read_for_front(queue, partial(self._was_read, number)):
            self._was_read(number, _ASK_THE_MASTER)

    def _was_read(self, number: int, result: GetResult | Refusal) -> None:
        self.unanswered -= 1
        if isinstance(result, Refusal):
            self._tell(wire.WasRead(number, None, result))
        else:
            self._tell(wire.WasRead(number, result, None))

    def _tell_version(self) -> None:
        version = self._host.topics_version
        if version != self._version:
            self._version = version
            self._tell(wire.Rows(version))

    def _tell(self, message: wire.FromStore) -> None:
        if not self._ended:
            self._send(message)
