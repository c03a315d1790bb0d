"""Pulls that this member answers while another one is the master.

Its clients are passed on to the master, as those of any replica. Of what they say it answers pulls
of topics with several readers, from its own log and tables, as far as ``clients.core.readers``
allows; everything else goes on its way. A pull that finds nothing waits here until confirm moves.

Rules protected:

* Only what is confirmed is read (H9): nothing else is derived on a replica.
* A replica moves nobody's offset. What it cannot read is the master's to judge: the consumer is
  told to ask it, from the same place.
* Whoever waits here is sent to the master once this member has been out of touch for
  ``GRACE_S``; at once if it leaves. A failover is shorter than that.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gantry_protocol.bodies.route import MASTER_ID
from gantry_protocol.command import RemotingCommand
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.glance import Glimpse
from gantry_protocol.remoting.unanswered import PULLS
from gantry_protocol.settings.readers import readers_of

from gantry_broker.clients.core.readers import Held, Leases, Place, Ties, may_answer
from gantry_broker.clients.parking import ParkedPull
from gantry_broker.clients.pull_asides import PullAsides, Serve, pull_header, take
from gantry_broker.clients.pull_reads import PullReader, may_wait
from gantry_broker.clients.routing import Pipe
from gantry_broker.clients.traffic import Traffic
from gantry_broker.member.local_store import LocalStore
from gantry_broker.store.contract import (
    Confirmed,
    GetResult,
    GetStatus,
    QueueRead,
    Refusal,
    WasRead,
)

if TYPE_CHECKING:
    from gantry_broker.member.group import ReplicationGroup

GRACE_S = 1.0
LEASES = "leases"  # in a connection's attrs: the queues that its client reads here

_NOT_HERE = "this replica does not have it, the master may"
_OUT_OF_TOUCH = "this replica is out of touch or leaves, ask the master"
_MINE = (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE, GetStatus.OFFSET_OVERFLOW_ONE)


class _OwnRecords:
    """The reads of a store, without any word about what is not there."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store

    def read(self, wanted: QueueRead, done: WasRead) -> None:
        """Records, or nothing yet, or ``OFFSET_IN_TIER``: ask again, elsewhere."""
        self._store.read(wanted, partial(self._was_read, wanted, done))

    def subscribe(self, confirmed: Confirmed) -> Callable[[], None]:
        """Tell of each rise of confirm; returns how to end it."""
        return self._store.subscribe(confirmed)

    @staticmethod
    def _was_read(wanted: QueueRead, done: WasRead, result: GetResult | Refusal) -> None:
        if isinstance(result, GetResult):
            is_empty = result.status is GetStatus.NO_MESSAGE_IN_QUEUE and wanted.offset == 0
            if is_empty or result.status in _MINE:
                done(result)
                return
        end = max(wanted.offset, 0)
        done(GetResult(GetStatus.OFFSET_IN_TIER, wanted.offset, 0, end, remark=_NOT_HERE))


class ReplicaReads:
    """See the module.

    Args:
        group: whose member this is.
        store: of the group, here.

    Attributes:
        served: pulls that were taken, ever.
        sent_back: pulls that waited here and were sent to the master, ever.
    """

    def __init__(self, group: "ReplicationGroup", store: LocalStore) -> None:
        """Nothing is answered before ``look`` finds this member fit for it."""
        self.served = 0
        self.sent_back = 0
        self._read_bytes = 0  # of readers that are closed, and of fronts
        self._group = group
        self._store = store
        self._reader: PullReader | None = None
        self._pulls: PullAsides | None = None
        self._fresh_s = 0.0  # when this member was in touch last

    @property
    def read_bytes(self) -> int:
        """Bytes of records that were read by pulls here, ever."""
        return self._read_bytes + (0 if self._reader is None else self._reader.read_bytes)

    @property
    def parked(self) -> int:
        """Pulls that wait for a record."""
        return 0 if self._pulls is None else self._pulls.parked

    @property
    def is_open(self) -> bool:
        """Whether pulls may be answered here."""
        return self._pulls is not None

    @property
    def is_offered(self) -> bool:
        """Whether fronts may read here now."""
        return self._pulls is not None and self.ties.is_fresh

    @property
    def topics_version(self) -> int:
        """The version of the topics that are known here."""
        return self._store.topics.version

    def read_for_front(self, wanted: QueueRead, done: WasRead) -> bool:
        """Read records that are here; False where a front is to ask the master.

        Nobody waits here for a front: it knows from the master what is new.
        """
        topic, key = self._store.topics.lookup(wanted.topic), (wanted.topic, wanted.queue_id)
        messages = self._store.messages
        if topic is None or not self.is_offered:
            return False
        held = Held(messages.local_min_offset(*key), messages.max_offset(*key))
        readers = readers_of(topic.attributes).of(wanted.queue_id)
        if not may_answer(readers, held, wanted.offset, can_wait=False):
            return False
        self._store.read(wanted, partial(self._was_read_for_front, done))
        return True

    def _was_read_for_front(self, done: WasRead, result: GetResult | Refusal) -> None:
        if isinstance(result, GetResult):
            self._read_bytes += len(result.body)
        done(result)

    @property
    def ties(self) -> Ties:
        """The ties of this member to its group; a master has none."""
        core, store = self._group.core, self._store.messages
        following = None if core is None or not core.streaming else core.following
        if core is None or following is None:
            return Ties(
                is_counted=False, is_sound=True, master_silent_ms=0, controllers_silent_ms=0
            )
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        return Ties(
            is_counted=following.in_sync is True,
            is_sound=store.in_the_way is None and store.is_whole and not store.lost,
            master_silent_ms=following.silent_ms(now_ms),
            controllers_silent_ms=core.controllers_silent_ms(now_ms),
        )

    def look(self) -> None:
        """Begin to answer pulls, or end it, by what this member is now."""
        group = self._group
        consumers = group.known_consumers
        now_s = asyncio.get_running_loop().time()
        is_wanted = (
            self._store.topics.has_readers
            and not group.serving
            and not group.writes.leaving
            and consumers is not None
        )
        is_fresh = is_wanted and self.ties.is_fresh
        if is_fresh:
            self._fresh_s = now_s
        if consumers is not None and is_fresh and self._pulls is None:
            self._reader = PullReader(
                _OwnRecords(self._store), Traffic(now_s), suggest=self._suggest
            )
            self._pulls = PullAsides(self._store, consumers, self._reader)
        elif self._pulls is not None and (not is_wanted or now_s - self._fresh_s > GRACE_S):
            self.close()

    def close(self) -> None:
        """Answer nothing more; whoever waits here is sent to the master."""
        pulls, reader = self._pulls, self._reader
        if pulls is None or reader is None:
            return
        self._pulls = self._reader = None
        for pull in reader.parking.all():
            self.sent_back += 1
            reader.send_back(pull, _OUT_OF_TOUCH)
        self._read_bytes += reader.read_bytes
        pulls.close()

    def forget(self, conn: Connection) -> None:
        """A client left."""
        if self._pulls is not None:
            self._pulls.forget(conn)

    def take(self, pipe: Pipe, glimpse: Glimpse) -> bool:
        """Whether a request is answered here; if not, nothing was done about it."""
        pulls = self._pulls
        if pulls is None or glimpse.code not in PULLS or not self.ties.is_fresh:
            return False
        taken = take(pipe, glimpse, partial(self._find, pulls, pipe))
        self.served += taken
        return taken

    def _find(self, pulls: PullAsides, pipe: Pipe, command: RemotingCommand) -> Serve | None:
        header = pull_header(command)
        topic, key = self._store.topics.lookup(header.topic), (header.topic, header.queue_id)
        messages = self._store.messages
        if topic is None:
            return None
        if not may_answer(
            readers_of(topic.attributes).of(header.queue_id),
            Held(messages.local_min_offset(*key), messages.max_offset(*key)),
            header.queue_offset,
            can_wait=may_wait(command, header),
        ):
            return None
        serve = pulls.pull(pipe, command, header)
        place = (header.consumer_group, *key)
        if serve is None or not _leases(pipe.connection).holds(place, self._now_s()):
            return None
        return serve

    def _suggest(self, pull: ParkedPull, result: GetResult) -> int:
        """Stay, unless this was the wrong place to ask."""
        core = self._group.core
        if core is None or result.status is GetStatus.OFFSET_IN_TIER:
            place: Place = ((pull.request.ext or {}).get("consumerGroup", ""), *pull.key)
            _leases(pull.connection).end(place)
            return MASTER_ID
        return core.me

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


def _leases(conn: Connection) -> Leases:
    found: Leases = conn.attrs.get(LEASES) or conn.attrs.setdefault(LEASES, Leases())
    return found
