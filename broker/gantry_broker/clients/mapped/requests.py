"""Requests about mapped topics: served as requests about this group's own queues, or passed on.

A client's request names a queue by its number in the topic. Here it becomes one about the queue
that holds the segment in question (``places``): the same request with another queue id, which the
usual handler serves. If another group holds it, that group's master is asked on the client's
behalf. So a client whose route is old is served as well, until it looks again.

What was passed on says so (``PHYSICAL``), and is never passed on again. Such a send or commit is
taken only for a queue that this group takes messages for, and whoever asks with a newer map waits
until it is known here.

A reader who asks for what is behind the end of a queue here has been where the queue goes on:
whoever passed the pull on knows an older map, or the news of the move has not come here yet. It is
looked for anew once there is news, since "offset illegal" would lead the reader back. A committed
offset is likewise told as the newest (``AS_NEWEST``) only where commits are taken: a move may have
been followed by one.

A request waits while its queue moves, and until a young master has read the maps; for at most
``WAIT_S``, and ``WAITING_MAX`` at a time. Then the client is told to try again.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import Busy, ConnectError, GantryError
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX, QueueMap, Segment, number_of
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.server import Handler
from gantry_protocol.send_answer import MAY_BE_STORED
from msgspec.structs import replace

from gantry_broker.clients.mapped import places
from gantry_broker.clients.mapped.again import PASSED_AGAIN
from gantry_broker.clients.mapped.before import is_absent, is_question, question, segments_before
from gantry_broker.clients.mapped.maps import ClusterMaps
from gantry_broker.clients.mapped.masters import OtherMasters
from gantry_broker.clients.mapped.places import AS_NEWEST, AS_POPPED, PHYSICAL
from gantry_broker.clients.mapped.segment_answers import (
    AnswerListener,
    at_least,
    for_clients,
    is_found,
    is_within,
    to_int,
)
from gantry_broker.clients.pull_reads import positions
from gantry_broker.clients.resent import has_keys, may_have_come_before
from gantry_broker.clients.throttle import SENDS
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import Refusal
from gantry_broker.store.tables.resets import due_reset

WAIT_S = 2.0  # clients give a request 3 s
WAITING_MAX = 4_096
LOOK_S = 0.05  # for a topic that this group is about to have
PARKED_MAX_MS = 3_000  # of a pull at another group: a connection that is silent for 5 s is closed
CALL_TIMEOUT_S = 2.5

Commit = Callable[[str, str, int, int], bool]

_LONG = ("topic", "queueId")
_SHORT = ("b", "e")  # of sends' short headers
_SEND = RequestCode.SEND_MESSAGE
_PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
_WRITES = frozenset({*SENDS, RequestCode.UPDATE_CONSUMER_OFFSET})
_SUSPEND_FLAG = 2
QUEUE_REQUESTS = frozenset(
    {
        *SENDS,
        *_PULLS,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
    }
)
_MOVING = Refusal(
    ResponseCode.SYSTEM_BUSY, "the queue moves to another broker group, try again in a moment"
)
_UNKNOWN_YET = Refusal(
    ResponseCode.SYSTEM_BUSY, "this broker does not know yet which queues it has, try again"
)
_NOT_LEADER = Refusal(ResponseCode.NOT_LEADER_FOR_QUEUE, "another broker group has the queue now")
_NOT_HERE = Refusal(
    ResponseCode.NO_PERMISSION, "this broker group takes no messages for the topic; see its route"
)


class _Asked(NamedTuple):
    """One request, and how it is served once its queue is known."""

    connection: Connection
    request: RemotingCommand
    handler: Handler
    topic: str
    number: int
    keys: tuple[str, str]
    is_static: bool
    until_s: float
    looked: int = -1  # epoch of the map by which it was looked for where its queue was before


class MappedRequests:
    """See the module.

    Args:
        view: the group.
        maps: of its cluster.
        masters: of its other groups.
        commit: remembers a consumer group's position: group, topic, queue id, offset.

    Attributes:
        passed_on: requests that another group's master was asked.
        waited: requests that waited.
        refused: requests that waited in vain, or found no room to wait.
    """

    def __init__(
        self, view: GroupView, maps: ClusterMaps, masters: OtherMasters, commit: Commit
    ) -> None:
        self.passed_on = self.waited = self.refused = 0
        self._commit_here = commit
        self._view = view
        self._maps = maps
        self._masters = masters
        self._turn = 0
        self._waiting: dict[int, tuple[_Asked, asyncio.TimerHandle]] = {}
        self._numbers = 0
        self._looks: dict[str, asyncio.TimerHandle] = {}  # by topic
        self._closed = False

    @property
    def waiting(self) -> int:
        """Requests that wait now."""
        return len(self._waiting)

    def close(self) -> None:
        """The mastership is over: whoever waits is told to try again."""
        self._closed = True
        for timer in self._looks.values():
            timer.cancel()
        self._looks.clear()
        for number in list(self._waiting):
            self._give_up(number)

    def changed(self, topics: set[str]) -> None:
        """The maps of these topics changed, or are known now: look at what waits for them."""
        held, self._waiting = self._waiting, {}
        for number, (asked, timer) in held.items():
            if asked.topic in topics:
                timer.cancel()
                self._place_again(asked)
            else:
                self._waiting[number] = (asked, timer)

    def serve(
        self, connection: Connection, request: RemotingCommand, handler: Handler
    ) -> RemotingCommand | None:
        """The answer, or None: it comes later."""
        keys, ext = _keys(request), request.ext or {}
        number = to_int(ext.get(keys[1], "-1"))
        is_static = places.knows_static_topics(request)
        topic = ext.get(keys[0], "")
        until_s = asyncio.get_running_loop().time() + WAIT_S
        return self._place(
            _Asked(connection, request, handler, topic, number, keys, is_static, until_s)
        )

    def ask(
        self,
        connection: Connection,
        request: RemotingCommand,
        handler: Handler,
        answered: Callable[[RemotingCommand], None],
    ) -> None:
        """Serve a request of this broker's own; ``answered`` comes once."""

        def told(outcome: Outcome) -> None:
            assert isinstance(outcome, RemotingCommand)  # what is replied is an answer
            answered(outcome)

        answer = self.serve(AnswerListener(connection, told), request, handler)  # type: ignore[arg-type]
        if answer is not None:
            answered(answer)

    # ---- where to

    def _place_again(self, asked: _Asked) -> None:
        try:
            answer = self._place(asked)
        except GantryError as error:  # of this request; others still wait
            answer = reply(asked.request, error.answer_code, str(error))
        if answer is not None:
            asked.connection.reply(asked.request, answer)

    def _place(self, asked: _Asked) -> RemotingCommand | None:
        queues = self._maps.of(asked.topic)
        if self._view.store.topics.lookup(asked.topic) is None:
            is_passed_on = PHYSICAL in (asked.request.ext or {})  # so it is mapped for certain
            if not is_passed_on and not self._view.queues.may_be_mapped(asked.topic):
                return asked.handler(asked.connection, asked.request)
            self._look_later(asked.topic)
            return self._wait(asked, _UNKNOWN_YET)
        if not self._maps.is_known_to(self._view.broker_name) or queues is None:
            return self._wait(asked, _UNKNOWN_YET)
        code, ext = asked.request.code, asked.request.ext or {}
        if PHYSICAL in ext:
            return self._served_as_asked(asked, queues)
        if code in SENDS:
            return self._send(asked, queues)
        if code == RequestCode.UPDATE_CONSUMER_OFFSET:
            return self._commit(asked, queues)
        if code in _PULLS:
            return self._pull(asked, queues)
        seen = places.segments_seen(
            queues,
            self._view.broker_name,
            asked.number,
            is_static=asked.is_static,
            unused=code == RequestCode.QUERY_CONSUMER_OFFSET,
        )
        if not seen:
            return reply(asked.request, *_no_queue(asked))
        seen = [segment for segment in seen[:-1] if not self._maps.is_gone(segment.group)] + [
            seen[-1]
        ]
        if code == RequestCode.QUERY_CONSUMER_OFFSET:
            return self._query(asked, queues, seen)
        if code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            return self._search_back(asked, seen, is_within)
        at_start = code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_EARLIEST_MSG_STORETIME)
        segment = seen[0 if at_start else -1]
        if code == RequestCode.GET_EARLIEST_MSG_STORETIME:
            return self._ask(asked, segment)
        return self._ask(asked, segment, partial(at_least, segment.start))

    def _query(
        self, asked: _Asked, queues: QueueMap, seen: Sequence[Segment]
    ) -> RemotingCommand | None:
        if isinstance(self._place_of_commit(asked, queues), places.Wait):
            return self._wait(asked, _MOVING)  # there may be a newer offset where it goes
        former = () if asked.is_static else self._former(asked, queues)
        return self._search_back(asked, [*former, *seen], is_found)

    def _former(self, asked: _Asked, queues: QueueMap) -> list[Segment]:
        """The newest of this group's released segments in which a consumer group has committed.

        Older clients look nowhere else for what they have committed in this group's part of a
        queue; for all others it was handed on.
        """
        group, queue = (
            (asked.request.ext or {}).get("consumerGroup", ""),
            queues.queues[asked.number],
        )
        named = {item.queue_id for item in queue.segments if item.group == self._view.broker_name}
        for move in range(queue.moves, -1, -1):
            queue_id = asked.number + MAPPED_QUEUES_MAX * move
            if queue_id in named:
                continue
            if self._view.store.committed.query(group, asked.topic, queue_id) is not None:
                return [Segment(self._view.broker_name, 0, queue_id)]
        return []

    def _send(self, asked: _Asked, queues: QueueMap) -> RemotingCommand | None:
        if asked.is_static and asked.looked != queues.epoch and _may_be_stored(asked):
            before = segments_before(queues, asked.number, self._maps.is_gone)
            if before and has_keys(asked.request):
                return self._looked_for(asked, queues, before)
        self._turn += 1
        place = places.place_of_send(
            queues,
            self._view.broker_name,
            asked.number,
            is_static=asked.is_static,
            turn=self._turn,
        )
        return self._written(asked, place)

    def _looked_for(
        self, asked: _Asked, queues: QueueMap, segments: Sequence[Segment]
    ) -> RemotingCommand | None:
        """Place a send once nobody who had its queue before has it, the last one asked first."""
        if not segments:
            return self._place(asked._replace(looked=queues.epoch))
        *before, last = segments

        def answered(outcome: Outcome) -> None:
            if not is_absent(outcome):
                _answer(asked, outcome)
                return
            answer = self._looked_for(asked, queues, before)
            if answer is not None:
                asked.connection.reply(asked.request, answer)

        looking = asked._replace(request=question(asked.request, queues))
        return self._asked_of(looking, last, answered)

    def _commit(self, asked: _Asked, queues: QueueMap) -> RemotingCommand | None:
        return self._written(asked, self._place_of_commit(asked, queues))

    def _place_of_commit(self, asked: _Asked, queues: QueueMap) -> places.SendPlace:
        return places.place_of_commit(
            queues, self._view.broker_name, asked.number, is_static=asked.is_static
        )

    def _written(self, asked: _Asked, place: places.SendPlace) -> RemotingCommand | None:
        if isinstance(place, places.Here):
            return self._served_here(asked, place.queue_id)
        if isinstance(place, places.There):
            return self._passed_on(asked, place)
        if isinstance(place, places.Wait):
            return self._wait(asked, _MOVING)
        return _refused(asked, _no_queue(asked) if place.is_unknown else _NOT_HERE)

    def _pull(self, asked: _Asked, queues: QueueMap) -> RemotingCommand | None:
        offset = to_int((asked.request.ext or {}).get("queueOffset", ""))
        led_to = self._led_to(asked, queues, offset)
        if led_to is not None:
            return self._served_here(asked, led_to)
        place = places.place_of_read(
            queues,
            self._view.broker_name,
            asked.number,
            offset,
            is_static=asked.is_static,
            is_gone=self._maps.is_gone,
        )
        if isinstance(place, places.Here):
            if asked.is_static:
                asked = self._never_led_back(asked, queues, place.queue_id, offset)
            return self._served_here(asked, place.queue_id)
        if isinstance(place, places.There):
            return self._passed_on(asked, place)
        if isinstance(place, places.Moved):
            at = place.next_offset
            ext = positions(at, at, at)
            return reply(asked.request, ResponseCode.PULL_OFFSET_MOVED, "the queue goes on", ext)
        return reply(asked.request, *_no_queue(asked))

    def _led_to(self, asked: _Asked, queues: QueueMap, offset: int) -> int | None:
        """The queue of this group whose handler tells a reader of its reset; None: go on.

        A reset is kept where the reader commits, and may lead to a segment of another group. A pull
        from there would not end it, and the reader be led back again where that segment ends.
        """
        group = (asked.request.ext or {}).get("consumerGroup", "")
        home = self._place_of_commit(asked, queues)
        if not isinstance(home, places.Here):
            return None
        due = due_reset(self._view.store.committed, group, asked.topic, home.queue_id)
        if due is None or due == offset:
            if due is not None:
                self._commit_here(group, asked.topic, home.queue_id, due)
            return None
        return home.queue_id

    def _served_as_asked(self, asked: _Asked, queues: QueueMap) -> RemotingCommand | None:
        """Another group's master asks: a send or commit only for what is taken here."""
        ext = asked.request.ext or {}
        asked_epoch = to_int(ext[PHYSICAL])
        is_write = asked.request.code in _WRITES and not is_question(asked.request)
        if (is_write and AS_POPPED not in ext) or AS_NEWEST in ext:
            number = number_of(asked.number) if asked.number >= 0 else -1
            queue = queues.queues[number] if 0 <= number < len(queues.queues) else None
            is_open = queue is not None and queue.open == Segment(
                self._view.broker_name, queue.open.start, asked.number
            )
            if is_open and queue is not None and queue.target:
                return self._wait(asked, _MOVING)
            if not is_open and queues.epoch < asked_epoch:
                self._maps.refresh()
                return self._wait(asked, _MOVING)
            if not is_open:
                return reply(asked.request, *_NOT_LEADER)
        elif queues.epoch < asked_epoch:
            # A segment that is not known here would seem to begin with 0.
            self._maps.refresh()
            return self._wait(asked, _UNKNOWN_YET)
        elif asked.request.code in _PULLS:
            offset = to_int(ext.get("queueOffset", ""))
            end = places.end_of(queues, self._view.broker_name, asked.number)
            if isinstance(end, places.Moved) and offset > end.next_offset:
                return reply(asked.request, *_NOT_LEADER)
            asked = self._never_led_back(asked, queues, asked.number, offset)
        return asked.handler(asked.connection, asked.request)

    def _never_led_back(
        self, asked: _Asked, queues: QueueMap, queue_id: int, offset: int
    ) -> _Asked:
        """The pull, placed again if it is from behind all that this group's queue has.

        While a queue is about to move, its master may hear later than others that it has moved.
        """
        if not isinstance(places.end_of(queues, self._view.broker_name, queue_id), places.Wait):
            return asked

        def answered(answer: RemotingCommand) -> None:
            is_behind = offset > to_int((answer.ext or {}).get("maxOffset", "0"))
            if answer.code != ResponseCode.PULL_OFFSET_MOVED or not is_behind:
                asked.connection.reply(asked.request, answer)
                return
            if self._maps.of(asked.topic) is not queues:
                self._place_again(asked)
                return
            refusal = self._wait(asked, _MOVING)
            if refusal is not None:
                asked.connection.reply(asked.request, refusal)

        listener = AnswerListener(asked.connection, answered)
        return asked._replace(connection=listener)  # type: ignore[arg-type]

    def _served_here(self, asked: _Asked, queue_id: int) -> RemotingCommand | None:
        if self._closed:
            return _refused(asked, _MOVING)
        # The very request: the connection knows it again when it is answered. Whoever is given it
        # next, should it not be, looks up the client's own number anew.
        asked.connection.reword(asked.request, _about(asked, queue_id).ext or {})
        return asked.handler(asked.connection, asked.request)

    # ---- what another group holds

    def _passed_on(
        self, asked: _Asked, place: places.There, done: Callable[[Outcome], None] | None = None
    ) -> RemotingCommand | None:
        command = _about(asked, place.queue_id)
        queues = self._maps.of(asked.topic)
        ext = {**(command.ext or {}), PHYSICAL: str(0 if queues is None else queues.epoch)}
        timeout_s = CALL_TIMEOUT_S
        if asked.request.code == RequestCode.QUERY_CONSUMER_OFFSET and _is_newest(queues, place):
            ext[AS_NEWEST] = "true"
        if asked.request.code in _PULLS:
            waits_ms = min(to_int(ext.get("suspendTimeoutMillis", "0")), PARKED_MAX_MS)
            ext["suspendTimeoutMillis"] = str(waits_ms)
            ext["sysFlag"] = str(to_int(ext.get("sysFlag", "0")) & ~1)  # commits nothing there
            timeout_s += waits_ms / 1000
        if PHYSICAL not in (command.ext or {}):  # not this group's own question
            ext.pop(PASSED_AGAIN, None)  # the client's own word
            if _may_be_stored(asked) and has_keys(asked.request):
                ext[PASSED_AGAIN] = "true"
        command = replace(command, ext=ext)
        self.passed_on += 1
        answered = done or partial(self._told, asked)
        self._masters.ask(place.group, command, answered, timeout_s)
        return None

    def _told(self, asked: _Asked, outcome: Outcome) -> None:
        """What another master said; where that one knows of a move that we do not, look again.

        Whose time is over is told to try again: Java's producers fail at "not leader".
        """
        if _code(outcome) != ResponseCode.NOT_LEADER_FOR_QUEUE:
            _answer(asked, outcome)
            return
        self._maps.refresh()
        self._look_later(asked.topic)
        answer = self._wait(asked, _MOVING)
        if answer is not None:
            _answer(asked, answer)

    def _ask(
        self,
        asked: _Asked,
        segment: Segment,
        change: Callable[[RemotingCommand], RemotingCommand] = lambda answer: answer,
    ) -> RemotingCommand | None:
        """Serve by the group that holds a segment; ``change`` is done to the answer."""

        def answered(outcome: Outcome) -> None:
            _answer(asked, change(outcome) if isinstance(outcome, RemotingCommand) else outcome)

        return self._asked_of(asked, segment, answered)

    def _search_back(
        self,
        asked: _Asked,
        segments: Sequence[Segment],
        is_it: Callable[[RemotingCommand, Segment], bool],
    ) -> RemotingCommand | None:
        """Ask segment after segment, the last one first, until one has the answer."""
        *before, last = segments
        is_first = not before

        def answered(outcome: Outcome) -> None:
            if _code(outcome) in (None, ResponseCode.NOT_LEADER_FOR_QUEUE):
                self._told(asked, outcome)
                return
            assert isinstance(outcome, RemotingCommand)
            if is_first or is_it(outcome, last):
                is_place = asked.request.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
                found = at_least(last.start, outcome) if is_place else outcome
                _answer(asked, for_clients(found))
                return
            answer = self._search_back(asked, before, is_it)
            if answer is not None:
                _answer(asked, answer)

        if is_first:
            return self._asked_of(asked, last, answered)
        ext = {**(asked.request.ext or {}), "setZeroIfNotFound": "false"}
        plain = asked._replace(request=replace(asked.request, ext=ext))
        return self._asked_of(plain, last, answered)

    def _asked_of(
        self, asked: _Asked, segment: Segment, answered: Callable[[Outcome], None]
    ) -> RemotingCommand | None:
        if segment.group != self._view.broker_name:
            return self._passed_on(asked, places.There(segment.group, segment.queue_id), answered)
        listener = AnswerListener(asked.connection, answered)
        answer = asked.handler(listener, _about(asked, segment.queue_id))  # type: ignore[arg-type]
        if answer is not None:
            answered(answer)
        return None

    # ---- waiting

    def _wait(self, asked: _Asked, refusal: Refusal) -> RemotingCommand | None:
        if self._closed or len(self._waiting) >= WAITING_MAX:
            self.refused += 1
            return _refused(asked, refusal)
        self.waited += 1
        self._numbers += 1
        loop = asyncio.get_running_loop()
        timer = loop.call_at(asked.until_s, self._give_up, self._numbers)
        self._waiting[self._numbers] = (asked, timer)
        return None

    def _look_later(self, topic: str) -> None:
        """One look for all that wait for ``topic``: each asks for one, and would do so at each."""
        if topic not in self._looks and not self._closed:
            loop = asyncio.get_running_loop()
            self._looks[topic] = loop.call_later(LOOK_S, self._look, topic)

    def _look(self, topic: str) -> None:
        self._looks.pop(topic, None)
        self.changed({topic})

    def _give_up(self, number: int) -> None:
        asked, timer = self._waiting.pop(number)
        timer.cancel()
        self.refused += 1
        asked.connection.reply(asked.request, _refused(asked, _MOVING))


def _keys(request: RemotingCommand) -> tuple[str, str]:
    return _SHORT if request.code in SENDS and request.code != _SEND else _LONG


def _about(asked: _Asked, queue_id: int) -> RemotingCommand:
    ext = {**(asked.request.ext or {}), asked.keys[1]: str(queue_id)}
    return replace(asked.request, ext=ext)


def _answer(asked: _Asked, outcome: Outcome) -> None:
    """Give the client what another master said."""
    if asked.request.is_oneway:
        return
    if isinstance(outcome, RemotingCommand):
        answer = replace(outcome, opaque=asked.request.opaque)
        if answer.code != ResponseCode.SUCCESS and _may_be_stored(asked):
            answer.ext = {**(answer.ext or {}), MAY_BE_STORED: "true"}
    else:
        remark = f"the broker group that has the queue did not answer: {outcome}"
        was_sent = not isinstance(outcome, Busy | ConnectError) and asked.request.code in SENDS
        ext = {MAY_BE_STORED: "true"} if was_sent or _may_be_stored(asked) else None
        answer = reply(asked.request, ResponseCode.SYSTEM_BUSY, remark, ext)
    asked.connection.reply(asked.request, answer)


def _code(outcome: Outcome) -> int | None:
    return outcome.code if isinstance(outcome, RemotingCommand) else None


def _is_newest(queues: QueueMap | None, place: places.There) -> bool:
    """Whether a queue of another group takes messages, or is about to move from there."""
    end = None if queues is None else places.end_of(queues, *place)
    return queues is not None and not isinstance(end, places.Moved)


def _may_be_stored(asked: _Asked) -> bool:
    """Whether a send came to an earlier master as well, which may have passed it on."""
    return asked.request.code in SENDS and may_have_come_before(asked.connection, asked.request)


def _refused(asked: _Asked, refusal: Refusal) -> RemotingCommand:
    """What a client is told that is to try again, or elsewhere."""
    ext = {MAY_BE_STORED: "true"} if _may_be_stored(asked) else None
    return reply(asked.request, *refusal, ext)


def _no_queue(asked: _Asked) -> Refusal:
    remark = f"queueId[{asked.number}] is illegal, topic[{asked.topic}] has no such queue"
    return Refusal(ResponseCode.INVALID_PARAMETER, remark)
