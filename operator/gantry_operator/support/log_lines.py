"""Lines of many logs in the order of time; pure.

The time of a line is the kubelet's, in front of it, or else the one in it (`time=…`, as our
processes write it); a line without either belongs to the one before it. Times of different machines
are as good as their clocks.
"""

from __future__ import annotations

import datetime as dt
import heapq
import re
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gantry_operator.support.pod_logs import ContainerRun

OURS: Final = "time="
_STAMP = re.compile(
    r"(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,9})\d*)?"
    r"(?P<zone>Z|[+-]\d\d:\d\d)"
)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class LogSource(msgspec.Struct, frozen=True):
    """A log that is shown.

    Attributes:
        role: master, replica, leader, follower, front, or the container's, if it is no main one.
        leads: the pod is the master, or leads the quorum.
        key: of this run of the container; another run has another one.
    """

    run: ContainerRun
    name: str
    role: str
    leads: bool
    key: str = ""


class LogLine(msgspec.Struct, frozen=True):
    """A line and its time.

    Attributes:
        at_ns: since 1970; that of the line before it, or 0, if it has none.
        stamp: the kubelet's time as it stood there; empty if it did not.
    """

    at_ns: int
    text: str
    stamp: str = ""


def moment_ns(text: str) -> int | None:
    """The time at the begin of a text, in nanoseconds since 1970; None if there is none."""
    found = _STAMP.match(text)
    if found is None:
        return None
    try:
        second = dt.datetime.fromisoformat(found["second"] + found["zone"].replace("Z", "+00:00"))
    except ValueError:
        return None
    whole = (second - _EPOCH) // dt.timedelta(seconds=1)
    return whole * 1_000_000_000 + int((found["fraction"] or "").ljust(9, "0"))


def parsed(text: str, before_ns: int) -> LogLine:
    """A line of a log, after one of some time; its stamp is dropped if it tells its own time."""
    stamped = moment_ns(text)
    if stamped is not None:
        stamp, _, rest = text.partition(" ")
        return LogLine(stamped, rest if rest.startswith(OURS) else text, stamp)
    own = moment_ns(text[len(OURS) :]) if text.startswith(OURS) else None
    return LogLine(before_ns if own is None else own, text)


def lines_of(text: str) -> Iterator[LogLine]:
    """The lines of a log; their times never go back, since a log is in order."""
    before_ns = 0
    for one in text.splitlines():
        line = parsed(one, before_ns)
        before_ns = max(before_ns, line.at_ns)
        yield LogLine(before_ns, line.text, line.stamp)


def merged(logs: Iterable[tuple[LogSource, str]]) -> Iterator[tuple[LogSource, LogLine]]:
    """The lines of all logs in the order of time; of the same time, in the order of the logs."""

    def told(source: LogSource, text: str) -> Iterator[tuple[LogSource, LogLine]]:
        return ((source, line) for line in lines_of(text))

    streams = [told(source, text) for source, text in logs]
    return heapq.merge(*streams, key=lambda pair: pair[1].at_ns)


class Prefixes:
    """The words before each line: who said it, as wide for all; a star for who leads."""

    def __init__(self, sources: Iterable[LogSource]) -> None:
        self._name = self._role = 0
        self.widen(sources)

    def widen(self, sources: Iterable[LogSource]) -> None:
        """Makes room for more sources."""
        for source in sources:
            self._name = max(self._name, len(source.name))
            self._role = max(self._role, len(source.role))

    def before(self, source: LogSource) -> str:
        """The words before a line of a source."""
        star = "*" if source.leads else " "
        return f"{star}{source.name:{self._name}} {source.role:{self._role}} | "
