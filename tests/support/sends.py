"""Sends on one connection, none of them sent twice by itself."""

from __future__ import annotations

import asyncio
import time

from gantry_broker.clients.resent import WAIT_S
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import eventually, send_command
from support.client_kills import TOPIC
from support.patience import PATIENCE_S

SENDERS = 8  # at once, so that some wait for an answer whenever the master ends


class Load:
    """Sends without a pause from now on; ``codes`` has the answers by key."""

    def __init__(self, client: RemotingClient) -> None:
        self.client = client
        self.codes: dict[str, int] = {}
        self._count = 0
        self._tasks = [asyncio.create_task(self._send()) for _ in range(SENDERS)]

    async def _send(self) -> None:
        while True:
            self._count += 1
            key = f"K{self._count}"
            command = send_command(key.encode(), TOPIC)
            assert command.ext is not None
            command.ext["i"] = f"UNIQ_KEY\x01{key}\x02"
            self.codes[key] = await self._answer(command)

    async def _answer(self, command: RemotingCommand) -> int:
        """The code; a broker that is busy is asked again as clients do, if it had tried long."""
        while True:
            began_s = time.monotonic()
            code = (await self.client.call(command, PATIENCE_S)).code
            if code != ResponseCode.SYSTEM_BUSY or time.monotonic() - began_s < WAIT_S:
                return code

    async def goes_on(self) -> None:
        count = len(self.codes)
        await eventually(
            lambda: len(self.codes) > count + 5 * SENDERS or any(t.done() for t in self._tasks),
            "it goes on",
        )
        assert not any(task.done() for task in self._tasks)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
