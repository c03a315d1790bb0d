"""One real member of a group, without controllers and without other members.

Group, shell, replica core, store, writes and disk are the product's. What it says to the
controllers and on links is written down, and what they say is a test's word: ``elect``, ``hello``,
``ack``. Nothing happens that was not said; ``settle`` lets disks and the event loop catch up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gantry_broker.control import identity as identities
from gantry_broker.member.group import ReplicationGroup
from gantry_broker.member.options import GroupOptions, Watcher
from gantry_broker.member.shared_resources import SharedResources
from gantry_broker.replica import ControllerView
from gantry_broker.replica import events as ev
from gantry_broker.replica.messages import Ack, Append, Hello, Message, Truncate
from gantry_broker.retention.disk_space import DiskSpace, Usage, Watermarks
from gantry_broker.store.contract import SendOutcome
from gantry_protocol.command import RemotingCommand
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.types import BrokerId, Epoch, EpochEntry, Offset
from support.broker_cluster import eventually
from support.stores import message

CLUSTER, GROUP = "c", "g"
ME = BrokerId(1)


class Line:
    """To controllers that never answer; ``asked`` is what they were asked."""

    cluster = CLUSTER
    timeout_ms = 2_500

    def __init__(self) -> None:
        self.peers = self
        self.connections = 0
        self.asked: list[tuple[RemotingCommand, Callable[[Outcome], None]]] = []

    def ask(self, command: RemotingCommand, done: Callable[[Outcome], None], _: float) -> None:
        self.asked.append((command, done))

    def join(self, _: object) -> None: ...
    def leave(self, _: object) -> None: ...
    def beat(self, _: object) -> None: ...


class Links:
    """Links that lead nowhere; ``sent``, ``opened`` and ``closed`` are what became of them."""

    refused = 0

    def __init__(self) -> None:
        self.sent: list[tuple[int, Message]] = []
        self.opened: list[int] = []
        self.closed: list[int] = []

    def open(self, link: int, _: str) -> None:
        self.opened.append(link)

    def send(self, link: int, message: Message) -> None:
        self.sent.append((link, message))

    def close(self, link: int) -> None:
        self.closed.append(link)

    def is_congested(self, _: int) -> bool:
        return False

    def peer(self, _: int) -> str:
        return ""

    def __len__(self) -> int:
        return 0

    async def stop(self) -> None: ...


class Watched(Watcher):
    """What whoever watches the role is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def serving_began(self) -> None:
        self.told.append("began")

    def serving_ends(self) -> None:
        self.told.append("ends")


class LoneMember:
    """See the module.

    Attributes:
        group: the member.
        codes: what its sends were answered, in order.
    """

    def __init__(self, group: ReplicationGroup, line: Line, links: Links) -> None:
        self.group = group
        self.line = line
        self.links = links
        self.watched = Watched()
        group.watcher = self.watched
        self.codes: list[int] = []
        self._set_epoch = 0
        self._has_stopped = False

    async def stop(self) -> None:
        """The member ends."""
        if not self._has_stopped:
            self._has_stopped = True
            await self.group.stop()

    @property
    def core(self) -> Any:
        """Its replica core."""
        assert self.group.core is not None
        return self.group.core

    # ---- what the controllers say

    def view(
        self,
        epoch: int,
        *,
        master: int = ME,
        members: tuple[int, ...] = (1,),
        min_in_sync: int = 1,
    ) -> ControllerView:
        self._set_epoch += 1
        return ControllerView(
            master_epoch=Epoch(epoch),
            master_id=BrokerId(master),
            master_incarnation=self.group.incarnation if master == ME else f"of {master}",
            master_ha_address="127.0.0.1:1",
            sync_state_set=frozenset(map(BrokerId, members)),
            sync_state_set_epoch=self._set_epoch,
            min_in_sync=min_in_sync,
        )

    def learn(self, view: ControllerView) -> None:
        self.group.step(ev.ViewLearned(view))

    async def elect(
        self, epoch: int, *, members: tuple[int, ...] = (1,), min_in_sync: int = 1
    ) -> None:
        """It is the master of ``epoch`` from now on."""
        self.learn(self.view(epoch, members=members, min_in_sync=min_in_sync))
        await eventually(lambda: self.group.serving, "it serves")

    def depose(self, epoch: int) -> None:
        """Broker 2 is the master of ``epoch``."""
        self.learn(self.view(epoch, master=2, members=(1, 2)))

    # ---- what other members say

    def hello(self, broker_id: int, link: int) -> None:
        """A replica with an empty log attaches, and takes all there is from now on."""
        hello = Hello(
            epoch=self.core.epoch,
            broker_id=BrokerId(broker_id),
            incarnation="x",
            log_start=Offset(0),
            end=Offset(0),
            lineage=(),
            draining=False,
        )
        self.group.step(ev.Received(link, hello))
        self.ack(link, 0)

    def ack(self, link: int, end: int) -> None:
        """What a replica has on its disk."""
        self.group.step(ev.Received(link, Ack(self.core.epoch, Offset(end), draining=False)))

    async def follow(self, epoch: int) -> int:
        """It follows broker 2, whose log is empty; returns the link."""
        self.depose(epoch)
        await eventually(lambda: bool(self.links.opened), "it connects")
        link = self.links.opened[-1]
        self.group.step(ev.LinkOpened(link))
        truncate = Truncate(
            epoch=Epoch(epoch),
            incarnation="of 2",
            point=Offset(0),
            entry=EpochEntry(Epoch(epoch), Offset(0)),
        )
        self.group.step(ev.Received(link, truncate))
        await eventually(lambda: bool(self.core.streaming), "it is attached")
        return link

    def feed(self, link: int, epoch: int, data: bytes, confirm: int = 0) -> None:
        """The master's next bytes."""
        entry = EpochEntry(Epoch(epoch), Offset(0))
        end = self.core.log.end
        append = Append(Epoch(epoch), entry, end, Offset(confirm), in_sync=True, data=data)
        self.group.step(ev.Received(link, append))

    # ---- clients

    def send(self, body: bytes = b"x" * 100, count: int = 1) -> None:
        """One message or a batch; its answer is in ``codes``, once there is one."""
        records = [message(body=body) for _ in range(count)]
        self.group.writes.append(records, self._answered)

    def _answered(self, outcome: SendOutcome) -> None:
        self.codes.append(outcome.code)

    @property
    def end(self) -> int:
        """Of its log."""
        return self.group.store.log.end

    async def flushed(self) -> None:
        """All that was appended is on the disk, and the core knows."""
        await eventually(lambda: self.core.log.flushed == self.end, "it is flushed")


@asynccontextmanager
async def lone_member(directory: Path) -> AsyncIterator[LoneMember]:
    """A member with an empty volume and the id 1, which knows nothing of its group yet."""
    identities.save(directory, identities.Identity(CLUSTER, GROUP, "c", ME))
    line, links = Line(), Links()
    any_line: Any = line
    shared = SharedResources(any_line, DiskSpace(directory, Watermarks(), lambda _: Usage(10.0, 1)))
    options = GroupOptions(
        cluster=CLUSTER,
        group=GROUP,
        directory=directory,
        advertise="127.0.0.1",
        remoting_port=1,
        log_segment_bytes=64 * 1024,
    )
    group = await ReplicationGroup.open(options, shared)
    any_links: Any = links
    group.links = any_links
    await group.start()
    made = LoneMember(group, line, links)
    try:
        yield made
    finally:
        await made.stop()
        await asyncio.to_thread(shared._end_threads)
