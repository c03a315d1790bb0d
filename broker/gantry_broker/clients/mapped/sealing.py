"""Ends of segments: a master gives away a queue that the map says should move.

While a queue has a target, nobody may add to it here (``places``, ``deliverable``). Once everything
that was added is confirmed, its end is known for good, and the controllers are told (SealQueues,
31015): in that event the next segment begins. Repeated until the map says that it has happened, or
that the move was taken back. A successor of this master does the same anew; what this one had not
confirmed is not in the end that counts, since only the present master's word does.

A group that was gone, and whose queues went on elsewhere behind a gap, says the same of its former
segments once it is back (``given_up``). Until then its readers would wait there for ever.
"""

import asyncio

from gantry_protocol.bodies.codec import encode_body
from gantry_protocol.bodies.queue_maps import QueueEnds
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.queue_maps import SealQueuesRequestHeader
from gantry_protocol.process import log
from gantry_protocol.queue_map import QueueMap, Segment, given_up
from gantry_protocol.remoting.asking import Asker, Outcome

from gantry_broker.clients.claim import Claim
from gantry_broker.clients.mapped.maps import ClusterMaps
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import QueueOffsets, QueueQuestion, Refusal

LOOK_S = 0.005  # between two looks whether all is confirmed
RETRY_S = 0.2  # before a topic whose map has not changed is told again
UNDER_WAY_MAX = 8  # topics: a group that is drained may have a thousand to give away at once
CALL_TIMEOUT_S = 2.0
QUEUES_MAX = 1_000  # in one question and one report

_log = log.get("queues")


class Sealer:
    """See the module.

    Args:
        view: the group, whose master this is.
        claim: by what it is.
        maps: of its cluster.
        peers: the controllers.

    Attributes:
        sealed: segments that were ended, by this mastership.
    """

    def __init__(self, view: GroupView, claim: Claim, maps: ClusterMaps, peers: Asker) -> None:
        self.sealed = 0
        self._view = view
        self._claim = claim
        self._maps = maps
        self._peers = peers
        self._due: dict[str, None] = {}  # topics that are to be looked at, the first one first
        self._under_way: set[str] = set()  # at most ``UNDER_WAY_MAX``
        self._timers: dict[str, asyncio.TimerHandle] = {}  # of those that are due again later
        self._closed = False

    def changed(self, topics: set[str]) -> None:
        """The maps of these topics changed."""
        for topic in sorted(topics):
            timer = self._timers.pop(topic, None)
            if timer is not None:
                timer.cancel()
            if not leaving(self._maps.of(topic), self._view.broker_name):
                self._due.pop(topic, None)
            elif topic not in self._under_way:
                self._due[topic] = None
        self._go_on()

    def close(self) -> None:
        """The mastership is over."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()

    def _go_on(self) -> None:
        while self._due and len(self._under_way) < UNDER_WAY_MAX and not self._closed:
            topic = next(iter(self._due))
            del self._due[topic]
            self._look(topic)

    def _over(self, topic: str, again_s: float) -> None:
        """The topic is due again after so long; meanwhile it is the others' turn."""
        self._under_way.discard(topic)
        if not self._closed:
            loop = asyncio.get_running_loop()
            self._timers[topic] = loop.call_later(again_s, self._again, topic)
            loop.call_soon(self._go_on)  # what is answered at once leads to no recursion

    def _again(self, topic: str) -> None:
        self._timers.pop(topic, None)
        self._due[topic] = None
        self._go_on()

    def _look(self, topic: str) -> None:
        """Ask how far the queues of a topic have come."""
        numbers = leaving(self._maps.of(topic), self._view.broker_name)[:QUEUES_MAX]
        if not numbers:
            return
        queues = self._maps.of(topic)
        assert queues is not None
        self._under_way.add(topic)
        ending = {number: ends_now(queues, number, self._view.broker_name) for number in numbers}
        starts = {number: segment.start for number, segment in ending.items()}
        questions = [QueueQuestion(topic, segment.queue_id) for segment in ending.values()]
        self._view.store.offsets(
            questions, lambda found: self._learned(topic, queues.epoch, starts, found)
        )

    def _learned(
        self,
        topic: str,
        map_epoch: int,
        starts: dict[int, int],
        found: list[QueueOffsets] | Refusal,
    ) -> None:
        if self._closed:
            return
        ends: dict[int, int] = {}
        if not isinstance(found, Refusal):
            for (number, start), queue in zip(starts.items(), found, strict=True):
                end = max(start, queue.max_offset)  # no message may have come to it
                if queue.next_offset <= end:
                    ends[number] = end
        if not ends:
            self._over(topic, LOOK_S)
            return
        header = SealQueuesRequestHeader(
            cluster_name=self._view.cluster,
            broker_name=self._view.broker_name,
            broker_id=self._claim.broker_id,
            master_epoch=self._claim.epoch,
            incarnation=self._claim.incarnation,
            topic=topic,
            map_epoch=map_epoch,
        )
        command = request(
            RequestCode.GANTRY_SEAL_QUEUES, to_ext(header), encode_body(QueueEnds(ends))
        )
        self._peers.ask(command, lambda outcome: self._told(topic, outcome), CALL_TIMEOUT_S)

    def _told(self, topic: str, outcome: Outcome) -> None:
        if isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.SUCCESS:
            self.sealed += 1
            self._maps.refresh()
            _log.info("queues were given away", topic=topic, group=self._view.broker_name)
        elif isinstance(outcome, RemotingCommand):
            self._maps.refresh()  # the map may have changed
            _log.warning("queues were not given away yet", topic=topic, reason=outcome.remark)
        # The news of it ends the wish; until then it is repeated, which changes nothing.
        self._over(topic, RETRY_S)


def leaving(queues: QueueMap | None, group: str) -> list[int]:
    """The numbers of the queues of which ``group`` is to say where a segment ends."""
    if queues is None:
        return []
    return [
        number
        for number, queue in enumerate(queues.queues)
        if (queue.target and queue.open.group == group) or given_up(queue, group) is not None
    ]


def ends_now(queues: QueueMap, number: int, group: str) -> Segment:
    """The segment that is to end: one that was given up while the group was gone comes first."""
    queue = queues.queues[number]
    return given_up(queue, group) or queue.open
