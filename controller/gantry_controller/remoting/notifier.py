"""Role changes, told to the brokers at once (code 1008).

After each election the leader sends the outcome to every living member, at the address it
registered. Nothing is acknowledged and nothing repeated: members poll as well. So only the newest
word counts: while a message to an address is on its way, a newer one for the same address replaces
the one that waits behind it. Addresses and connections are bounded; what finds no room is left to
the poll.
"""

import asyncio
from collections.abc import Callable

from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import RemotingError
from gantry_protocol.process import log
from gantry_protocol.remoting.pool import ClientPool

from gantry_controller.metadata.events import ElectMaster, Event
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup
from gantry_controller.remoting.replies import role_change

BUDGET_S = 3.0  # upstream's time-out for this call
ADDRESSES_MAX = 4096

_log = log.get("notifier")


class Notifier:
    """Tells brokers of elections.

    Args:
        leading: whether this node leads; the others stay silent.
        living: the addresses of a group's living members.
    """

    def __init__(
        self, leading: Callable[[], bool], living: Callable[[BrokerGroup], list[str]]
    ) -> None:
        self.sent = 0
        self.failed = 0
        self._leading = leading
        self._living = living
        self._pool = ClientPool(max_clients=ADDRESSES_MAX)
        self._next: dict[str, RemotingCommand] = {}  # by address, behind the one on its way
        self._senders: dict[str, asyncio.Task[None]] = {}

    def applied(self, event: Event, result: Result) -> None:
        """Listens to the state machine."""
        if isinstance(event, ElectMaster) and result.group is not None and self._leading():
            for address in self._living(result.group):
                self.tell(address, role_change(result.group))

    def tell(self, address: str, command: RemotingCommand) -> None:
        """Sends ``command`` to ``address``, instead of anything that still waits to go there."""
        client = self._pool.peek(address)
        if client is not None and address not in self._senders:
            try:
                client.oneway(command)
            except RemotingError:
                self.failed += 1
            else:
                self.sent += 1
            return
        if address not in self._senders:
            if len(self._senders) >= ADDRESSES_MAX:
                self.failed += 1
                return
            self._senders[address] = asyncio.create_task(self._send(address))
        self._next[address] = command

    async def close(self) -> None:
        """Ends everything that is on its way."""
        tasks = list(self._senders.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pool.close()

    async def _send(self, address: str) -> None:
        try:
            async with asyncio.timeout(BUDGET_S):
                client = await self._pool.get(address, BUDGET_S)
            while (command := self._next.pop(address, None)) is not None:
                client.oneway(command)
                self.sent += 1
        except (RemotingError, TimeoutError) as error:
            self.failed += 1
            _log.info("broker could not be told", address=address, why=error)
        finally:  # in one step with the last look at what waits, so that nothing waits unseen
            self._next.pop(address, None)
            del self._senders[address]
