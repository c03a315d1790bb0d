"""Readiness of a process with many groups: all of them, but for one that never had a master."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from gantry_broker.clients.core.delay.levels import DelayLevels
from gantry_broker.clients.core.transactions import Policy
from gantry_broker.host import metrics
from gantry_broker.host.client_options import ClientOptions
from gantry_broker.host.hosting import HostedGroup
from gantry_broker.replica.values import ControllerView
from gantry_protocol.settings.defaults import DELAY_LEVELS
from gantry_protocol.types import Epoch
from support.lone_member import lone_member


class Answer(msgspec.Struct):
    """A hosted group as readiness sees it."""

    name: str
    fine: bool
    awaits_first_master: bool = False

    def ready(self) -> tuple[bool, str]:
        return self.fine, "" if self.fine else "no master to follow"


FINE, UNFIT, ADDED = Answer("a", True), Answer("b", False), Answer("c", False, True)


@pytest.mark.parametrize(
    ("groups", "ready"),
    [
        ([FINE, FINE], True),
        ([FINE, UNFIT], False),
        ([FINE, ADDED], True),
        ([FINE, ADDED, UNFIT], False),
        ([ADDED, ADDED], False),
        ([ADDED], False),
    ],
)
def test_a_process_is_ready(groups: list[Answer], ready: bool) -> None:
    assert metrics.ready(cast("Any", groups))[0] is ready


def test_the_group_that_is_waited_for_is_named() -> None:
    _, reason = metrics.ready(cast("Any", [FINE, ADDED, UNFIT]))
    assert reason == "1 of 3 groups are not ready, such as b: no master to follow"


async def test_only_the_controllers_word_counts(tmp_path: Path) -> None:
    options = ClientOptions(DelayLevels.parse(DELAY_LEVELS), Policy(), None, 72, 16_384)
    hosted = HostedGroup("g", options)
    assert not hosted.awaits_first_master, "its volume is not read"
    async with lone_member(tmp_path) as member:
        hosted.group = member.group
        assert member.group.core is not None
        for view, awaits in (
            (None, False),
            (ControllerView(master_epoch=Epoch(0)), True),
            (ControllerView(master_epoch=Epoch(1)), False),
        ):
            member.group.core.view = view
            assert hosted.awaits_first_master is awaits
