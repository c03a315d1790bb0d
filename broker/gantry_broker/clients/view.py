"""What client requests need of the group they are served by; the group implements ``GroupView``."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec
from gantry_protocol.bodies import (
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
)
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.records import MessageRecord

from gantry_broker.consumers import Here
from gantry_broker.control.peers import Outcome
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


class ConsumerBook(Protocol):
    """What the controllers know of this group's consumers; see ``gantry_broker.consumers``."""

    def remembered(self, group: str) -> list[str]:
        """Clients that were members under the last master and have not come back yet."""

    def came(self, group: str, client_id: str) -> bool:
        """A client is a member here now; returns whether it was one all along."""

    def changed(self, group: str) -> None:
        """Members or subscriptions of ``group`` changed here."""

    def config(self, group: str) -> SubscriptionGroupConfig:
        """How ``group`` may consume."""

    @property
    def configs(self) -> SubscriptionGroupTable:
        """Every consumer group that was given a setting."""

    def serve(self, here: Here) -> None:
        """``here`` are the sessions of this mastership."""

    def change(self, command: RemotingCommand, done: Callable[[Outcome], None]) -> None:
        """Pass 200 or 207 on to the controllers; ``done`` comes once."""


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

    @property
    def consumers(self) -> ConsumerBook:
        """Subscription groups, and who is in them."""

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

    def delete_topic(self, topic: str, done: Created) -> None:
        """Delete a topic here: by the controllers first, then by a record in the log.

        ``done(None)`` means that it can be found in the store no more, with all that belonged to
        it: messages and the offsets of consumers.
        """
