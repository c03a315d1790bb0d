"""What client requests need of the group they are served by; the group implements ``GroupView``."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.records import MessageRecord

from gantry_broker.queues import MessageStore, StoredAt


class Refusal(NamedTuple):
    """Why something is not done."""

    code: ResponseCode
    remark: str


class SendOutcome(msgspec.Struct, frozen=True):
    """What became of an append.

    Attributes:
        code: 0 when every record is confirmed; 12 when they are stored and nobody knows whether
            they stay; anything else when they were not stored.
        remark: text for people, None on 0.
        stored: where the records are, in the order given; empty when they were not stored.
    """

    code: ResponseCode
    remark: str | None = None
    stored: list[StoredAt] = []


Appended = Callable[[SendOutcome], None]
Created = Callable[[Refusal | None], None]


class GroupView(Protocol):
    """One broker group, seen from its clients. All calls and callbacks are on the loop's thread."""

    @property
    def store(self) -> MessageStore:
        """The group's store, whose mastership has been taken."""

    @property
    def broker_name(self) -> str:
        """The group's name."""

    @property
    def cluster(self) -> str:
        """The name of its cluster."""

    @property
    def store_host(self) -> tuple[str, int]:
        """Where this broker can be asked for a record by its offset id."""

    def accepting_writes(self) -> Refusal | None:
        """None when this is the master, not draining, and the sync-state set is large enough."""

    def append(self, records: list[MessageRecord], done: Appended) -> None:
        """Store and replicate ``records``; ``done(outcome)`` comes exactly once, maybe at once.

        Raises:
            RecordError: a record cannot be stored; ``done`` is not called.
            DiskFullError: there is no room; ``done`` is not called.
        """

    def create_topic(self, topic: TopicConfig, done: Created, *, if_absent: bool) -> None:
        """Create or change a topic: by the controller first, then by a record in the log.

        With ``if_absent`` the controller leaves a topic that exists as it is, also one that this
        broker does not know yet. ``done(None)`` means that the topic can be looked up in the store.
        """
