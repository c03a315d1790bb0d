"""Committed offsets of consumer groups in segments that this group holds and has closed.

Clients that know static topics commit where a queue's messages are taken, so what they have read
here is known to the group that has the queue's open segment. A drain asks it before it says that
they have something to read here still.
"""

from collections.abc import Callable, Iterable

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import WireError
from gantry_protocol.headers.client import OffsetResponseHeader, QueryConsumerOffsetRequestHeader
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.queue_map import Segment
from gantry_protocol.remoting.asking import Outcome

from gantry_broker.clients.mapped.book import QueueBook
from gantry_broker.clients.mapped.places import PHYSICAL

ASKED_MAX = 256  # questions under way; the others come with the next looks
CALL_TIMEOUT_S = 2.0

Place = tuple[str, str, int]
"""A consumer group, a topic, and the queue of this group that holds the closed segment."""


class CommittedLater:
    """See the module.

    Args:
        book: the maps, and the masters of other groups.

    Attributes:
        is_popped: whether a consumer group pops here: what it has done here nobody else knows, and
            what it has done elsewhere says nothing of it.
    """

    def __init__(self, book: QueueBook) -> None:
        """Nothing is known."""
        self.is_popped: Callable[[str, str, int], bool] = lambda *place: False
        self._book = book
        self._known: dict[Place, int] = {}
        self._asking: set[Place] = set()
        self._turn: dict[Place, None] = {}  # who was asked about last is at the end

    def offset(self, place: Place) -> int | None:
        """The newest committed offset that is known; None: none is, or nothing was committed."""
        return None if self.is_popped(*place) else self._known.get(place)

    def ask(self, places: Iterable[Place]) -> None:
        """Learn the offsets of these places, which are all that is of interest now.

        Those that were asked about least lately come first. What is not of a closed segment is
        passed over.
        """
        wanted = {place for place in places if self._book.later(*place[1:])}
        self._known = {place: at for place, at in self._known.items() if place in wanted}
        self._turn = {place: None for place in self._turn if place in wanted}
        self._turn = {**dict.fromkeys(sorted(wanted - self._turn.keys())), **self._turn}
        free = ASKED_MAX - len(self._asking)
        due = [place for place in self._turn if place not in self._asking][: max(free, 0)]
        for place in due:
            self._turn[place] = self._turn.pop(place)
            self._asking.add(place)
            self._ask_back(place, self._book.later(place[1], place[2]))

    def _ask_back(self, place: Place, segments: tuple[Segment, ...]) -> None:
        """The last segment first; one in which nothing was committed names the one before."""
        if not segments:
            self._asking.discard(place)
            return
        *before, last = segments
        group, topic, _ = place
        header = QueryConsumerOffsetRequestHeader(group, topic, last.queue_id, False)
        ext = {**to_ext(header), PHYSICAL: str(self._book.epoch_of(topic))}
        command = request(RequestCode.QUERY_CONSUMER_OFFSET, ext)

        def answered(outcome: Outcome) -> None:
            if _is_missing(outcome):
                self._ask_back(place, tuple(before))
                return
            self._asking.discard(place)
            offset = _offset(outcome)
            if offset is not None and place in self._turn:
                self._known[place] = offset

        self._book.masters.ask(last.group, command, answered, CALL_TIMEOUT_S)


def _is_missing(outcome: Outcome) -> bool:
    return isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.QUERY_NOT_FOUND


def _offset(outcome: Outcome) -> int | None:
    if not isinstance(outcome, RemotingCommand) or outcome.code != ResponseCode.SUCCESS:
        return None
    try:
        return from_ext(OffsetResponseHeader, outcome.ext).offset
    except WireError:
        return None
