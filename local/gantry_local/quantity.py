"""Kubernetes quantities: ``10Gi``, ``500m``, ``1e3``."""

from __future__ import annotations

import re
from decimal import Decimal

import msgspec

_SUFFIXES: dict[str, Decimal] = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)")


class QuantityError(Exception):
    """The text is no quantity."""


class Quantity(msgspec.Struct, frozen=True):
    """An exact number; suffixes are spelling only."""

    value: Decimal

    def compare(self, other: Quantity) -> int:
        """-1, 0 or 1."""
        return (self.value > other.value) - (self.value < other.value)


def parse_quantity(text: str) -> Quantity:
    """The quantity that ``text`` spells.

    Raises:
        QuantityError: quoting the text.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise QuantityError(
            f"quantities must match the regular expression {_QUANTITY.pattern!r}: {text!r}"
        )
    number, exponent, suffix = match.groups()
    if exponent:
        return Quantity(Decimal(number + exponent))
    return Quantity(Decimal(number) * _SUFFIXES[suffix or ""])
