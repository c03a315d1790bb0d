"""Ends of lite topics: the master finds those whose time is over, and says so in the log.

Upstream: ``AbstractLiteLifecycleManager``. A lite topic is over when its parent's
``lite.topic.expiration`` has passed since its last message was stored. Consumers do not keep it, as
upstream's do not. What they have committed there goes with it; subscriptions stay, and take what
comes under that name later.

An end names the last message that is known, and nothing ends where another one has come (see
``store.tables.expired``).
"""

import asyncio
from collections.abc import Callable

from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import GantryError
from gantry_protocol.lite import lite_queue
from gantry_protocol.process import log

from gantry_broker.clients.lite import rules
from gantry_broker.clients.offsets import OffsetWriter
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import SendOutcome
from gantry_broker.store.tables.expired import ENDS_MAX, End, expired_record

SWEEP_S = 30.0  # between two looks at all lite topics
PAGE = 512  # lite topics looked at in one turn of the loop, a millisecond or so
PAUSE_S = 0.01  # between two pages
RETRY_S = 1.0

_log = log.get("lite")


class LiteExpiry:
    """See the module.

    Args:
        view: the group, which is the master.
        writer: of committed offsets.
        now_ms: the wall clock.

    Attributes:
        ended: lite topics that ended, in this mastership.
    """

    def __init__(self, view: GroupView, writer: OffsetWriter, now_ms: Callable[[], int]) -> None:
        self.ended = 0
        self._view = view
        self._writer = writer
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._timer = self._loop.call_later(SWEEP_S, self._sweep)

    def close(self) -> None:
        """The mastership is over."""
        self._is_closed = True
        self._timer.cancel()

    def _later(self, delay_s: float, call: Callable[..., None], *args: object) -> None:
        if not self._is_closed:
            self._timer = self._loop.call_later(delay_s, call, *args)

    def _sweep(self) -> None:
        """Look at the lite topics of all parents."""
        parents = [
            topic.topic_name
            for topic in self._view.store.topics.all()
            if rules.is_lite(topic) and rules.expires_after_ms(topic) is not None
        ]
        self._look(parents, "")

    def _look(self, parents: list[str], after: str) -> None:
        """Look at a page of the first parent, and go on behind it."""
        if not parents or self._view.accepting_writes() is not None:
            self._later(SWEEP_S, self._sweep)
            return
        parent = parents[0]
        topic = self._view.store.topics.lookup(parent)
        kept_ms = None if topic is None else rules.expires_after_ms(topic)
        try:
            page = self._view.store.lite_topics(parent, after, PAGE)
        except GantryError as error:
            _log.warning("lite topics are not looked at", reason=str(error))
            page = []
        if not page or kept_ms is None:
            self._later(PAUSE_S, self._look, parents[1:], "")
            return
        newest_ms = self._now_ms() - kept_ms
        ends = [
            (lite_queue(parent, item.name), item.last)
            for item in page
            if item.stored_ms < newest_ms
            and self._view.store.lite_end(lite_queue(parent, item.name)) is not None
        ]
        if ends:
            self._end(ends, parents, page[-1].name)
        else:
            self._later(PAUSE_S, self._look, parents, page[-1].name)

    def _end(self, ends: list[End], parents: list[str], after: str) -> None:
        assert len(ends) <= ENDS_MAX
        record = expired_record(ends)
        record.store_host = record.born_host = self._view.store_host

        def done(outcome: SendOutcome) -> None:
            if self._is_closed:
                return
            if outcome.code != ResponseCode.SUCCESS:
                _log.warning("lite topics did not end", reason=outcome.remark)
                self._later(RETRY_S, self._look, parents, after)
                return
            self._forget([queue for queue, _ in ends])
            self._later(PAUSE_S, self._look, parents, after)

        try:
            self._view.store.append([record], done)
        except GantryError as error:
            done(SendOutcome(ResponseCode.SYSTEM_ERROR, str(error)))

    def _forget(self, queues: list[str]) -> None:
        """Forget what was committed in lite topics that ended; not where a message has come."""
        committed = self._view.store.committed
        for queue in queues:
            if self._view.store.lite_end(queue) is not None:
                continue
            self.ended += 1
            for group, queue_id, _ in committed.of_queues(queue, {0}):
                committed.forget(group, queue, queue_id)
        self._writer.soon()
