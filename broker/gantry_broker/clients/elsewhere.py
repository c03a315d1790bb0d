"""Members of consumer groups whom masters of other broker groups hear.

A client that consumes from several broker groups is connected to each master. Which of them hears
it must make no difference to who is in its consumer group, or two masters tell their clients two
lists, and a queue has two owners, or none (RIP-18). So each master adds to its own members those
that the controllers know from the others (GetChangedConsumers, 31007).

One reader serves all groups of a process. It asks every ``LOOK_EVERY_S`` and when the controllers
say that there is something new (ConsumersChanged, 31008). What is not known, and what cannot be
read any more, stays as it was: nobody is gone because a controller is.
"""

import asyncio
import math
from collections.abc import Callable

from gantry_protocol.bodies import decode_body
from gantry_protocol.bodies.consumers import ChangedConsumers
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import WireError
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.consumers import GetChangedConsumersRequestHeader
from gantry_protocol.process import log
from gantry_protocol.remoting.asking import Asker, Outcome

CALL_TIMEOUT_S = 2.0
LOOK_EVERY_S = 1.0
LOOK_GAP_S = 0.05
"""Between an answer and the next question, however often there is something new."""

Changed = Callable[[str, set[str]], None]
"""Called with a consumer group, and the clients that came to its members elsewhere, or left."""

Heard = dict[str, tuple[str, ...]]
"""By client id: broker groups whose masters hear it."""

_NOBODY: Heard = {}

_log = log.get("consumers")


class Elsewhere:
    """See the module.

    Args:
        cluster: whose consumers.
        peers: the controllers.

    Attributes:
        pages: that the controllers have given.
    """

    def __init__(self, cluster: str, peers: Asker) -> None:
        """Nothing is asked before somebody ``join``s."""
        self.pages = 0
        self._cluster = cluster
        self._peers = peers
        self._listeners: dict[str, Changed] = {}  # by broker group
        self._known: dict[str, Heard] = {}  # by consumer group
        self._whole: dict[str, Heard] = {}  # the same, while it is read page by page
        self._since = 0
        self._after: str | None = None
        self._asking = False
        self._again = False  # something new was told while a question was under way
        self._answered_s = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    def join(self, broker_group: str, changed: Changed) -> None:
        """The master of ``broker_group`` is here, and is told of changes until it leaves."""
        self._listeners[broker_group] = changed
        self.look()

    def leave(self, broker_group: str) -> None:
        """It is not here any more."""
        self._listeners.pop(broker_group, None)
        if not self._listeners and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def clients(self, broker_group: str, name: str) -> list[str]:
        """The members of a consumer group that another master than this group's hears, by id."""
        return _elsewhere(self._known.get(name, _NOBODY), broker_group)

    def has(self, broker_group: str, name: str, client_id: str) -> bool:
        """Whether a client is one of these."""
        heard_by = self._known.get(name, _NOBODY).get(client_id, ())
        return any(other != broker_group for other in heard_by)

    def look(self) -> None:
        """Ask the controllers now, or ``LOOK_GAP_S`` after they have answered."""
        if self._asking:
            self._again = True
        elif self._listeners:
            self._ask_in(self._answered_s + LOOK_GAP_S - asyncio.get_running_loop().time())

    def _ask_in(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(wait_s, 0.0), self._ask)

    def _ask(self) -> None:
        self._timer = None
        self._asking, self._again = True, False
        header = GetChangedConsumersRequestHeader(self._cluster, self._since, self._after)
        command = request(RequestCode.GANTRY_GET_CHANGED_CONSUMERS, to_ext(header))
        self._peers.ask(command, self._answered, CALL_TIMEOUT_S)

    def _answered(self, outcome: Outcome) -> None:
        self._asking = False
        self._answered_s = asyncio.get_running_loop().time()
        more = False
        if isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.SUCCESS:
            try:
                page = decode_body(ChangedConsumers, outcome.body)
            except WireError as error:
                _log.warning("consumers of the cluster cannot be read", reason=error)
            else:
                more = page.more
                self._take(page)
        if self._listeners:
            self._ask_in(LOOK_GAP_S if more or self._again else LOOK_EVERY_S)

    def _take(self, page: ChangedConsumers) -> None:
        if page.is_whole and self._after is None:
            self._whole = {}  # this is the first page of it
        self._since, self._after = page.since, page.after
        self.pages += 1
        news = {
            name: {client.client_id: tuple(client.heard_by) for client in group.clients}
            for name, group in page.groups.items()
        }
        if not page.is_whole:
            self._learn(news)
            return
        self._whole.update(news)
        if page.after is None:
            whole, self._whole = self._whole, {}
            ended: dict[str, Heard] = {name: {} for name in self._known.keys() - whole.keys()}
            self._learn({**ended, **whole})

    def _learn(self, news: dict[str, Heard]) -> None:
        for name in sorted(news):
            old, new = self._known.get(name, _NOBODY), news[name]
            if new:
                self._known[name] = new
            else:
                self._known.pop(name, None)
            for broker_group, changed in list(self._listeners.items()):
                moved = set(_elsewhere(old, broker_group)) ^ set(_elsewhere(new, broker_group))
                if moved:
                    changed(name, moved)


def _elsewhere(heard: Heard, broker_group: str) -> list[str]:
    return [
        client_id
        for client_id, heard_by in heard.items()
        if any(other != broker_group for other in heard_by)
    ]
