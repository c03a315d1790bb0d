"""Controllers that a test puts words into the mouth of."""

from __future__ import annotations

from typing import Any

from gantry_protocol.admin import FrontsView
from gantry_protocol.admin_client.errors import AdminError
from unit.operator.world import quorum, view


class FakeAdmin:
    """Says what it is told to say and remembers what it was asked for."""

    def __init__(self) -> None:
        self.known: Any = view()
        self.shards: dict[str, Any] = {}
        self.quorum: Any = quorum()
        self.leads: Any = FrontsView()
        self.asked: list[str] = []
        self.failure: dict[str, AdminError] = {}

    def _enter(self, verb: str, *facts: object) -> None:
        self.asked.append(" ".join(map(str, (verb, *facts))))
        for what in (verb, f"{verb} {facts[0] if facts else ''}"):
            if what in self.failure:
                raise self.failure[what]

    async def group(self, name: str) -> Any:
        self.asked.append(f"group {name}")
        return self.shards.get(name, self.known)

    async def view(self) -> Any:
        return self.quorum

    async def declare(self, name: str, declaration: Any) -> None:
        self._enter("declare", name, declaration.replicas)

    async def change_members(self, change: str, number: int, address: str = "") -> None:
        self._enter(change, number, *([address] if address else ()))

    async def fronts(self) -> Any:
        return self.leads

    async def declare_fronts(self, name: str, declaration: Any) -> None:
        self._enter("declare-fronts", name, declaration.address, declaration.ports)

    async def remove_fronts(self, name: str) -> None:
        self._enter("remove-fronts", name)

    async def elect(self, name: str, broker_id: int, master_epoch: int) -> None:
        self._enter("elect", name, broker_id, master_epoch)

    async def report_gone(self, name: str, pod_uid: str) -> None:
        self._enter("gone", name, pod_uid)

    async def retire(self, name: str, uid: str) -> None:
        self._enter("retire", name, uid)

    async def drain(self, name: str, uid: str | None = None) -> None:
        self._enter("drain", name, uid)

    async def end_drain(self, name: str) -> None:
        self._enter("end-drain", name)

    async def forget_member(self, name: str, broker_id: int, incarnation: str | None) -> None:
        self._enter("forget-member", name, broker_id, incarnation)

    async def adopt(self, group: Any, broker_ids: list[int], *, accept_missing: bool) -> None:
        assert not accept_missing
        self._enter("adopt", group.name, *broker_ids)

    async def forget(self, name: str, uid: str) -> None:
        self._enter("forget", name, uid)


class FakeDirectory:
    """One admin for every quorum."""

    def __init__(self, admin: FakeAdmin) -> None:
        self._admin = admin
        self.named: list[tuple[str, str]] = []
        self.followed: list[tuple[str, str]] = []
        self.dropped: list[tuple[str, str]] = []
        self.known: set[tuple[str, str]] = set()

    def admin(self, namespace: str, name: str) -> Any:
        self.named.append((namespace, name))
        return self._admin

    def known_groups(self) -> set[tuple[str, str]]:
        return self.known

    def follow(self, namespace: str, name: str, _: Any) -> None:
        self.followed.append((namespace, name))

    def drop(self, namespace: str, name: str) -> None:
        self.dropped.append((namespace, name))
