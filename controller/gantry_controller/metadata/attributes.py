"""Attributes of topics, and what ``+message.type=FIFO,-reserve.time`` makes of them.

Names, values and refusals are upstream's (``TopicAttributes``, ``AttributeParser``,
``AttributeUtil``), except where keeping an attribute would promise what brokers here do not do:
compacted topics and queues of batches are refused. ``gantry.readers`` is not upstream's.
"""

from collections.abc import Callable, Mapping

from gantry_protocol.settings.lite import OF_TOPICS
from gantry_protocol.settings.priority import MESSAGE_TYPE, MESSAGE_TYPES
from gantry_protocol.settings.readers import READERS, READERS_MAX, parse_readers

_TEXT_CHARS_MAX = 1024  # of a modification; every name with its longest value takes less

_RESERVE_TIME_MAX = 2**63 - 1


def _is_reserve_time(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and -1 <= int(text) <= _RESERVE_TIME_MAX


def _is_readers(text: str) -> bool:
    try:
        return bool(text) and parse_readers(text) is not None
    except ValueError:
        return False


_ALLOWED: dict[str, tuple[Callable[[str], bool], str]] = {
    MESSAGE_TYPE: (MESSAGE_TYPES.__contains__, ", ".join(MESSAGE_TYPES)),
    "reserve.time": (_is_reserve_time, f"-1 to {_RESERVE_TIME_MAX} ms"),
    "cleanup.policy": ("DELETE".__eq__, "DELETE; topics are not compacted here"),
    "queue.type": ("SimpleCQ".__eq__, "SimpleCQ; queues of batches are not kept here"),
    **OF_TOPICS,
    READERS: (_is_readers, f"0 to {READERS_MAX}, and as in 1;7=3 another number for queue 7"),
}
FIXED = ("cleanup.policy", "queue.type")  # upstream's; given when the topic is made, or never


class AttributesError(ValueError):
    """A modification that may not be carried out; its text is for people."""


def altered(known: Mapping[str, str] | None, modification: str) -> dict[str, str]:
    """The attributes of a topic after ``modification``.

    Args:
        known: before it; None for a topic that is being made.
        modification: ``+name=value`` adds or changes, ``-name`` removes; separated by commas. An
            empty one changes nothing.

    Raises:
        AttributesError: it does not read, or is not allowed.
    """
    attributes = dict(known or {})
    if not modification:
        return attributes
    if len(modification) > _TEXT_CHARS_MAX:
        raise AttributesError(
            f"Attributes take at most {_TEXT_CHARS_MAX} characters, not {len(modification)}."
        )
    seen: set[str] = set()
    for item in modification.split(","):
        sign, name, value = _parsed(item)
        if name in seen:
            raise AttributesError(f"The attribute {name} is given twice.")
        seen.add(name)
        if known is not None and name in FIXED and known.get(name) != value:
            raise AttributesError(f"The attribute {name} of a topic that exists cannot change.")
        if sign == "+":
            attributes[name] = value
        elif attributes.pop(name, None) is None:
            raise AttributesError(f"The topic has no attribute {name} that could be removed.")
    return attributes


def _parsed(item: str) -> tuple[str, str, str]:
    """The sign, the name and the value of one part."""
    key, equals, value = item.strip().partition("=")
    sign, name = key[:1], key[1:]
    if sign not in ("+", "-") or (sign == "+") is not bool(equals):
        raise AttributesError(
            f"{item!r} is no attribute: +name=value adds or changes one, -name removes one."
        )
    if name not in _ALLOWED:
        raise AttributesError(
            f"{name!r} is no attribute of topics; known are {', '.join(sorted(_ALLOWED))}."
        )
    allows, values = _ALLOWED[name]
    if sign == "+" and not allows(value):
        raise AttributesError(f"The attribute {name} may be {values}, not {value!r}.")
    return sign, name, value
