"""Queue maps as one broker group's master needs them, begun and ended with its mastership."""

from collections.abc import Callable

from gantry_protocol.bodies import MessageQueue
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.headers.client import SendMessageRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.queue_map import MAPPED, QueueMap, Segment, number_of
from gantry_protocol.records import MessageRecord
from gantry_protocol.records.layout import HOST_FAMILIES
from gantry_protocol.remoting.asking import Asker, Outcome

from gantry_broker.clients.claim import Claim
from gantry_broker.clients.mapped.handed_on import Commit, HandedOn
from gantry_broker.clients.mapped.maps import ClusterMaps
from gantry_broker.clients.mapped.masters import OtherMasters
from gantry_broker.clients.mapped.places import PHYSICAL, came_here, open_here, segments_seen
from gantry_broker.clients.mapped.releasing import Releaser
from gantry_broker.clients.mapped.sealing import Sealer
from gantry_broker.clients.view import GroupView

CALL_TIMEOUT_S = 2.0
_SENDER = "GANTRY_SYS_DELAY"
_NO_TOPIC = "TBW102"


class QueueBook:
    """The queue maps as one broker group sees them.

    Args:
        view: the group.
        maps: of its cluster, shared by the groups of a process.
        masters: of its other groups, likewise.
        peers: the controllers.

    Attributes:
        handed_on: what was committed in closed segments.
    """

    def __init__(
        self, view: GroupView, maps: ClusterMaps, masters: OtherMasters, peers: Asker
    ) -> None:
        self.maps = maps
        self.masters = masters
        self.handed_on = HandedOn(view, maps, masters, self._commit_here)
        self._view = view
        self._peers = peers
        self._sealer: Sealer | None = None
        self._listener: Callable[[set[str]], None] | None = None
        self._commit: Commit | None = None
        self._releaser: Releaser | None = None

    def began(self, claim: Claim) -> None:
        """This broker is the serving master now."""
        self.end()
        self._sealer = Sealer(self._view, claim, self.maps, self._peers)
        self._releaser = Releaser(self._view, claim, self.maps, self._peers, self.handed_on)
        self.maps.join(self._view.broker_name, self._changed)

    def end(self) -> None:
        """It is not any more."""
        self.maps.leave(self._view.broker_name)
        if self._sealer is not None:
            self._sealer.close()
        if self._releaser is not None:
            self._releaser.close()
        self._sealer = self._releaser = self._listener = self._commit = None

    def serve(self, listener: Callable[[set[str]], None], commit: Commit) -> None:
        """Serve clients, in this mastership.

        Args:
            listener: is told of topics whose maps changed.
            commit: remembers a consumer group's position.
        """
        self._listener, self._commit = listener, commit

    def of(self, topic: str) -> QueueMap | None:
        """The map of ``topic``."""
        return self.maps.of(topic)

    def first_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset with which a queue of this group begins; not 0 where it moved to."""
        return self.maps.first_offset(topic, queue_id)

    def may_be_mapped(self, topic: str) -> bool:
        """Whether a topic has a map, or may have one that was not read yet."""
        return self.of(topic) is not None or not self.maps.is_known_to(self._view.broker_name)

    def ask_controllers(self, command: RemotingCommand, done: Callable[[Outcome], None]) -> None:
        """Pass a change of maps on; ``done`` comes once."""
        self._peers.ask(command, done, CALL_TIMEOUT_S)

    def own(self, topic: str, number: int) -> int:
        """The queue of this group that holds its newest segment of a queue."""
        queues = self.maps.of(topic)
        if queues is None:
            return number
        seen = segments_seen(queues, self._view.broker_name, number, is_static=False)
        return seen[-1].queue_id if seen else number

    def later(self, topic: str, queue_id: int) -> tuple[Segment, ...]:
        """The segments of other groups behind the one that this group holds as ``queue_id``."""
        queues, number = self.maps.of(topic), number_of(queue_id)
        if queues is None or number >= len(queues.queues):
            return ()
        segments = queues.queues[number].segments
        here = [
            place
            for place, segment in enumerate(segments)
            if segment.group == self._view.broker_name and segment.queue_id == queue_id
        ]
        behind = segments[here[0] + 1 :] if here else ()
        return tuple(item for item in behind if item.group not in ("", self._view.broker_name))

    def epoch_of(self, topic: str) -> int:
        """The epoch of the map of ``topic`` that is known here; 0: none is."""
        queues = self.maps.of(topic)
        return 0 if queues is None else queues.epoch

    def takes(self, topic: str, queue_id: int) -> bool:
        """Whether this group takes messages for its queue ``queue_id`` of a mapped topic now."""
        queues = self.maps.of(topic)
        number = number_of(queue_id)
        if (
            queues is None
            or not self.maps.is_known_to(self._view.broker_name)
            or number >= len(queues.queues)
        ):
            return False
        queue = queues.queues[number]
        is_here = queue.open.group == self._view.broker_name
        return is_here and queue.open.queue_id == queue_id and not queue.target

    def deliverable(self, topic: str, queue_id: int) -> int | None:
        """The queue of this group for a message that waited here; None: it has none now.

        Its own queue may have moved meanwhile. Where it waited nobody was promised an order.
        """
        config = self._view.store.topics.lookup(topic)
        if config is None or MAPPED not in config.attributes:
            return queue_id
        queues = self.maps.of(topic)
        if queues is None or not self.maps.is_known_to(self._view.broker_name):
            return None
        if self.takes(topic, queue_id):
            return queue_id
        here = open_here(queues, self._view.broker_name)
        if not here:
            return None
        return queues.queues[here[number_of(queue_id) % len(here)]].open.queue_id

    def elsewhere(self, topic: str, queue_id: int) -> Segment | None:
        """The place of a message that waited here and is not ``deliverable``, if that is known."""
        queues, number = self.maps.of(topic), number_of(queue_id)
        if (
            queues is None
            or not self.maps.is_known_to(self._view.broker_name)
            or number >= len(queues.queues)
        ):
            return None
        place = queues.queues[number].open
        return None if place.group == self._view.broker_name else place

    def pass_on(
        self, message: MessageRecord, place: Segment, done: Callable[[Outcome], None]
    ) -> None:
        """Have another group's master store a message that waited here; ``done`` comes once."""
        queues = self.maps.of(message.topic)
        header = SendMessageRequestHeader(
            producer_group=_SENDER,
            topic=message.topic,
            default_topic=_NO_TOPIC,
            default_topic_queue_nums=0,
            queue_id=place.queue_id,
            sys_flag=message.sys_flag & ~HOST_FAMILIES,  # its hosts are not sent along
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=message.properties,
            reconsume_times=message.reconsume_times,
        )
        ext = {**to_ext(header), PHYSICAL: str(0 if queues is None else queues.epoch)}
        command = request(RequestCode.SEND_MESSAGE, ext, message.body)
        self.masters.ask(place.group, command, done, CALL_TIMEOUT_S)

    def _commit_here(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        return self._commit is not None and self._commit(group, topic, queue_id, offset)

    def _learn_owners(self, topics: set[str]) -> None:
        """Have the owners of queues read that have come here."""
        group = self._view.broker_name
        known = ((topic, self.maps.of(topic)) for topic in topics)
        came = [
            MessageQueue(group, queue_id, topic)
            for topic, queues in known
            if queues is not None
            for queue_id in came_here(queues, group)
        ]
        self._view.consumers.locks.learn(came)

    def _changed(self, topics: set[str]) -> None:
        if self._sealer is not None and self.maps.is_known_to(self._view.broker_name):
            self._sealer.changed(topics)
            self._learn_owners(topics)
        if self._releaser is not None and self.maps.is_known_to(self._view.broker_name):
            self._releaser.changed(topics)
        if self._listener is not None:
            self._listener(topics)
