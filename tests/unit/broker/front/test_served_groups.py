"""The ports of a front: opened and closed by what controllers answer, and by what they do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from gantry_broker.front import FrontServer, FrontSettings
from gantry_broker.front.core.directory import GONE_S
from gantry_lab.bench.ports import free_ports
from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.access import ClusterAccess
from gantry_protocol.bodies.fronts import FrontGroupRow, FrontGroups
from gantry_protocol.command import reply, request
from gantry_protocol.errors import Busy
from gantry_protocol.types import Epoch

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
