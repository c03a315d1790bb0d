"""Requests that wait for messages: of those for the same queues, the oldest is served first.

They wait in lines, one for each topic, group and queue, and one for who takes of any queue. A line
is looked at again when a message arrives in its queues, when one becomes visible, and when
something was taken back. One request at a time is served of a line, and the next one only if that
one found something, so a message that arrives does not wake all clients. A message
that is visible and could not be handed out, since it waits for others of its queue or for a topic
for dead letters, is looked at again after a rest, each time a longer one.

How many wait, and what they hold, is bounded (``waiting_room``).
"""

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

import msgspec
from gantry_protocol.command import RemotingCommand
from gantry_protocol.queue_map import number_of
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.deadlines import Deadlines
from gantry_protocol.types import Offset

from gantry_broker.clients.waiting_room import RoomLimits, WaitingRoom, held_bytes
from gantry_broker.store.contract import Confirmed, QueueKey

MAX_WAIT_S = 60.0
REST_FIRST_S = 0.1  # between two looks at what is visible and cannot be handed out; then twice that
REST_MAX_S = 1.0
_EARLY_S = 1e-6  # a timer may fire so long before its time, by the loop's clock
_LIMITS = RoomLimits(pulls=100_000, own_pulls=1_024)  # upstream's popPollingMapSize, popPollingSize

ANY_QUEUE = -1


class Place(NamedTuple):
    """The queues that a request asks for, as one consumer group sees them."""

    topic: str
    group: str
    queue_id: int  # ``ANY_QUEUE`` for all of the topic


class Poll(msgspec.Struct, eq=False):
    """One request that waits.

    Attributes:
        connection: where to answer.
        request: what to answer.
        place: the queues that it asks for.
        serve: looks for messages; calls the function it is given once, with whether it found some.
        give_up: answers it when its time is over.
        number: its name while it waits; 0 before and after.
        size_bytes: what it holds while it waits.
        is_served: it is being served, and may be over only afterwards.
        is_over: its time was over meanwhile.
    """

    connection: Connection
    request: RemotingCommand
    place: Place
    serve: Callable[["Poll", Callable[[bool], None]], None]
    give_up: Callable[["Poll"], None]
    number: int = 0
    size_bytes: int = 0
    is_served: bool = False
    is_over: bool = False


class _Line:
    """Those that wait for the same queues."""

    __slots__ = ("has_news", "is_serving", "polls", "rest_s", "timer")

    def __init__(self) -> None:
        self.polls: OrderedDict[int, Poll] = OrderedDict()
        self.is_serving = False
        self.has_news = False
        self.rest_s = REST_FIRST_S
        self.timer: asyncio.TimerHandle | None = None


class Arrivals(Protocol):
    """A store, as far as it tells of messages."""

    def subscribe(
        self, confirmed: Confirmed, topics: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Tell of each rise of confirm; see ``RecordStore``."""


class Polls:
    """See the module.

    Args:
        store: tells of arrivals, in topics that somebody waits for.
        next_due_s: when the next message of these queues becomes visible, by the loop's time; None
            without any.

    Attributes:
        room: what waits now.
    """

    def __init__(self, store: Arrivals, next_due_s: Callable[[Place], float | None]) -> None:
        self.room = WaitingRoom(_LIMITS)
        self._store = store
        self._next_due_s = next_due_s
        self._lines: dict[Place, _Line] = {}
        self._by_topic: dict[str, dict[str, set[int]]] = {}  # queue ids of lines, by group
        self._unsubscribe: dict[str, Callable[[], None]] = {}  # by topic
        self._by_connection: dict[int, set[int]] = {}
        self._polls: dict[int, Poll] = {}
        self._deadlines = Deadlines(self._expired)
        self._numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._polls)

    def count(self, topic: str, group: str) -> int:
        """The number of requests that wait for queues of a topic, of one group."""
        queue_ids = self._by_topic.get(topic, {}).get(group, ())
        return sum(len(self._lines[Place(topic, group, at)].polls) for at in queue_ids)

    def park(self, poll: Poll, wait_s: float) -> bool:
        """Let ``poll`` wait for at most ``wait_s``; False if there is no room for it."""
        size_bytes = held_bytes(poll.request, None)
        if not self.room.enter(poll.connection.id, size_bytes):
            return False
        number = poll.number = next(self._numbers)
        poll.size_bytes = size_bytes
        self._polls[number] = poll
        line = self._lines.get(poll.place)
        if line is None:
            line = self._lines[poll.place] = _Line()
            self._joined(poll.place)
        line.polls[number] = poll
        self._by_connection.setdefault(poll.connection.id, set()).add(number)
        self._deadlines.add(number, min(wait_s, MAX_WAIT_S))
        self._arm(poll.place, line)
        return True

    def _joined(self, place: Place) -> None:
        """Somebody waits for these queues."""
        topic = place.topic
        if topic not in self._by_topic:
            self._unsubscribe[topic] = self._store.subscribe(self._arrived, {topic})
        self._by_topic.setdefault(topic, {}).setdefault(place.group, set()).add(place.queue_id)

    def _arrived(self, confirm: Offset, keys: Collection[QueueKey]) -> None:
        """Records were confirmed in these queues."""
        for topic, queue_id in keys:
            for group in self._by_topic.get(topic, ()):
                self.wake_queue(topic, group, queue_id)

    def wake_queue(self, topic: str, group: str, queue_id: int) -> None:
        """There may be something in this queue, or segment of a mapped one."""
        self.wake(Place(topic, group, number_of(queue_id)))
        self.wake(Place(topic, group, ANY_QUEUE))

    def wake(self, place: Place) -> None:
        """There may be something for who waits here."""
        line = self._lines.get(place)
        if line is None:
            return
        if line.is_serving:
            line.has_news = True
            return
        line.is_serving = True
        self._loop.call_soon(self._serve, place, line)

    def wake_topic(self, topic: str) -> None:
        """There may be something for all who wait for queues of a topic."""
        for group, queue_ids in self._by_topic.get(topic, {}).items():
            for queue_id in queue_ids:
                self.wake(Place(topic, group, queue_id))

    def wake_all(self) -> None:
        """There may be something for everybody."""
        for place in list(self._lines):
            self.wake(place)

    def rearm(self, topic: str, group: str, queue_id: int) -> None:
        """A message of this queue becomes visible at another time than before, maybe now."""
        for at in (number_of(queue_id), ANY_QUEUE):
            place = Place(topic, group, at)
            line = self._lines.get(place)
            if line is None:
                continue
            due_s = self._next_due_s(place)
            if due_s is not None and due_s <= self._loop.time():
                self.wake(place)
            else:
                self._arm(place, line)

    def _serve(self, place: Place, line: _Line) -> None:
        """Look for the one that has waited longest."""
        line.has_news = False
        poll = next(iter(line.polls.values()), None)
        if poll is None:
            line.is_serving = False
            return

        def served(has_found: bool) -> None:
            poll.is_served = False
            if poll.is_over and poll.number:
                self._end(poll)
            if has_found:
                line.rest_s = REST_FIRST_S
            if has_found or line.has_news:
                self._loop.call_soon(self._serve, place, line)
            else:
                line.is_serving = False
                self._arm(place, line)

        poll.is_served = True
        poll.serve(poll, served)

    def _arm(self, place: Place, line: _Line) -> None:
        """Look again when the next message becomes visible; somebody has looked just now."""
        timer, line.timer = line.timer, None
        if timer is not None:
            timer.cancel()
        due_s = self._next_due_s(place) if line.polls else None
        if due_s is None:
            return
        now_s = self._loop.time() + _EARLY_S
        if due_s > now_s:
            line.rest_s = REST_FIRST_S
        elif timer is not None and timer.when() > now_s:
            due_s = timer.when()  # the rest has begun already
        else:
            due_s = now_s + line.rest_s
            line.rest_s = min(2 * line.rest_s, REST_MAX_S)
        line.timer = self._loop.call_at(due_s, self.wake, place)

    def drop(self, connection: Connection) -> None:
        """A connection closed: nobody waits on it any more."""
        for number in list(self._by_connection.get(connection.id, ())):
            self.forget(self._polls[number])

    def close(self) -> None:
        """Answer everybody that there is nothing: they ask again, and find the next master."""
        for poll in list(self._polls.values()):
            self._end(poll)
        self._deadlines.clear()

    def _expired(self, number: int) -> None:
        poll = self._polls.get(number)
        if poll is None:
            return
        if poll.is_served:
            poll.is_over = True
        else:
            self._end(poll)

    def _end(self, poll: Poll) -> None:
        self.forget(poll)
        poll.give_up(poll)

    def forget(self, poll: Poll) -> None:
        """It is answered, or nobody waits for an answer; twice is harmless."""
        number, poll.number = poll.number, 0
        self._deadlines.remove(number)
        if self._polls.pop(number, None) is None:
            return
        self.room.leave(poll.connection.id, poll.size_bytes)
        own = self._by_connection[poll.connection.id]
        own.discard(number)
        if not own:
            del self._by_connection[poll.connection.id]
        line = self._lines[poll.place]
        del line.polls[number]
        if not line.polls:
            if line.timer is not None:
                line.timer.cancel()
            del self._lines[poll.place]
            self._left(poll.place)

    def _left(self, place: Place) -> None:
        """Nobody waits for these queues any more."""
        groups = self._by_topic[place.topic]
        groups[place.group].discard(place.queue_id)
        if not groups[place.group]:
            del groups[place.group]
        if not groups:
            del self._by_topic[place.topic]
            self._unsubscribe.pop(place.topic)()
