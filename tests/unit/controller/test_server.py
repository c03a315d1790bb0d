"""What a controller's parts have to be told of, and are."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from gantry_controller import server
from gantry_controller.raft.members import Membership
from gantry_controller.raft.state import Role
from gantry_controller.server import Controller
from gantry_controller.settings import ControllerSettings
from gantry_protocol.types import NodeId
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
async def controller(tmp_path: Path) -> Controller:
    """One that was never started."""
    return Controller(ControllerSettings(data_dir=tmp_path / "data"))


async def test_everybody_who_counts_connections_hears_of_one_that_closed(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[str, int]] = []
    for part in ("watchman", "imports"):
        monkeypatch.setattr(
            getattr(controller, part),
            "connection_closed",
            lambda number, part=part: heard.append((part, number)),
        )
    connection: Any = SimpleNamespace(id=7)
    controller._connection_closed(connection)
    assert heard == [("watchman", 7), ("imports", 7)]


async def test_everybody_who_acts_for_the_leader_hears_of_the_role(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    for part in ("watchman", "imports", "hub"):
        monkeypatch.setattr(
            getattr(controller, part),
            "role_changed",
            lambda *, leading, part=part: heard.append(part),
        )
    for listener in controller.node._role_listeners:
        listener()
    assert heard == ["watchman", "imports", "hub"]


async def test_a_node_whose_disk_hangs_is_not_ready(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.ports["http"] = 1
    monkeypatch.setattr(type(controller.node), "members", Membership((NodeId(1),)))
    assert controller._ready() == (True, "serving")
    monkeypatch.setattr(type(controller.node), "disk_hangs", True)
    monkeypatch.setattr(type(controller.node), "disk_silent_s", 3.2)
    assert controller._ready() == (False, "the disk has confirmed no write for 3 s")


async def test_a_node_that_is_no_member_leads_nobody_anywhere(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows no route: neither before it is taken in nor after it was taken out."""
    controller.ports["http"] = 1
    monkeypatch.setattr(type(controller.node), "members", Membership((NodeId(2),)))
    assert controller._ready() == (False, "waiting to be taken in")
    learning = Membership((NodeId(2),), (NodeId(1),))
    monkeypatch.setattr(type(controller.node), "members", learning)
    assert controller._ready() == (True, "serving")


async def test_a_node_with_a_log_is_ready_once_somebody_leads_it(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its log it may be a member that was taken out meanwhile. Later it stays Ready."""
    controller.ports["http"] = 1
    node = type(controller.node)
    monkeypatch.setattr(node, "members", Membership((NodeId(1), NodeId(2))))
    assert controller._ready() == (True, "serving")
    monkeypatch.setattr(node, "term", 3)
    assert controller._ready() == (False, "waiting for a leader")
    for leader in (2, None):
        monkeypatch.setattr(node, "leader_id", leader)
        for listener in controller.node._role_listeners:
            listener()
        assert controller._ready() == (True, "serving")


async def test_a_leader_that_ends_waits_for_nobody_for_long(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quorum that does not answer names no successor; the process ends all the same."""
    asked: list[object] = []
    monkeypatch.setattr(server, "HAND_OVER_S", 0.01)
    monkeypatch.setattr(type(controller.node), "role", Role.LEADER)
    monkeypatch.setattr(controller.node, "transfer", lambda target, done: asked.append(target))
    async with asyncio.timeout(PATIENCE_S):
        await controller.hand_over()
    assert asked == [None]


async def test_a_leader_that_ends_goes_as_soon_as_another_leads(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HAND_OVER_S", 3600)
    monkeypatch.setattr(type(controller.node), "role", Role.LEADER)
    monkeypatch.setattr(controller.node, "transfer", lambda target, done: done(2))
    async with asyncio.timeout(PATIENCE_S):
        await controller.hand_over()
