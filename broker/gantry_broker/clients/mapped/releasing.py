"""First segments of queues of which nothing is left here: the controllers are told, and drop them.

A queue that moves gets one segment more each time, and may have so many. A segment whose messages
retention has deleted is of no use, but for the offsets that consumer groups have committed in it:
those are handed on first (``handed_on``). Then the controllers are told (ReleaseSegments, 31016),
again and again until the map says that it has happened. Only the master of a segment's group says
so, of what its own log has: what nobody can ask about stays.
"""

import asyncio

from gantry_protocol.bodies.codec import encode_body
from gantry_protocol.bodies.queue_maps import LeastOffsets
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.queue_maps import ReleaseSegmentsRequestHeader
from gantry_protocol.process import log
from gantry_protocol.queue_map import QueueMap
from gantry_protocol.remoting.asking import Asker, Outcome

from gantry_broker.clients.claim import Claim
from gantry_broker.clients.mapped.handed_on import Closed, HandedOn
from gantry_broker.clients.mapped.maps import ClusterMaps
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import QueueOffsets, QueueQuestion, Refusal

ROUND_S = 30.0  # from the end of a round through all topics to the next one
STEP_S = 0.1  # between two steps of a round
CALL_TIMEOUT_S = 2.0
QUEUES_MAX = 1_000  # in one step: one question and one report

_log = log.get("queues")


class Releaser:
    """See the module; of one mastership.

    Args:
        view: the group, whose master this is.
        claim: by what it is.
        maps: of its cluster.
        peers: the controllers.
        handed_on: what was committed in segments.

    Attributes:
        released: reports that were answered well.
    """

    def __init__(
        self, view: GroupView, claim: Claim, maps: ClusterMaps, peers: Asker, handed_on: HandedOn
    ) -> None:
        self.released = 0
        self._view = view
        self._claim = claim
        self._maps = maps
        self._peers = peers
        self._handed_on = handed_on
        self._topics: dict[str, None] = {}  # with first segments here that are closed
        self._round: list[tuple[str, int]] = []  # topics, and how many such segments were looked at
        self._timer: asyncio.TimerHandle | None = None
        self._is_busy = False  # with a step
        self._closed = False

    def changed(self, topics: set[str]) -> None:
        """The maps of these topics changed."""
        for topic in sorted(topics):
            if closed_first(self._maps.of(topic), self._view.broker_name):
                self._topics[topic] = None
            else:
                self._topics.pop(topic, None)
        if self._topics and not self._is_busy and self._timer is None:
            self._look_in(ROUND_S)

    def close(self) -> None:
        """The mastership is over."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _look_in(self, wait_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _go_on(self) -> None:
        """The step is over."""
        self._is_busy = False
        if not self._closed and self._topics:
            self._look_in(STEP_S if self._round else ROUND_S)

    def _look(self) -> None:
        """Ask the store for what is left of the next segments."""
        self._timer = None
        self._round = self._round or [(topic, 0) for topic in self._topics]
        if not self._round:
            return
        topic, at = self._round.pop()
        found = closed_first(self._maps.of(topic), self._view.broker_name)
        if at + QUEUES_MAX < len(found):
            self._round.append((topic, at + QUEUES_MAX))
        some = found[at : at + QUEUES_MAX]
        self._is_busy = True
        questions = [QueueQuestion(topic, item.segment.queue_id) for item in some]
        self._view.store.offsets(questions, lambda answers: self._learned(topic, some, answers))

    def _learned(
        self, topic: str, asked: list[Closed], answers: list[QueueOffsets] | Refusal
    ) -> None:
        if self._closed or isinstance(answers, Refusal):
            self._go_on()
            return
        least = {
            item.number: (item.segment.queue_id, max(item.segment.start, queue.min_offset))
            for item, queue in zip(asked, answers, strict=True)
        }
        empty = [item for item in asked if least[item.number][1] >= item.end]
        if not empty:
            self._go_on()
            return

        def settled(numbers: set[int]) -> None:
            self._tell(topic, {number: least[number] for number in numbers})

        self._handed_on.settle(topic, empty, settled)

    def _tell(self, topic: str, least: dict[int, tuple[int, int]]) -> None:
        if self._closed or not least:
            self._go_on()
            return
        header = ReleaseSegmentsRequestHeader(
            cluster_name=self._view.cluster,
            broker_name=self._view.broker_name,
            broker_id=self._claim.broker_id,
            master_epoch=self._claim.epoch,
            incarnation=self._claim.incarnation,
            topic=topic,
        )
        command = request(
            RequestCode.GANTRY_RELEASE_SEGMENTS, to_ext(header), encode_body(LeastOffsets(least))
        )
        self._peers.ask(
            command, lambda outcome: self._told(topic, len(least), outcome), CALL_TIMEOUT_S
        )

    def _told(self, topic: str, count: int, outcome: Outcome) -> None:
        if isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.SUCCESS:
            self.released += 1
            _log.info("segments were released", topic=topic, queues=count)
        elif isinstance(outcome, RemotingCommand):
            _log.warning("segments were not released yet", topic=topic, reason=outcome.remark)
        self._go_on()


def closed_first(queues: QueueMap | None, group: str) -> list[Closed]:
    """The first segments of queues, as far as ``group`` holds them and takes nothing there."""
    if queues is None:
        return []
    return [
        Closed(number, queue.segments[0], queue.segments[1].start)
        for number, queue in enumerate(queues.queues)
        if len(queue.segments) > 1 and queue.segments[0].group == group
    ]
