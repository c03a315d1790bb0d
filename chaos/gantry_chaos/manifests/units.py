"""Durations and percentages as Chaos Mesh writes them: Go durations, and numbers in strings.

What it refuses: a number without a unit, a negative one, and percentages outside 0 to 100.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

DURATION_MAX_S = 24 * 3600.0  # longer than any run; a typing error otherwise runs for days
_UNITS_S = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_NUMBER = re.compile(r"\d+(\.\d+)?")


def seconds(text: object) -> float:
    """A Go duration such as `1m30s` or `100ms`, in seconds.

    Raises:
        ValueError: it is none, or longer than `DURATION_MAX_S`.
    """
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is no duration; write a string such as '30s'")
    if text == "0":
        return 0.0
    at, total_s = 0, 0.0
    while found := _PART.match(text, at):
        total_s += float(found[1]) * _UNITS_S[found[2]]
        at = found.end()
    if at == 0 or at != len(text):
        raise ValueError(f"{text!r} is no duration; write one such as '30s' or '1m30s'")
    if total_s > DURATION_MAX_S:
        raise ValueError(f"{text!r} is longer than {DURATION_MAX_S / 3600:.0f} h")
    return total_s


def share(text: object) -> float:
    """A percentage in a string, `"25"`, as a share from 0 to 1.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(text, str):
        raise ValueError(f'{text!r} is no percentage; write a string such as "25"')
    if not _NUMBER.fullmatch(text) or float(text) > 100:
        raise ValueError(f'{text!r} is no percentage; write "0" to "100"')
    return float(text) / 100


Duration = Annotated[float, BeforeValidator(seconds)]
"""Seconds, from a Go duration."""
Percentage = Annotated[float, BeforeValidator(share)]
"""A share from 0 to 1, from a string with a number from 0 to 100."""
