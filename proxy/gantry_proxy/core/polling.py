"""Requests that may wait for messages: how long, and which messages they want."""

from __future__ import annotations

from typing import Any

from gantry_proxy.core.times import read_ms

POLL_MAX_MS = 20_000
POLL_MARGIN_MS = 1_000  # of a client's deadline, for the way and the answer
ANSWER_S = 2.0  # beyond the time that a request waits at the broker
_TAG = 1


def poll_ms(wanted: Any, left_s: float | None) -> int:
    """The time that a request may wait at the broker.

    Args:
        wanted: the request.
        left_s: until the client gives up; None: it does not say.

    Raises:
        CallRefused: the request names no time.
    """
    longest_ms = POLL_MAX_MS
    if wanted.HasField("long_polling_timeout"):
        longest_ms = min(longest_ms, read_ms(wanted.long_polling_timeout, "ILLEGAL_POLLING_TIME"))
    if left_s is not None:
        longest_ms = min(longest_ms, int(left_s * 1000) - POLL_MARGIN_MS)
    return max(0, longest_ms)


def filter_type(wanted: Any) -> str:
    """The language of a request's filter, as brokers call it."""
    return "TAG" if wanted.filter_expression.type in (0, _TAG) else "SQL92"


def filter_text(wanted: Any) -> str:
    """The filter of a request; all messages where there is none."""
    return wanted.filter_expression.expression or "*"
