"""Pulls that a process answers beside the master, by the tables of a store that it has.

Such a process passes its clients on to the master, where they have their sessions. Of what they say
it answers the pulls that need nothing but the store: no offset that was reset, no settings that
were not read yet, nothing that would be refused, since the master says why.

Rule protected: what a consumer says of its position in a pull is passed on to the master, at most
once in ``COMMIT_GAP_S`` for each queue: clients write their offsets every 5 s besides.
"""

import time
from collections.abc import Callable, Collection
from functools import partial

from gantry_protocol.bodies import ConsumerData, HeartbeatData, decode_body
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import GantryError
from gantry_protocol.frame import FrameDecoder, encode
from gantry_protocol.headers.client import (
    PullMessageRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.queue_map import MAPPED
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.glance import Glimpse
from gantry_protocol.types import Offset

from gantry_broker.clients.consumers import Consumers
from gantry_broker.clients.pull import COMMIT_OFFSET, check_topic, subscription_of
from gantry_broker.clients.pull_reads import PullReader
from gantry_broker.clients.routing import Pipe
from gantry_broker.clients.sessions import ConsumerGroup
from gantry_broker.store.contract import QueueKey, RecordStore, Refusal
from gantry_broker.store.tables.names import OFFSETS_TOPIC
from gantry_broker.store.tables.resets import due_reset

COMMIT_GAP_S = 1.0
PLACES_MAX = 4_096  # queues of one client whose positions are remembered

CLIENT = "client"  # in a connection's attrs: what is known of it here

Place = tuple[str, str, int]  # consumer group, topic, queue id
Serve = Callable[[], RemotingCommand | None]


class PullingClient:
    """The part of a client's sessions that its pulls need.

    Attributes:
        passed: by place: the position that was passed on last, and when.
    """

    def __init__(self) -> None:
        """It has said nothing."""
        self.passed: dict[Place, tuple[int, float]] = {}
        self._heartbeat: bytes | None = None
        self._groups: dict[str, ConsumerData] = {}

    def group(self, name: str, heartbeat: bytes | None) -> ConsumerGroup | None:
        """A consumer group as the client's last heartbeat has it; None if it is not in that."""
        if heartbeat is not self._heartbeat:
            self._heartbeat = heartbeat
            self._groups = {} if heartbeat is None else _groups(heartbeat)
        data = self._groups.get(name)
        if data is None:
            return None
        group = ConsumerGroup(name)
        group.learn(data)
        return group


class PullAsides:
    """See the module.

    Args:
        store: of the group.
        settings: of consumer groups.
        reader: reads and waits.
    """

    def __init__(self, store: RecordStore, settings: Consumers, reader: PullReader) -> None:
        """Nothing is under way."""
        self._store = store
        self._settings = settings
        self._reader = reader
        self._unsubscribe = store.subscribe(self._offsets_moved, {OFFSETS_TOPIC})

    @property
    def parked(self) -> int:
        """Pulls that wait for a record."""
        return len(self._reader.parking)

    def close(self) -> None:
        """Answer nothing more."""
        self._unsubscribe()
        self._reader.close()

    def forget(self, conn: Connection) -> None:
        """A client left."""
        self._reader.parking.drop(conn)

    def pull(
        self, pipe: Pipe, command: RemotingCommand, header: PullMessageRequestHeader
    ) -> Serve | None:
        """The answering of a pull; None where it is the master's."""
        topic = self._store.topics.lookup(header.topic)
        if not self._settings.is_current or check_topic(header, topic) is not None:
            return None
        if topic is None or MAPPED in topic.attributes:  # its queues may be elsewhere
            return None
        name = header.consumer_group
        config = self._settings.config(name)
        attrs = pipe.connection.attrs
        client: PullingClient = attrs.get(CLIENT) or attrs.setdefault(CLIENT, PullingClient())
        found = subscription_of(header, client.group(name, pipe.heartbeat), config)
        place = (name, header.topic, header.queue_id)
        if (
            not config.consume_enable
            or isinstance(found, Refusal)
            or due_reset(self._store.committed, *place) is not None
        ):
            return None
        if header.sys_flag & COMMIT_OFFSET and header.commit_offset >= 0:
            self._pass_on(pipe, client, place, header.commit_offset)
        return partial(self._reader.begin, pipe.connection, command, header, found)

    @staticmethod
    def _pass_on(pipe: Pipe, client: PullingClient, place: Place, offset: int) -> None:
        """Tell the master a consumer's position."""
        now_s = time.monotonic()
        known, at_s = client.passed.get(place, (-1, -COMMIT_GAP_S))
        if offset == known or now_s - at_s < COMMIT_GAP_S:
            return
        if len(client.passed) >= PLACES_MAX:
            client.passed.clear()
        client.passed[place] = (offset, now_s)
        header = UpdateConsumerOffsetRequestHeader(*place, offset)
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        pipe.say(encode(request(code, to_ext(header), oneway=True)))

    def _offsets_moved(self, confirm: Offset, queues: Collection[QueueKey]) -> None:
        """Send pulls whose offset was reset back to ask again; the master tells them where."""
        for pull in self._reader.parking.all():
            group = (pull.request.ext or {}).get("consumerGroup", "")
            if due_reset(self._store.committed, group, *pull.key) is not None:
                self._reader.send_back(pull, "the offset was reset")


def take(pipe: Pipe, glimpse: Glimpse, find: Callable[[RemotingCommand], Serve | None]) -> bool:
    """Whether ``find`` says what answers a request, which is done then; if not, nothing is done."""
    try:
        (command,) = FrameDecoder(expect_preamble=False).feed(glimpse.frame)
        serve = find(command)
    except GantryError:
        return False  # its master says what is wrong with it
    if serve is None:
        return False
    conn = pipe.connection
    conn.entrust(command)
    try:
        refusal = serve()
    except GantryError as error:  # as the server answers what a handler raises
        refusal = reply(command, error.answer_code, str(error))
    if refusal is not None:
        conn.reply(command, refusal)
    return True


def pull_header(command: RemotingCommand) -> PullMessageRequestHeader:
    """The header of a pull.

    Raises:
        HeaderError: it does not read.
    """
    return from_ext(PullMessageRequestHeader, command.ext)


def _groups(frame: bytes) -> dict[str, ConsumerData]:
    """The consumer groups of a heartbeat; none of one that does not read."""
    try:
        (command,) = FrameDecoder(expect_preamble=False).feed(frame)
        data = decode_body(HeartbeatData, command.body)
    except GantryError:
        return {}
    return {item.group_name: item for item in data.consumer_data_set}
