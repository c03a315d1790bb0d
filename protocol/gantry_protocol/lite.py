"""Lite topics: names, and what a record says of the one it belongs to.

Upstream: ``LiteUtil``, ``MessageConst.PROPERTY_LITE_TOPIC``. A message of a lite topic stands in a
queue of its parent topic like any other, and names the lite topic in a property. The lite topic is
read as queue 0 of ``%LMQ%$parent$lite``, a name that no topic can have.

Rule protected: whether a record belongs to a lite topic follows from the record alone (H12), not
from the topics that are known where it is read. So every member finds the same, wherever its log
begins.
"""

import re

from gantry_protocol.records.properties import find_property

LITE_TOPIC = "__LITE_TOPIC"  # the property
LITE_PREFIX = "%LMQ%$"
LITE_TYPE = "LITE"  # of a parent topic, as its ``message.type``
LITE_TOPIC_CHARS_MAX = 64  # upstream's maxLiteTopicSize
MARK = LITE_TOPIC.encode() + b"\x01"  # in the properties of every message of a lite topic

_is_lite_name = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
_INTERNAL = (b"%", b"GANTRY_SYS_", b"RMQ_SYS_", b"SCHEDULE_TOPIC_XXXX")


def lite_problem(name: str) -> str | None:
    """The reason why ``name`` cannot be a lite topic's; None when it can."""
    if _is_lite_name(name) is not None:
        return None
    if not name.strip():
        return "the name of a lite topic is blank"
    if len(name.encode()) > LITE_TOPIC_CHARS_MAX:
        return f"the name of a lite topic has at most {LITE_TOPIC_CHARS_MAX} characters"
    return f"the lite topic {name!r} holds more than letters, digits, hyphens and underscores"


def lite_queue(parent: str, lite: str) -> str:
    """The name by which a lite topic is read."""
    return f"{LITE_PREFIX}{parent}${lite}"


def is_lite_queue(name: str) -> bool:
    """Whether ``name`` is that of a lite topic's queue."""
    return name.startswith(LITE_PREFIX)


def parent_and_lite(name: str) -> tuple[str, str]:
    """Of the name of a lite topic's queue: its two parts."""
    parent, _, lite = name.removeprefix(LITE_PREFIX).partition("$")
    return parent, lite


def lite_of(topic: bytes, properties: bytes) -> str | None:
    """The lite topic to which a record of ``topic`` belongs; None for an ordinary one.

    Copies that the broker keeps elsewhere (dead letters, retries) belong to none.
    """
    if topic.startswith(_INTERNAL):
        return None
    found = find_property(properties, LITE_TOPIC)
    return found if found is not None and _is_lite_name(found) is not None else None
