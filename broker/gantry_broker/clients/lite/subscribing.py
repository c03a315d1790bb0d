"""LiteSubscriptionCtl (200071): clients say which lite topics they take.

Upstream: ``LiteSubscriptionCtlProcessor`` and ``LiteSubscriptionRegistryImpl``. A client adds and
removes by name, and says every half a minute all that it takes. What it says is in the log before
it is answered, so no later master has to be told again; a repetition that changes nothing writes
nothing.

Stricter than upstream: in a group whose lite topics have one client each (``Exclusive``), the
half-minute word of a client that has lost one does not take it back; the client is told once more.

A client that is silent for three minutes is gone, and its subscription with it.
"""

import asyncio
from collections.abc import Callable, Sequence

from gantry_protocol.bodies import SubscriptionGroupConfig, decode_request
from gantry_protocol.bodies.lite import (
    COMPLETE_ADD,
    COMPLETE_REMOVE,
    OFFSET,
    PARTIAL_ADD,
    PARTIAL_REMOVE,
    POLICY,
    POLICY_LAST,
    POLICY_MAX,
    POLICY_MIN,
    LiteSubscription,
    LiteSubscriptions,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import FLAG_ONEWAY, RemotingCommand, reply
from gantry_protocol.command import request as make_request
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.lite import NotifyUnsubscribeLiteRequestHeader
from gantry_protocol.lite import lite_problem, lite_queue
from gantry_protocol.process import log
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients.core.lite.records import Added, Event, Left, Removed, Whole
from gantry_broker.clients.core.lite.registry import ClientKey, Evicted
from gantry_broker.clients.lite import rules
from gantry_broker.clients.lite.book import LiteBook
from gantry_broker.clients.offsets import OffsetWriter
from gantry_broker.clients.pop.early import EarlyRequests
from gantry_broker.clients.step_run import Run
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import QueueOffsets, QueueQuestion, Refusal, SendOutcome
from gantry_broker.store.steps import Steps

SILENT_S = 180.0  # upstream's liteSubscriptionCheckTimeoutMills
LOOK_S = 10.0
GONE_MAX = 100  # silent clients that are given up at once
WORDS_MAX = 32  # clients in one request
NOT_READ = "service not available now. what earlier masters wrote of lite topics is not read"
_KEPT = SendOutcome(ResponseCode.SUCCESS)

_log = log.get("lite")


class Subscribing:
    """See the module.

    Args:
        view: the group, which is the master.
        book: the subscriptions.
        writer: of committed offsets.
        woken: is told of clients for which there may be something now.

    Attributes:
        silent: clients that were given up.
        evicted: lite topics that clients lost to others of their group.
        over_quota: wishes that were too many.
        early: requests that wait until the log was read.
    """

    def __init__(
        self,
        view: GroupView,
        book: LiteBook,
        writer: OffsetWriter,
        woken: Callable[[ClientKey], None],
    ) -> None:
        self.silent = self.evicted = self.over_quota = 0
        self.early = EarlyRequests()
        self._view = view
        self._book = book
        self._writer = writer
        self._woken = woken
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self._heard_s: dict[ClientKey, float] = {}  # of those that subscribe, in this mastership
        self._connections: dict[ClientKey, Connection] = {}
        self._by_connection: dict[int, set[ClientKey]] = {}
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def close(self) -> None:
        """The mastership is over."""
        self._timer.cancel()
        self.early.close()

    def heard(self, key: ClientKey) -> None:
        """A client is there."""
        if key in self._book.registry.clients:
            self._heard_s[key] = self._loop.time()

    def heard_s(self, key: ClientKey) -> float:
        """The time since a client was heard."""
        return self._loop.time() - self._heard_s.get(key, self._began_s)

    def connection_closed(self, conn: Connection) -> None:
        """Nobody can be told anything on it any more."""
        for key in self._by_connection.pop(conn.id, ()):
            if self._connections.get(key) is conn:
                del self._connections[key]

    # ---- requests

    def control(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """LiteSubscriptionCtl (200071); waits until it is known who subscribes to what."""
        refusal = self._view.accepting_writes()
        is_passing = refusal is None or refusal.code == ResponseCode.SYSTEM_BUSY
        if is_passing and not (self._book.ready or self._book.failure):
            return self.early.wait(conn, request, self._control)
        return self._control(conn, request)

    def _control(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        if not request.body:
            return reply(request, ResponseCode.ILLEGAL_OPERATION, "Request body is null.")
        words = decode_request(LiteSubscriptions, request.body).subscription_set
        events = self._refuse_request(words) or self._events_of_all(words)
        if isinstance(events, Refusal):
            return reply(request, *events)
        for word in words:
            self._remember(conn, (word.group, word.client_id))

        def moved(outcome: SendOutcome) -> None:
            if not request.is_oneway:
                conn.reply(request, reply(request, outcome.code, outcome.remark))
            for word in words:
                self._woken((word.group, word.client_id))

        def done(outcome: SendOutcome, evicted: list[Evicted]) -> None:
            if outcome.code != ResponseCode.SUCCESS:
                moved(outcome)
                return
            for word in words:
                self.heard((word.group, word.client_id))
            self._tell_evicted(evicted)
            self._move(words, evicted, moved)

        if events:
            self._book.record(events, done)
        else:
            done(_KEPT, [])
        return None

    def _refuse_request(self, words: list[LiteSubscription]) -> Refusal | None:
        if not 0 < len(words) <= WORDS_MAX:
            remark = f"LiteSubscriptionCtlRequestBody names {len(words)} clients, not 1 to 32."
            return Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        if self._book.failure:
            return Refusal(ResponseCode.SYSTEM_ERROR, self._book.failure)
        refusal = self._view.accepting_writes()
        if refusal is None and not self._book.ready:
            refusal = Refusal(ResponseCode.SYSTEM_BUSY, NOT_READ)
        return refusal

    def _events_of_all(self, words: list[LiteSubscription]) -> list[Event] | Refusal:
        events: list[Event] = []
        for word in words:
            found = self._events_of(word)
            if isinstance(found, Refusal):
                return found
            events += found
        return events

    def _events_of(self, word: LiteSubscription) -> list[Event] | Refusal:
        """The events that a wish needs; none where it is so already."""
        names = list(dict.fromkeys(word.lite_topic_set or ()))
        key = (word.group, word.client_id)
        item = self._book.registry.clients.get(key)
        held = set(() if item is None or item.parent != word.topic else item.names)
        if word.action == COMPLETE_REMOVE:
            return [] if item is None else [Left(*key)]
        if word.action == PARTIAL_REMOVE:
            left = [name for name in names if name in held]
            return [Removed(*key, left)] if left else []
        if word.action not in (PARTIAL_ADD, COMPLETE_ADD):
            remark = f"{word.action[:64]!r} is no change of a lite subscription"
            return Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        config = self._view.consumers.config(word.group)
        refusal = rules.refuse_group(self._view, word.group, word.topic) or self._refuse(
            word, config, names, held
        )
        if refusal is not None:
            return refusal
        if word.action == PARTIAL_ADD:
            more = [name for name in names if name not in held]
            alone = rules.is_exclusive(config)
            return [Added(*key, word.topic, more, alone)] if more else []
        if rules.is_wildcard(config):
            if item is not None and item.all and item.parent == word.topic:
                return []
            return [Whole(*key, word.topic, [], all=True)]
        if rules.is_exclusive(config):
            names = self._without_lost(word, names, held)
        if item is None or item.all or item.parent != word.topic:
            return [Whole(*key, word.topic, names)]
        more = [name for name in names if name not in held]
        less = sorted(held.difference(names))
        found: list[Event] = [Added(*key, word.topic, more)] if more else []
        return [*found, Removed(*key, less)] if less else found

    def _refuse(
        self,
        word: LiteSubscription,
        config: SubscriptionGroupConfig,
        names: list[str],
        held: set[str],
    ) -> Refusal | None:
        """The reason why a client may not subscribe to these."""
        if rules.is_wildcard(config):
            if word.action == COMPLETE_ADD:
                return None
            remark = "subscribe lite operation is not supported for this group: it takes all"
            return Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        problem = next(filter(None, map(lite_problem, names)), None)
        if problem is not None:
            return Refusal(ResponseCode.INVALID_PARAMETER, problem)
        option = word.offset_option
        if option is not None and (option.type not in (POLICY, OFFSET) or option.value < 0):
            remark = f"the beginning {option.type[:32]!r} of a lite topic is not served"
            return Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        more = sum(name not in held for name in names)
        kept = len(held) if word.action == PARTIAL_ADD else len(names) - more
        quota = rules.client_quota(config)
        over = ""
        if more and kept + more > quota:
            over = f"{kept + more} of at most {quota} of a client"
        elif more and self._book.registry.count + more > rules.SUBSCRIPTIONS_MAX:
            over = f"{rules.SUBSCRIPTIONS_MAX} are there"
        if not over:
            return None
        self.over_quota += 1
        remark = f"lite subscription quota exceeded: {over}"
        return Refusal(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, remark)

    def _without_lost(self, word: LiteSubscription, names: list[str], held: set[str]) -> list[str]:
        """Those that no other client of the group has; of the others the client is told."""
        found = []
        for name in names:
            others = self._book.registry.holders(word.group, word.topic, name)
            if name in held or not others:
                found.append(name)
            else:
                self._tell((word.group, word.client_id), name)
        return found

    # ---- where they begin

    def _move(
        self,
        words: Sequence[LiteSubscription],
        evicted: list[Evicted],
        done: Callable[[SendOutcome], None],
    ) -> None:
        """Have positions be where the wishes, or settings of the groups, say; then tell."""
        moves: list[tuple[str, str, int | None]] = []  # group, queue; None: behind the last
        for word in words:
            names = word.lite_topic_set or ()
            config = self._view.consumers.config(word.group)
            option = word.offset_option
            target: int | None = -1
            if word.action == PARTIAL_REMOVE and rules.begins_anew_after_its_end(config):
                target = 0
            elif word.action == PARTIAL_ADD and option is not None:
                target = _target(option.type, option.value)
            elif word.action == PARTIAL_ADD and rules.begins_anew_at_a_change(config):
                lost = {item.name for item in evicted}
                target, names = 0, [name for name in names if name in lost]
            if target != -1:
                moves += [(word.group, lite_queue(word.topic, name), target) for name in names]
        if not moves:
            done(_KEPT)
            return
        Run(
            self._view.store,
            self._moving(moves),
            lambda _: self._writer.now(done),
            lambda error: done(SendOutcome(ResponseCode.SYSTEM_ERROR, str(error))),
        ).start()

    def _moving(self, moves: list[tuple[str, str, int | None]]) -> Steps[None]:
        committed = self._view.store.committed
        for group, queue, target in moves:
            place: QueueOffsets
            (place,) = yield [QueueQuestion(queue, 0)]
            if place.max_offset == 0:
                continue  # there is nothing to begin with
            first, end = place.min_offset, place.max_offset
            committed.commit(group, queue, 0, end if target is None else max(first, target))

    # ---- clients

    def _remember(self, conn: Connection, key: ClientKey) -> None:
        self._connections[key] = conn
        self._by_connection.setdefault(conn.id, set()).add(key)

    def _tell_evicted(self, evicted: list[Evicted]) -> None:
        self.evicted += len(evicted)
        for item in evicted:
            self._tell(item.key, item.name)

    def _tell(self, key: ClientKey, name: str) -> None:
        """Tell a client that a lite topic is not its any more; it may be out of reach."""
        conn = self._connections.get(key)
        if conn is None or conn.closed:
            return
        group, client_id = key
        header = NotifyUnsubscribeLiteRequestHeader(name, group, client_id)
        told = make_request(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, to_ext(header))
        told.flag |= FLAG_ONEWAY
        conn.send(told)

    def _look(self) -> None:
        """Give up clients that are silent."""
        self._timer = self._loop.call_later(LOOK_S, self._look)
        if not self._book.ready or self._view.accepting_writes() is not None:
            return
        clients = self._book.registry.clients
        for key in [key for key in self._heard_s if key not in clients]:
            del self._heard_s[key]
        silent = [key for key in clients if self.heard_s(key) > SILENT_S][:GONE_MAX]
        if not silent:
            return

        def done(outcome: SendOutcome, evicted: list[Evicted]) -> None:
            if outcome.code == ResponseCode.SUCCESS:
                self.silent += len(silent)
                _log.info("clients of lite topics are silent", count=len(silent))

        self._book.record([Left(*key) for key in silent], done)


def _target(kind: str, value: int) -> int | None:
    """The offset to begin at; -1: where the group stands; None: behind the last message."""
    if kind == OFFSET:
        return value
    return {POLICY_LAST: -1, POLICY_MIN: 0, POLICY_MAX: None}.get(value, -1)
