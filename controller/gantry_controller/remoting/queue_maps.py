"""Queue maps at the controller: read by brokers, who wait for news, and changed (ADR 0072)."""

from collections.abc import Callable
from functools import partial

from gantry_protocol.bodies import decode_request, encode_body
from gantry_protocol.bodies.queue_maps import LeastOffsets, QueueEnds, QueueMaps, QueuePlaces
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers import from_ext
from gantry_protocol.headers.queue_maps import (
    WAIT_MAX_MS,
    GetQueueMapsRequestHeader,
    MapQueuesRequestHeader,
    ReleaseSegmentsRequestHeader,
    SealQueuesRequestHeader,
)
from gantry_protocol.types import Index

from gantry_controller.liveness.watchman import NOT_HEARD
from gantry_controller.metadata.candidates import Serves
from gantry_controller.metadata.events import (
    DeleteTopic,
    Event,
    MapQueues,
    ReleaseSegments,
    RemoveGroup,
    SealQueues,
)
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.queue_maps import places_for
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import MetadataState
from gantry_controller.remoting.dispatcher import Dispatcher, Exchange, Serve
from gantry_controller.remoting.long_polls import LongPolls

QUEUES_TOLD_MAX = 20_000  # in one answer, about 1 MB; and one topic
EPOCH_MAX = 2**53
"""The highest epoch that a tool may wish for; they send the time in ms. Each change adds one, and
none may come to what an Int64 cannot say, or a reader of JSON numbers takes for another."""
MADE_MAX = 4  # answers that are kept until the next event; mostly all know the same
_CHANGE_MAPS = (MapQueues, SealQueues, ReleaseSegments, RemoveGroup)
_NEW_EVENTS = "Not all controllers are of this version yet: finish their roll-out first"


class QueueMapRequests:
    """Handlers of the requests about queue maps on one node.

    Args:
        dispatcher: the way into the log and back.
        machine: the applied state.
        all_know: whether no controller is of a version that would stop at the events; None while
            that is not known.
        serves: whether a group has a living master.

    Attributes:
        polls: questions that wait for news.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        machine: MetadataStateMachine,
        all_know: Callable[[], bool | None],
        serves: Serves,
    ) -> None:
        self.polls = LongPolls(dispatcher)
        self._dispatcher = dispatcher
        self._machine = machine
        self._all_know = all_know
        self._serves = serves
        self._made: dict[tuple[str, Index, Index], tuple[bool, bytes]] = {}  # by what is known
        self._made_at = Index(-1)
        machine.add_listener(self._applied)
        machine.add_restore_listener(self.polls.wake_all)

    def handlers(self) -> dict[RequestCode, Serve]:
        """The handlers of this module's requests."""
        return {
            RequestCode.GANTRY_GET_QUEUE_MAPS: self._maps,
            RequestCode.GANTRY_MAP_QUEUES: self._map,
            RequestCode.GANTRY_SEAL_QUEUES: self._seal,
            RequestCode.GANTRY_RELEASE_SEGMENTS: self._release,
        }

    def _maps(self, exchange: Exchange) -> None:
        header = from_ext(GetQueueMapsRequestHeader, exchange.request.ext)

        known = (header.cluster_name, Index(header.known_index), Index(header.known_ended))

        def news() -> RemotingCommand | None:
            has_news, body = self._told(*known)
            return reply(exchange.request, body=body) if has_news else None

        def nothing() -> RemotingCommand:
            return reply(exchange.request, body=self._told(*known)[1])

        wait_s = min(header.wait_ms, WAIT_MAX_MS) / 1000
        self.polls.serve(exchange, header.cluster_name, wait_s, news, nothing)

    def _told(self, cluster: str, known: Index, ended: Index) -> tuple[bool, bytes]:
        """Whether there is news, and the answer; made once for all who know as much and wait."""
        key = (cluster, known, ended)
        if self._machine.state.index != self._made_at:
            self._made.clear()
            self._made_at = self._machine.state.index
        if key not in self._made:
            told = queue_maps(self._machine.state, cluster, known, ended)
            if len(self._made) >= MADE_MAX:
                self._made.clear()
            self._made[key] = (bool(told.maps) or told.is_all, encode_body(told))
        return self._made[key]

    def _map(self, exchange: Exchange) -> RemotingCommand | None:
        if not self._all_know():
            return reply(exchange.request, ResponseCode.SYSTEM_BUSY, _NEW_EVENTS)
        header = from_ext(MapQueuesRequestHeader, exchange.request.ext)
        if header.epoch > EPOCH_MAX:
            remark = f"The epoch of a queue map is at most {EPOCH_MAX}, not {header.epoch}."
            return reply(exchange.request, ResponseCode.INVALID_PARAMETER, remark)
        wish = decode_request(QueuePlaces, exchange.request.body).places
        event = MapQueues(
            cluster=header.cluster_name,
            topic=header.topic,
            queues=header.queues,
            places=places_for(
                self._machine.state,
                header.cluster_name,
                header.topic,
                header.queues,
                wish,
                self._serves,
            ),
            epoch=header.epoch,
        )
        self._dispatcher.write(exchange, event, partial(_answered, exchange.request))
        return None

    def _seal(self, exchange: Exchange) -> RemotingCommand | None:
        header = from_ext(SealQueuesRequestHeader, exchange.request.ext)
        all_know = self._all_know()
        if all_know is None:  # without their owners, queues that move would have two
            return reply(exchange.request, ResponseCode.SYSTEM_BUSY, NOT_HEARD)
        event = SealQueues(
            cluster=header.cluster_name,
            name=header.broker_name,
            broker_id=header.broker_id,
            master_epoch=header.master_epoch,
            incarnation=header.incarnation,
            topic=header.topic,
            ends=tuple(sorted(decode_request(QueueEnds, exchange.request.body).ends.items())),
            owners=all_know,
            map_epoch=header.map_epoch if all_know else 0,
        )
        self._dispatcher.write(exchange, event, partial(_answered, exchange.request))
        return None

    def _release(self, exchange: Exchange) -> None:
        header = from_ext(ReleaseSegmentsRequestHeader, exchange.request.ext)
        least = decode_request(LeastOffsets, exchange.request.body).least
        event = ReleaseSegments(
            cluster=header.cluster_name,
            name=header.broker_name,
            broker_id=header.broker_id,
            master_epoch=header.master_epoch,
            incarnation=header.incarnation,
            topic=header.topic,
            least=tuple((number, *found) for number, found in sorted(least.items())),
        )
        self._dispatcher.write(exchange, event, partial(_answered, exchange.request))

    def _applied(self, event: Event, result: Result) -> None:
        if isinstance(event, _CHANGE_MAPS) and result.changed:
            self.polls.wake(event.cluster)
        elif isinstance(event, DeleteTopic) and result.changed:
            self.polls.wake_all()


def queue_maps(state: MetadataState, cluster: str, known: Index, ended: Index) -> QueueMaps:
    """The news for somebody who knows all up to ``known``, and of deletions up to ``ended``."""
    last_ended = state.ended_maps(cluster).index
    is_all = ended < last_ended
    news = list(state.maps_of(cluster).since(Index(0) if is_all else known))
    told = {}
    index, queues = Index(0) if is_all else known, 0
    while news and queues < QUEUES_TOLD_MAX:
        topic, item = news.pop()
        told[topic] = item
        index, queues = item.changed, queues + len(item.queues)
    return QueueMaps(
        index=index,
        ended=max(ended, last_ended),
        is_all=is_all,
        more=bool(news),
        maps=told,
        masters={
            group.name: "" if group.master is None else group.master.address
            for group in state.serving_by_name(cluster)
        },
    )


def _answered(to: RemotingCommand, result: Result) -> RemotingCommand:
    return reply(to, result.code, result.remark)
