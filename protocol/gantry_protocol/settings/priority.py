"""Priority: of a topic's messages, and what a consumer group makes of it.

Attributes and values are upstream's (``TopicMessageType``, ``SubscriptionGroupAttributes``).
"""

from collections.abc import Mapping

MESSAGE_TYPE = "message.type"  # of a topic
MESSAGE_TYPES = (
    *("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION"),
    *("PRIORITY", "LITE", "MIXED"),
)
BY_PRIORITY = "PRIORITY"  # such a topic's queues are popped from the last one down
PRIORITY_FACTOR = "priority.factor"  # of a consumer group: so many pops in a hundred do so
FACTOR_MAX = 100


def parse_factor(text: str) -> int | None:
    """The number that ``text`` says, if it is one of 0 to 100."""
    is_one = text.isascii() and text.isdecimal() and len(text) <= 3 and int(text) <= FACTOR_MAX
    return int(text) if is_one else None


def factor_of(attributes: Mapping[str, str]) -> int:
    """The factor of a consumer group; one that does not read is none, which is all pops."""
    factor = parse_factor(attributes.get(PRIORITY_FACTOR, ""))
    return FACTOR_MAX if factor is None else factor
