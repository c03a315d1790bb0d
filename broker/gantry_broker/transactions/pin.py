"""How much of the local log open transactions need: a term of the local retention's minimum."""

from gantry_protocol.types import Offset

from gantry_broker.queues import MessageStore
from gantry_broker.transactions.records import GROUP, HALF_TOPIC, OP_TOPIC


def pins(store: MessageStore) -> tuple[Offset, ...]:
    """From where on the log is needed here, for transactions that are open or end from now on.

    Each member knows it by itself, from what is confirmed: it may be the next master.
    """
    found = []
    for topic in (HALF_TOPIC, OP_TOPIC):
        saved = store.offsets.query(GROUP, topic, 0)
        first = store.local_min_offset(topic, 0) if saved is None else saved
        behind = store.bytes_behind(topic, 0, first)
        if behind is not None:
            found.append(Offset(store.log.end - behind))
    return tuple(found)
