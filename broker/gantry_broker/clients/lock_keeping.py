"""Queue locks of one broker group, between its master, its clients and the controllers.

A new master first reads the owners that its predecessor reported (GetLocks, 31012); until then it
grants nothing. It reports each new owner (ReportLocks, 31011) before it says so to the client, all
that changed since the last report in one, one report under way at a time. A renewal is answered at
once and reported to nobody. A client that waits longer than ``GRANT_WAIT_S`` is told what it owns
by then, and asks again half a second later.

A queue of a mapped topic that has come here has owners whom only the controllers know: the master
before told them (``owners_follow``). They are read before anybody is told that he owns the queue.
A report and such a reading never overlap, so what is read is what the controllers go on to hold.

Each report has a greater serial than the one before, so one that was given up for lost cannot
overtake its successor. A master that was replaced and does not know it yet is soon cut off
(``replica.contact``) and serves nobody; one that stood still renews nothing before it has looked.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from gantry_protocol.bodies import MessageQueue, decode_body
from gantry_protocol.bodies.codec import encode_body
from gantry_protocol.bodies.consumers import LockedQueue, LockList, LockReport
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import WireError
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.consumers import GetLocksRequestHeader, ReportLocksRequestHeader
from gantry_protocol.process import log
from gantry_protocol.queue_map import number_of
from gantry_protocol.remoting.asking import Asker, Outcome

from gantry_broker.clients.claim import Claim
from gantry_broker.clients.locks import IsMember, Owners, QueueLocks

CALL_TIMEOUT_S = 2.0
GRANT_WAIT_S = 0.7  # Java's client waits for a second
FREE_GAP_S = 0.2  # until what was unlocked is reported; mostly somebody else has taken it by then
RETRY_S = 0.5
LOOK_EVERY_S = 1.0
STOOD_STILL_S = 3.0
SWEEP_EVERY_S = 10.0
PLACES_PER_REPORT = 2000
WAITING_MAX = 10_000
LEARNED_MAX = 100_000  # queues that have come here; twice as many as have owners

_log = log.get("locks")


class LockBook(Protocol):
    """The locks of a broker group as requests of clients see them."""

    def lock(
        self,
        group: str,
        client_id: str,
        queues: list[MessageQueue],
        connection: int,
        owns: Callable[[list[MessageQueue]], None],
    ) -> None:
        """Take or renew what is free; ``owns`` is told once what the client owns."""

    def unlock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], connection: int
    ) -> None:
        """Free the caller's own locks that it has locked last by ``connection``."""

    def is_held(self, group: str) -> bool:
        """Whether some queue is locked for ``group``: its members consume in order."""

    def learn(self, queues: Collection[MessageQueue]) -> None:
        """These mapped queues have come here: read who owns them."""

    def knows(self, queue: MessageQueue) -> bool:
        """Whether the owners of such a queue are known."""


class _Waiting:
    """A client that is to own something once the controllers hold it."""

    __slots__ = ("client_id", "group", "owns", "queues", "until_s")

    def __init__(
        self,
        group: str,
        client_id: str,
        queues: list[MessageQueue],
        owns: Callable[[list[MessageQueue]], None],
        until_s: float,
    ) -> None:
        self.group = group
        self.client_id = client_id
        self.queues = queues
        self.owns = owns
        self.until_s = until_s


class LockKeeper:
    """See the module; a ``LockBook``.

    Args:
        cluster: of the group.
        name: of the group.
        peers: the controllers.
        is_member: whether a client is a member of a consumer group anywhere.

    Attributes:
        reports: that were accepted.
    """

    def __init__(self, cluster: str, name: str, peers: Asker, is_member: IsMember) -> None:
        """Nothing is granted before ``began``."""
        self.reports = 0
        self._cluster = cluster
        self._name = name
        self._peers = peers
        self._is_member = is_member
        self._claim: Claim | None = None
        self._locks: QueueLocks | None = None  # once they were read
        self._serial = 0
        self._asking = False  # a reading or a report is under way
        self._unread: set[MessageQueue] = set()  # that have come here
        self._learned: dict[tuple[str, int], int] = {}  # ids of those that were read, by number
        self._waiting: list[_Waiting] = []
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._not_before_s = 0.0  # of the next report
        self._looked_s = 0.0

    # ---- mastership

    def began(self, claim: Claim) -> None:
        """This broker is the serving master now."""
        self.end()
        self._claim = claim
        self._look()
        self._read()

    def end(self) -> None:
        """It is not any more: who waits is answered by the next one."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._waiting.clear()
        self._claim = self._locks = None
        self._asking = False
        self._unread.clear()
        self._learned.clear()

    # ---- clients

    def lock(
        self,
        group: str,
        client_id: str,
        queues: list[MessageQueue],
        connection: int,
        owns: Callable[[list[MessageQueue]], None],
    ) -> None:
        """Take or renew what is free; ``owns`` is told once what the client owns."""
        locks = self._locks
        if locks is None or self._has_stood_still():
            owns([])
            return
        locks.lock(group, client_id, queues, connection)
        if locks.is_decided(group, client_id, queues) or len(self._waiting) >= WAITING_MAX:
            owns(locks.owned(group, client_id, queues))
        else:
            until_s = _now_s() + GRANT_WAIT_S
            self._waiting.append(_Waiting(group, client_id, queues, owns, until_s))
            if "give up" not in self._timers:  # the first of those who wait has waited the longest
                self._after("give up", GRANT_WAIT_S, self._settle)
        self._report_in(0.0)

    def unlock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], connection: int
    ) -> None:
        """Free the caller's own locks that it has locked last by ``connection``."""
        if self._locks is not None:
            self._locks.unlock(group, client_id, queues, connection)
            self._report_in(FREE_GAP_S)

    def is_held(self, group: str) -> bool:
        """Whether some queue is locked for ``group``: its members consume in order."""
        return self._locks is not None and self._locks.is_held(group)

    def learn(self, queues: Collection[MessageQueue]) -> None:
        """These mapped queues have come here: read who owns them."""
        if self._claim is not None:
            self._unread.update(queue for queue in queues if not self.knows(queue))
        if self._unread:
            self._go_on()

    def knows(self, queue: MessageQueue) -> bool:
        """Whether the owners of such a queue are known."""
        if self._locks is None:
            return False
        known = self._learned.get((queue.topic, number_of(queue.queue_id)))
        return known == queue.queue_id or not self._locks.by_quorum

    def _settle(self) -> None:
        """Answer those who wait for nothing any more, or have waited long enough."""
        locks, now_s = self._locks, _now_s()
        if locks is None:
            return
        still: list[_Waiting] = []
        for item in self._waiting:
            asked = item.group, item.client_id, item.queues
            if now_s >= item.until_s or locks.is_decided(*asked):
                item.owns(locks.owned(*asked))
            else:
                still.append(item)
        self._waiting = still
        if still:
            self._after("give up", max(still[0].until_s - now_s, 0.001), self._settle)

    # ---- this process

    def _look(self) -> None:
        self._looked_s = _now_s()
        self._after("look", LOOK_EVERY_S, self._look)

    def _has_stood_still(self) -> bool:
        """Whether time passed for all others in which nothing was heard here.

        What is read first after that finds roles as they were before.
        """
        return _now_s() - self._looked_s >= STOOD_STILL_S

    def _sweep(self) -> None:
        if self._locks is not None:
            self._locks.sweep()
            self._report_in(FREE_GAP_S)
        self._after("sweep", SWEEP_EVERY_S, self._sweep)

    # ---- the controllers

    def _go_on(self) -> None:
        """Read or report what is to be, one after the other."""
        if self._unread and "read" not in self._timers:
            self._read()
        self._report_in(0.0)

    def _read(self) -> None:
        if self._asking:
            return  # ``_go_on`` follows
        claim, asked = self._claim, self._unread
        self._unread = set()
        self._asking = True

        def answered(outcome: Outcome) -> None:
            if self._claim is claim:
                self._asking = False
                self._read_came(outcome, asked)
                self._go_on()

        header = GetLocksRequestHeader(self._name, self._cluster)
        command = request(RequestCode.GANTRY_GET_LOCKS, to_ext(header))
        self._peers.ask(command, answered, CALL_TIMEOUT_S)

    def _read_came(self, outcome: Outcome, asked: set[MessageQueue]) -> None:
        code = outcome.code if isinstance(outcome, RemotingCommand) else None
        if code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and self._locks is None:
            locks = QueueLocks(self._is_member, _now_s)
            locks.by_quorum = False
            self._begin(locks)
            return
        try:
            found = _list_of(outcome)
        except WireError as error:
            _log.debug("locks could not be read", reason=error)
            self._unread |= asked
            self._after("read", RETRY_S, self._read)
            return
        owners = {
            (group, MessageQueue(self._name, item.queue_id, item.topic)): item.client_id
            for group, items in found.groups.items()
            for item in items
        }
        if self._locks is None:
            assert self._claim is not None, "or nobody would have asked"
            # Whoever goes on in the same mastership goes on counting.
            self._serial = found.serial if found.epoch == self._claim.epoch else 0
            locks = QueueLocks(self._is_member, _now_s)
            locks.restore(owners)
            self._begin(locks)
        else:
            self._locks.adopt({place: owners[place] for place in owners if place[1] in asked})
        if len(self._learned) + len(asked) > LEARNED_MAX:
            self._learned.clear()  # they are read again, which harms nobody
        for queue in asked:
            self._learned[queue.topic, number_of(queue.queue_id)] = queue.queue_id

    def _begin(self, locks: QueueLocks) -> None:
        self._locks = locks
        self._after("sweep", SWEEP_EVERY_S, self._sweep)

    def _report_in(self, wait_s: float) -> None:
        locks = self._locks
        if locks is None or not locks.has_news:
            return
        if wait_s == 0.0 or "report" not in self._timers:
            self._after("report", max(wait_s, self._not_before_s - _now_s()), self._report)

    def _report(self) -> None:
        claim, locks = self._claim, self._locks
        if claim is None or locks is None or not locks.has_news or self._asking:
            return
        self._asking = True
        self._serial += 1
        owners = locks.take_news(PLACES_PER_REPORT)
        header = ReportLocksRequestHeader(
            self._cluster, self._name, claim.broker_id, claim.epoch, claim.incarnation, self._serial
        )
        groups: dict[str, list[LockedQueue]] = {}
        for (group, queue), client_id in owners.items():
            groups.setdefault(group, []).append(LockedQueue(queue.topic, queue.queue_id, client_id))
        body = encode_body(LockReport(groups))
        command = request(RequestCode.GANTRY_REPORT_LOCKS, to_ext(header), body)

        def answered(outcome: Outcome) -> None:
            if self._claim is claim:
                self._reported(outcome, owners)

        self._peers.ask(command, answered, CALL_TIMEOUT_S)

    def _reported(self, outcome: Outcome, owners: Owners) -> None:
        locks = self._locks
        assert locks is not None, "they were read before anything was reported"
        self._asking = False
        code = outcome.code if isinstance(outcome, RemotingCommand) else None
        if code == ResponseCode.SUCCESS:
            self.reports += 1
            locks.reported(owners)
        elif isinstance(outcome, RemotingCommand) and code == ResponseCode.INVALID_PARAMETER:
            _log.warning("locks were not accepted", queues=len(owners), reason=outcome.remark)
            locks.unreported(owners, is_refused=True)
        else:  # unknown, no leader, or another master by now: then the end of ours is on its way
            self._not_before_s = _now_s() + RETRY_S
            locks.unreported(owners, is_refused=False)
        self._settle()
        self._go_on()

    def _after(self, name: str, wait_s: float, action: Callable[[], None]) -> None:
        def due() -> None:
            self._timers.pop(name, None)
            action()

        known = self._timers.pop(name, None)
        if known is not None:
            known.cancel()
        self._timers[name] = asyncio.get_running_loop().call_later(wait_s, due)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _list_of(outcome: Outcome) -> LockList:
    """What the controllers hold.

    Raises:
        WireError: they did not say so.
    """
    if not isinstance(outcome, RemotingCommand):
        raise WireError(str(outcome))
    if outcome.code != ResponseCode.SUCCESS:
        raise WireError(f"The controllers answered {outcome.code}: {outcome.remark}.")
    return decode_body(LockList, outcome.body)
