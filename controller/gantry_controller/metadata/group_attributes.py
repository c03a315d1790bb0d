"""Attributes of consumer groups, and what a change makes of them.

Names, values and refusals are upstream's (``SubscriptionGroupAttributes``, ``AttributeUtil``): a
change names an attribute with ``+`` in front, which gives it a value, or with ``-``, which removes
it. One without either is as it was read, and stays so.
"""

from collections.abc import Callable, Mapping

from gantry_protocol.settings.lite import OF_GROUPS
from gantry_protocol.settings.priority import FACTOR_MAX, PRIORITY_FACTOR, parse_factor

from gantry_controller.metadata.attributes import AttributesError

_ALLOWED: dict[str, tuple[Callable[[str], bool], str]] = {
    PRIORITY_FACTOR: (lambda text: parse_factor(text) is not None, f"0 to {FACTOR_MAX}"),
    **OF_GROUPS,
}


def changed(known: Mapping[str, str], change: Mapping[str, str]) -> dict[str, str]:
    """The attributes of a group after ``change``; those that it does not name stay.

    Raises:
        AttributesError: it does not read, or is not allowed.
    """
    found = dict(known)
    for key, value in change.items():
        sign, name = (key[0], key[1:]) if key.startswith(("+", "-")) else ("", key)
        if name not in _ALLOWED:
            raise AttributesError(
                f"{name[:64]!r} is no attribute of consumer groups; known are"
                f" {', '.join(sorted(_ALLOWED))}."
            )
        allows, values = _ALLOWED[name]
        if sign == "-":
            if found.pop(name, None) is None:
                raise AttributesError(f"The group has no attribute {name} that could be removed.")
        elif not allows(value):
            raise AttributesError(f"The attribute {name} may be {values}, not {value[:64]!r}.")
        else:
            found[name] = value
    return found
