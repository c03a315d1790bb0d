"""Replication links over real sockets: greeting, foreign groups, congestion, bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from gantry_broker.ha import links as links_module
from gantry_broker.ha import listener as listener_module
from gantry_broker.ha.links import Link, ReplicationLinks, same_group
from gantry_broker.ha.listener import GroupKey, ReplicaListener
from gantry_broker.ha.wire import Caller, Received, encode
from gantry_broker.replica import events as ev
from gantry_broker.replica.messages import Ack, Append, Farewell, Hello
from gantry_protocol.types import BrokerId, Epoch, EpochEntry, Offset
from support.patience import PATIENCE_S

MINE = Caller("c", "g", "uid")
HELLO = Hello(
    epoch=Epoch(1),
    broker_id=BrokerId(2),
    incarnation="x",
    log_start=Offset(0),
    end=Offset(0),
    lineage=(),
)
ACK = Ack(epoch=Epoch(1), flushed_end=Offset(0))


class Side:
    """One replica's links, and what they delivered."""

    def __init__(self, caller: Caller = MINE) -> None:
        self.events: list[ev.Event] = []
        self.writable = 0
        self.links = ReplicationLinks(lambda: caller, self.events.append, self._writable)
        self.listener = ReplicaListener()
        self.key = GroupKey(caller.cluster, caller.group)
        self.port = 0

    def _writable(self) -> None:
        self.writable += 1

    async def listen(self) -> Side:
        self.listener.add(self.key, self.links)
        self.port = await self.listener.start("127.0.0.1", 0)
        return self

    async def stop(self) -> None:
        await self.listener.stop()
        await self.links.stop()

    @property
    def refused(self) -> int:
        return self.links.refused + self.listener.refused

    async def call(self, other: Side, number: int = -1) -> None:
        self.links.open(number, f"127.0.0.1:{other.port}")
        await until(lambda: ev.LinkOpened(number) in self.events)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


async def test_messages_arrive_in_order_both_ways() -> None:
    master, replica = await Side().listen(), Side()
    await replica.call(master)
    replica.links.send(-1, HELLO)
    replica.links.send(-1, ACK)
    await until(lambda: len(master.events) == 2)
    assert master.events == [ev.Received(1, HELLO), ev.Received(1, ACK)]
    farewell = Farewell(epoch=Epoch(1), reason="bye")
    master.links.send(1, farewell)
    await until(lambda: ev.Received(-1, farewell) in replica.events)
    await replica.stop()
    await until(lambda: master.events[-1] == ev.LinkClosed(1))
    await master.stop()


def test_nothing_is_heard_of_a_link_that_was_closed() -> None:
    heard: list[object] = []
    ended: list[Link] = []

    def received(link: Link, got: Received) -> None:
        heard.append(got.message)
        link.close()

    unused: Any = None
    link = Link(
        1, MINE, opened=unused, received=received, closed=ended.append, writable=unused, gone=unused
    )
    both = b"".join([*encode(HELLO, MINE), *encode(ACK, MINE)])
    link.data_received(both)
    assert heard == [HELLO], "it was closed between the two"
    link.data_received(both)
    link.data_received(b"no message at all")
    assert (heard, ended) == ([HELLO], [])


async def test_nobody_listening_is_a_closed_link() -> None:
    replica = Side()
    replica.links.open(-1, "127.0.0.1:1")
    await until(lambda: replica.events == [ev.LinkClosed(-1)])
    await replica.stop()


@pytest.mark.parametrize(
    ("theirs", "welcome"),
    [
        (Caller("c", "g", "uid"), True),
        (Caller("c", "g", ""), True),
        (Caller("c", "g", "other"), False),
        (Caller("c", "other", "uid"), False),
        (Caller("other", "g", "uid"), False),
    ],
)
async def test_only_members_of_the_group_are_heard(theirs: Caller, welcome: bool) -> None:
    assert same_group(MINE, theirs) is welcome
    master, replica = await Side().listen(), Side(theirs)
    await replica.call(master)
    replica.links.send(-1, HELLO)
    if welcome:
        await until(lambda: master.events == [ev.Received(1, HELLO)])
    else:
        await until(lambda: ev.LinkClosed(-1) in replica.events)
        (answer,) = [one for one in replica.events if isinstance(one, ev.Received)]
        assert isinstance(answer.message, Farewell)
        assert f"this is {MINE.cluster}/{MINE.group}" in answer.message.reason
        assert master.events == []
        assert master.refused == 1
    await replica.stop()
    await master.stop()


async def test_a_link_begins_with_hello() -> None:
    master, replica = await Side().listen(), Side()
    await replica.call(master)
    replica.links.send(-1, ACK)
    await until(lambda: ev.LinkClosed(-1) in replica.events)
    assert master.events == []
    await replica.stop()
    await master.stop()


async def test_a_silent_stranger_is_shown_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "HELLO_WITHIN_S", 0.01)
    master, stranger = await Side().listen(), Side()
    await stranger.call(master)
    await until(lambda: ev.LinkClosed(-1) in stranger.events)
    assert master.refused == 1
    assert master.events == []
    await stranger.stop()
    await master.stop()


async def test_links_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "MAX_LINKS", 2)
    master, replica = await Side().listen(), Side()
    for number in (-1, -2, -3):
        await replica.call(master, number)
        replica.links.send(number, HELLO)
    await until(lambda: ev.LinkClosed(-3) in replica.events)
    assert len(master.links) == 2
    await replica.stop()
    await master.stop()


async def test_strangers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "STRANGERS_MAX", 2)
    master, stranger = await Side().listen(), Side()
    for number in (-1, -2, -3):
        await stranger.call(master, number)
    await until(lambda: ev.LinkClosed(-3) in stranger.events)
    assert (len(master.listener), master.refused) == (2, 1)
    stranger.links.send(-1, HELLO)
    await until(lambda: master.events == [ev.Received(1, HELLO)])
    assert len(master.listener) == 1, "who belongs here is no stranger any more"
    await stranger.stop()
    await master.stop()


async def test_links_of_many_groups_arrive_at_one_port_and_find_their_own() -> None:
    names = [f"g{number}" for number in range(5)]
    hosts = [Side(Caller("c", name, name)) for name in names]
    listener = ReplicaListener()
    for host in hosts:
        listener.add(host.key, host.links)
        host.port = 0
    port = await listener.start("127.0.0.1", 0)
    for host, name in zip(hosts, names, strict=True):
        host.port = port
        replica = Side(Caller("c", name, name))
        await replica.call(host)
        replica.links.send(-1, HELLO)
        await until(lambda host=host: host.events == [ev.Received(1, HELLO)])
        await replica.stop()
        await until(lambda host=host: host.events[1:] == [ev.LinkClosed(1)])
    listener.remove(hosts[0].key)
    late = Side(Caller("c", "g0", ""))
    await late.call(hosts[0])
    late.links.send(-1, HELLO)
    await until(lambda: ev.LinkClosed(-1) in late.events)
    assert len(hosts[0].events) == 2, "a group that has left takes no links"
    assert listener.refused == 1
    for one in (late, *hosts):
        await one.stop()
    await listener.stop()


async def test_malformed_bytes_end_the_link() -> None:
    master = await Side().listen()
    reader, writer = await asyncio.open_connection("127.0.0.1", master.port)
    writer.write(b"".join(encode(HELLO, MINE)))
    await until(lambda: bool(master.events))
    writer.write(b"x" * 40)
    assert await reader.read() == b""
    assert master.events == [ev.Received(1, HELLO), ev.LinkClosed(1)]
    writer.close()
    await writer.wait_closed()
    await master.stop()


async def test_a_link_that_cannot_take_more_says_so() -> None:
    master, replica = await Side().listen(), Side()
    await replica.call(master)
    replica.links.send(-1, HELLO)
    await until(lambda: bool(master.events))
    transport = replica.links._links[-1]._transport
    assert transport is not None
    transport.pause_reading()
    batch = Append(
        epoch=Epoch(1),
        entry=EpochEntry(Epoch(1), Offset(0)),
        offset=Offset(0),
        confirm=Offset(0),
        in_sync=True,
        data=bytes(256 * 1024),
    )
    sent = 0
    while not master.links.is_congested(1):
        master.links.send(1, batch)
        sent += 1
        assert sent < 200, "the bound is never reached"
    transport.resume_reading()
    await until(lambda: master.writable == 1)
    assert not master.links.is_congested(1)
    await until(lambda: len(replica.events) == sent + 1)
    await replica.stop()
    await master.stop()


async def test_a_closed_link_is_gone_and_says_nothing() -> None:
    master, replica = await Side().listen(), Side()
    await replica.call(master)
    replica.links.send(-1, HELLO)
    await until(lambda: bool(master.events))
    replica.links.close(-1)
    replica.links.send(-1, ACK)
    await until(lambda: master.events[-1] == ev.LinkClosed(1))
    assert ev.LinkClosed(-1) not in replica.events
    assert replica.links.is_congested(-1), "nothing may be fed to it"
    await replica.stop()
    await master.stop()


async def test_a_link_whose_peer_does_not_read_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links_module, "_CLOSE_GRACE_S", 0.02)
    master, replica = await Side().listen(), Side()
    await replica.call(master)
    try:
        replica.links.send(-1, HELLO)
        await until(lambda: bool(master.events))
        (theirs,) = replica.links._sockets
        assert theirs._transport is not None
        theirs._transport.pause_reading()
        entry = EpochEntry(Epoch(1), Offset(0))
        for _ in range(16):
            data = bytes(1 << 20)
            master.links.send(1, Append(Epoch(1), entry, Offset(0), Offset(0), True, data))
        master.links.close(1)
        assert master.links._sockets, "what was sent is given a moment to leave"
        await until(lambda: not master.links._sockets)
    finally:
        await replica.stop()
        await master.stop()
