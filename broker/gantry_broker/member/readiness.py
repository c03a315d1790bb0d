"""Readiness of one member of a group for clients, and the reason where it is not ready.

Rule protected: a replica that loses its master stays ready for a while. It holds clients until the
next one is known; if all replicas said no at that moment, a group's address would lead nowhere, or
only to the lost master, for as long as probes take to notice that all is well again.
"""

from typing import NamedTuple

FENCED = "fenced: people have taken it out of its group for a while"
BETWEEN_MASTERS_S = 10.0  # an election takes 3 s where the master merely went silent


class Standing(NamedTuple):
    """The state of a member at the moment of a question.

    Attributes:
        leaving: it was asked to leave.
        joined: the controllers have told it who it is.
        stuck: why a person must look; empty while nobody must.
        registered: the controllers know this incarnation.
        serving: it is the serving master.
        following: it receives the master's log.
        epoch: the newest it acted in.
        disk: what is wrong with the disk, and what is done about it; empty for nothing.
        alone: why this master takes no requests, since another one may have been elected.
        fenced: people have taken it out of its group for a while.
    """

    leaving: bool
    joined: bool
    stuck: str
    registered: bool
    serving: bool
    following: bool
    epoch: int
    disk: str = ""
    alone: str = ""
    fenced: bool = False


class Readiness:
    """One member's readiness over time."""

    def __init__(self) -> None:
        """It has neither followed nor served."""
        self._in_place_s = float("-inf")  # when it last did

    def look(self, now: Standing, now_s: float) -> tuple[bool, str]:
        """Whether clients may be sent here at ``now_s``, and why (not), for people."""
        if now.leaving:
            return False, "leaving"
        if not now.joined:
            return False, "waiting for the controllers"
        if now.stuck:
            return False, now.stuck
        if not now.registered:
            return False, "not registered with the controllers"
        if now.fenced:
            return False, FENCED
        if now.alone:
            return False, now.alone
        disk = f"; {now.disk}" if now.disk else ""
        if now.serving or now.following:
            self._in_place_s = now_s
            place = "master of" if now.serving else "following in"
            return True, f"{place} epoch {now.epoch}{disk}"
        if now_s - self._in_place_s <= BETWEEN_MASTERS_S:
            return True, "between two masters"
        return False, f"no master to follow{disk}"
