"""What a member's tier is told by its group, and its group by it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gantry_broker.member.tier import GroupTier
from gantry_broker.tier.core.reading import TierIndex
from gantry_broker.tier.core.report import Readable
from gantry_broker.tier.core.values import ChainHead
from gantry_protocol.tier.keys import Pair
from gantry_protocol.types import Epoch, Offset
from support.upload_harness import PLACE, Harness, lineage


class Member:
    """A member, and a tier whose parts note what they are told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.facts = SimpleNamespace(
            log_start=Offset(10),
            end=Offset(90),
            flushed=Offset(60),
            confirm=Offset(70),
            lineage=lineage((3, 0)),
        )
        self.mastership: object | None = object()
        self.confirmed: list[Any] = []
        self.store = SimpleNamespace(
            log=SimpleNamespace(log_start=0, end=0), add_listener=self.confirmed.append
        )
        self.tier = GroupTier(cast("Any", self.store), cast("Any", self), ("127.0.0.1", 1))
        self.tier._facts = cast("Any", self.facts)
        self.tier._look_for_master = lambda: self.told.append("look for the master")
        self.harness = Harness()
        self.reader = SimpleNamespace(
            poke=lambda: self.told.append("poke"), index=TierIndex(PLACE), readable=Readable()
        )
        self.tier.follow(
            cast(
                "Any",
                SimpleNamespace(
                    uploader=SimpleNamespace(
                        role=self.harness.role,
                        promoted=self.told.append,
                        demoted=lambda: self.told.append("demoted"),
                        advanced=lambda: self.told.append("advanced"),
                    ),
                    reader=self.reader,
                ),
            )
        )


def test_the_uploads_hear_of_every_change_of_role_and_of_confirm() -> None:
    member = Member()
    member.tier._boots = 4
    member.tier.promoted(Epoch(9))
    member.confirmed[0]([])
    member.tier.demoted()
    member.mastership = None
    member.confirmed[0]([])  # as a replica
    assert member.told == [Pair(9, 4), "advanced", "demoted"]


def test_a_commit_is_read_at_once_and_a_fenced_member_asks_who_is_the_master() -> None:
    member = Member()
    member.tier.tier_committed(ChainHead(3, Pair(9, 4), Offset(50)))
    member.tier.tier_fenced(Pair(9, 4), None)
    assert member.told == ["poke", "look for the master"]


def test_what_is_confirmed_and_not_on_this_disk_is_not_the_tiers() -> None:
    local = Member().tier.local_log()
    assert (local.confirm, local.flushed, local.limit) == (60, 60, 60)
    assert (local.log_start, local.end) == (10, 90)


def test_a_report_says_whether_the_tier_can_be_read() -> None:
    member = Member()
    member.harness.promote(3, member.tier.local_log())
    member.harness.run()
    assert member.tier.report() is not None
    member.reader.readable = Readable("a pack is missing")
    report = member.tier.report()
    assert report is not None
    assert (report.state, report.reason) == ("unreadable", "a pack is missing")
