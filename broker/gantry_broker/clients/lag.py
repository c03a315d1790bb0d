"""Lag of consumer groups, for whoever watches the broker.

A serving master looks at the queues in which a group has committed something, some in each turn of
the loop and at a bounded share of its time, so that a figure may be as old as a pass over all
offsets takes: seconds as a rule, minutes for a million of them. Told is what somebody may act on.
Who reads as BROADCASTING keeps its offsets itself, and a topic that the members of a group do not
want any more is caught up by nobody; both are left out, and so are lite topics, of which there may
be millions.

Bounds: ``TOLD_MAX`` pairs of a group and a topic, those first that are longest behind.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec
from gantry_protocol.lite import is_lite_queue

from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.topic_rules import is_system_group
from gantry_broker.store.contract import FIRST, QueueOffsets, QueueQuestion, Refusal, Store
from gantry_broker.store.tables.offsets import ConsumerOffsets, OffsetKey, OffsetRow
from gantry_broker.store.tables.resets import is_mark

PASS_EVERY_S = 15.0
SLICE = 50  # offsets in one turn of the loop: about a millisecond
PAUSE_S = 0.01
SHARE = 20  # a look costs at most one part in so many of the time
TOLD_MAX = 1_000

Pair = tuple[str, str]  # consumer group, topic


class Lag(msgspec.Struct):
    """The part of a topic that a consumer group has yet to consume.

    Attributes:
        messages: of all its queues here.
        oldest_ms: when the first of them was stored; None when there is none, or nobody can say.
    """

    messages: int = 0
    oldest_ms: int | None = None

    def add(self, messages: int, stored_ms: int | None) -> None:
        """Another queue."""
        self.messages += messages
        if stored_ms is not None:
            self.oldest_ms = min(stored_ms, stored_ms if self.oldest_ms is None else self.oldest_ms)


class _Behind(NamedTuple):
    """A queue, the first offset there that is not consumed, and how many messages are not."""

    key: OffsetKey
    first: int
    messages: int


class ConsumerLag:
    """Looks at all committed offsets, again and again, until the mastership ends.

    Args:
        store: whose queues they are in.
        committed: the offsets.
        sessions: who is there, and wants what.

    Attributes:
        told: as of the last pass.
        left_out: pairs beyond the bound, at the last pass.
    """

    def __init__(self, store: Store, committed: ConsumerOffsets, sessions: Sessions) -> None:
        self.told: dict[Pair, Lag] = {}
        self.left_out = 0
        self._store = store
        self._committed = committed
        self._sessions = sessions
        self._loop = asyncio.get_running_loop()
        self._rows: Iterator[OffsetRow] = iter(())
        self._found: dict[Pair, Lag] = {}
        self._times: dict[OffsetKey, tuple[int, int]] = {}  # offset, and when it was stored
        self._next_times: dict[OffsetKey, tuple[int, int]] = {}  # of the pass that is under way
        self._is_over = False
        self._timer = self._loop.call_later(PASS_EVERY_S, self._begin)

    def close(self) -> None:
        """The mastership is over."""
        self._is_over = True
        self._timer.cancel()

    def _begin(self) -> None:
        self._rows = self._committed.walk()
        self._found, self._next_times = {}, {}
        self._look()

    def _look(self) -> None:
        began_s = self._loop.time()
        rows = list(islice(self._rows, SLICE))
        if not rows:
            self._tell()
            return
        wanted = [row for row in rows if self._counts(row)]
        questions = [QueueQuestion(topic, queue_id) for _, topic, queue_id, _ in wanted]

        def learned(answers: list[QueueOffsets] | Refusal) -> None:
            if isinstance(answers, Refusal):
                self._rest(began_s)
            else:
                self._time(wanted, answers, began_s)

        self._ask(questions, learned)

    def _counts(self, row: OffsetRow) -> bool:
        group, topic, _, _ = row
        if is_mark(group) or is_system_group(group) or is_lite_queue(topic):
            return False
        present = self._sessions.group(group)
        return present is None or (topic in present.topics and not present.is_broadcasting)

    def _time(
        self, rows: Sequence[OffsetRow], answers: Sequence[QueueOffsets], began_s: float
    ) -> None:
        """Ask when the first message was stored that each has yet to consume.

        That stays so while nothing is committed, and asking again may cost a read of the disk.
        """
        asked: list[_Behind] = []
        for row, queue in zip(rows, answers, strict=True):
            key, first = row[:3], max(row[3], queue.min_offset)
            count = max(0, queue.max_offset - first)
            known = self._times.get(key)
            if count == 0:
                self._add(_Behind(key, first, count), None)
            elif known is not None and known[0] == first:
                self._add(_Behind(key, first, count), known[1])
            else:
                asked.append(_Behind(key, first, count))

        def learned(answers: list[QueueOffsets] | Refusal) -> None:
            in_tier = self._learned(asked, answers)
            self._ask(
                [QueueQuestion(*item.key[1:], FIRST) for item in in_tier],
                lambda answers: self._end(in_tier, answers, began_s),
            )

        self._ask([QueueQuestion(*item.key[1:], item.first) for item in asked], learned)

    def _learned(
        self, asked: Sequence[_Behind], answers: list[QueueOffsets] | Refusal
    ) -> list[_Behind]:
        """Take times in; returns those of records that are in the tier only."""
        if isinstance(answers, Refusal):  # a record that cannot be read
            for item in asked:
                self._add(item, None)
            return []
        in_tier = []
        for item, queue in zip(asked, answers, strict=True):
            if queue.stored_at is None:
                in_tier.append(item)
            else:
                self._add(item, queue.stored_at)
        return in_tier

    def _end(
        self, asked: Sequence[_Behind], answers: list[QueueOffsets] | Refusal, began_s: float
    ) -> None:
        """For a record in the tier the queue's first one stands, which is older."""
        for item in self._learned(asked, answers):
            self._add(item, None)
        self._rest(began_s)

    def _add(self, item: _Behind, stored_ms: int | None) -> None:
        if stored_ms is not None:
            self._next_times[item.key] = (item.first, stored_ms)
        self._found.setdefault(item.key[:2], Lag()).add(item.messages, stored_ms)

    def _ask(
        self,
        questions: Sequence[QueueQuestion],
        learned: Callable[[list[QueueOffsets] | Refusal], None],
    ) -> None:
        def answered(answers: list[QueueOffsets] | Refusal) -> None:
            if not self._is_over:
                learned(answers)

        self._store.offsets(questions, answered)

    def _rest(self, began_s: float) -> None:
        pause_s = max(PAUSE_S, SHARE * (self._loop.time() - began_s))
        self._timer = self._loop.call_later(pause_s, self._look)

    def _tell(self) -> None:
        longest = sorted(self._found.items(), key=_first_the_longest)
        self.told = dict(longest[:TOLD_MAX])
        self.left_out = max(0, len(longest) - TOLD_MAX)
        self._times = self._next_times
        self._timer = self._loop.call_later(PASS_EVERY_S, self._begin)


def _first_the_longest(item: tuple[Pair, Lag]) -> tuple[float, int, Pair]:
    pair, lag = item
    return (float("inf") if lag.oldest_ms is None else lag.oldest_ms, -lag.messages, pair)
