"""Planted bugs: each breaks one rule of the replica core, and the simulator must notice.

Several are what RocketMQ does. A bug is planted by a patch in this file only; a test passes when
some seed ends in a violation that names the broken rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from gantry_broker.replica import Role, handshake, membership
from gantry_broker.replica import effects as fx
from gantry_broker.replica.core import ReplicaCore
from gantry_broker.replica.following import Following
from gantry_broker.replica.lineage import Lineage, LineageError
from gantry_broker.replica.master import Mastership
from gantry_broker.replica.messages import Ack, Hello
from gantry_broker.replica.syncset import SyncStateSet
from gantry_controller.metadata import election
from gantry_protocol.types import BrokerId, EpochEntry, Offset
from msgspec.structs import replace
from sim.kernel.world import Violation
from sim.replica_world import ReplicaWorld

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_broker.replica import ControllerView, Limits
    from gantry_broker.replica.facts import LogFacts
    from gantry_broker.replica.member import Member

SEEDS_MAX = 60
SECONDS = 10


def dies(seeds: Iterable[int] = range(SEEDS_MAX)) -> str:
    """The first violation of any seed."""
    for seed in seeds:
        world = ReplicaWorld(seed)
        world.boot()
        world.nemesis.start()
        try:
            world.run(SECONDS)
        except (Violation, AssertionError, LineageError) as violation:
            return str(violation)
    pytest.fail(f"{SEEDS_MAX} seeds lived with the planted bug")


def test_acknowledging_at_the_log_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """``allAckInSyncStateSet=false``, RocketMQ's default: confirm is the master's own end."""

    def advance(self: Mastership) -> list[fx.Effect]:
        moved = self._log.confirm_up_to(self._log.flushed)
        return [fx.ConfirmMoved(self._log.confirm)] if moved else []

    monkeypatch.setattr(Mastership, "advance", advance)
    assert "H5" in dies()


def test_skipping_the_truncation(monkeypatch: pytest.MonkeyPatch) -> None:
    def common_end(hello: Hello, theirs: Lineage, mine: LogFacts) -> tuple[Offset, bool]:
        return min(hello.end, mine.end), False

    monkeypatch.setattr(handshake, "_common_end", common_end)
    assert dies().split(": ")[1][:2] in {"H3", "H5", "H4"}


def test_dropping_the_new_epoch_when_the_old_one_wrote_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``EpochFileCache.appendEntry`` refuses an entry whose start equals the last start."""
    honest = Lineage.with_epoch

    def with_epoch(self: Lineage, entry: EpochEntry) -> Lineage:
        last = self.last
        refused = last is not None and last.start_offset >= entry.start_offset
        return self if refused else honest(self, entry)

    monkeypatch.setattr(Lineage, "with_epoch", with_epoch)
    assert "H4" in dies()


def test_electing_outside_the_sync_state_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """``enableElectUncleanMaster``."""
    honest = election._election_in_the_set

    def anybody(
        group: election.BrokerGroup,
        request: election.ElectMaster,
        live: dict[BrokerId, election.LiveMember],
    ) -> election.Decision:
        everybody = replace(group, sync_state_set=tuple(sorted(live)))
        return honest(everybody, request, live)

    monkeypatch.setattr(election, "_election_in_the_set", anybody)
    assert any(word in dies() for word in ("H5", "ack", "stuck"))


def test_serving_under_the_epoch_of_an_earlier_start(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ReplicaCore._learn

    def learn(self: ReplicaCore, view: ControllerView) -> list[fx.Effect]:
        if view.master_id == self.me:
            view = replace(view, master_incarnation=self.incarnation)
        return honest(self, view)

    monkeypatch.setattr(ReplicaCore, "_learn", learn)
    found = dies()
    assert "H1" in found or "cannot follow" in found, "the lineage refuses a second start"


def test_acknowledging_before_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    def acknowledge(self: Following) -> list[fx.Effect]:
        assert self.link is not None
        epoch = self.view.master_epoch
        return [fx.Send(self.link, Ack(epoch=epoch, flushed_end=self._log.end))]

    monkeypatch.setattr(Following, "_acknowledge", acknowledge)
    assert "H5" in dies()


def test_skipping_members_whose_acknowledgement_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ``ack > 0`` filter of ``AutoSwitchHAService``."""

    def advance(self: Mastership) -> list[fx.Effect]:
        known = [
            self.members[one].acked
            for one in self.counted - {self.me}
            if one in self.members and self.members[one].acked > 0
        ]
        moved = self._log.confirm_up_to(min([self._log.flushed, *known]))
        return [fx.ConfirmMoved(self._log.confirm)] if moved else []

    monkeypatch.setattr(Mastership, "advance", advance)
    assert "H5" in dies()


def test_forgetting_the_proposed_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Confirm over the known set only, while the controller may hold a larger one already."""
    monkeypatch.setattr(SyncStateSet, "counted", property(lambda self: self.members))
    assert "H5" in dies()


def test_writing_before_the_epoch_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ReplicaCore._promote

    def promote(self: ReplicaCore, view: ControllerView) -> list[fx.Effect]:
        effects = honest(self, view)
        self._promotion_token = 0
        self.role = Role.MASTER
        master = self.master
        assert master is not None
        return [*effects, fx.Promoted(master.epoch, master.start)]

    monkeypatch.setattr(ReplicaCore, "_promote", promote)
    assert "H4" in dies()


def test_joining_the_set_below_confirm(monkeypatch: pytest.MonkeyPatch) -> None:
    def may_join(member: Member, joins_at: Offset, now_ms: int, limits: Limits) -> bool:
        return member.streaming and not member.draining

    monkeypatch.setattr(membership, "may_join", may_join)
    assert "H5" in dies()
