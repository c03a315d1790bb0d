"""Planted bugs: each breaks one rule of the tier, and the simulator must notice.

Several are what other systems did. A bug is planted by a patch in this file only; a test passes
when some seed ends in a violation that names the broken rule.
"""

from __future__ import annotations

import pytest
from gantry_broker.tier.core import effects as fx
from gantry_broker.tier.core import events as ev
from gantry_broker.tier.core.commit import Stage
from gantry_broker.tier.core.role import UploadRole
from gantry_broker.tier.core.session import UploadSession, Verdict, Wait
from gantry_broker.tier.core.values import LocalLog, State
from gantry_protocol.tier.keys import ManKey, PackKey, parse_name
from gantry_protocol.tier.manifests import Version
from gantry_protocol.types import Offset
from sim.kernel.world import Violation
from sim.tier import uploader
from sim.tier.uploader import PLACE, TierBroker
from sim.tier.world import TierWorld

SEEDS_MAX = 150
SECONDS = 12


def dies(since: int = 0) -> str:
    """The first violation of any seed; those before `since` live with a bug that is seldom seen."""
    for seed in range(since, since + SEEDS_MAX):
        world = TierWorld(seed)
        world.boot()
        world.nemesis.start()
        try:
            world.run(SECONDS)
            world.nemesis.stop()
            world.require_tier_progress()
        except (Violation, AssertionError) as violation:
            print(f"died at seed {seed}: {str(violation).splitlines()[0][:160]}")
            return str(violation)
    pytest.fail(f"{SEEDS_MAX} seeds lived with the planted bug")


def patch_store(monkeypatch: pytest.MonkeyPatch, **attributes: object) -> None:
    honest = TierWorld.__init__

    def init(self: TierWorld, seed: int, *, swarm: bool = True) -> None:
        honest(self, seed, swarm=swarm)
        for name, value in attributes.items():
            setattr(self.store, name, value)

    monkeypatch.setattr(TierWorld, "__init__", init)


def test_a_store_that_overwrites_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain put: WebHDFS with overwrite, pyarrow, an S3 clone without conditional writes."""
    patch_store(monkeypatch, conditional=lambda key: "/man/" not in key)
    assert "T1" in dies()


def test_ignoring_a_higher_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UploadSession, "_higher", lambda _self, _versions: None)
    assert "comes after" in dies()


def test_appending_without_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UploadSession, "claimed", property(lambda self: self.chain.v > 0))
    found = dies()
    assert "T11" in found or "T9" in found


def test_uploading_to_the_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """``allAckInSyncStateSet=false``: unreplicated records reach the tier (RocketMQ)."""
    monkeypatch.setattr(LocalLog, "limit", property(lambda self: self.end))
    assert "T6" in dies()


def test_an_unknown_commit_taken_for_a_failed_one_and_cleaned_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pulsar's #17516: the live object is deleted."""
    honest = TierBroker.upload

    def upload(self: TierBroker, event: ev.Event) -> None:
        commit = self.role.session.commit if self.role.session else None
        honest(self, event)
        if isinstance(event, ev.CallFailed) and commit is not None:
            if self.role.session is not None:
                self.role.session.commit = None
            for entry in getattr(commit.version, "add", []):
                store = self.tier_observer.store
                store.objects.pop(PLACE.key(entry.key), None)

    monkeypatch.setattr(TierBroker, "upload", upload)
    assert "T4" in dies()


def test_taking_maybe_for_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that answers "already exists" to its own retry teaches callers to do so."""
    honest = UploadSession._put

    def put(self: UploadSession, call: fx.Call, *, created: bool) -> Verdict | None:
        if isinstance(call, fx.StorePack):
            return honest(self, call, created=created)
        return self._committed()

    monkeypatch.setattr(UploadSession, "_put", put)
    assert "belief" in dies()


def test_cleaning_up_at_demotion(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a deposed master deletes, its last put may name when it lands."""
    honest = TierBroker.upload

    def upload(self: TierBroker, event: ev.Event) -> None:
        commit = self.role.session.commit if self.role.session else None
        honest(self, event)
        if self.role.state in {State.DRAINING, State.STANDBY, State.FENCED} and commit is not None:
            for entry in getattr(commit.version, "add", []):
                store = self.tier_observer.store
                store.objects.pop(PLACE.key(entry.key), None)

    monkeypatch.setattr(TierBroker, "upload", upload)
    assert "T4" in dies(since=130)


def test_a_pack_named_by_its_first_offset_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two masters, or two attempts, write the same object (RocketMQ, #6071)."""

    def by_offset(key: str) -> str:
        name = parse_name(key.removeprefix(PLACE.prefix))
        return f"{PLACE.prefix}pack/{name.lo:020d}" if isinstance(name, PackKey) else key

    patch_store(monkeypatch, name=by_offset, conditional=lambda key: "/man/" in key)

    def written(self: TierWorld, key: str, data: bytes) -> None:
        name = parse_name(key.removeprefix(PLACE.prefix))
        if isinstance(name, ManKey):
            self._version_written(name, data)

    monkeypatch.setattr(TierWorld, "_written", written)
    found = dies()
    assert any(rule in found for rule in ("T4", "T5"))


def test_trimming_beyond_the_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local retention that does not ask the tier (RocketMQ): its history is destroyed."""

    def bound(*, local_start: Offset, retained_from: Offset, **_rest: object) -> Offset:
        return max(local_start, retained_from)

    monkeypatch.setattr(uploader, "trim_bound", bound)
    assert "T10" in dies()


def test_giving_up_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Liveness: an upload that is never tried again fills the local disk (Aiven, #820)."""

    monkeypatch.setattr(UploadRole, "_timer", lambda _self: [])
    assert "T16" in dies()


def test_never_resolving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Liveness: the slot is taken, by an own earlier attempt, and create is repeated for ever."""

    honest_put, honest_read = UploadSession._put, UploadSession._read

    def put(self: UploadSession, call: fx.Call, *, created: bool) -> Verdict | None:
        if isinstance(call, fx.StorePack) or created:
            return honest_put(self, call, created=created)
        assert self.commit is not None
        self.commit.stage = Stage.UNSENT
        return Wait("again")

    def read(self: UploadSession, versions: tuple[Version, ...], *, more: bool) -> Verdict | None:
        return honest_read(self, () if self.commit else versions, more=more)

    monkeypatch.setattr(UploadSession, "_put", put)
    monkeypatch.setattr(UploadSession, "_read", read)
    assert "T16" in dies()
