"""Role changes and changes of who consumes, told to the brokers at once.

After each election, and when a member is fenced or let in again, the leader sends the outcome to
every living member, at the address it registered (NotifyBrokerRoleChanged, 1008). When the members
of a consumer group change at one broker group, the masters of others that hear members of it are
told to look (ConsumersChanged, 31008). Nothing is acknowledged and nothing sent twice: brokers poll
as well. So only the newest word of each kind counts: while a message waits for an address, a newer
one of the same kind for the same address takes its place.

A thousand elections at once are a thousand targets at once. ``SENDERS_MAX`` connections are made at
a time, so that neither the file descriptors nor the loop are taken from requests; each target is
tried a few times within ``BUDGET_S`` of being told first, and then left to its poll, so that hosts
that do not answer hold nobody up for longer. Addresses and connections are bounded.
"""

import asyncio
from collections.abc import Callable, Iterable

from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import RemotingError
from gantry_protocol.process import log
from gantry_protocol.remoting.pool import ClientPool
from gantry_protocol.tls.process import NO_TLS, Tls

from gantry_controller.metadata.events import AcceptLoss, ElectMaster, Event, FenceMember
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup, MetadataState
from gantry_controller.remoting.replies import consumers_changed, role_change

BUDGET_S = 3.0  # upstream's time-out for this call
ATTEMPT_S = 1.0  # one connection; a living broker's listener answers within milliseconds
ATTEMPTS_MAX = 3
RETRY_S = 0.1  # doubled after each attempt
ADDRESSES_MAX = 4096
SENDERS_MAX = 128

_log = log.get("notifier")


class Notifier:
    """Tells brokers of elections.

    Args:
        state: of the quorum.
        leading: whether this node leads; the others stay silent.
        living: the addresses of a group's living members.
        tls: of the process.

    Attributes:
        sent: messages written to a connection.
        failed: messages that reached no connection.
        retried: attempts to connect after the first one.
    """

    def __init__(
        self,
        state: MetadataState,
        leading: Callable[[], bool],
        living: Callable[[BrokerGroup], list[str]],
        tls: Tls = NO_TLS,
    ) -> None:
        self.sent = 0
        self.failed = 0
        self.retried = 0
        self._state = state
        self._leading = leading
        self._living = living
        self._pool = ClientPool(max_clients=ADDRESSES_MAX, tls=tls)
        # By address and code: the newest word, not sent yet.
        self._next: dict[str, dict[int, RemotingCommand]] = {}
        self._queue: dict[str, float] = {}  # no sender has taken these; until when they matter
        self._taken: set[str] = set()
        self._senders: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Addresses that something is on its way to."""
        return len(self._queue) + len(self._taken)

    def applied(self, event: Event, result: Result) -> None:
        """Listens to the state machine."""
        if (
            isinstance(event, ElectMaster | AcceptLoss | FenceMember)
            and result.group is not None
            and self._leading()
        ):
            for address in self._living(result.group):
                self.tell(address, role_change(result.group))

    def consumers_changed(self, group: BrokerGroup, names: Iterable[str]) -> None:
        """Has the masters of other broker groups that hear members of ``names`` look."""
        if not self._leading():
            return
        consumers = self._state.cluster_consumers(group.cluster)
        concerned = {key: None for name in names for key in consumers.heard_at(name)}
        concerned.pop(group.key, None)
        for key in concerned:
            master = self._state.groups[key].master
            if master is not None:
                self.tell(master.address, consumers_changed(group.cluster))

    def tell(self, address: str, command: RemotingCommand) -> None:
        """Sends ``command`` to ``address``, instead of one of its code that still waits there."""
        if address not in self._taken and address not in self._queue:
            if self._send_now(address, command):
                return
            if self.waiting >= ADDRESSES_MAX:
                self.failed += 1
                return
            self._queue[address] = asyncio.get_running_loop().time() + BUDGET_S
            if len(self._senders) < SENDERS_MAX:
                sender = asyncio.create_task(self._send_all())
                self._senders.add(sender)
                sender.add_done_callback(self._ended)
        self._next.setdefault(address, {})[command.code] = command

    async def close(self) -> None:
        """Ends everything that is on its way."""
        senders = list(self._senders)
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
        await self._pool.close()

    def _send_now(self, address: str, command: RemotingCommand) -> bool:
        """Whether there was a connection, so that it is done with."""
        client = self._pool.peek(address)
        if client is None:
            return False
        try:
            client.oneway(command)
        except RemotingError:
            self.failed += 1
        else:
            self.sent += 1
        return True

    async def _send_all(self) -> None:
        """One sender: takes address after address, oldest first, until none waits."""
        while self._queue:
            address = next(iter(self._queue))
            until_s = self._queue.pop(address)
            self._taken.add(address)
            try:
                await self._connect(address, until_s)
            except (RemotingError, TimeoutError) as error:
                _log.info("broker could not be told", address=address, why=error)
            finally:  # in one step with the last look at what waits, so that nothing waits unseen
                commands = self._next.pop(address)
                self._taken.discard(address)
            for command in commands.values():
                if not self._send_now(address, command):
                    self.failed += 1

    async def _connect(self, address: str, until_s: float) -> None:
        loop = asyncio.get_running_loop()
        for attempt in range(ATTEMPTS_MAX):
            left_s = until_s - loop.time()
            if left_s <= 0:
                raise TimeoutError("its turn came too late")
            try:
                await self._pool.get(address, min(ATTEMPT_S, left_s))
            except RemotingError:
                if attempt == ATTEMPTS_MAX - 1:
                    raise
                self.retried += 1
                await asyncio.sleep(min(RETRY_S * 2**attempt, max(until_s - loop.time(), 0)))
            else:
                return

    def _ended(self, sender: asyncio.Task[None]) -> None:
        self._senders.discard(sender)
        if not sender.cancelled():
            sender.result()
