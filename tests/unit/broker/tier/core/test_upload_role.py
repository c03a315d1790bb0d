"""The upload role, one test per transition."""

from __future__ import annotations

import pytest
from gantry_broker.tier.core import effects as fx
from gantry_broker.tier.core import events as ev
from gantry_broker.tier.core.values import ChainHead, State
from gantry_protocol.tier.chain import TAKE_EPOCHS, advance, before, empty, take
from gantry_protocol.tier.keys import Pair
from gantry_protocol.tier.manifests import Append, Claim, encode
from gantry_protocol.types import Offset
from support.upload_harness import PLACE, Bucket, Harness, lineage, local


def uploading(end: int = 0, **facts: int) -> Harness:
    """A harness whose role has claimed an empty chain under epoch 1 and has nothing to upload."""
    harness = Harness()
    harness.promote(1, local(end, confirm=0, **facts))
    harness.run()
    assert harness.role.state is State.UPLOADING
    return harness


def with_tier(end: int) -> Harness:
    """As ``uploading``, with [0, end) in the tier."""
    harness = uploading()
    harness.advance(local(end))
    harness.wait(1_000)
    harness.run()
    while harness.role.chain.end < end:
        harness.wait(1_000)
        harness.run()
    return harness


# ---- promotion and claim


def test_a_promotion_proves_the_prefix_and_reads_the_head_before_anything_else() -> None:
    harness = Harness()
    harness.promote(1, local(0))
    assert harness.role.state is State.CLAIMING
    assert isinstance(harness.answer(), fx.CheckMeta)
    assert isinstance(harness.answer(), fx.ReadVersions)
    assert isinstance(harness.call, fx.CreateVersion)


def test_the_first_claim_begins_where_the_log_begins() -> None:
    harness = Harness()
    harness.promote(3, local(90, confirm=70, log_start=70, who=lineage((3, 40))), inc=2)
    harness.run()
    claim = harness.bucket.read(1)
    assert isinstance(claim, Claim)
    assert (claim.start, claim.end, claim.tail, claim.pair) == (70, 70, None, Pair(3, 2))


def test_a_claim_counts_once_it_is_the_newest_version() -> None:
    harness = Harness()
    harness.promote(1, local(500))
    harness.run(until=fx.ListAfter)
    assert harness.role.state is State.CLAIMING
    harness.answer()
    assert harness.role.claimed
    assert harness.role.state is State.UPLOADING, "an empty tier has nothing to compare"


def test_a_long_chain_is_read_in_parts() -> None:
    bucket = Bucket()
    for epoch in range(1, 11):
        Harness(bucket).claimed_by(epoch)
    harness = Harness(bucket)
    harness.promote(11, local(0))
    harness.run()
    reads = [call.after for call in harness.asked if isinstance(call, fx.ReadVersions)]
    assert reads == [0, 4, 8]
    assert [call.v for call in harness.asked if isinstance(call, fx.CreateVersion)] == [11]
    assert harness.role.chain.v == 11


def test_a_prefix_that_is_not_ours_halts() -> None:
    harness = Harness()
    harness.promote(1, local(0))
    harness.end(lambda ticket: ev.CallRefused(ticket, "meta.json belongs to another group"))
    assert harness.role.state is State.HALTED
    assert "another group" in harness.role.status.reason
    assert harness.call is None


@pytest.mark.parametrize("pair", [(1, 1), (1, 0)], ids=["same", "older"])
def test_a_promotion_that_is_not_newer_changes_nothing(pair: tuple[int, int]) -> None:
    harness = uploading()
    harness.promote(pair[0], local(0), inc=pair[1])
    assert harness.role.state is State.UPLOADING
    assert harness.call is None


def test_the_same_broker_goes_on_in_a_newer_epoch_by_another_claim() -> None:
    harness = with_tier(50)
    harness.promote(2, local(50, who=lineage((1, 0), (2, 50))))
    assert harness.role.state is State.CLAIMING
    assert isinstance(harness.call, fx.ReadVersions)
    assert harness.call.after == 2, "what is known of the chain is not read again"
    harness.run()
    assert harness.role.state is State.UPLOADING
    assert [harness.bucket.state().pair, harness.bucket.state().end] == [Pair(2, 1), 50]


def test_what_a_reader_of_this_process_folded_is_not_read_again() -> None:
    bucket = Bucket()
    for epoch in range(1, 11):
        Harness(bucket).claimed_by(epoch)
    harness = Harness(bucket)
    known = bucket.state()
    harness.step(ev.HeadSeen(known.pair, known))
    harness.step(ev.HeadSeen(Pair(1, 1), empty(PLACE)))
    harness.promote(11, local(0))
    harness.run()
    reads = [call.after for call in harness.asked if isinstance(call, fx.ReadVersions)]
    assert reads == [10]
    assert harness.role.chain.v == 11


def test_an_older_claim_that_took_the_slot_is_read_and_followed() -> None:
    harness = Harness()
    harness.promote(5, local(0))
    harness.run(until=fx.CreateVersion)
    harness.claimed_by(4)
    harness.run()
    assert harness.role.state is State.UPLOADING
    assert [version.epoch for version in map(harness.bucket.read, (1, 2)) if version] == [4, 5]


def test_an_own_claim_that_landed_late_is_adopted() -> None:
    harness = Harness()
    harness.promote(5, local(0))
    harness.run(until=fx.CreateVersion)
    harness.apply()
    harness.fail()
    harness.wait(1_000)
    harness.run()
    assert harness.role.state is State.UPLOADING
    assert harness.bucket.state().v == 1


# ---- demotion


def test_a_demotion_waits_for_the_call_under_way_and_cleans_nothing() -> None:
    harness = uploading()
    harness.advance(local(100))
    harness.run(until=fx.StorePack)
    harness.apply()
    ticket = harness.call.ticket if harness.call else 0
    harness.step(ev.Demoted())
    assert harness.role.state is State.DRAINING
    assert fx.CancelCalls() in harness.said
    harness.step(ev.Created(ticket))
    assert harness.role.state is State.STANDBY
    assert harness.call is None
    assert len(harness.bucket.packs) == 1


def test_a_demotion_does_not_wait_for_ever() -> None:
    harness = uploading()
    harness.advance(local(100))
    harness.step(ev.Demoted())
    harness.wait(499)
    harness.step(ev.Demoted())
    assert harness.role.state is State.DRAINING
    harness.wait(1)
    assert harness.role.state is State.STANDBY


def test_a_demotion_without_a_call_is_over_at_once() -> None:
    harness = uploading()
    harness.step(ev.Demoted())
    assert harness.role.state is State.STANDBY
    assert harness.role.committed_end is None


def test_a_promotion_ends_the_draining() -> None:
    harness = uploading()
    harness.advance(local(100))
    ticket = harness.call.ticket if harness.call else 0
    harness.step(ev.Demoted())
    harness.promote(2, local(100, who=lineage((1, 0), (2, 100))))
    assert harness.role.state is State.CLAIMING
    harness.step(ev.CallFailed(ticket, "cancelled"))
    assert harness.role.state is State.CLAIMING, "the end of a cancelled call says nothing"
    harness.run()
    assert harness.role.state is State.UPLOADING


# ---- fencing


def test_a_higher_head_at_the_claim_fences() -> None:
    harness = Harness()
    harness.claimed_by(7)
    harness.promote(6, local(0))
    harness.run()
    assert harness.role.state is State.FENCED
    assert fx.FencedBy(own=Pair(6, 1), by=Pair(7, 1)) in harness.said
    assert harness.bucket.state().v == 1
    harness.promote(6, local(0), inc=2)
    assert harness.role.state is State.FENCED
    assert harness.call is None, "what fenced us is remembered"


def test_a_hint_of_a_higher_pair_fences_and_cancels() -> None:
    harness = uploading()
    harness.advance(local(100))
    harness.step(ev.HeadSeen(Pair(1, 2)))
    assert harness.role.state is State.FENCED
    assert fx.CancelCalls() in harness.said
    assert harness.role.committed_end is None


@pytest.mark.parametrize("pair", [Pair(1, 1), Pair(0, 9)], ids=["own", "lower"])
def test_a_hint_of_no_higher_pair_is_nothing(pair: Pair) -> None:
    harness = uploading()
    harness.step(ev.HeadSeen(pair))
    assert harness.role.state is State.UPLOADING


def test_an_idle_master_finds_out_by_itself() -> None:
    harness = uploading()
    harness.claimed_by(2)
    harness.wait(5_000)
    harness.run()
    assert harness.role.state is State.FENCED


def test_a_commit_that_meets_a_higher_pair_is_fenced() -> None:
    harness = uploading()
    harness.advance(local(100))
    harness.run(until=fx.CreateVersion)
    harness.claimed_by(2)
    harness.run()
    assert harness.role.state is State.FENCED
    assert isinstance(harness.asked[-1], fx.ReadVersion), "at first sight"
    assert harness.bucket.state().end == 0


def test_a_fenced_role_comes_back_by_a_promotion_above_who_fenced_it() -> None:
    harness = uploading()
    harness.step(ev.HeadSeen(Pair(4, 1)))
    harness.advance(local(100))
    harness.wait(10_000)
    assert harness.call is None
    harness.promote(3, local(100))
    assert harness.role.state is State.FENCED
    assert harness.call is None
    harness.promote(5, local(0, who=lineage((5, 0))))
    assert harness.role.state is State.CLAIMING


def test_a_fenced_role_that_is_demoted_stands_by() -> None:
    harness = uploading()
    harness.step(ev.HeadSeen(Pair(4, 1)))
    harness.step(ev.Demoted())
    assert harness.role.state is State.STANDBY


# ---- reconciling


def successor(harness: Harness, log_size: int = 1_000) -> Harness:
    return Harness(harness.bucket, seed=1, size=log_size)


def test_a_successor_goes_on_where_the_tier_ends() -> None:
    new = successor(with_tier(50))
    new.promote(2, local(80, confirm=60, who=lineage((1, 0), (2, 60))))
    new.run(until=fx.ReadTail)
    assert new.role.state is State.RECONCILING
    assert new.role.committed_end is None
    new.run()
    assert new.role.state is State.UPLOADING
    new.wait(1_000)
    new.run()
    state = new.bucket.state()
    assert state.end == 60
    assert [(entry.lo, entry.hi) for entry in state.packs][-1] == (50, 60)
    new.advance(local(80, who=lineage((1, 0), (2, 60))))
    new.wait(1_000)
    new.run()
    assert [(one.epoch, one.start_offset) for one in new.bucket.state().lineage] == [
        (1, 0),
        (2, 60),
    ]


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (local(80, log_start=60), ["ends at 50", "starts at 60"]),
        (local(40), ["ends at 50", "ends at 40", "lacks"]),
        (
            local(80, who=lineage((1, 0), (2, 40))),
            ["epoch 1 from 0", "epoch 2 from 40", "different histories"],
        ),
    ],
    ids=["log_start", "end", "lineage"],
)
def test_a_log_that_does_not_continue_the_tier_halts(log: object, words: list[str]) -> None:
    new = successor(with_tier(50))
    new.promote(3, log)  # type: ignore[arg-type]
    new.run()
    assert new.role.state is State.HALTED
    assert all(word in new.role.status.reason for word in words)
    assert new.role.committed_end is None


def test_a_different_last_record_halts() -> None:
    new = successor(with_tier(50))
    new.log = bytes(1_000)
    new.promote(2, local(80, who=lineage((1, 0), (2, 80))))
    new.run()
    assert new.role.state is State.HALTED
    assert "record at 40" in new.role.status.reason


def test_a_log_that_begins_at_the_tiers_end_has_nothing_to_compare() -> None:
    new = successor(with_tier(50))
    new.promote(2, local(80, confirm=50, log_start=50, who=lineage((1, 0), (2, 80))))
    new.run()
    assert new.role.state is State.UPLOADING


def test_a_log_that_begins_at_the_last_record_is_compared() -> None:
    new = successor(with_tier(50))
    new.promote(2, local(80, confirm=50, log_start=40, who=lineage((1, 0), (2, 80))))
    new.run(until=fx.ReadTail)
    assert isinstance(new.call, fx.ReadTail)
    assert (new.call.at, new.call.size) == (40, 10)


def test_a_lineage_that_begins_later_is_compared_from_there() -> None:
    """A replica that began with an empty log knows the line it begins in, and none before."""
    old = with_tier(50)
    who = lineage((1, 0), (2, 50))
    old.promote(2, local(90, who=who))
    old.run()
    old.wait(1_000)
    old.run()
    assert old.role.chain.end == 90
    new = successor(old)
    new.promote(3, local(90, confirm=90, log_start=60, who=lineage((2, 50), (3, 90))))
    new.run()
    assert new.role.state is State.UPLOADING


def test_an_epoch_that_wrote_nothing_does_not_count() -> None:
    """(2, 50) never wrote; (3, 50) replaced it, and the tier below 50 knows neither."""
    new = successor(with_tier(50))
    new.promote(3, local(50, who=lineage((1, 0), (3, 50))))
    new.run()
    assert new.role.state is State.UPLOADING


@pytest.mark.parametrize(
    "event",
    [
        ev.Promoted(Pair(9, 1), local(80)),
        ev.Demoted(),
        ev.HeadSeen(Pair(9, 9)),
        ev.LogAdvanced(local(90)),
        ev.Timer(),
    ],
    ids=["promoted", "demoted", "seen", "advanced", "timer"],
)
def test_halted_is_for_a_person(event: ev.Event) -> None:
    new = successor(with_tier(50))
    new.promote(2, local(40))
    new.run()
    new.now_ms += 100_000
    new.step(event)
    assert new.role.state is State.HALTED
    assert new.call is None


def test_a_version_that_is_missing_in_between_is_waited_for() -> None:
    """A claim above it would make the hole last; an answer that was wrong once would end it all."""
    harness = Harness()
    for epoch in (1, 2, 3):
        harness.claimed_by(epoch)
    sound = harness.bucket.versions.pop(2)
    harness.promote(4, local(0))
    for _ in range(3):
        harness.run()
        assert harness.role.state is State.BACKOFF
        assert "version 2 of the manifest is missing" in harness.role.status.reason
        harness.wait(100_000)
    assert harness.role.status.stalled
    assert 4 not in harness.bucket.versions
    harness.bucket.versions[2] = sound
    harness.run()
    harness.wait(100_000)
    harness.run()
    assert harness.role.state is State.UPLOADING
    assert harness.bucket.state().pair == Pair(4, 1)


def test_a_hole_that_another_reader_has_passed_is_waited_for_no_more() -> None:
    """A rule of the bucket removed what was read and more; who began anew knows what is left."""
    old = with_tier(120)
    new = successor(old)
    claimed, *rest = map(old.bucket.read, range(1, old.role.chain.v + 1))
    known = advance(empty(PLACE), [claimed])
    new.step(ev.HeadSeen(known.pair, known))
    for v in range(1, old.role.chain.v):
        del old.bucket.versions[v]
    new.promote(2, local(150, log_start=20, who=lineage((1, 0), (2, 120))))
    new.run()
    assert "is missing" in new.role.status.reason
    left = advance(before(empty(PLACE), rest[-1]), rest[-1:])
    new.step(ev.HeadSeen(left.pair, left))
    for _ in range(3):
        new.wait(100_000)
        new.run()
    assert new.role.state is State.UPLOADING, new.role.status.reason
    assert new.role.committed_end == 150
    assert new.role.chain.base == left.base


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_chain_whose_oldest_versions_were_removed_is_gone_on_with(kept: int) -> None:
    """Claim, append, append: any of them may be the oldest one that is left."""
    old = with_tier(120)
    for v in range(1, old.role.chain.v + 1 - kept):
        del old.bucket.versions[v]
    new = successor(old)
    new.promote(2, local(150, log_start=20, who=lineage((1, 0), (2, 120))))
    new.run()
    new.wait(1_000)
    new.run()
    assert new.role.state is State.UPLOADING, new.role.status.reason
    assert new.role.committed_end == 150
    assert new.role.chain.lineage[-1].start_offset == 120


def test_another_history_is_seen_also_without_the_oldest_versions() -> None:
    old = with_tier(120)
    for v in (1, 2):
        del old.bucket.versions[v]
    new = successor(old)
    new.promote(3, local(150, who=lineage((2, 0), (3, 120))))
    new.run()
    assert new.role.state is State.HALTED
    assert "different histories" in new.role.status.reason


# ---- packs


def test_nothing_beyond_confirm_or_flushed_is_asked_for() -> None:
    harness = uploading()
    harness.advance(local(500, confirm=120, flushed=130))
    assert isinstance(harness.call, fx.CutPack)
    assert (harness.call.lo, harness.call.limit) == (0, 120)
    harness.run()
    harness.advance(local(500, confirm=400, flushed=130))
    harness.wait(1_000)
    assert isinstance(harness.call, fx.CutPack)
    assert (harness.call.lo, harness.call.limit) == (100, 130)


def test_a_pack_waits_for_enough_bytes_or_long_enough() -> None:
    harness = uploading()
    harness.advance(local(90))
    assert harness.call is None
    harness.wait(999)
    assert harness.call is None
    harness.advance(local(99))
    assert harness.call is None, "the oldest byte counts, not the newest"
    harness.wait(1)
    assert isinstance(harness.call, fx.CutPack)


def test_a_timer_that_comes_early_is_armed_again() -> None:
    harness = uploading()
    harness.advance(local(90))
    armed = [effect for effect in harness.said if isinstance(effect, fx.ArmTimer)]
    harness.now_ms += 990
    harness.step(ev.Timer())
    assert harness.call is None
    again = [effect for effect in harness.said if isinstance(effect, fx.ArmTimer)]
    assert again == [*armed, fx.ArmTimer(1_000)]


def test_confirmed_bytes_that_are_not_flushed_here_do_not_count() -> None:
    harness = uploading()
    harness.advance(local(500, confirm=400, flushed=0))
    harness.wait(1_000)
    assert harness.call is None


def test_what_is_left_after_a_pack_waits_anew() -> None:
    harness = uploading()
    harness.advance(local(90))
    harness.wait(600)
    harness.advance(local(150))
    harness.run()
    assert harness.role.chain.end == 100
    harness.wait(400)
    assert harness.call is None
    harness.wait(600)
    assert isinstance(harness.call, fx.CutPack)


def test_enough_bytes_do_not_wait() -> None:
    harness = uploading()
    harness.advance(local(250))
    harness.run()
    assert [(entry.lo, entry.hi) for entry in harness.bucket.state().packs] == [
        (0, 100),
        (100, 200),
    ]


def test_a_commit_names_the_pack_the_end_and_the_last_record() -> None:
    harness = with_tier(50)
    version = harness.bucket.read(2)
    assert isinstance(version, Append)
    assert (version.start, version.end) == (0, 50)
    assert version.tail is not None
    assert version.tail.at == 40
    assert version.lineage_add == [(1, 0)]
    assert harness.role.committed_end == 50
    heads = [effect.head for effect in harness.said if isinstance(effect, fx.Committed)]
    assert [(head.v, head.end) for head in heads] == [(1, 0), (2, 50)]


def test_a_failed_pack_is_cut_again_under_another_key() -> None:
    harness = uploading()
    harness.advance(local(100))
    harness.run(until=fx.StorePack)
    harness.apply()
    first = harness.fail()
    assert harness.role.state is State.BACKOFF
    harness.wait(300)
    harness.run()
    assert isinstance(first, fx.StorePack)
    entries = harness.bucket.state().packs
    assert [(entry.lo, entry.hi) for entry in entries] == [(0, 100)]
    assert entries[0].key != first.key
    assert len(harness.bucket.packs) == 2, "the first one is an orphan"


def test_a_pack_of_doubtful_outcome_is_looked_for() -> None:
    harness = uploading()
    harness.advance(local(100))
    harness.run(until=fx.StorePack)
    harness.apply()
    harness.end(ev.Maybe)
    assert isinstance(harness.call, fx.FindPack)
    harness.run()
    assert harness.role.chain.end == 100
    assert len(harness.bucket.packs) == 1


def test_a_pack_that_is_not_there_is_cut_again() -> None:
    harness = uploading()
    harness.advance(local(100))
    harness.run(until=fx.StorePack)
    harness.end(ev.Maybe)
    harness.answer()
    assert harness.role.state is State.BACKOFF
    harness.wait(300)
    harness.run()
    assert harness.role.chain.end == 100


def test_a_damaged_local_log_halts() -> None:
    harness = uploading()
    harness.advance(local(100))
    harness.end(lambda ticket: ev.CallRefused(ticket, "The log holds no sound record at 30."))
    assert harness.role.state is State.HALTED
    assert harness.bucket.packs == {}


# ---- local trimming


def test_a_replica_trims_by_its_masters_head_and_a_master_by_its_own() -> None:
    hint = ChainHead(v=9, pair=Pair(1, 1), end=Offset(70))
    replica = Harness().role
    assert replica.end_for_trim(None) is None
    assert replica.end_for_trim(hint) == 70
    assert with_tier(50).role.end_for_trim(hint) == 50


def test_nobody_trims_while_it_is_fenced_or_has_not_compared() -> None:
    hint = ChainHead(v=9, pair=Pair(2, 1), end=Offset(70))
    fenced = with_tier(50)
    fenced.step(ev.HeadSeen(hint.pair))
    assert fenced.role.end_for_trim(hint) is None
    claiming = Harness()
    claiming.promote(1, local(0))
    assert claiming.role.end_for_trim(hint) is None


# ---- back-off and alarm


def test_waiting_grows_and_ends_with_a_success() -> None:
    harness = Harness()
    harness.promote(1, local(0))
    waits = []
    for _ in range(8):
        before = harness.now_ms
        harness.fail()
        assert harness.role.state is State.BACKOFF
        armed = [effect.at_ms for effect in harness.said if isinstance(effect, fx.ArmTimer)][-1]
        assert armed is not None
        waits.append(armed - before)
        harness.wait(waits[-1])
    assert waits == sorted(waits)
    assert waits[0] == 200
    assert waits[-1] <= 2_000
    harness.run()
    harness.wait(5_000)
    harness.fail()
    armed = [effect.at_ms for effect in harness.said if isinstance(effect, fx.ArmTimer)][-1]
    assert armed == harness.now_ms + 200


def test_a_wait_is_not_cut_short() -> None:
    harness = uploading()
    harness.advance(local(100))
    harness.fail()
    harness.now_ms += 199
    harness.step(ev.Timer())
    assert harness.role.state is State.BACKOFF
    assert harness.call is None


def test_after_a_wait_the_head_is_read_again() -> None:
    harness = uploading()
    harness.advance(local(100))
    harness.fail()
    harness.wait(300)
    assert isinstance(harness.call, fx.ReadVersions)
    assert harness.role.state is State.UPLOADING


def test_a_store_that_stays_away_raises_an_alarm_once_and_takes_it_back() -> None:
    harness = uploading()
    harness.advance(local(100))
    while harness.now_ms < 11_000:
        if harness.call is not None:
            harness.fail()
        harness.wait(100)
    assert harness.role.status.stalled
    assert "503" in harness.role.status.reason or harness.call is not None
    while harness.role.state is not State.UPLOADING or harness.call is not None:
        harness.run()
        harness.wait(100)
    assert not harness.role.status.stalled


def test_a_call_that_never_ends_raises_the_alarm_too() -> None:
    harness = uploading()
    harness.advance(local(100))
    harness.said.clear()
    harness.step(ev.LogAdvanced(local(110)))
    harness.now_ms = 10_000
    harness.step(ev.Timer())
    assert harness.role.status.stalled
    armed = [effect for effect in harness.said if isinstance(effect, fx.ArmTimer)]
    assert armed == [], "a timer in the past would come for ever"


def test_nothing_to_do_is_no_reason_for_an_alarm() -> None:
    harness = uploading()
    for _ in range(20):
        harness.wait(5_000)
        harness.run()
    assert not harness.role.status.stalled
    harness.now_ms += 60_000
    harness.advance(local(50))
    assert not harness.role.status.stalled, "the wait begins with the work"


def test_progress_however_slow_is_no_reason_for_an_alarm() -> None:
    harness = uploading()
    for _ in range(8):
        harness.advance(local(1_000))
        harness.run(until=fx.ListAfter)
        harness.now_ms += 3_000
        harness.answer()
    assert harness.now_ms > 20_000
    assert not harness.role.status.stalled


# ---- a tier that another group took over


def taken() -> Harness:
    """As ``with_tier``, until another group takes the tier."""
    harness = with_tier(90)
    state = harness.bucket.state()
    version = take(state, owner="new", writer="w", nonce="f" * 32, at_ms=1)
    harness.bucket.versions[version.v] = encode(version)
    return harness


def test_a_take_fences_who_uploads() -> None:
    harness = taken()
    harness.advance(local(200))
    harness.wait(1_000)
    harness.run()
    assert harness.role.state is State.FENCED
    assert harness.bucket.state().owner == "new"


@pytest.mark.parametrize("epoch", [TAKE_EPOCHS + 5, 3 * TAKE_EPOCHS])
def test_no_later_master_of_the_former_group_claims(epoch: int) -> None:
    bucket = taken().bucket
    former = Harness(bucket, seed=7)
    former.promote(epoch, local(90, who=lineage((1, 0), (epoch, 90))))
    former.run()
    assert former.role.state is State.HALTED
    assert f"belongs to group new, not to {PLACE.uid}" in former.role.status.reason
    assert bucket.state().v == max(bucket.versions) == bucket.state().taken_v


def test_the_group_that_took_it_goes_on() -> None:
    bucket = taken().bucket
    epoch = bucket.state().pair.epoch + 1
    new = Harness(bucket, seed=7, owner="new")
    new.promote(epoch, local(90, who=lineage((1, 0), (epoch, 90))))
    new.run()
    assert new.role.state is State.UPLOADING
    assert new.role.chain.end == 90


def test_a_claim_that_lost_its_slot_to_a_take_is_not_made_again() -> None:
    bucket = with_tier(90).bucket
    former = Harness(bucket, seed=7)
    epoch = 2 * TAKE_EPOCHS
    former.promote(epoch, local(90, who=lineage((1, 0), (epoch, 90))))
    former.run(until=fx.CreateVersion)
    version = take(bucket.state(), owner="new", writer="w", nonce="f" * 32, at_ms=1)
    bucket.versions[version.v] = encode(version)
    former.run()
    assert former.role.state is State.HALTED
    assert bucket.state().taken_v == max(bucket.versions)
