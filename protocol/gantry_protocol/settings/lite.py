"""Attributes of topics and consumer groups that are about lite topics.

Upstream: ``TopicAttributes`` and ``SubscriptionGroupAttributes``, whose names, values and defaults
these are.
"""

from collections.abc import Callable, Mapping

EXPIRATION = "lite.topic.expiration"  # minutes after the last message; -1: never
EXPIRATION_MAX = 30 * 24 * 60

BIND_TOPIC = "lite.bind.topic"
SUB_MODEL = "lite.sub.model"
RESET_EXCLUSIVE = "lite.sub.reset.offset.exclusive"
RESET_UNSUBSCRIBE = "lite.sub.reset.offset.unsubscribe"
CLIENT_QUOTA = "lite.sub.client.quota"
MAX_EVENTS = "lite.sub.client.max.event.cnt"
WILDCARD = "lite.sub.wildcard"
_NUMBER_MAX = 2**63 - 1

Rule = tuple[Callable[[str], bool], str]
"""What a value may be, and in words."""


def _number(least: int, most: int) -> Callable[[str], bool]:
    def is_one(text: str) -> bool:
        digits = text.removeprefix("-")
        is_number = digits.isascii() and digits.isdecimal() and len(digits) < 20
        return is_number and least <= int(text) <= most

    return is_one


OF_TOPICS: Mapping[str, Rule] = {
    EXPIRATION: (_number(-1, EXPIRATION_MAX), f"-1 to {EXPIRATION_MAX} minutes"),
}
OF_GROUPS: Mapping[str, Rule] = {
    BIND_TOPIC: (bool, "a topic of type LITE"),
    SUB_MODEL: (("Shared", "Exclusive").__contains__, "Shared or Exclusive"),
    RESET_EXCLUSIVE: (("true", "false").__contains__, "true or false"),
    RESET_UNSUBSCRIBE: (("true", "false").__contains__, "true or false"),
    CLIENT_QUOTA: (_number(-1, _NUMBER_MAX), "-1 or a number"),
    MAX_EVENTS: (_number(10, _NUMBER_MAX), "10 or more"),
    WILDCARD: (bool, "any text"),
}
