"""Requests of a client whose frames are passed on, kept until they are answered.

When a master is gone, the next one is given what the last one left unanswered, in the order in
which the client said it, each request once. A request that an earlier master may have carried out
is *marked* if carrying it out again would store something again; the next master looks whether it
is in its log (``GANTRY_PASSED_ON``). What may be carried out twice without harm goes as it is.
Everything else is refused, so that the client asks again knowingly.

A request without an answer (oneway) is given to one master, and nobody knows whether it arrived.

Pure: bytes and heads in, bytes and lists out.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from gantry_protocol.codes import RequestCode
from gantry_protocol.command import FLAG_ONEWAY, FLAG_RESPONSE
from gantry_protocol.remoting.glance import Glimpse

MAX_BYTES = 4 * 1024 * 1024  # kept for one client; beyond it no more is read from it
MAX_COUNT = 8_192  # twice what a server lets one connection ask for

SENDS = frozenset(
    {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
)
PULLS = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})  # may be held for long
# Twice is as good as once: what reads, and what sets something to a value that the request names.
# A message that is sent back twice is tried twice, as one whose consumer has lost the answer is.
REPEATABLE = (
    SENDS
    | PULLS
    | {
        RequestCode.QUERY_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.ACK_MESSAGE,  # by receipts, which are good at any master
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.LITE_SUBSCRIPTION_CTL,
        RequestCode.SEND_REPLY_MESSAGE,  # whoever has its reply waits for no other
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.END_TRANSACTION,
        RequestCode.RECALL_MESSAGE,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
    }
)
_HEART_BEAT = RequestCode.HEART_BEAT
_UNREGISTER_CLIENT = RequestCode.UNREGISTER_CLIENT
_NO_REQUEST = FLAG_RESPONSE | FLAG_ONEWAY
MAX_HEARTBEAT_BYTES = 64 * 1024  # a longer one is not repeated; the client's next one is due


class Handover(NamedTuple):
    """The requests that the next master is given.

    Attributes:
        frames: in this order.
        marked: opaques of the sends among them that an earlier master may have stored.
        refused: requests that must not be carried out twice.
    """

    frames: list[bytes]
    marked: list[int]
    refused: list[Glimpse]


class GivenUp(NamedTuple):
    """The requests that want an answer, and get none from a master.

    Attributes:
        given: a master was given them, and may have carried them out.
        waiting: no master was.
    """

    given: list[Glimpse]
    waiting: list[Glimpse]


class Unanswered:
    """The table of one client.

    Attributes:
        heartbeat: the client's last one, by which a master knows its producers and consumers.
        size_bytes: of everything that is kept.
    """

    __slots__ = ("_claimed", "_given", "_urgent", "_waiting", "heartbeat", "size_bytes")

    def __init__(self) -> None:
        """The client has said nothing."""
        self._given: dict[int, Glimpse] = {}  # by opaque, in their order
        self._waiting: list[Glimpse] = []  # given to no master yet
        self._claimed: set[int] = set()  # what waits under these numbers was given before
        self._urgent = 0  # of those that were given: no pulls
        self.heartbeat: bytes | None = None
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._given) + len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether no more shall be read from the client."""
        return self.size_bytes > MAX_BYTES or len(self._given) + len(self._waiting) > MAX_COUNT

    @property
    def is_quiet(self) -> bool:
        """Whether the master has answered everything but pulls."""
        return not self._urgent

    @property
    def is_waiting(self) -> bool:
        """Whether something was given to no master."""
        return bool(self._waiting)

    def give(self, glimpse: Glimpse) -> None:
        """The client has said this, and the master is being given it."""
        self._look(glimpse)
        if not glimpse.flag & _NO_REQUEST:
            self._keep(glimpse)

    def wait(self, glimpse: Glimpse) -> None:
        """The client has said this, and there is no master."""
        self._look(glimpse)
        if glimpse.opaque in self._claimed and not glimpse.flag & _NO_REQUEST:
            self._claimed.discard(glimpse.opaque)
            self._keep(glimpse)
            return
        self._waiting.append(glimpse)
        self.size_bytes += len(glimpse.frame)

    def answered(self, opaque: int) -> None:
        """The master has answered."""
        glimpse = self._given.pop(opaque, None)
        if glimpse is not None:
            self.size_bytes -= len(glimpse.frame)
            self._urgent -= glimpse.code not in PULLS

    def add_given(self, glimpses: Iterable[Glimpse]) -> None:
        """Requests that another master, maybe this process, was given before all that waits."""
        for glimpse in glimpses:
            self._keep(glimpse)

    def claim(self, opaques: Iterable[int]) -> None:
        """Note that requests with these numbers were given to a master before they came here."""
        self._claimed = set(opaques)
        waiting, self._waiting = self._waiting, []
        for glimpse in waiting:
            self.size_bytes -= len(glimpse.frame)
            self.wait(glimpse)

    def change_waiting(self, change: Callable[[Glimpse], Glimpse]) -> None:
        """Exchange the frames of what waits, each for one that asks for the same."""
        for place, glimpse in enumerate(self._waiting):
            changed = self._waiting[place] = change(glimpse)
            self.size_bytes += len(changed.frame) - len(glimpse.frame)

    def hand_over(self) -> Handover:
        """Everything for the next master, which from now on is the one that answers."""
        frames, marked, refused = [], [], []
        for opaque, glimpse in list(self._given.items()):
            if glimpse.code in REPEATABLE:
                frames.append(glimpse.frame)
                if glimpse.code in SENDS:
                    marked.append(opaque)
            else:
                refused.append(glimpse)
                self.answered(opaque)
        waiting, self._waiting = self._waiting, []
        for glimpse in waiting:
            self.size_bytes -= len(glimpse.frame)
            frames.append(glimpse.frame)
            if not glimpse.flag & _NO_REQUEST:
                self._keep(glimpse)
        return Handover(frames, marked, refused)

    def give_up(self) -> GivenUp:
        """No master came: forget everything; what wants an answer is returned for a refusal."""
        waiting = [item for item in self._waiting if not item.flag & _NO_REQUEST]
        wanted = GivenUp([*self._given.values()], waiting)
        self._given.clear()
        self._waiting.clear()
        self.size_bytes = self._urgent = 0
        return wanted

    def _look(self, glimpse: Glimpse) -> None:
        if glimpse.flag & FLAG_RESPONSE:
            return
        if glimpse.code == _HEART_BEAT:
            is_short = len(glimpse.frame) <= MAX_HEARTBEAT_BYTES
            self.heartbeat = glimpse.frame if is_short else None
        elif glimpse.code == _UNREGISTER_CLIENT:
            self.heartbeat = None  # it names groups that the client may have left

    def _keep(self, glimpse: Glimpse) -> None:
        self.answered(glimpse.opaque)  # a client that uses a number twice can wait for one answer
        self._given[glimpse.opaque] = glimpse
        self.size_bytes += len(glimpse.frame)
        self._urgent += glimpse.code not in PULLS
