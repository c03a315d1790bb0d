"""The way to the controllers: one connection, on which both sides have shown the quorum's key.

Any controller answers. One that cannot be reached, does not believe this process, or does not know
the answer, is followed by the next one; who asks comes again by itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import (
    ConfigError,
    ConnectError,
    GantryError,
    KeyRefused,
    RemotingError,
    ResolveError,
)
from gantry_protocol.process import log
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.remoting.key_requests import show_key
from gantry_protocol.remoting.reads import REDIRECTS
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gantry_protocol.quorum_key import KeyFile
    from gantry_protocol.remoting.asking import Outcome

CONNECT_S = 1.0
_ELSEWHERE = (ResponseCode.CONTROLLER_NOT_LEADER, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

_log = log.get("proxy")


class Controllers:
    """An ``Asker``; it has one question at a time.

    Args:
        addresses: ``host:port`` of each controller.
        key: shown to them, and shown by them.
    """

    def __init__(self, addresses: Sequence[str], key: KeyFile) -> None:
        """Nothing is connected before the first question."""
        self._addresses = list(addresses)
        self._key = key
        self._client: RemotingClient | None = None
        self._asking: asyncio.Task[None] | None = None
        self._said = ""  # why nobody answers, as the log has it

    def ask(
        self,
        command: RemotingCommand,
        done: Callable[[Outcome], None],
        timeout_s: float,
        held_s: float = 0.0,
    ) -> None:
        """See ``Asker``."""
        assert self._asking is None or self._asking.done(), "one question at a time"
        self._asking = asyncio.create_task(self._ask(command, done, timeout_s + held_s))

    async def close(self) -> None:
        """End the question and the connection."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        if self._client is not None:
            self._client.close()

    async def _ask(
        self, command: RemotingCommand, done: Callable[[Outcome], None], within_s: float
    ) -> None:
        command.ext = {**(command.ext or {}), REDIRECTS: "true"}
        outcome: Outcome = ConnectError("no controller is known", refused=False)
        for _ in tuple(self._addresses):
            outcome = await self._once(command, within_s)
            if isinstance(outcome, RemotingCommand) and outcome.code not in _ELSEWHERE:
                break
            self._addresses.append(self._addresses.pop(0))
        self._asking = None
        done(outcome)

    async def _once(self, command: RemotingCommand, within_s: float) -> Outcome:
        address = self._addresses[0]
        try:
            client = self._client
            if client is None or client.closed or client.address != address:
                client = await self._connect(address)
            answer = await client.call(replace(command), within_s)
        except (RemotingError, ResolveError, ConfigError) as error:
            self._note(address, error)
            if isinstance(error, RemotingError):
                return error
            return ConnectError(str(error), refused=False)
        self._said = ""
        return answer

    async def _connect(self, address: str) -> RemotingClient:
        if self._client is not None:
            self._client.close()
        client = self._client = RemotingClient()
        await client.connect(address, CONNECT_S)
        await show_key(client, self._key, CONNECT_S)
        return client

    def _note(self, address: str, error: GantryError) -> None:
        """Say why; what a person must mend is said loud, and once."""
        if isinstance(error, KeyRefused | ConfigError) and self._said != str(error):
            self._said = str(error)
            _log.error("controller cannot be spoken to", address=address, reason=error)
