"""The report of a broker about its tier: in every heartbeat, and in its status document.

Pure functions of the upload role and of one look into the log. Rules protected: a report costs at
most two small reads, whatever the log holds, since it is made with every heartbeat; and a reason
stays until the trouble is over, so that it does not vanish while the next attempt is under way.
What it refuses: to guess. A broker that does not know where the tier ends reports no lag.
"""

from collections.abc import Callable
from typing import NamedTuple

from gantry_protocol.types import Epoch, Offset

from gantry_broker.tier.core.role import UploadRole
from gantry_broker.tier.core.values import ACTIVE, State

STALLED = "stalled"  # the state of an active role that has not committed for too long
UNREADABLE = "unreadable"  # of one that uploads, while something of the tier cannot be read
SHORTENED = "shortened"  # of one that uploads, once the oldest objects were removed for good
REASON_MAX_CHARS = 256

_IDLE = frozenset({State.STANDBY, State.DRAINING})


class TierReport(NamedTuple):
    """One broker's word about its tier; only the master's counts.

    Attributes:
        state: a ``State``, or ``stalled``, ``unreadable``, ``shortened``.
        epoch: of the newest promotion; None before the first.
        committed_offset: the tier's end by our own claim, compared with our log; else None.
        lag_ms: how long the oldest confirmed record that is not in the tier has been stored; 0 when
            there is none, None while the tier's end is not known.
        reason: why it does not upload, what the last attempts met, or what cannot be read; at
            most ``REASON_MAX_CHARS`` characters, empty while all is well.
        version: the newest of the chain if it is of our claim; else None.
    """

    state: str
    epoch: Epoch | None
    committed_offset: Offset | None
    lag_ms: int | None
    reason: str
    version: int | None


class Readable(NamedTuple):
    """The part of the tier that can be read here.

    Attributes:
        complaint: what cannot be, in a sentence; empty for nothing.
        is_shortened: it is the oldest part, which was removed; the rest is served.
    """

    complaint: str = ""
    is_shortened: bool = False


def tier_report(
    role: UploadRole,
    confirm: Offset,
    store_time: Callable[[Offset], int | None],
    now_ms: int,
    readable: Readable = Readable(),  # noqa: B008 -- frozen
) -> TierReport:
    """The report of a broker that is confirmed up to ``confirm``.

    Args:
        role: as it is now.
        confirm: everything below may be uploaded.
        store_time: the store timestamp of the first record from an offset on, ms since 1970.
        now_ms: milliseconds since 1970.
        readable: how much of the tier this broker can read.
    """
    status, chain = role.status, role.chain
    lag_ms = None
    if chain.v and role.state not in _IDLE:
        lag_ms = _lag_ms(Offset(chain.end), confirm, store_time, now_ms)
    return TierReport(
        state=_state(role, readable),
        epoch=None if role.own is None else Epoch(role.own.epoch),
        committed_offset=role.committed_end,
        lag_ms=lag_ms,
        reason=_shortened(status.reason or role.trouble or readable.complaint),
        version=chain.v if role.claimed else None,
    )


def _state(role: UploadRole, readable: Readable) -> str:
    """An upload that is in trouble comes first: what it says of the store is the newest."""
    if role.status.stalled and role.state in ACTIVE:
        return STALLED
    if role.state is State.UPLOADING and readable.complaint:
        return SHORTENED if readable.is_shortened else UNREADABLE
    return role.state.value


def _lag_ms(
    end: Offset, confirm: Offset, store_time: Callable[[Offset], int | None], now_ms: int
) -> int | None:
    if end >= confirm:
        return 0
    stored_ms = store_time(end)
    return None if stored_ms is None else max(0, now_ms - stored_ms)


def _shortened(reason: str) -> str:
    words = " ".join(reason.split())
    if len(words) <= REASON_MAX_CHARS:
        return words
    half = (REASON_MAX_CHARS - 1) // 2  # a sentence begins with the object and ends with the cause
    return f"{words[:half]}…{words[-half:]}"
