"""The queue maps of a cluster, as the controllers have them, for all groups of a process.

One reader asks for what changed (GetQueueMaps, 31013). The controllers keep the question until
there is news, so a change is known here a moment after it was applied. What cannot be read stays as
it was. A group that has just become master asks anew: it must know every queue that its predecessor
has given away, before it takes a message for a mapped topic.
"""

import asyncio
import math
from collections.abc import Callable

from gantry_protocol.bodies import decode_body
from gantry_protocol.bodies.queue_maps import QueueMaps
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import WireError
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.queue_maps import GetQueueMapsRequestHeader
from gantry_protocol.process import log
from gantry_protocol.queue_map import QueueMap, number_of
from gantry_protocol.remoting.asking import Asker, Outcome

CALL_TIMEOUT_S = 2.0
WAIT_S = 3.0  # of a question, at the controller
RETRY_S = 0.5
GAP_S = 0.005  # between an answer and the next question
REFRESH_GAP_S = 0.02  # between two questions that do not wait for news

Changed = Callable[[set[str]], None]
"""Called with the topics whose maps changed; with all of them once they are known."""

_log = log.get("queues")


class ClusterMaps:
    """See the module.

    Args:
        cluster: whose maps.
        peers: the controllers.

    Attributes:
        masters: by broker group, where its master was when the last news came; empty: nowhere.
        answers: of the controllers, ever.
    """

    def __init__(self, cluster: str, peers: Asker) -> None:
        """Nothing is asked before somebody ``join``s."""
        self.masters: dict[str, str] = {}
        self.answers = 0
        self._cluster = cluster
        self._peers = peers
        self._listeners: dict[str, Changed] = {}
        self._unread: set[str] = set()  # groups whose first answer has not come
        self._maps: dict[str, QueueMap] = {}
        self._known = QueueMaps(0, 0)
        self._old: set[str] | None = None  # what is known and was not told again yet
        self._question = 0  # the newest one; an answer to an earlier one counts for nobody new
        self._refreshed_s = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    @property
    def topics(self) -> int:
        """Topics with a map."""
        return len(self._maps)

    def join(self, group: str, changed: Changed) -> None:
        """The master of ``group`` is here, and is told of changes until it leaves."""
        self._listeners[group] = changed
        self._unread.add(group)
        self._ask_soon()

    def leave(self, group: str) -> None:
        """It is not here any more."""
        self._listeners.pop(group, None)
        self._unread.discard(group)
        if not self._listeners:
            self._question += 1  # nobody wants the answer that is under way
            self._cancel()

    def is_known_to(self, group: str) -> bool:
        """Whether the maps were read since ``group`` joined."""
        return group in self._listeners and group not in self._unread

    def of(self, topic: str) -> QueueMap | None:
        """The map of ``topic``."""
        return self._maps.get(topic)

    def first_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset of the first message of a group's queue that has none.

        One that will never have any, since its queue has moved on, is asked for that, too: by who
        knows an older map. To begin with 0 there would lead a reader back.
        """
        queues, number = self._maps.get(topic), number_of(queue_id)
        if queues is None or number >= len(queues.queues):
            return 0
        for segment in queues.queues[number].segments:
            if segment.queue_id == queue_id:
                return segment.start
        return 0

    def is_gone(self, group: str) -> bool:
        """Whether ``group`` was retired or removed: nobody knows when it comes back, if ever."""
        return bool(self.masters) and group not in self.masters

    def refresh(self) -> None:
        """Something suggests that there is news: a move that was made, a master that is gone."""
        if self._listeners:
            self._ask_soon()

    # ---- asking

    def _ask_soon(self) -> None:
        """Once for all that want it within ``REFRESH_GAP_S``."""
        self._cancel()
        loop = asyncio.get_running_loop()
        self._refreshed_s = max(loop.time(), min(self._refreshed_s, loop.time()) + REFRESH_GAP_S)
        self._timer = loop.call_at(self._refreshed_s, self._ask, 0.0)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ask(self, wait_s: float = WAIT_S) -> None:
        self._timer = None
        self._question += 1
        question, unread = self._question, set(self._unread)
        header = GetQueueMapsRequestHeader(
            self._cluster, self._known.index, self._known.ended, int(wait_s * 1000)
        )
        command = request(RequestCode.GANTRY_GET_QUEUE_MAPS, to_ext(header))

        def answered(outcome: Outcome) -> None:
            if question == self._question:
                self._answered(outcome, unread)

        self._peers.ask(command, answered, CALL_TIMEOUT_S, wait_s)

    def _answered(self, outcome: Outcome, unread: set[str]) -> None:
        wait_s, told = RETRY_S, None
        if isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.SUCCESS:
            try:
                told = decode_body(QueueMaps, outcome.body)
            except WireError as error:
                _log.warning("queue maps cannot be read", reason=error)
            else:
                wait_s = GAP_S
        elif _is_unsupported(outcome):
            self._unread -= unread  # controllers of an older version: there are no maps
        if self._listeners and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._ask)
        if told is not None:
            self.answers += 1
            self._take(told, unread)

    def _take(self, told: QueueMaps, unread: set[str]) -> None:
        if told.is_all:
            self._old = set(self._maps)
        self._known = told
        self.masters = told.masters
        changed = {topic for topic, item in told.maps.items() if self._maps.get(topic) != item}
        self._maps.update(told.maps)
        if self._old is not None:
            self._old -= told.maps.keys()
        fresh: set[str] = set()  # groups that know all now, and did not before
        if not told.more:
            for topic in self._old or ():
                del self._maps[topic]
                changed.add(topic)
            self._old = None
            fresh = unread & self._unread
            self._unread -= fresh
        for group, listener in list(self._listeners.items()):
            listener(set(self._maps) if group in fresh else changed)


def _is_unsupported(outcome: Outcome) -> bool:
    return (
        isinstance(outcome, RemotingCommand)
        and outcome.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    )
