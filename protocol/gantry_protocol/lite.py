"""Lite topics: names and rules for them.

Upstream: ``LiteUtil``, ``MessageConst.PROPERTY_LITE_TOPIC``. A message of a lite topic stands in a
queue of its parent topic like any other, and names the lite topic in a property. The lite topic is
read as queue 0 of ``%LMQ%$parent$lite``, a name that no topic can have.
"""

import re

LITE_TOPIC = "__LITE_TOPIC"  # the property
LITE_PREFIX = "%LMQ%$"
LITE_TYPE = "LITE"  # of a parent topic, as its ``message.type``
LITE_TOPIC_CHARS_MAX = 64  # upstream's maxLiteTopicSize

_is_lite_name = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch


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
