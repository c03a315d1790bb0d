"""The group as client requests see it: a ``GroupView``."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from gantry_protocol.bodies import (
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
)
from gantry_protocol.command import RemotingCommand
from gantry_protocol.remoting.asking import Outcome

from gantry_broker.clients.consumers import Here
from gantry_broker.clients.lock_keeping import LockBook
from gantry_broker.store.contract import RecordStore, Refusal, Store

if TYPE_CHECKING:
    from gantry_broker.clients.mapped.book import QueueBook

Created = Callable[[Refusal | None], None]


class ConsumerBook(Protocol):
    """The controllers' knowledge of this group's consumers; see ``clients.consumers``."""

    @property
    def locks(self) -> LockBook:
        """Locks of the queues that are consumed in order."""

    def remembered(self, group: str) -> list[str]:
        """Clients that were members under the last master and have not come back yet."""

    def elsewhere(self, group: str) -> list[str]:
        """Members that the master of another broker group hears."""

    def is_elsewhere(self, group: str, client_id: str) -> bool:
        """Whether a client is one of these."""

    @property
    def may_be_served(self) -> bool:
        """Whether any group may have members that this young mastership has not heard of yet."""

    def came(self, group: str, client_id: str) -> bool:
        """A client is a member here now; returns whether it was one all along."""

    def changed(self, group: str) -> None:
        """Members or subscriptions of ``group`` changed here."""

    def config(self, group: str) -> SubscriptionGroupConfig:
        """The settings of ``group``."""

    @property
    def configs(self) -> SubscriptionGroupTable:
        """Every consumer group that was given a setting."""

    @property
    def is_current(self) -> bool:
        """Whether no newer settings have been heard of than were read."""

    def serve(self, here: Here) -> None:
        """``here`` are the sessions of this mastership."""

    def change(self, command: RemotingCommand, done: Callable[[Outcome], None]) -> None:
        """Pass a change of subscription groups on to the controllers; ``done`` comes once."""


class SendView(Protocol):
    """The part of a broker group that sends have to know."""

    @property
    def store(self) -> RecordStore:
        """The group's storage, while its master serves."""

    @property
    def cluster(self) -> str:
        """The name of its cluster."""

    @property
    def store_host(self) -> tuple[str, int]:
        """The address at which its master is asked for a record by its offset id."""

    def accepting_writes(self) -> Refusal | None:
        """None when this is the master, not draining, and the sync-state set is large enough."""


class GroupView(SendView, Protocol):
    """One broker group, seen from its clients. All calls and callbacks are on the loop's thread."""

    @property
    def store(self) -> Store:
        """All of it."""

    @property
    def broker_name(self) -> str:
        """The group's name."""

    @property
    def consumers(self) -> ConsumerBook:
        """Subscription groups, and who is in them."""

    @property
    def queues(self) -> "QueueBook":
        """The queue maps of its cluster."""

    def create_topic(self, topic: TopicConfig, done: Created, *, if_absent: bool) -> None:
        """Create or change a topic: by the controller first, then by a record in the log.

        Names of the attributes begin with ``+`` or ``-``, as they do in upstream's: that one is
        given this value, or taken away; the controller decides what may be. With ``if_absent`` the
        controller leaves a topic that exists as it is, also one that this broker does not know yet.
        ``done(None)`` means that the topic can be looked up in the store.
        """

    def delete_topic(self, topic: str, done: Created) -> None:
        """Delete a topic here: by the controllers first, then by a record in the log.

        ``done(None)`` means that it can be found in the store no more, with all that belonged to
        it: messages and the offsets of consumers.
        """
