"""Pins of the local log: how much of it parked messages, transactions and POP need.

Both are terms of the minimum that retention keeps. Every member looks for itself, since any of them
may have to go on next; position and queues are those of the confirmed log. A message that was
delivered pins nothing.
"""

from gantry_protocol.records import SCHEDULE_TOPIC
from gantry_protocol.types import Offset

from gantry_broker.clients.core.delay.levels import QUEUES
from gantry_broker.clients.core.delay.parked import PROGRESS_GROUP
from gantry_broker.clients.core.lite.records import GROUP as LITE_GROUP
from gantry_broker.clients.core.lite.records import LITE_TOPIC
from gantry_broker.clients.core.pop.records import GROUP as POP_GROUP
from gantry_broker.clients.core.pop.records import POP_TOPIC
from gantry_broker.clients.core.transactions.records import GROUP, HALF_TOPIC, OP_TOPIC
from gantry_broker.queues import MessageStore


def oldest_parked(store: MessageStore) -> Offset | None:
    """The place in the log of the oldest parked message; None while nothing is parked here."""
    found = [at for number in range(QUEUES) if (at := _first(store, number)) is not None]
    return min(found, default=None)


def _first(store: MessageStore, number: int) -> Offset | None:
    position = store.offsets.query(PROGRESS_GROUP, SCHEDULE_TOPIC, number) or 0
    first = max(position, store.local_min_offset(SCHEDULE_TOPIC, number))
    behind_bytes = store.bytes_behind(SCHEDULE_TOPIC, number, first)
    return None if behind_bytes is None else Offset(store.log.end - behind_bytes)


def transaction_pins(store: MessageStore) -> tuple[Offset, ...]:
    """From where on the log is needed here, for transactions that are open or end from now on.

    Each member knows it by itself, from what is confirmed: it may be the next master.
    """
    found = (_needed(store, GROUP, topic) for topic in (HALF_TOPIC, OP_TOPIC))
    return tuple(at for at in found if at is not None)


def pop_pin(store: MessageStore) -> Offset | None:
    """The same for consumption by POP: from its newest table on; None without any record of it.

    And for subscriptions to lite topics, from the oldest that is said nowhere behind.
    """
    popped = _needed(store, POP_GROUP, POP_TOPIC)
    subscribed = _needed(store, LITE_GROUP, LITE_TOPIC)
    return min((at for at in (popped, subscribed) if at is not None), default=None)


def _needed(store: MessageStore, group: str, topic: str) -> Offset | None:
    """The place of the first record of a topic's queue 0 that ``group`` has not done with."""
    saved = store.offsets.query(group, topic, 0)
    first = store.local_min_offset(topic, 0) if saved is None else saved
    behind = store.bytes_behind(topic, 0, first)
    return None if behind is None else Offset(store.log.end - behind)
