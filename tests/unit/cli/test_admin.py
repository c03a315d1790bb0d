"""The admin reader: finds the leader, follows hints without end only once, names what is wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest
from aiohttp import web
from gantry_cli.admin import AdminClient
from gantry_protocol.admin_client.quorum import Endpoint
from gantry_protocol.errors import GantryError
from support.patience import PATIENCE_S

Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Member:
    """One controller's HTTP server whose answers a test decides."""

    def __init__(self) -> None:
        self.asked = 0
        self.respond: Respond = self.leading
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        async def handle(request: web.Request) -> web.StreamResponse:
            self.asked += 1
            return await self.respond(request)

        app = web.Application()
        app.router.add_get("/{path:.*}", handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def leading(self, request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] != "Bearer secret":
            return web.json_response({"error": "FORBIDDEN", "message": "wrong token"}, status=403)
        if request.path == "/v1/groups":
            group = {
                "cluster": "gantry",
                "name": f"seen-by-{self.port}",
                "masterEpoch": 1,
                "syncStateSet": [1],
                "syncStateSetEpoch": 1,
            }
            return web.json_response({"index": 1, "groups": [group]})
        return web.json_response(
            {
                "clusterUid": "u",
                "nodeId": self.port,
                "name": "c-0",
                "term": 3,
                "role": "leader",
                "commitIndex": 9,
                "appliedIndex": 9,
                "peers": [],
            }
        )

    def following(self, leader: str | None) -> None:
        async def refuse(_: web.Request) -> web.StreamResponse:
            return web.json_response(
                {"error": "NOT_LEADER", "message": "ask the leader", "leader": leader}, status=421
            )

        self.respond = refuse


@pytest.fixture
async def members() -> AsyncIterator[list[Member]]:
    found = [Member() for _ in range(3)]
    for member in found:
        await member.start()
    yield found
    for member in found:
        await member.stop()


def client(members: list[Member], token: str = "secret") -> AdminClient:
    found = [Endpoint(f"c-{n}", "127.0.0.1", member.port) for n, member in enumerate(members)]
    return AdminClient(found, token)


async def test_leader_is_found_by_its_followers_hint_and_asked_first_from_then_on(
    members: list[Member],
) -> None:
    first, second, leader = members
    first.following("http://c-2.controllers:9880")
    async with client(members) as admin:
        assert (await admin.groups())[0].name == f"seen-by-{leader.port}"
        assert (await admin.groups())[0].name == f"seen-by-{leader.port}"
    assert (first.asked, second.asked, leader.asked) == (1, 0, 2)


async def test_groups_are_read_page_by_page(members: list[Member]) -> None:
    leader = members[0]
    asked: list[str] = []

    async def page(request: web.Request) -> web.StreamResponse:
        asked.append(request.query.get("continue", ""))
        group = {
            "cluster": "gantry",
            "name": f"g{len(asked)}",
            "masterEpoch": 1,
            "syncStateSet": [1],
            "syncStateSetEpoch": 1,
        }
        after = {1: "a+b/c=", 2: None}[len(asked)]
        return web.json_response({"index": 1, "groups": [group], "continue": after})

    leader.respond = page
    async with client(members) as admin:
        assert [group.name for group in await admin.groups()] == ["g1", "g2"]
    assert asked == ["", "a+b/c="]


async def test_dead_member_is_passed_over(members: list[Member]) -> None:
    await members[0].stop()
    members[0].stop = _nothing  # type: ignore[method-assign]  # it is stopped already
    async with client(members) as admin:
        assert (await admin.groups())[0].name == f"seen-by-{members[1].port}"


async def test_hints_in_a_circle_end_in_one_sentence(members: list[Member]) -> None:
    for member, other in zip(members, (1, 2, 0), strict=True):
        member.following(f"http://c-{other}:9880")
    async with client(members) as admin:
        with pytest.raises(GantryError, match="there is no leader at the moment"):
            await admin.groups()
    assert sum(member.asked for member in members) <= 12


async def test_wrong_token_is_said_at_once(members: list[Member]) -> None:
    async with client(members, token="wrong") as admin:
        with pytest.raises(GantryError, match="refuse the admin token: FORBIDDEN: wrong token"):
            await admin.groups()
    assert members[1].asked == 0


async def test_answer_of_another_version_is_named(members: list[Member]) -> None:
    async def strange(_: web.Request) -> web.StreamResponse:
        return web.json_response({"groups": "many"})

    members[0].respond = strange
    async with client(members) as admin:
        with pytest.raises(GantryError, match=r"GroupList.* this version cannot read"):
            await admin.groups()


async def test_leaders_view_is_preferred_to_its_followers(members: list[Member]) -> None:
    async with client(members[:1]) as admin:
        view = await admin.leader()
        assert view is not None
        assert view.role == "leader"
    await members[0].stop()
    members[0].stop = _nothing  # type: ignore[method-assign]  # it is stopped already
    async with client(members[:1]) as admin:
        assert await admin.leader() is None


async def test_members_are_those_that_answer(members: list[Member]) -> None:
    async def broken(_: web.Request) -> web.StreamResponse:
        return web.Response(status=500)

    members[1].respond = broken
    async with client(members) as admin:
        ids = [view.node_id for view in await admin.members()]
    assert ids == sorted([members[0].port, members[2].port])


async def test_watch_skips_heartbeats_and_goes_on_with_the_next_leader(
    members: list[Member],
) -> None:
    def lines(*events: dict[str, object]) -> Respond:
        async def stream(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            for event in events:
                await response.write(json.dumps(event).encode() + b"\n")
            members[0].following(None)  # it leads no more
            return response

        return stream

    members[0].respond = lines(
        {"index": 1, "heartbeat": True}, {"index": 2, "group": "a", "masterEpoch": 1}
    )
    members[1].respond = lines({"index": 3, "group": "a", "masterEpoch": 2})
    members[2].following(None)
    async with (
        client(members) as admin,
        asyncio.timeout(PATIENCE_S),
        aclosing(admin.watch()) as events,
    ):
        epochs = [(await anext(events)).master_epoch for _ in range(2)]
    assert epochs == [1, 2]


async def _nothing() -> None:
    return None
