"""Questions of a controller to masters, for somebody who has no way to brokers.

They are signed with the quorum's key, which brokers ask for once access is on. Nothing is tried
again here. Bounded: connections, and the time of each question.
"""

import asyncio

from gantry_protocol.command import RemotingCommand
from gantry_protocol.quorum_key import KeyFile
from gantry_protocol.remoting.admission import signed
from gantry_protocol.remoting.pool import ClientPool
from gantry_protocol.remoting.signatures import ACCESS_KEY
from gantry_protocol.tls.process import NO_TLS, Tls

CONNECTIONS_MAX = 256
ANSWER_S = 1.5


class Masters:
    """See the module.

    Args:
        key: of the quorum.
        tls: of the process.
    """

    def __init__(self, key: KeyFile, tls: Tls = NO_TLS) -> None:
        self._key = key
        self._pool = ClientPool(max_clients=CONNECTIONS_MAX, tls=tls, sign=self._signed)

    async def ask(self, address: str, command: RemotingCommand) -> RemotingCommand:
        """The answer of the broker at ``address``.

        Raises:
            GantryError: there is none, or the key cannot be read.
            TimeoutError: it takes too long.
        """
        async with asyncio.timeout(ANSWER_S):
            client = await self._pool.get(address, ANSWER_S)
            return await client.call(command, ANSWER_S)

    async def close(self) -> None:
        """Ends all connections."""
        await self._pool.close()

    def _signed(self, command: RemotingCommand) -> RemotingCommand:
        keys = self._key.keys()
        return signed(command, ACCESS_KEY, keys[0]) if keys else command
