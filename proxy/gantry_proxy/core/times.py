"""Moments and lengths of time in messages, which a client may fill with anything."""

from __future__ import annotations

from typing import Any

from gantry_proxy.core.refusals import CallRefused

MAX_MS = 253_402_300_799_999
"""The end of the year 9999: no ``Timestamp`` says more."""


def read_ms(field: Any, code: str = "BAD_REQUEST") -> int:
    """The milliseconds in a ``Timestamp`` or a ``Duration``.

    Raises:
        CallRefused: it holds no time, for example milliseconds in the place of seconds.
    """
    try:
        return int(field.ToMilliseconds())
    except ValueError as error:
        raise CallRefused(code, str(error)) from error


def write_ms(field: Any, ms: int) -> None:
    """Say ``ms`` since 1970; a time that is none becomes the nearest that is one."""
    field.FromMilliseconds(min(max(ms, 0), MAX_MS))
