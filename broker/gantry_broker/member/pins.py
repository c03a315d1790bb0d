"""Pins of the local log: how much of it parked messages, transactions and POP need.

Both are terms of the minimum that retention keeps. Every member looks for itself, since any of them
may have to go on next; position and queues are those of the confirmed log. A message that was
delivered pins nothing.
"""

from gantry_protocol.records import SCHEDULE_TOPIC
from gantry_protocol.types import Offset

from gantry_broker.clients.core.delay.levels import MAX_LEVELS
from gantry_broker.clients.core.delay.parked import PROGRESS_GROUP
from gantry_broker.clients.core.pop.records import GROUP as POP_GROUP
from gantry_broker.clients.core.pop.records import POP_TOPIC
from gantry_broker.clients.core.transactions.records import GROUP, HALF_TOPIC, OP_TOPIC
from gantry_broker.queues import MessageStore


def oldest_parked(store: MessageStore) -> Offset | None:
    """The place in the log of the oldest parked message; None while nothing is parked here."""
    found = [at for level in range(MAX_LEVELS) if (at := _first(store, level)) is not None]
    return min(found, default=None)


def _first(store: MessageStore, level: int) -> Offset | None:
    position = store.offsets.query(PROGRESS_GROUP, SCHEDULE_TOPIC, level) or 0
    first = max(position, store.local_min_offset(SCHEDULE_TOPIC, level))
    behind_bytes = store.bytes_behind(SCHEDULE_TOPIC, level, first)
    return None if behind_bytes is None else Offset(store.log.end - behind_bytes)


def ledger_pins(store: MessageStore) -> tuple[Offset, ...]:
    """From where on the log is needed here, for open transactions and messages in flight.

    Each member knows it by itself, from what is confirmed: it may be the next master.
    """
    found = []
    for group, topic in ((GROUP, HALF_TOPIC), (GROUP, OP_TOPIC), (POP_GROUP, POP_TOPIC)):
        saved = store.offsets.query(group, topic, 0)
        first = store.local_min_offset(topic, 0) if saved is None else saved
        behind = store.bytes_behind(topic, 0, first)
        if behind is not None:
            found.append(Offset(store.log.end - behind))
    return tuple(found)
