"""Masters that controllers ask, in the place of brokers: they carry numbered resets out."""

from __future__ import annotations

import asyncio

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import ConnectError
from gantry_protocol.headers.brokeradmin import RESET_QUEUES, ResetOffsetRequestHeader
from gantry_protocol.headers.codec import from_ext

QUEUES = 4


class ToldMasters:
    """See the module.

    Attributes:
        asked: all that was asked, in order: address, topic, number.
        carried_out: the same, each once, with the time.
        away: addresses at which nobody is.
        silent: addresses at which somebody never answers.
        refusals: the remark of a master that refuses, by topic.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int]] = []
        self.carried_out: list[tuple[str, str, int, int]] = []
        self.away: set[str] = set()
        self.silent: set[str] = set()
        self.refusals: dict[str, str] = {}
        self._last: dict[tuple[str, str, str], int] = {}

    async def ask(self, address: str, command: RemotingCommand) -> RemotingCommand:
        """The answer of the master at ``address``."""
        assert command.code == RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        header = from_ext(ResetOffsetRequestHeader, command.ext)
        assert header.request is not None
        assert header.is_force
        assert header.queue_id == -1
        self.asked.append((address, header.topic, header.request))
        if address in self.away:
            raise ConnectError(f"{address} refuses", refused=True)
        if address in self.silent:
            await asyncio.Event().wait()
        if header.topic in self.refusals:
            return reply(command, ResponseCode.INVALID_PARAMETER, self.refusals[header.topic])
        place = (address, header.group, header.topic)
        if self._last.get(place) != header.request:
            self._last[place] = header.request
            did = (address, header.topic, header.request, header.timestamp)
            self.carried_out.append(did)
        return reply(command, ext={RESET_QUEUES: str(QUEUES)})
