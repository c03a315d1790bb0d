"""The line of one process to the controllers, shared by all its groups.

One connection to each controller, one heartbeat message per controller and interval, one look per
second at what may have changed. A process with a single group says with BrokerHeartbeat and
GetReplicaInfo what RocketMQ says; with more it says the same in rows (Heartbeats,
GetChangedGroups). What a group wants said at once (it was promoted, it leaves) is said at the end
of this turn of the loop, with whatever others want said.

Rules protected: no group's heartbeat waits for another's; a group that is not registered is silent;
and a look only ever leads to the group's own poll, or says that what GetReplicaInfo said last is so
still.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from gantry_protocol.bodies import decode_body
from gantry_protocol.bodies.batches import BATCH_MAX, ChangedBody, LookRow
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import WireError
from gantry_protocol.headers.controller import BrokerHeartbeatRequestHeader
from gantry_protocol.process.tasks import keep
from gantry_protocol.quorum_key import NO_KEY, KeyFile
from gantry_protocol.remoting.asking import Outcome

from gantry_broker.control import requests
from gantry_broker.control.peers import ControllerPeers

ItemT = TypeVar("ItemT")

CALL_TIMEOUT_S = 1.0
LOOK_EVERY_S = 1.0


class GroupAgent(Protocol):
    """One group's agent, as the line sees it."""

    @property
    def group(self) -> str:
        """The group's name."""

    def heartbeat(self) -> BrokerHeartbeatRequestHeader | None:
        """Its heartbeat now; None while it is not registered."""

    def look(self) -> LookRow | None:
        """Its copy of the controllers' last word; None while it is not registered."""

    def refresh(self) -> None:
        """Poll the controllers soon."""

    def heard(self, asked_s: float) -> None:
        """The controllers' leader answered what was asked about the group then."""


class ControllerLine:
    """See the module.

    Args:
        cluster: of all groups of the process.
        controllers: ``host:port`` of every controller.
        pod_uid: of the process's pod, if it has one.
        heartbeat_interval_ms: between heartbeats.
        heartbeat_timeout_ms: after which silence the controllers may take our groups for gone.
        key: shown to the controllers.

    Attributes:
        cluster: of all groups of the process.
        messages: heartbeat messages made; each goes to every controller.
    """

    def __init__(
        self,
        cluster: str,
        controllers: list[str],
        *,
        pod_uid: str | None,
        heartbeat_interval_ms: int,
        heartbeat_timeout_ms: int,
        key: KeyFile = NO_KEY,
    ) -> None:
        """Nothing is sent before ``start``."""
        self.messages = 0
        self.peers = ControllerPeers(controllers, self._connected, key)
        self.timeout_ms = heartbeat_timeout_ms
        self.cluster = cluster
        self._pod_uid = pod_uid
        self._interval_s = heartbeat_interval_ms / 1000
        self._members: dict[str, GroupAgent] = {}
        self._urgent: dict[str, GroupAgent] = {}
        self._looks = 0  # not answered yet
        self._looked_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect, heartbeat and look from now on."""
        self.peers.start()
        self._task = keep(self._beat_and_look(), "heartbeats")

    async def stop(self) -> None:
        """Say nothing more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.peers.stop()

    def join(self, member: GroupAgent) -> None:
        """Speak for ``member`` too."""
        assert member.group not in self._members, member.group
        self._members[member.group] = member

    def leave(self, member: GroupAgent) -> None:
        """Speak for it no more; twice is harmless."""
        self._members.pop(member.group, None)
        self._urgent.pop(member.group, None)

    def beat(self, member: GroupAgent) -> None:
        """A heartbeat of ``member`` to every controller, in this turn of the loop."""
        if not self._urgent:
            asyncio.get_running_loop().call_soon(self._say_urgent)
        self._urgent[member.group] = member

    # ---- inside

    def _connected(self) -> None:
        """A controller has just connected: it must not think us dead, and may know more."""
        self._say(list(self._members.values()))
        self._look()

    async def _beat_and_look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._interval_s)
            self._say(list(self._members.values()))
            if loop.time() - self._looked_s >= LOOK_EVERY_S:
                self._look()

    def _say_urgent(self) -> None:
        urgent, self._urgent = self._urgent, {}
        self._say(list(urgent.values()))

    def _say(self, members: list[GroupAgent]) -> None:
        headers = [header for member in members if (header := member.heartbeat()) is not None]
        if len(headers) == 1:
            self.messages += 1
            self.peers.tell_all(lambda: requests.heartbeat_command(headers[0]))
            return
        for some in _batched(headers):
            self.messages += 1
            body = requests.heartbeats_body(
                self.cluster, some, timeout_ms=self.timeout_ms, pod_uid=self._pod_uid
            )
            self.peers.tell_all(partial(requests.heartbeats_command, body))

    def _look(self) -> None:
        """Read the groups from the controllers that have something new to say of them."""
        if self._looks:
            return
        self._looked_s = asyncio.get_running_loop().time()
        if len(self._members) == 1:
            for member in self._members.values():
                member.refresh()
            return
        rows = [row for item in self._members.values() if (row := item.look()) is not None]
        for some in _batched(rows):
            self._looks += 1
            command = requests.looks(self.cluster, some)
            names = [row.broker_name for row in some]
            asked = partial(self._looked, names, self._looked_s)
            self.peers.ask(command, asked, CALL_TIMEOUT_S)

    def _looked(self, names: list[str], asked_s: float, outcome: Outcome) -> None:
        self._looks -= 1
        if not isinstance(outcome, RemotingCommand) or outcome.code != ResponseCode.SUCCESS:
            return
        with suppress(WireError):
            changed = set(decode_body(ChangedBody, outcome.body).changed)
            for name in names:
                member = self._members.get(name)
                if member is None:
                    continue
                if name in changed:
                    member.refresh()
                else:
                    member.heard(asked_s)


def _batched(items: Sequence[ItemT]) -> Iterator[Sequence[ItemT]]:
    return (items[at : at + BATCH_MAX] for at in range(0, len(items), BATCH_MAX))
