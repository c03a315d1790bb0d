"""The judgement on a drain: whether anything is left, and what waits for what (pure).

A drain is over when nothing that this group holds is still owed to anybody: every consumer group
that has read here has read everything, no message waits for its time, no transaction is open, what
was committed for queues that are elsewhere now is known there, and nothing new is taken. What is
waited for is said in one sentence, that of the reason which somebody can do most about.
"""

from collections.abc import Sequence
from typing import NamedTuple

SENTENCE_MAX = 256
"""Characters of the sentence, as a heartbeat may have them."""

INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
"""The producer group that every Java client has, also one that only consumes."""


class Unread(NamedTuple):
    """Messages of a topic that a consumer group has not consumed here.

    Attributes:
        members: of the consumer group, wherever they are heard.
    """

    group: str
    topic: str
    messages: int
    members: int


class OffsetLeft(NamedTuple):
    """A committed offset in a queue that is elsewhere now, where it is not known yet.

    Attributes:
        group: the consumer group.
        topic: a mapped one.
        to: the broker group that has the queue; empty while the queue moves.
    """

    group: str
    topic: str
    to: str


class Remains(NamedTuple):
    """A look at a group that is being drained.

    Attributes:
        is_closed: new messages are refused.
        is_whole: all that is stored is confirmed, and what is delayed or open is known.
        unread: consumer groups that have something to read.
        parked: messages that are delayed.
        transactions: that are open.
        offsets: that are to be handed on.
    """

    is_closed: bool
    is_whole: bool
    unread: Sequence[Unread]
    parked: int
    transactions: int
    offsets: Sequence[OffsetLeft] = ()


class DrainReport(NamedTuple):
    """The master's word on a drain, as its heartbeats have it.

    Attributes:
        done: nothing is left.
        unread: messages, each counted once for each consumer group that has not consumed it.
        waits_for: a sentence; empty when it is done.
    """

    done: bool
    unread: int = 0
    parked: int = 0
    transactions: int = 0
    waits_for: str = ""


NOT_LOOKED = DrainReport(done=False, waits_for="its master has not looked yet what is left")


def judge(seen: Remains) -> DrainReport:
    """Whether the drain is over, or what it waits for."""
    waits_for = _waits_for(seen)[:SENTENCE_MAX]
    unread = sum(item.messages for item in seen.unread)
    return DrainReport(not waits_for, unread, seen.parked, seen.transactions, waits_for)


def may_close(*, waited_s: float, grace_s: float, quiet_s: float, producers: Sequence[str]) -> bool:
    """Whether new messages may be refused: every client has asked for routes since, or none sends.

    Args:
        waited_s: since this master learned of the drain.
        grace_s: in which every client asks for routes.
        quiet_s: in which nobody has sent, at most ``waited_s``.
        producers: groups of producers that are connected.
    """
    if waited_s >= grace_s:
        return True
    return quiet_s >= QUIET_S and all(name == INNER_PRODUCER for name in producers)


QUIET_S = 2.0
"""Without a send and without a producer; who sends now and then asks for a route before it does."""


def _waits_for(seen: Remains) -> str:
    if not seen.is_closed:
        return "new messages are still taken, until every client has asked for routes"
    unread = sorted(seen.unread, key=lambda item: (item.members > 0, -item.messages, item))
    if unread:
        return _about_unread(unread)
    if seen.offsets:
        return _about_offsets(seen.offsets)
    if seen.transactions:
        return f"{seen.transactions} open transactions wait for their producers to end them"
    if seen.parked:
        return f"{seen.parked} delayed messages wait for their time"
    return "" if seen.is_whole else "not all that is stored is confirmed yet"


def _about_offsets(offsets: Sequence[OffsetLeft]) -> str:
    first = min(offsets, key=lambda item: (not item.to, item.to, item))
    more = f"; {len(offsets) - 1} more offsets wait as well" if len(offsets) > 1 else ""
    if not first.to:
        return f"queues of {first.topic}, which consumer group {first.group} reads, move{more}"
    return (
        f"broker group {first.to} is to be told how far consumer group {first.group} has read "
        f"{first.topic}{more}"
    )


def _about_unread(unread: Sequence[Unread]) -> str:
    first = unread[0]
    members = f"{first.members} members" if first.members > 1 else "one member"
    who = members if first.members else "no member: start one, or delete the consumer group"
    more = f"; {len(unread) - 1} more wait as well" if len(unread) > 1 else ""
    return (
        f"{first.messages} messages of {first.topic} wait for consumer group {first.group}, "
        f"which has {who}{more}"
    )
