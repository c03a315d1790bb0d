"""Addresses from DNS; while it does not answer, the ones that it gave last (as in RFC 8767).

A group must fail over while DNS is away: it may be on the node that was lost. DNS is asked for each
connection all the same, and an address that it gave is never used where it says that there is none
(any more). A pod may have moved unnoticed meanwhile; whoever is found at its old address is as
likely a stranger as everywhere: ports behind a gate ask for the key, and Raft for the node id.

Looking up takes a thread of the event loop's executor, for tens of seconds where nobody answers, so
a name is asked for once at a time, and ``UNDER_WAY_MAX`` names at most.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from weakref import WeakKeyDictionary

ANSWER_WITHIN_S = 0.3  # a failover takes longer; an answer, a thousandth of it
KNOWN_MAX = 1024  # names
UNDER_WAY_MAX = 3  # an executor has five threads at least, and others need some
THERE_IS_NONE = (socket.EAI_NONAME, socket.EAI_NODATA)
ANSWERED, OLD, FAILED = "answered", "old", "failed"

outcomes = Counter({ANSWERED: 0, OLD: 0, FAILED: 0})  # of the lookups of this process


class Lookups:
    """The names that one event loop asks for, and their addresses as last heard."""

    def __init__(self) -> None:
        """Nothing has been asked for."""
        self._known: dict[str, str] = {}  # the one heard longest ago comes first
        self._under_way: dict[str, asyncio.Task[str]] = {}
        self._places = asyncio.Semaphore(UNDER_WAY_MAX)

    async def find(self, host: str) -> str:
        """The address of ``host``: IPv4 wherever there is a choice.

        Raises:
            OSError, UnicodeError: there is none, or DNS does not answer and never did.
        """
        lookup = self._under_way.get(host)
        if lookup is None:
            lookup = asyncio.get_running_loop().create_task(self._look_up(host))
            self._under_way[host] = lookup
            lookup.add_done_callback(lambda done: self._ended(host, done))
        known = self._known.get(host)
        # A cancelled caller leaves the lookup to others: its thread goes on anyway.
        await asyncio.wait((lookup,), timeout=None if known is None else ANSWER_WITHIN_S)
        if known is not None and (not lookup.done() or _silent(lookup.exception())):
            outcomes[OLD] += 1
            return known
        outcomes[FAILED if lookup.exception() else ANSWERED] += 1
        return lookup.result()

    async def _look_up(self, host: str) -> str:
        async with self._places:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        for family in (socket.AF_INET, socket.AF_INET6):
            for entry in found:
                if entry[0] == family:
                    return str(entry[4][0])
        raise socket.gaierror(socket.EAI_NODATA, "No address associated with hostname")

    def _ended(self, host: str, lookup: asyncio.Task[str]) -> None:
        del self._under_way[host]
        if lookup.cancelled():
            return
        if lookup.exception() is None:
            self._known.pop(host, None)
            self._known[host] = lookup.result()
            if len(self._known) > KNOWN_MAX:
                del self._known[next(iter(self._known))]
        elif not _silent(lookup.exception()):
            self._known.pop(host, None)


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Lookups] = WeakKeyDictionary()


def lookups() -> Lookups:
    """Those of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = Lookups()
    return found


def _silent(error: BaseException | None) -> bool:
    """Whether DNS did not answer, rather than that there is no such name."""
    return isinstance(error, OSError) and error.errno not in THERE_IS_NONE
