"""Changes that a record of state makes to the tables; the same on both sides of the boundary."""

from gantry_broker.store.tables.names import OFFSETS_TOPIC
from gantry_broker.store.tables.offsets import ConsumerOffsets, decode_rows
from gantry_broker.store.tables.topics import TopicTable, decode_change


def apply_change(
    topics: TopicTable, offsets: ConsumerOffsets, topic: str, body: bytes
) -> list[str]:
    """Take in a confirmed record of ``GANTRY_SYS_TOPICS`` or ``GANTRY_SYS_OFFSETS``.

    Returns:
        The names of topics that are gone by it.

    Raises:
        BodyError: the record does not read.
    """
    if topic == OFFSETS_TOPIC:
        offsets.apply(decode_rows(body))
        return []
    change = decode_change(body)
    gone = topics.apply(change)
    offsets.drop_topics(gone, ended=change.removed)
    return gone
