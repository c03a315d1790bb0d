"""Replication links between members with certificates: over sockets, by group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from gantry_broker.ha import links, repair
from gantry_broker.ha import listener as ha_listener
from gantry_broker.ha.links import ReplicationLinks
from gantry_broker.ha.listener import GroupKey, ReplicaListener
from gantry_broker.ha.wire import Caller
from gantry_broker.replica import events as ev
from gantry_broker.replica.messages import Farewell, Hello
from gantry_protocol.errors import KeyRefused
from gantry_protocol.member_tls import arriving
from gantry_protocol.member_tls.process import MemberTls
from gantry_protocol.quorum_key import KeyFile, write_key
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.certificates import MemberAuthority
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HELLO = Hello(Epoch(1), BrokerId(2), "x", Offset(0), Offset(0), ())
ORDERS = Caller("c", "orders", "uid")


class Side:
    """One process that says that it is of a group, with a certificate for another one perhaps."""

    def __init__(
        self,
        directory: Path,
        authority: MemberAuthority,
        mode: str | None,
        groups: tuple[str, ...] = ("orders",),
        *,
        is_keyed: bool = True,
    ) -> None:
        uris = [f"gantry://mq/broker/c/{group}" for group in groups]
        tls = (
            {}
            if mode is None
            else {"tls": MemberTls(authority.settings("-".join(groups), *uris, mode=mode))}
        )
        self.key = KeyFile(write_key(directory / "key") if is_keyed else None, **tls)
        self.events: list[ev.Event] = []
        self.links = ReplicationLinks(lambda: ORDERS, self.events.append, lambda: None, self.key)
        self.listener = ReplicaListener(self.key)
        self.listener.add(GroupKey("c", "orders"), self.links)
        self.port = 0

    async def stop(self) -> None:
        await self.listener.stop()
        await self.links.stop()

    async def heard(self, kind: type[ev.Event]) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            while not (found := [one for one in self.events if isinstance(one, kind)]):
                await asyncio.sleep(0.001)
        return found[0]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Side]:
    """Makes sides, which a busy machine may keep waiting for long."""
    monkeypatch.setattr(links, "CONNECT_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(ha_listener, "HELLO_WITHIN_S", PATIENCE_S)
    monkeypatch.setattr(arriving, "SHAKE_WITHIN_S", PATIENCE_S)
    authority = MemberAuthority(tmp_path / "authority")
    return lambda *args, **more: Side(tmp_path, authority, *args, **more)


async def meet(listener: Side, dialler: Side) -> None:
    """The dialler connects to the listener and says Hello."""
    listener.port = await listener.listener.start("127.0.0.1", 0)
    dialler.links.open(-1, f"127.0.0.1:{listener.port}")
    if isinstance(await dialler.heard(ev.LinkOpened | ev.LinkClosed), ev.LinkOpened):
        dialler.links.send(-1, HELLO)


@pytest.mark.parametrize("listener", [None, "permissive", "enforcing"])
@pytest.mark.parametrize("dialler", [None, "permissive", "enforcing"])
@pytest.mark.parametrize("is_keyed", [True, False])
async def test_modes_that_go_together(
    make: Callable[..., Side], listener: str | None, dialler: str | None, *, is_keyed: bool
) -> None:
    one, other = make(listener, is_keyed=is_keyed), make(dialler, is_keyed=is_keyed)
    try:
        await meet(one, other)
        speak = {listener, dialler} != {None, "enforcing"}
        if speak:
            assert (await one.heard(ev.Received)).message == HELLO
        else:
            await other.heard(ev.LinkClosed)
            assert one.events == []
        by_tls = None not in (listener, dialler)
        assert one.key.tls.handshakes == int(by_tls)
        assert one.key.tls.plain_accepted == int(speak and listener is not None and not by_tls)
        assert other.key.tls.plain_dials == int(speak and dialler is not None and not by_tls)
    finally:
        await one.stop()
        await other.stop()


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_replica_with_the_certificate_of_another_group_is_refused(
    make: Callable[..., Side], mode: str
) -> None:
    one, other = make(mode, groups=("orders", "bills")), make(mode, groups=("bills",))
    try:
        await meet(one, other)
        farewell = (await other.heard(ev.Received)).message
        assert isinstance(farewell, Farewell)
        assert farewell.reason == "your certificate is not for that group"
        assert one.events == []
        assert one.key.tls.refused["name"] == 1
    finally:
        await one.stop()
        await other.stop()


async def test_master_with_the_certificate_of_another_group_is_not_followed(
    make: Callable[..., Side],
) -> None:
    one, other = make("enforcing", groups=("bills",)), make("enforcing")
    try:
        await meet(one, other)
        await other.heard(ev.LinkClosed)
        assert other.key.tls.refused["listener"] == 1
        with pytest.raises(KeyRefused, match="and not for gantry://mq/broker/c/orders"):
            await repair.fetch(f"127.0.0.1:{one.port}", 0, 10, ORDERS, other.key)
        assert one.events == []
    finally:
        await one.stop()
        await other.stop()
