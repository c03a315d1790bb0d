"""Parts of mapped queues: a group pops those that it holds, wherever the queue has gone since.

A queue of a mapped topic is a row of segments in several broker groups (``queue_map``). POP takes
from each segment where it stands, and so do acknowledgements: what is in flight is in the ledger of
the group that has the message, before and after a move. What a move needs is said here, by whoever
holds a later segment, before a consumer group gets anything of it:

* **Where a consumer group begins.** One that begins at the end, and is unknown here, may have been
  popping before the move. If some earlier segment knows it, it begins with this one's first
  message. If a group that holds one is gone, nobody can say: likewise. If none knows it, it is new,
  and begins at the end of the open segment; a closed one has nothing for it.
* **Offsets from before.** An offset below this segment was committed by clients that pull, or was
  handed on for a segment that is no more, or is a reset. Segments before that have messages from
  there on are told, the first one first, and this one begins with its first message.
* **Resets.** One is kept in the newest segment of a group; in those before that the group holds, it
  counts for who pops from the moment it is made. What is acknowledged from then on stays so.
* **Order.** In order, nothing of this segment is handed out before all of those before it is done:
  confirmed as such by the groups that hold them. It stays so, as long as nobody resets.

Who cannot be asked now is asked again, and nothing is handed out meanwhile. Bounded: ``LOOKS_MAX``
questions wait for another look, and ``PASSED_MAX`` segments are remembered to be in order.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import WireError
from gantry_protocol.headers.client import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.queue_map import MAPPED, QueueMap, number_of
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients.core.pop.ledger import Back
from gantry_broker.clients.core.pop.records import QueueId
from gantry_broker.clients.mapped.places import (
    AS_POPPED,
    IF_NONE_KEPT,
    PHYSICAL,
    Earlier,
    Part,
    parts_held,
)
from gantry_broker.clients.pop.book import PopBook
from gantry_broker.clients.pop.polls import ANY_QUEUE, Place
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import SendOutcome
from gantry_broker.store.tables.resets import due_reset, put_reset

LOOK_S = 0.2  # between an answer that says "not yet", or none, and the next question
IDLE_S = 30.0  # before groups are asked again about one who is not known in a closed segment
LOOKS_MAX = 10_000
PASSED_MAX = 10_000
CALL_TIMEOUT_S = 2.0
_NO_OFFSET = -1

Heard = Callable[[int | None], None]
"""Told once: an offset, ``_NO_OFFSET`` where a consumer group has none, None if nobody can say."""


class Parts:
    """See the module; of one mastership.

    Args:
        view: the group.
        book: the ledger.
        wake: is told where somebody may find something now.
        used: is told of groups that pop where all is done: their offsets are to be kept.

    Attributes:
        asked: questions to other groups, and words to them.
        crowded: pops that were not served from a segment, since too many questions wait.
    """

    def __init__(
        self,
        view: GroupView,
        book: PopBook,
        wake: Callable[[Place], None],
        used: Callable[[str], None],
    ) -> None:
        self.asked = 0
        self.crowded = 0
        self._view = view
        self._book = book
        self._wake = wake
        self._used = used
        self._held: dict[str, tuple[QueueMap, dict[int, list[Part]]]] = {}  # by topic
        self._looks: dict[QueueId, asyncio.TimerHandle | None] = {}  # None: asked just now
        self._new: dict[QueueId, None] = {}  # that nobody knows, as of the last answer
        self._idle_until_s: OrderedDict[QueueId, float] = OrderedDict()  # closed, and unknown
        self._passed: OrderedDict[QueueId, float] = OrderedDict()  # all before them is done
        self._loop = asyncio.get_running_loop()

    @property
    def waiting(self) -> int:
        """Segments about which somebody is asked, or will be."""
        return len(self._looks)

    def close(self) -> None:
        """The mastership is over."""
        for timer in self._looks.values():
            if timer is not None:
                timer.cancel()
        self._looks.clear()

    # ---- queues of this group

    def held(self, topic: TopicConfig, numbers: Iterable[int]) -> list[int]:
        """This group's own queues that are, or hold segments of, the queues of these numbers."""
        if MAPPED not in topic.attributes:
            return list(numbers)
        parts = self._parts(topic.topic_name)
        return [part.queue_id for number in numbers for part in parts.get(number, ())]

    def to_take(
        self,
        topic: TopicConfig,
        group: str,
        numbers: Sequence[int],
        *,
        from_end: bool,
        ordered: bool,
    ) -> list[int]:
        """Those of ``held`` from which a consumer group may be given something now.

        About others somebody is asked, and their line is woken by what comes of it.
        """
        if MAPPED not in topic.attributes:
            return list(numbers)
        parts = self._parts(topic.topic_name)
        found: list[int] = []
        for number in numbers:
            for part in parts.get(number, ()):
                queue = QueueId(group, topic.topic_name, part.queue_id)
                if self._may_take(queue, part, from_end=from_end, ordered=ordered):
                    found.append(part.queue_id)
        return found

    def _parts(self, topic: str) -> dict[int, list[Part]]:
        queues, here = self._view.queues.of(topic), self._view.broker_name
        if queues is None or not self._view.queues.maps.is_known_to(here):
            return {}
        known = self._held.get(topic)
        if known is None or known[0] is not queues:
            known = self._held[topic] = (queues, parts_held(queues, here))
        return known[1]

    def forget(self, topics: set[str]) -> None:
        """The maps of these topics changed."""
        for topic in topics:
            self._held.pop(topic, None)

    def reset(
        self, group: str, topic: str, number: int, offset: int, *, is_force: bool
    ) -> list[Back]:
        """The newest segment of a queue that this group holds keeps a reset of a consumer group.

        If it pops, the older ones follow at once: other groups leave them to this one. Where it has
        not begun it will be told. Who pulls has all offsets that count in the newest.

        Args:
            group: the consumer group.
            topic: of the queue.
            number: of the queue.
            offset: from there on everything is to come again.
            is_force: also forward; otherwise where it is further back it stays.

        Returns:
            The resets of the older ones, for the book.
        """
        found: list[Back] = []
        committed = self._view.store.committed
        parts = self._parts(topic).get(number, [])
        for part in parts:
            self._passed.pop(QueueId(group, topic, part.queue_id), None)
        for part in parts[:-1]:
            assert part.end is not None, "only the newest one takes messages"
            queue = QueueId(group, topic, part.queue_id)
            now, at = committed.query(*queue), min(max(offset, part.start), part.end)
            if now is None or not self._book.may_have(*queue):
                continue
            is_moved = is_force or at < now
            if is_moved:
                put_reset(committed, *queue, at, due=False)
            found.append(Back(queue, at, is_moved))
        return found

    # ---- one segment

    def _may_take(self, queue: QueueId, part: Part, *, from_end: bool, ordered: bool) -> bool:
        if queue in self._looks:
            return False
        committed = self._view.store.committed
        due = due_reset(committed, *queue)
        offset = committed.query(*queue) if due is None else due
        if offset is None:
            if from_end and not self._begins(queue, part):
                return False
        elif offset < part.start:
            self._lead_back(queue, part, offset, is_reset=due is not None)
            return False
        elif self._is_over(queue, part, offset):
            self._used(queue.group)
            return False
        if not ordered or queue in self._passed or not part.with_messages:
            return True
        self._ask_order(queue, part, is_begun=from_end or offset is not None)
        return False

    def _is_over(self, queue: QueueId, part: Part, offset: int) -> bool:
        """Whether everything of a closed segment is done, and nobody has said otherwise since."""
        known = self._book.ledger.queues.get(queue)
        return (
            part.end is not None
            and known is not None
            and known.floor >= part.end
            and offset == self._book.committed.get(queue)
        )

    def _begins(self, queue: QueueId, part: Part) -> bool:
        """Whether a consumer group that wants what is new may begin here, at the end."""
        if not part.before:
            return part.end is None
        if queue in self._new:
            del self._new[queue]
            return part.end is None
        if any(self._is_gone(item) for item in part.before):
            return self._begin(queue, part.start)
        if self._idle_until_s.get(queue, 0.0) > self._loop.time():
            return False
        if self._wait_for(queue):
            self._ask_known(queue, part, list(part.before))
        return False

    def _begin(self, queue: QueueId, start: int) -> bool:
        """Have a consumer group begin with the first message; False: there is no room for that."""
        return self._book.commit(queue, start)

    def _is_gone(self, item: Earlier) -> bool:
        group = item.segment.group
        if group == self._view.broker_name:
            return False
        return not group or self._view.queues.maps.is_gone(group)

    # ---- questions

    def _wait_for(self, queue: QueueId) -> bool:
        """Note that somebody is asked about a segment; False: too many wait."""
        if len(self._looks) >= LOOKS_MAX:
            self.crowded += 1
            return False
        self._looks[queue] = None
        return True

    def _answered(self, queue: QueueId, *, is_settled: bool) -> None:
        """Look again: at once, or after a while."""
        if queue not in self._looks:
            return  # the mastership is over
        if is_settled:
            self._loop.call_soon(self._look, queue)  # by then who asked waits in line
        else:
            self._looks[queue] = self._loop.call_later(LOOK_S, self._look, queue)

    def _look(self, queue: QueueId) -> None:
        self._looks.pop(queue, None)
        for at in (number_of(queue.queue_id), ANY_QUEUE):
            self._wake(Place(queue.topic, queue.group, at))

    def _ask_known(self, queue: QueueId, part: Part, before: list[Earlier]) -> None:
        """Ask the groups of earlier segments, the last one first, until one knows the group."""
        if not before:
            if part.end is None:
                self._new[queue] = None
                while len(self._new) > LOOKS_MAX:
                    del self._new[next(iter(self._new))]
            else:  # whoever knows better will tell
                _keep(self._idle_until_s, queue, self._loop.time() + IDLE_S)
            self._answered(queue, is_settled=True)
            return
        *others, last = before

        def heard(offset: int | None) -> None:
            if offset == _NO_OFFSET:
                self._ask_known(queue, part, others)
                return
            if offset is not None and queue in self._looks:
                self._begin(queue, part.start)
            self._answered(queue, is_settled=offset is not None)

        self._ask(queue, last, heard)

    def _ask_order(self, queue: QueueId, part: Part, *, is_begun: bool) -> None:
        """Ask whether everything before this segment is done."""
        if not self._wait_for(queue):
            return

        def ask(left: list[Earlier]) -> None:
            if queue not in self._looks:
                return  # the mastership is over
            if not left:
                _keep(self._passed, queue, 0.0)
                self._answered(queue, is_settled=True)
                return
            *others, last = left

            def heard(offset: int | None) -> None:
                is_done = offset is not None and (
                    is_begun if offset == _NO_OFFSET else offset >= last.end
                )
                if is_done:
                    ask(others)
                else:
                    self._answered(queue, is_settled=False)

            self._ask(queue, last, heard)

        ask([item for item in part.with_messages if not self._is_gone(item)])

    def _lead_back(self, queue: QueueId, part: Part, offset: int, *, is_reset: bool) -> None:
        """Tell earlier segments with messages from ``offset`` on; then begin with this one's."""
        if not self._wait_for(queue):
            return
        self._passed.pop(queue, None)

        def tell(left: list[Earlier]) -> None:
            if queue not in self._looks:
                return  # the mastership is over
            if not left:
                if is_reset:
                    self._book.commit(queue, offset)  # which ends it
                self._begin(queue, part.start)
                self._answered(queue, is_settled=True)
                return
            first, *others = left

            def told(kept: bool) -> None:
                if kept:
                    tell(others)
                else:
                    self._answered(queue, is_settled=False)

            at = max(offset, first.segment.start)
            self._tell(queue, first, at, told)

        tell([one for one in part.with_messages if one.end > offset and not self._is_gone(one)])

    # ---- earlier segments

    def _own(self, queue: QueueId, item: Earlier) -> QueueId | None:
        """The queue of this group that an earlier segment is; None: another group has it."""
        is_own = item.segment.group == self._view.broker_name
        return queue._replace(queue_id=item.segment.queue_id) if is_own else None

    def _ask(self, queue: QueueId, item: Earlier, heard: Heard) -> None:
        """The confirmed offset of the consumer group in an earlier segment."""
        own = self._own(queue, item)
        if own is not None:
            self._confirmed(own, heard)
            return
        header = QueryConsumerOffsetRequestHeader(
            queue.group, queue.topic, item.segment.queue_id, False
        )

        code = RequestCode.QUERY_CONSUMER_OFFSET
        self._send(queue, item, code, to_ext(header), lambda outcome: heard(_offset(outcome)))

    def _tell(self, queue: QueueId, item: Earlier, at: int, told: Callable[[bool], None]) -> None:
        """Have the consumer group go on from ``at`` in an earlier segment.

        Where it has an offset, that stays: a reset was kept there when it was made.
        """
        own = self._own(queue, item)
        if own is not None:
            is_new = self._view.store.committed.query(*own) is None
            told(self._book.commit(own, at) if is_new else True)
            return
        header = UpdateConsumerOffsetRequestHeader(
            queue.group, queue.topic, item.segment.queue_id, at
        )
        ext = {**to_ext(header), IF_NONE_KEPT: "true"}

        def answered(outcome: Outcome) -> None:
            code = outcome.code if isinstance(outcome, RemotingCommand) else None
            told(code == ResponseCode.SUCCESS)

        self._send(queue, item, RequestCode.UPDATE_CONSUMER_OFFSET, ext, answered)

    def _send(
        self,
        queue: QueueId,
        item: Earlier,
        code: RequestCode,
        ext: dict[str, str],
        told: Callable[[Outcome], None],
    ) -> None:
        self.asked += 1
        epoch = str(self._view.queues.epoch_of(queue.topic))
        command = request(code, {**ext, PHYSICAL: epoch, AS_POPPED: "true"})
        self._view.queues.masters.ask(item.segment.group, command, told, CALL_TIMEOUT_S)

    # ---- asked by other groups

    def position(self, conn: Connection, asked: RemotingCommand) -> RemotingCommand | None:
        """QueryConsumerOffset (14) of a master that holds a later segment (``AS_POPPED``)."""
        header = from_ext(QueryConsumerOffsetRequestHeader, asked.ext)
        queue = QueueId(header.consumer_group, header.topic, header.queue_id)

        def heard(offset: int | None) -> None:
            if offset is None:
                remark = "it is not known yet how far the group has come, try again"
                conn.reply(asked, reply(asked, ResponseCode.SYSTEM_BUSY, remark))
            elif offset == _NO_OFFSET:
                remark = "the group has not begun here"
                conn.reply(asked, reply(asked, ResponseCode.QUERY_NOT_FOUND, remark))
            else:
                conn.reply(asked, reply(asked, ext=to_ext(OffsetResponseHeader(offset))))

        self._confirmed(queue, heard)
        return None

    def _confirmed(self, queue: QueueId, heard: Heard) -> None:
        """The offset of a consumer group, once what it follows from is confirmed."""
        if not self._book.ready:
            heard(None)
            return
        offset = self._view.store.committed.query(*queue)
        if offset is None:
            heard(_NO_OFFSET)
            return
        known = self._book.ledger.queues.get(queue)
        reached = offset if known is None else min(offset, known.floor)

        def settled(outcome: SendOutcome) -> None:
            heard(reached if outcome.code == ResponseCode.SUCCESS else None)

        self._book.settled(settled)


def _offset(outcome: Outcome) -> int | None:
    """What another group's master has said; see ``Heard``."""
    if not isinstance(outcome, RemotingCommand):
        return None
    if outcome.code != ResponseCode.SUCCESS:
        return _NO_OFFSET if outcome.code == ResponseCode.QUERY_NOT_FOUND else None
    try:
        return from_ext(OffsetResponseHeader, outcome.ext).offset
    except WireError:
        return None


def _keep(kept: OrderedDict[QueueId, float], queue: QueueId, value: float) -> None:
    """Remember it, and forget what was remembered first if there is too much."""
    kept[queue] = value
    if len(kept) > PASSED_MAX:
        kept.popitem(last=False)
