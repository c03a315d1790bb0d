"""One commit, from its first attempt to a known outcome; and the slot that was free again."""

from __future__ import annotations

import pytest
from gantry_broker.tier.core import effects as fx
from gantry_broker.tier.core import events as ev
from gantry_broker.tier.core.session import UploadSession, Verdict
from gantry_broker.tier.core.values import State
from gantry_protocol.tier import chain
from gantry_protocol.tier.keys import CLASS_FOR_EVER, PackKey, Pair
from gantry_protocol.tier.manifests import Append, encode
from support.upload_harness import Bucket, Harness, built, lineage, local


def committing(bucket: Bucket | None = None, end: int = 100) -> Harness:
    """A harness about to create the version that adds its first pack."""
    harness = Harness(bucket)
    harness.promote(1, local(end))
    harness.run(until=fx.CutPack)
    harness.run(until=fx.CreateVersion)
    return harness


def test_a_created_version_counts_after_the_head_check() -> None:
    harness = committing()
    harness.answer()
    assert isinstance(harness.call, fx.ListAfter)
    assert harness.role.chain.end == 0
    harness.answer()
    assert harness.role.chain.end == 100


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "lost"])
@pytest.mark.parametrize("answered", [True, False], ids=["maybe", "failed"])
def test_an_unknown_outcome_ends_in_exactly_one_version(applied: bool, answered: bool) -> None:
    harness = committing()
    if applied:
        harness.apply()
    if answered:
        harness.end(ev.Maybe)
        assert isinstance(harness.call, fx.ReadVersion)
    else:
        harness.fail()
        assert harness.role.state is State.BACKOFF
    while harness.role.chain.end < 100:
        harness.run()
        harness.wait(300)
    assert harness.bucket.state().v == 2
    assert len(harness.bucket.packs) == 1, "the pack is not stored again"


def test_every_attempt_carries_the_same_bytes() -> None:
    harness = committing()
    for _ in range(3):
        harness.fail()
        harness.wait(2_000)
        harness.run(until=fx.CreateVersion)
    harness.end(ev.Maybe)
    harness.answer()
    harness.wait(2_000)
    harness.run()
    created = [call for call in harness.asked if isinstance(call, fx.CreateVersion) and call.v == 2]
    assert len(created) == 5
    assert len({call.data for call in created}) == 1


def test_nothing_else_is_done_while_the_outcome_is_unknown() -> None:
    harness = committing()
    harness.fail()
    before = len(harness.asked)
    for end in range(200, 1_000, 100):
        harness.advance(local(end))
        harness.wait(400)
        if harness.call is not None:
            harness.fail()
    kinds = {type(call) for call in harness.asked[before:]}
    assert kinds <= {fx.ReadVersions, fx.CreateVersion, fx.ReadVersion}


def test_a_put_that_lands_late_is_found_and_counted() -> None:
    harness = committing()
    late = harness.call
    harness.fail()
    harness.wait(2_000)
    harness.answer()
    assert isinstance(late, fx.CreateVersion)
    harness.bucket.versions[late.v] = late.data
    assert isinstance(harness.call, fx.CreateVersion)
    harness.run()
    assert harness.role.chain.end == 100
    assert harness.bucket.state().v == 2


def test_a_failed_head_check_is_done_again() -> None:
    harness = committing()
    harness.answer()
    harness.fail()
    harness.wait(2_000)
    harness.run()
    assert harness.role.chain.end == 100


def test_an_abandoned_commit_that_lands_before_the_next_claim_is_part_of_the_chain() -> None:
    old = committing()
    late = old.call
    old.step(ev.Demoted())
    assert isinstance(late, fx.CreateVersion)
    new = Harness(old.bucket, seed=1)
    new.promote(2, local(150, confirm=100, who=lineage((1, 0), (2, 150))))
    new.run(until=fx.CreateVersion)
    old.bucket.versions[late.v] = late.data
    new.run()
    assert new.role.chain.end == 100
    assert [entry.key for entry in new.role.chain.packs] == list(old.bucket.packs)


def test_an_abandoned_commit_that_lands_after_the_claim_finds_its_slot_taken() -> None:
    old = committing()
    new = Harness(old.bucket, seed=1)
    new.promote(2, local(150, confirm=100, who=lineage((1, 0), (2, 150))))
    new.run(until=fx.CutPack)
    old.run()
    assert old.role.state is State.FENCED
    new.run()
    assert new.role.state is State.UPLOADING
    assert new.bucket.state().end == 100


def test_a_lower_pair_after_our_claim_breaks_the_chain() -> None:
    """Nobody who keeps the rules can do it; the role reads again, and then goes no further."""
    harness = committing()
    state = harness.bucket.state()
    foreign = chain.claim(state, pair=Pair(1, 0), writer="x", nonce="f" * 32, at_ms=0)
    harness.bucket.versions[foreign.v] = encode(foreign)
    harness.run()
    assert harness.role.state is State.HALTED
    assert "T1" in harness.role.status.reason


def test_an_own_version_nobody_remembers_is_adopted() -> None:
    """Two processes with one pair cannot be; should they, the chain decides and both re-check."""
    harness = committing()
    mine = harness.role.session.commit if harness.role.session else None
    assert mine is not None
    assert isinstance(mine.version, Append)
    renamed = chain.append(
        harness.bucket.state(),
        mine.version.add,
        lineage=lineage((1, 0)).entries,
        tail=mine.version.tail,
        writer="twin",
        nonce="e" * 32,
        at_ms=0,
    )
    harness.bucket.versions[2] = encode(renamed)
    harness.run()
    assert harness.role.state is State.UPLOADING
    assert harness.role.chain.nonce == "e" * 32
    compared = [type(call) for call in harness.asked].count(fx.ReadTail)
    assert compared == 1, "what somebody else wrote is compared with the log"
    assert harness.role.chain.end == 100


def test_what_follows_our_own_late_version_is_read_too() -> None:
    """Nobody but a twin can write there; the head is the newest version all the same."""
    harness = committing()
    harness.apply()
    harness.fail()
    key = PackKey(Pair(1, 1), 100, 120, CLASS_FOR_EVER, "d" * 32)
    pack = built(harness.log[100:120], key, lineage((1, 0)).entries)
    later = chain.append(
        harness.bucket.state(),
        [pack.entry],
        lineage=lineage((1, 0)).entries,
        tail=pack.tail,
        writer="twin",
        nonce="d" * 32,
        at_ms=0,
    )
    harness.bucket.versions[3] = encode(later)
    harness.advance(local(200))
    harness.wait(2_000)
    harness.answer()
    assert harness.role.chain.v == 3
    harness.run()
    assert harness.role.state is State.UPLOADING
    assert harness.bucket.state().end >= 120


# ---- the recycled slot


def zombie_and_heir() -> tuple[Harness, Harness]:
    """A sleeps with a commit on its way; B has claimed, gone on, and old versions are deleted."""
    old = committing(end=100)
    new = Harness(old.bucket, seed=1)
    who = lineage((1, 0), (2, 100))
    new.promote(2, local(300, confirm=300, who=who))
    new.run()
    assert new.role.chain.end == 300
    for v in (1, 2, 3):
        del old.bucket.versions[v]
    return old, new


def test_a_zombie_whose_slot_is_free_again_is_fenced_by_the_head_check() -> None:
    old, new = zombie_and_heir()
    old.answer()
    assert 2 in old.bucket.versions, "the store took it: nothing was there"
    old.run()
    assert old.role.state is State.FENCED
    assert old.role.committed_end is None
    assert new.role.chain.end == 300


def test_without_the_head_check_it_would_believe_its_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted bug, by the one schedule that reaches it: what it would delete is live."""
    honest = UploadSession._put

    def put(self: UploadSession, call: fx.Call, *, created: bool) -> Verdict | None:
        if created and isinstance(call, fx.CreateVersion):
            return self._committed()
        return honest(self, call, created=created)

    monkeypatch.setattr(UploadSession, "_put", put)
    old, new = zombie_and_heir()
    old.answer()
    assert old.role.state is State.UPLOADING
    assert old.role.committed_end == 100
    assert old.role.chain.packs[0].key not in {entry.key for entry in new.role.chain.packs}
