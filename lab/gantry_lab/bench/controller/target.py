"""Whom the load goes to: the leader, and everybody who wants to hear heartbeats.

Asked with GetMetadataInfo, which our controllers and Java's both answer; so a target is any quorum
that speaks the protocol. Whose processors are measured is known for processes on this machine only.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from gantry_protocol.errors import GantryError, RemotingError
from gantry_protocol.remoting.client import RemotingClient

if TYPE_CHECKING:
    from collections.abc import Sequence

ROLES = "leader", "followers"
ASK_S = 0.02
ELECT_PATIENCE_S = 30.0
CALL_PATIENCE_S = 1.0


class Members(NamedTuple):
    """A quorum as one of its members describes it."""

    leader: str | None
    all: tuple[str, ...]


class Controllers(Protocol):
    """A quorum under load."""

    roles: tuple[str, str]
    """Of the one whose CPU counts first, and of the others."""

    async def leader(self) -> str:
        """The `host:port` of the leader, as soon as there is one."""
        ...

    async def members(self) -> Sequence[str]:
        """The `host:port` of every controller."""
        ...

    def cpu_s(self) -> tuple[float, float] | None:
        """CPU seconds used so far by the leader and by the others; None if that is not known."""
        ...


class AgainstControllers:
    """A quorum that somebody else started, known by the address of one of its controllers."""

    roles = ROLES

    def __init__(self, address: str) -> None:
        self._address = address

    async def leader(self) -> str:
        """See `Controllers`.

        Raises:
            GantryError: nobody answers, or nobody leads.
        """
        leader = await leader_of([self._address])
        await serving(leader)
        return leader

    async def members(self) -> Sequence[str]:
        """See `Controllers`."""
        found = await ask_members(self._address)
        if found is None:
            raise GantryError(f"The controller {self._address} does not answer.")
        return found.all or (self._address,)

    def cpu_s(self) -> tuple[float, float] | None:
        """Somebody else's processes are not looked for."""
        return None


def parse_members(ext: dict[str, str]) -> Members:
    """The answer to GetMetadataInfo; `peers` is `n0:host:port;…` or, by JRaft, `host:port;…`."""
    members = []
    for part in filter(None, ext.get("peers", "").split(";")):
        host, _, port = part.rpartition(":")
        host = host.partition(":")[2] if host.count(":") == 1 else host
        members.append(f"{host}:{port}")
    return Members(ext.get("controllerLeaderAddress") or None, tuple(members))


async def ask_members(address: str) -> Members | None:
    """The quorum by the word of the controller at `address`; None if it says nothing."""
    client = RemotingClient()
    try:
        await client.connect(address, CALL_PATIENCE_S)
        answer = await client.call(
            request(RequestCode.CONTROLLER_GET_METADATA_INFO), CALL_PATIENCE_S
        )
    except RemotingError:
        return None
    finally:
        client.close()
    return parse_members(answer.ext or {})


async def leader_of(addresses: Sequence[str]) -> str:
    """The leader that these controllers name, once they all name the same.

    Raises:
        GantryError: they do not within half a minute.
    """
    deadline = asyncio.get_running_loop().time() + ELECT_PATIENCE_S
    while asyncio.get_running_loop().time() < deadline:
        found = await asyncio.gather(*(ask_members(address) for address in addresses))
        leaders = {None if item is None else item.leader for item in found}
        if len(leaders) == 1 and (leader := leaders.pop()) is not None:
            return leader
        await asyncio.sleep(ASK_S)
    raise GantryError(
        f"{', '.join(addresses)} named no common leader within {ELECT_PATIENCE_S:.0f} s."
    )


async def serving(leader: str) -> None:
    """Until the leader answers requests: Java's DLedger controllers name it some seconds earlier.

    Raises:
        GantryError: it does not within half a minute.
    """
    question = request(RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": "nobody"})
    deadline = asyncio.get_running_loop().time() + ELECT_PATIENCE_S
    while asyncio.get_running_loop().time() < deadline:
        client = RemotingClient()
        try:
            await client.connect(leader, CALL_PATIENCE_S)
            answer = await client.call(question, CALL_PATIENCE_S)
            if answer.code != ResponseCode.CONTROLLER_NOT_LEADER:
                return
        except RemotingError:
            pass  # it may still be starting
        finally:
            client.close()
        await asyncio.sleep(ASK_S)
    raise GantryError(f"{leader} leads, and served nothing within {ELECT_PATIENCE_S:.0f} s.")
