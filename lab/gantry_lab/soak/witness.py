"""Observations of a group beside its load, for a history: reads, roles, leaders, offsets.

The controllers are asked for the group's master by several readers at once, whose answers a checker
compares with each other. Every broker is asked what it takes itself for, at the port of its probes,
which no fault between the members of a group cuts off from here.

What it refuses: to take silence for an answer. A read that nobody answered is entered as one, and a
broker that does not answer is `gone`.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import aiohttp
from gantry_chaos.history.observations import LeaderSeen, OffsetSeen, RoleSeen
from gantry_chaos.history.recording import metadata_read, metadata_unread
from gantry_cli.admin import AdminClient
from gantry_operator import names
from gantry_protocol.errors import GantryError
from gantry_protocol.hosts import join_address, resolve, split_address

from gantry_lab.soak.commits import now_ms

if TYPE_CHECKING:
    from typing import Self

    from gantry_chaos.history.records import Records
    from gantry_cli.target import Admin
    from gantry_protocol.admin import GroupView, MemberView

READERS = 2
READ_INTERVAL_S = 0.1
LOOK_INTERVAL_S = 0.2
LOOK_TIMEOUT_S = 1.0
GONE = "gone"


class Witness:
    """Watches the group `name` from entering the context to leaving it.

    Args:
        admin: where the controllers are.
        name: the group.
        records: gets everything that is seen.
    """

    def __init__(self, admin: Admin, name: str, records: Records) -> None:
        self.group: GroupView | None = None  # as last read
        self._admin = admin
        self._name = name
        self._records = records
        self._roles: dict[str, tuple[str, int]] = {}  # by broker, as last recorded
        self._uids: dict[int, str] = {}  # of pods, by broker id
        self._leader: tuple[str, int] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        clients = [
            await self._stack.enter_async_context(
                AdminClient(self._admin.controllers, self._admin.token)
            )
            for _ in range(READERS)
        ]
        session = await self._stack.enter_async_context(
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LOOK_TIMEOUT_S))
        )
        self._tasks = [
            *(
                asyncio.create_task(self._read(f"reader-{number}", client))
                for number, client in enumerate(clients)
            ),
            asyncio.create_task(self._look(clients[0], session)),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    def raise_if_broken(self) -> None:
        """Raise what ended one of the tasks, if one has ended with an error."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _read(self, client: str, admin: AdminClient) -> None:
        while True:
            called_ms = now_ms()
            try:
                found = [item for item in await admin.groups() if item.name == self._name]
            except GantryError:
                lines = metadata_unread(client, self._name, called_ms, now_ms())
            else:
                if not found:  # not declared yet: there is no register
                    await asyncio.sleep(READ_INTERVAL_S)
                    continue
                self.group = found[0]
                lines = metadata_read(
                    client,
                    self._name,
                    called_ms,
                    now_ms(),
                    found[0].master_epoch,
                    None if found[0].master_broker_id is None else str(found[0].master_broker_id),
                )
            for line in lines:
                self._records.line(line)
            await asyncio.sleep(READ_INTERVAL_S)

    async def _look(self, admin: AdminClient, session: aiohttp.ClientSession) -> None:
        while True:
            members = [] if self.group is None else self.group.members
            documents, _ = await asyncio.gather(
                asyncio.gather(*(_status(session, member.address) for member in members)),
                self._look_at_leader(admin),
            )
            for member, document in zip(members, documents, strict=True):
                role, epoch = (GONE, 0) if document is None else role_of(document)
                if name := self._broker(member):
                    self._enter_role(name, role, epoch)
            self._enter_offsets([item for item in documents if item is not None])
            await asyncio.sleep(LOOK_INTERVAL_S)

    def _broker(self, member: MemberView) -> str | None:
        """What a broker goes by: its pod's uid, which whoever sees the pods turns into a name.

        A leader that is new may not have heard it yet; then the last one known counts.
        """
        if member.pod_uid:
            self._uids[member.broker_id] = member.pod_uid
        return self._uids.get(member.broker_id)

    async def _look_at_leader(self, admin: AdminClient) -> None:
        view = await admin.leader()
        leads = view is not None and view.leader_name is not None
        leader = (view.leader_name or "", view.term) if view is not None and leads else ("", 0)
        if leader != self._leader:
            self._leader = leader
            self._records.seen(LeaderSeen(now_ms(), *leader))

    def _enter_role(self, broker: str, role: str, epoch: int) -> None:
        if self._roles.get(broker) != (role, epoch):
            self._roles[broker] = (role, epoch)
            self._records.seen(RoleSeen(now_ms(), self._name, broker, role, epoch))

    def _enter_offsets(self, documents: list[dict[str, Any]]) -> None:
        """Confirm and tier offset, by the word of the master of the highest epoch."""
        masters = [document for document in documents if role_of(document)[0] == names.ROLE_MASTER]
        if not masters:
            return
        master = max(masters, key=lambda item: role_of(item)[1])
        self._records.seen(OffsetSeen(now_ms(), self._name, "confirm", master["confirmOffset"]))
        tier = master.get("tier") or {}
        if tier.get("committedOffset") is not None:
            self._records.seen(OffsetSeen(now_ms(), self._name, "tier", tier["committedOffset"]))


def role_of(document: dict[str, Any]) -> tuple[str, int]:
    """Role and epoch in a broker's status document; the epoch counts for masters only."""
    role = str(document.get("role", GONE))
    return role, int(document.get("epoch") or 0) if role == names.ROLE_MASTER else 0


async def _status(session: aiohttp.ClientSession, address: str) -> dict[str, Any] | None:
    """What a broker says of itself; None: it does not answer."""
    host, _ = split_address(address, names.BROKER_REMOTING_PORT)
    try:
        url = f"http://{join_address(await resolve(host), names.BROKER_HTTP_PORT)}/status"
        async with session.get(url) as response:
            if response.status != 200:
                return None
            found: dict[str, Any] = await response.json()
    except (GantryError, aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return None
    return found
