"""The lite topic that a record belongs to, by its own word.

Rule protected: this follows from the record alone (H12), not from the topics that are known where
it is read. So every member finds the same, wherever its log begins.
"""

from gantry_protocol.lite import LITE_TOPIC, lite_problem
from gantry_protocol.records.properties import find_property

MARK = LITE_TOPIC.encode() + b"\x01"  # in the properties of every message of a lite topic
_INTERNAL = (b"%", b"GANTRY_SYS_", b"RMQ_SYS_", b"SCHEDULE_TOPIC_XXXX")


def lite_of(topic: bytes, properties: bytes) -> str | None:
    """The lite topic to which a record of ``topic`` belongs; None for an ordinary one.

    Copies that the broker keeps elsewhere (dead letters, retries) belong to none.
    """
    if topic.startswith(_INTERNAL):
        return None
    found = find_property(properties, LITE_TOPIC)
    return found if found is not None and lite_problem(found) is None else None
