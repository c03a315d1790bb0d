"""The ports of a front: opened and closed by what controllers answer, and by what they do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gantry_broker.clients.routing import ClientRouter, Pipe
from gantry_broker.front import FrontServer, FrontSettings, led_group
from gantry_broker.front.core.directory import GONE_S
from gantry_broker.front.traced_passing import TracedPipe
from gantry_lab.bench.ports import free_ports
from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.access import ClusterAccess
from gantry_protocol.bodies.fronts import FrontGroupRow, FrontGroups
from gantry_protocol.command import reply, request
from gantry_protocol.errors import Busy
from gantry_protocol.process import log
from gantry_protocol.process.live_settings import FileRead
from gantry_protocol.types import Epoch
from support.remote_group import RemoteGroup

pytestmark = pytest.mark.looptime
A, B = FrontGroupRow("a", 1, Epoch(1)), FrontGroupRow("b", 0, Epoch(1))


def told(front: FrontServer, digest: str, *rows: FrontGroupRow) -> None:
    body = encode_body(FrontGroups(digest, list(rows)))
    front._told(reply(request(1), body=body), "" if rows else digest)


@asynccontextmanager
async def front_at(port: int) -> AsyncIterator[FrontServer]:
    """A front with this port alone, which asks nobody."""
    settings = FrontSettings(
        controllers=["127.0.0.1:1"], bind="127.0.0.1", first_port=port, ports=1
    )
    front = FrontServer(settings)
    try:
        yield front
    finally:
        await front._close_groups()


async def test_a_group_that_is_gone_is_let_go_of_though_nothing_is_new() -> None:
    """Only a controller's word counts: without an answer nobody knows that it is still gone."""
    port = free_ports(1)[0]
    async with front_at(port) as front:
        told(front, "1", A, B)
        await asyncio.sleep(1)
        assert front.groups["b"].port == port
        told(front, "2", A)
        for _ in range(3):
            await asyncio.sleep(GONE_S)
            front._told(Busy("no controller answers"))
        assert "b" in front.groups
        told(front, "1", A, B)
        await asyncio.sleep(1)
        told(front, "2", A)
        for _ in range(int(GONE_S)):
            told(front, "2")
            await asyncio.sleep(1)
        assert "b" in front.groups
        told(front, "2")
        await asyncio.sleep(1)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        assert front.groups == {}


async def test_nothing_new_for_a_digest_of_before_does_not_mean_no_groups() -> None:
    """Once a port was opened all groups are asked for anew; an older question is answered then."""
    async with front_at(free_ports(1)[0]) as front:
        told(front, "2", A)
        front._digest = ""
        told(front, "2")
        assert front._digest == ""
        assert front._rows == [A]


async def test_a_group_at_a_front_has_a_gate_where_clients_need_users() -> None:
    """What it serves from a tier passes no master's gate."""
    async with front_at(free_ports(1)[0]) as front:
        told(front, "1", B)
        await asyncio.sleep(1)
        router = front.groups["b"].router
        assert router.gate is not None, "nobody has said yet"
        front.access._take(ClusterAccess(0, is_news=True))
        assert router.gate is None
        front.access._take(ClusterAccess(1, enabled=True, is_news=True))
        assert router.gate is not None
        await front._close_groups()
        assert not front.access._listeners


async def test_settings_that_change_are_in_force_for_groups_and_their_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels: list[str] = []
    monkeypatch.setattr(log, "set_level", levels.append)
    async with front_at(free_ports(1)[0]) as front:
        told(front, "1", B)
        await asyncio.sleep(1)
        group = front.groups["b"]
        assert group.router.make_pipe is Pipe
        client = Pipe.__new__(Pipe)
        monkeypatch.setattr(ClientRouter, "pipes", property(lambda _: [client]))
        others = {"tracing_endpoint": "http://nowhere", "tracing_ratio": 0.5}
        front._tune(
            front.settings.model_copy(
                update={"log_level": "debug", "connection_age_s": 7.0, **others}
            )
        )
        assert (levels, front.settings.connection_age_s) == (["debug"], 7.0)
        passed = group._passed
        assert passed is not None
        assert (passed.is_on, passed.ratio) == (True, 0.5)
        assert group.router.make_pipe is not Pipe
        assert isinstance(client, TracedPipe), "it was there before"
        monkeypatch.setattr(group.connection, "store_host", ("10.0.0.2", 10911))
        master = RemoteGroup(tmp_path)
        group.store_opened(master.remote, Epoch(1))
        assert group.asides is not None
        traced = group.asides.traced
        assert traced is not None
        front._tune(front.settings.model_copy(update={"tracing_ratio": 0.25}))
        assert (passed.ratio, traced.ratio) == (0.25, 0.25)
        assert (group._passed, group.asides.traced) == (passed, traced), "sends are under way"
        front._tune(front.settings.model_copy(update={"tracing_endpoint": None}))
        assert group.router.make_pipe is Pipe
        assert not traced.is_on
        group.store_lost()
        group.store_opened(master.remote, Epoch(2))
        assert group.asides is not None
        assert group.asides.traced is None
        master.messages.log.close()


async def test_a_group_that_is_opened_amid_a_change_has_the_new_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with front_at(free_ports(1)[0]) as front:
        start = led_group.LedGroup.start

        async def slowly(group: led_group.LedGroup, index: int) -> None:
            await start(group, index)
            front._tune(front.settings.model_copy(update={"tracing_endpoint": "http://nowhere"}))

        monkeypatch.setattr(led_group.LedGroup, "start", slowly)
        told(front, "1", B)
        await asyncio.sleep(1)
        assert front.groups["b"].router.make_pipe is not Pipe


async def test_a_front_says_which_file_it_has_and_why_it_refuses_one() -> None:
    async with front_at(free_ports(1)[0]) as front:
        assert (front.status()["settings"], front.status()["settingsRefused"]) == ("", "")
        wished = front.settings.model_copy(update={"connection_age_s": 7.0, "ports": 9})
        front._settings_watch.take(FileRead("1", wished))
        assert (front.settings.connection_age_s, front.settings.ports) == (7.0, 1)
        front._settings_watch.take(FileRead("2", None, "wrong"))
        assert (front.status()["settings"], front.status()["settingsRefused"]) == ("1", "wrong")
