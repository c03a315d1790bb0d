"""Joining: a volume gets its broker id, and keeps it (GetNextBrokerId, ApplyBrokerId).

Upstream's flow with one change: the check code and the id that was applied for are stored before
the application, and an application without an answer is repeated as it was. The controllers grant
an id to one check code only, so no two volumes ever share one and no answer that got lost costs
one.

An id that was struck from the record is given up for a new one, with the volume as it is: what the
log holds says where it belongs, not the id. That is done only where the controllers say that they
have issued the id before; those of another quorum, or that have lost everything, have not. Once
these have given it to another volume, it is given up too: two volumes never knock under one id.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import time

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import GantryError
from gantry_protocol.process import log
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.types import BrokerId

from gantry_broker.control import identity as identities
from gantry_broker.control import requests
from gantry_broker.control.identity import Identity
from gantry_broker.control.requests import Speaker

RETRY_FIRST_S = 0.1
RETRY_LAST_S = 1.0

Call = Callable[[RemotingCommand], Awaitable[Outcome]]

_log = log.get("control")


class IdStruck(GantryError):  # noqa: N818 - a plain word reads better where it is caught
    """The controllers have struck this volume's id from the record; it takes another."""


class Joining:
    """The identity of one volume.

    Args:
        me: who speaks.
        directory: where the identity is kept.
        call: asks the controllers; errors are values.

    Attributes:
        check_code: what the id was granted for; empty before ``obtain`` has ended.
    """

    def __init__(self, me: Speaker, directory: Path, call: Call) -> None:
        """Nothing is read or asked yet."""
        self.check_code = ""
        self._me = me
        self._directory = directory
        self._call = call
        self._said: str | None = ""  # why there is no id yet, as the log has it

    async def obtain(self) -> BrokerId:
        """Find or obtain the id; waits for the controllers as long as it takes.

        Raises:
            DataDirError: the volume belongs to another group.
            CorruptionError: the identity file is damaged.
        """
        found = identities.load(self._directory)
        if found is None:
            found = Identity(self._me.cluster, self._me.group, self._new_check_code())
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
        self.check_code = found.check_code
        return found.broker_id

    async def _apply(self, found: Identity) -> Identity:
        """One round; returns what is stored afterwards, with the id if it was granted."""
        wanted = found.applying_for
        if wanted is None:
            answer = await self._call(requests.next_id(self._me))
            if not isinstance(answer, RemotingCommand) or answer.code != ResponseCode.SUCCESS:
                self._say_why(answer)
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
        self._say_why(answer)
        return found

    def _say_why(self, answer: Outcome) -> None:
        """Say once what the controllers have against this broker, such as a key it did not show."""
        if isinstance(answer, RemotingCommand) and answer.remark != self._said:
            self._said = answer.remark
            _log.warning("no broker id is given", code=answer.code, reason=answer.remark)

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
            IdStruck: they have struck it. It is forgotten here; the next ``obtain`` gets another.
        """
        found = identities.load(self._directory)
        assert found is not None
        assert found.broker_id is not None
        command = requests.apply_id(self._me, found.broker_id, found.check_code)
        answer = await self._call(command)
        if (
            not isinstance(answer, RemotingCommand)
            or answer.code != ResponseCode.CONTROLLER_BROKER_ID_INVALID
        ):
            return
        whose = f"broker {found.broker_id} of group {found.cluster}/{found.group}"
        answer = await self._call(requests.next_id(self._me))
        if not isinstance(answer, RemotingCommand) or answer.code != ResponseCode.SUCCESS:
            return
        following = requests.read_next_id(answer)
        if following is None or following <= found.broker_id:
            _log.error(
                "the controllers have never issued the id of this volume; are they another quorum?",
                volume=str(self._directory),
                holds=whose,
            )
            return
        forgotten = Identity(found.cluster, found.group, self._new_check_code())
        identities.save(self._directory, forgotten)
        raise IdStruck(
            f"The volume in {self._directory} was {whose}, which was struck from the record; it "
            "registers anew, with all that it holds."
        )

    def _new_check_code(self) -> str:
        return f"{self._me.address};{int(time() * 1000)}"


def jittered(wait_s: float) -> float:
    """A wait that not everybody takes at the same moment."""
    return wait_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
