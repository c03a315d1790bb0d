"""Asking whoever leads: hints, dead controllers, refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from gantry_protocol.admin import (
    DeclaredFronts,
    FrontIndex,
    FrontsDeclaration,
    FrontsView,
    GroupDeclaration,
    GroupView,
    QuorumView,
)
from gantry_protocol.admin_client import quorum as quorum_module
from gantry_protocol.admin_client.admin import Admin
from gantry_protocol.admin_client.errors import AdminRefusedError, QuorumUnreachableError
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from support.controllers_double import Trio
from support.freezes import cancelled_after_a_freeze
from unit.operator.world import quorum as quorum_view
from unit.operator.world import view

GROUP = json.loads(view().to_json())


@pytest.fixture
async def trio() -> AsyncIterator[Trio]:
    async with Trio() as controllers:
        yield controllers


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_module, "ATTEMPT_TIMEOUT_S", 0.1)
    monkeypatch.setattr(quorum_module, "DEADLINE_S", 1.0)


async def test_the_leader_answers(trio: Trio) -> None:
    trio.controllers[0].says(GROUP)
    found = await Admin(trio.quorum(), "gantry").group("orders")
    assert found == view()
    assert trio.controllers[0].seen == [("GET", "/v1/groups/gantry/orders", None)]


async def test_a_hint_is_followed_and_remembered(trio: Trio) -> None:
    first, second, third = trio.controllers
    first.follows(third)
    second.follows(third)
    third.says(GROUP)
    admin = Admin(trio.quorum(), "gantry")
    assert isinstance(await admin.group("orders"), GroupView)
    assert trio.asked() == [1, 0, 1]
    assert isinstance(await admin.group("orders"), GroupView)
    assert trio.asked() == [1, 0, 2], "the leader is asked first from now on"


@pytest.mark.parametrize("hint", [None, "evil.example", "127.0.0.9", "gantry-controller-22.svc"])
async def test_a_hint_to_a_stranger_is_not_followed(trio: Trio, hint: str | None) -> None:
    first, second, third = trio.controllers
    first.follows(hint)
    second.follows(hint)
    third.says(GROUP)
    assert isinstance(await Admin(trio.quorum(), "gantry").group("orders"), GroupView)
    assert trio.asked() == [1, 1, 1]


async def test_a_hint_to_itself_is_not_followed(trio: Trio) -> None:
    first, second, _ = trio.controllers
    first.follows(first)
    second.says(GROUP)
    assert isinstance(await Admin(trio.quorum(), "gantry").group("orders"), GroupView)
    assert trio.asked() == [1, 1, 0]


async def test_controllers_that_point_at_each_other_end(trio: Trio) -> None:
    first, second, third = trio.controllers
    first.follows(second)
    second.follows(first)
    third.follows(first)
    found = await Admin(trio.quorum(), "gantry").group("orders")
    assert isinstance(found, Unreachable)
    assert "no leader at the moment" in found.reason
    assert sum(trio.asked()) <= 3 + quorum_module.EXTRA_ATTEMPTS


async def test_a_dead_controller_is_passed_over(trio: Trio) -> None:
    quorum = trio.quorum()
    await trio.controllers[0].stop()
    trio.controllers[1].says(GROUP)
    assert isinstance(await Admin(quorum, "gantry").group("orders"), GroupView)


@pytest.mark.usefixtures("impatient")
async def test_a_hanging_controller_is_passed_over(trio: Trio) -> None:
    trio.controllers[0].hangs()
    trio.controllers[1].says(GROUP)
    assert isinstance(await Admin(trio.quorum(), "gantry").group("orders"), GroupView)


@pytest.mark.usefixtures("impatient")
async def test_nobody_answers(trio: Trio) -> None:
    for controller in trio.controllers:
        controller.hangs()
    found = await Admin(trio.quorum(), "gantry").group("orders")
    assert isinstance(found, Unreachable)
    assert "gantry" in found.reason


async def test_who_is_told_to_end_with_a_time_out_ends(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    for controller in trio.controllers:
        controller.hangs()
    asking = asyncio.create_task(Admin(trio.quorum(), "gantry").group("orders"))
    await cancelled_after_a_freeze(asking, lambda: any(trio.asked()), monkeypatch)


async def test_no_pods_yet(trio: Trio) -> None:
    assert trio.session is not None
    quorum = quorum_module.Quorum("gantry", list, trio.read_token, trio.session)
    found = await Admin(quorum, "gantry").group("orders")
    assert found == Unreachable("gantry has no pod with an address.")
    assert isinstance(await Admin(quorum, "gantry").view(), Unreachable)


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        pytest.param({"error": "NOT_FOUND", "message": "no"}, 404, NotDeclared(), id="unknown"),
        pytest.param({"error": "BAD", "message": "no"}, 400, Unreachable("BAD: no"), id="refused"),
        pytest.param(
            {"not": "a group"}, 200, Unreachable("gantry gave an answer that is no group."), id="x"
        ),
    ],
)
async def test_what_is_no_group(trio: Trio, body: Any, status: int, expected: Any) -> None:
    trio.controllers[0].says(body, status)
    assert await Admin(trio.quorum(), "gantry").group("orders") == expected


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_controller_that_cannot_answer_now_is_passed_over(trio: Trio, status: int) -> None:
    trio.controllers[0].says({"error": "NO_QUORUM", "message": "no quorum"}, status)
    trio.controllers[1].says(GROUP)
    assert isinstance(await Admin(trio.quorum(), "gantry").group("orders"), GroupView)


async def test_a_rotated_token_is_read_again(trio: Trio) -> None:
    for controller in trio.controllers:
        controller.token = trio.fresh_token = "rotated"
    trio.controllers[0].says(GROUP)
    assert isinstance(await Admin(trio.quorum(), "gantry").group("orders"), GroupView)
    assert trio.asked() == [2, 0, 0]


async def test_writes(trio: Trio) -> None:
    admin = Admin(trio.quorum(), "gantry")
    wish = GroupDeclaration(uid="u", replicas=3, min_in_sync_replicas=2, route_address=None)
    await admin.declare("orders", wish)
    await admin.elect("orders", 2, 7)
    await admin.report_gone("orders", "pod-uid")
    await admin.forget("orders", "u&1")
    assert trio.controllers[0].seen == [
        (
            "PUT",
            "/v1/groups/gantry/orders",
            {"uid": "u", "replicas": 3, "minInSyncReplicas": 2, "routeAddress": None},
        ),
        ("POST", "/v1/groups/gantry/orders/elect", {"brokerId": 2, "masterEpoch": 7}),
        ("POST", "/v1/groups/gantry/orders/evidence", {"podUid": "pod-uid", "gone": True}),
        ("DELETE", "/v1/groups/gantry/orders?uid=u%261", None),
    ]


async def test_a_refused_write_says_why(trio: Trio) -> None:
    trio.controllers[0].says({"error": "EPOCH", "message": "the epoch is 8"}, 409)
    admin = Admin(trio.quorum(), "gantry")
    with pytest.raises(AdminRefusedError, match="the epoch is 8") as caught:
        await admin.elect("orders", 2, 7)
    assert (caught.value.status, caught.value.code) == (409, "EPOCH")


async def test_a_refusal_that_is_no_error_view_is_told_all_the_same(trio: Trio) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>teapot</html>", status=418)

    trio.controllers[0].answer = answer
    with pytest.raises(AdminRefusedError, match="teapot"):
        await Admin(trio.quorum(), "gantry").elect("orders", 2, 7)


async def test_forgetting_what_is_gone_is_fine(trio: Trio) -> None:
    trio.controllers[0].says({"error": "NOT_FOUND", "message": "no"}, 404)
    await Admin(trio.quorum(), "gantry").forget("orders", "u")
    trio.controllers[0].says({"error": "UID", "message": "another"}, 409)
    with pytest.raises(AdminRefusedError):
        await Admin(trio.quorum(), "gantry").forget("orders", "u")


# The quorum's view


def tell(trio: Trio, *views: QuorumView | None) -> None:
    for controller, known in zip(trio.controllers, views, strict=True):
        if known is None:
            controller.says({"error": "x", "message": "x"}, 500)
        else:
            controller.says(json.loads(known.to_json()))


async def test_the_leaders_word_about_the_quorum(trio: Trio) -> None:
    leader = quorum_view(leader=2, node=2)
    tell(trio, quorum_view(leader=2, node=1), leader, quorum_view(leader=2, node=3))
    assert await Admin(trio.quorum(), "gantry").view() == leader


async def test_each_controller_speaks_for_its_own_settings(trio: Trio) -> None:
    """Whom nobody heard, and who is older, has said nothing."""
    leader = quorum_view(leader=2, node=2, settings="aa")
    refusing = quorum_view(leader=2, node=3, settings="bb", settings_refused="it is wrong")
    tell(trio, None, leader, refusing)
    found = await Admin(trio.quorum(), "gantry").view()
    assert isinstance(found, QuorumView)
    assert [(one.id, one.settings, one.settings_refused) for one in found.peers] == [
        (1, "", ""), (2, "aa", ""), (3, "bb", "it is wrong")
    ]  # fmt: skip


async def test_a_deposed_leader_is_not_believed(trio: Trio) -> None:
    deposed, leader = quorum_view(leader=1, node=1, term=5), quorum_view(leader=2, node=2, term=6)
    tell(trio, deposed, leader, None)
    assert await Admin(trio.quorum(), "gantry").view() == leader
    tell(trio, deposed, None, quorum_view(leader=2, node=3, term=6))
    found = await Admin(trio.quorum(), "gantry").view()
    assert isinstance(found, QuorumView)
    assert (found.node_id, found.leader_id) == (3, 2)


async def test_no_view_of_the_quorum(trio: Trio) -> None:
    tell(trio, None, None, None)
    assert isinstance(await Admin(trio.quorum(), "gantry").view(), Unreachable)


async def test_after_one_question_in_vain_the_next_ones_fail_at_once(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of groups rest on the same controllers; each has its status at once."""
    monkeypatch.setattr(quorum_module, "READ_DEADLINE_S", 0.2)
    for controller in trio.controllers:
        controller.hangs()
    quorum = trio.quorum()
    with pytest.raises(QuorumUnreachableError, match="No leader of gantry answered within"):
        await quorum.ask_leader("GET", "/v1/groups/gantry/a")
    asked = trio.asked()
    for _ in range(1000):
        with pytest.raises(QuorumUnreachableError, match="No leader of gantry answered within"):
            await quorum.ask_leader("GET", "/v1/groups/gantry/b")
    assert trio.asked() == asked
    monkeypatch.setattr(quorum_module, "READ_DEADLINE_S", 30.0)
    trio.controllers[0].says({})
    await quorum.ask_leader("PUT", "/v1/groups/gantry/b", "{}")  # an order is always tried
    await quorum.ask_leader("GET", "/v1/groups/gantry/b")


FRONTS = FrontsView(
    fronts=[DeclaredFronts(name="clients", address="10.96.0.9", first_port=10950, ports=16)],
    groups=[FrontIndex(group="orders", index=0, served_by_fronts=True)],
)


async def test_the_fronts_of_a_cluster(trio: Trio) -> None:
    leader, admin = trio.controllers[0], Admin(trio.quorum(), "gantry")
    leader.says(json.loads(FRONTS.to_json()))
    assert await admin.fronts() == FRONTS
    declaration = FrontsDeclaration(address="10.96.0.9", first_port=10950, ports=16)
    await admin.declare_fronts("clients", declaration)
    await admin.remove_fronts("clients")
    assert leader.seen == [
        ("GET", "/v1/clusters/gantry/fronts", None),
        ("PUT", "/v1/clusters/gantry/fronts/clients", json.loads(declaration.to_json())),
        ("DELETE", "/v1/clusters/gantry/fronts/clients", None),
    ]


async def test_what_does_not_tell_of_fronts_is_no_view(trio: Trio) -> None:
    trio.controllers[0].says({"fronts": 7})
    assert isinstance(await Admin(trio.quorum(), "gantry").fronts(), Unreachable)
    trio.controllers[0].says({"error": "no such path"}, status=404)
    found = await Admin(trio.quorum(), "gantry").fronts()
    assert isinstance(found, Unreachable)
    assert "older than fronts" in found.reason
