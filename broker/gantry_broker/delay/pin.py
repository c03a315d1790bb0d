"""How much of the local log parked messages need: a term of the local retention's minimum.

Every member looks for itself, since any of them may have to deliver next; position and queues are
those of the confirmed log. A message that was delivered pins nothing.
"""

from gantry_protocol.records import SCHEDULE_TOPIC
from gantry_protocol.types import Offset

from gantry_broker.delay.levels import MAX_LEVELS
from gantry_broker.delay.parked import PROGRESS_GROUP
from gantry_broker.queues import MessageStore


def oldest_parked(store: MessageStore) -> Offset | None:
    """Where in the log the oldest parked message stands; None while nothing is parked here."""
    found = [at for level in range(MAX_LEVELS) if (at := _first(store, level)) is not None]
    return min(found, default=None)


def _first(store: MessageStore, level: int) -> Offset | None:
    position = store.offsets.query(PROGRESS_GROUP, SCHEDULE_TOPIC, level) or 0
    first = max(position, store.local_min_offset(SCHEDULE_TOPIC, level))
    behind_bytes = store.bytes_behind(SCHEDULE_TOPIC, level, first)
    return None if behind_bytes is None else Offset(store.log.end - behind_bytes)
