"""How a volume gets its broker id, and how it keeps it (1012, 1013).

Upstream's flow with one change: the check code and the id that was applied for are stored before
the application, and an application without an answer is repeated as it was. The controllers grant
an id to one check code only, so no two volumes ever share one and no answer that got lost costs
one.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import time

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import DataDirError
from gantry_protocol.process import log
from gantry_protocol.types import BrokerId

from gantry_broker.asking import Outcome
from gantry_broker.control import identity as identities
from gantry_broker.control import requests
from gantry_broker.control.identity import Identity
from gantry_broker.control.requests import Speaker

RETRY_FIRST_S = 0.1
RETRY_LAST_S = 1.0

Call = Callable[[RemotingCommand], Awaitable[Outcome]]

_log = log.get("control")


class Joining:
    """The identity of one volume.

    Args:
        me: who speaks.
        directory: where the identity is kept.
        call: asks the controllers; errors are values.
    """

    def __init__(self, me: Speaker, directory: Path, call: Call) -> None:
        """Nothing is read or asked yet."""
        self._me = me
        self._directory = directory
        self._call = call

    async def obtain(self) -> BrokerId:
        """Find or obtain the id; waits for the controllers as long as it takes.

        Raises:
            DataDirError: the volume belongs to another group.
            CorruptionError: the identity file is damaged.
        """
        found = identities.load(self._directory)
        if found is None:
            check_code = f"{self._me.address};{int(time() * 1000)}"
            found = Identity(self._me.cluster, self._me.group, check_code)
            identities.save(self._directory, found)
        identities.check_group(self._directory, found, self._me.cluster, self._me.group)
        wait_s = RETRY_FIRST_S
        while found.broker_id is None:
            found = await self._apply(found)
            if found.broker_id is None:
                await asyncio.sleep(jittered(wait_s))
                wait_s = min(wait_s * 2, RETRY_LAST_S)
            else:
                _log.info("broker id obtained", broker_id=found.broker_id)
        return found.broker_id

    async def _apply(self, found: Identity) -> Identity:
        """One round; returns what is stored afterwards, with the id if it was granted."""
        wanted = found.applying_for
        if wanted is None:
            answer = await self._call(requests.next_id(self._me))
            if not isinstance(answer, RemotingCommand) or answer.code != ResponseCode.SUCCESS:
                return found
            wanted = requests.read_next_id(answer)
            if wanted is None:
                return found
            found = self._store(found, applying_for=wanted)
        answer = await self._call(requests.apply_id(self._me, wanted, found.check_code))
        if not isinstance(answer, RemotingCommand):
            return found  # it may have been granted: repeat it with the same code
        if answer.code == ResponseCode.SUCCESS:
            return self._store(found, broker_id=wanted)
        if answer.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:  # another one was faster
            return self._store(found)
        return found

    def _store(
        self,
        found: Identity,
        *,
        broker_id: BrokerId | None = None,
        applying_for: BrokerId | None = None,
    ) -> Identity:
        stored = Identity(found.cluster, found.group, found.check_code, broker_id, applying_for)
        identities.save(self._directory, stored)
        return stored

    async def apply_again(self) -> None:
        """The controllers have lost our id, or have struck it from the record: ask for it back.

        Raises:
            DataDirError: they do not give it back to this volume.
        """
        found = identities.load(self._directory)
        assert found is not None
        assert found.broker_id is not None
        command = requests.apply_id(self._me, found.broker_id, found.check_code)
        answer = await self._call(command)
        if (
            isinstance(answer, RemotingCommand)
            and answer.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
        ):
            raise DataDirError(
                f"The volume in {self._directory} holds broker {found.broker_id} of group "
                f"{found.cluster}/{found.group}, which the controllers no longer know; if its "
                f"records are not needed, start with an empty volume."
            )


def jittered(wait_s: float) -> float:
    """A wait that not everybody takes at the same moment."""
    return wait_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
